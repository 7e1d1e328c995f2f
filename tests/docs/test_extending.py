"""The recipes of docs/extending.md, each followed in a copy of the tree."""

import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from forking import Ending, run_module

ROOT = Path(__file__).parents[2]
RECIPES = ROOT / "docs" / "extending.md"
NOT_COPIED = (
    ".git",
    ".tox",
    ".*_cache",
    ".hypothesis",
    ".benchmarks",
    "__pycache__",
    "*.egg-info",
    "build",
    "dist",
    "out",
)
"""Names that are no part of the tree: what git ignores, and git's own."""

BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass
class Followed:
    """A recipe that was followed: what its commands printed, the rows they wrote, and the files that changed."""

    tree: Path
    outputs: list[Ending] = field(default_factory=list)
    changed: set[str] = field(default_factory=set)

    @property
    def rows(self) -> list[dict[str, Any]]:
        lines = [line for path in (self.tree / "reports/out").glob("*.jsonl") for line in path.read_text().splitlines()]
        return [row for row in map(json.loads, lines) if row["kind"] == "row"]


def section(title: str) -> str:
    """Text of a recipe, from its heading to the next one."""
    _, found, rest = RECIPES.read_text(encoding="utf-8").partition(f"\n## {title}\n")
    assert found, f"{RECIPES} has no recipe {title!r}"
    return rest.partition("\n## ")[0]


def create(tree: Path, text: str) -> None:
    """Create the file that the first line names."""
    name = text.partition("\n")[0].removeprefix("# ")
    with (tree / name).open("x", encoding="utf-8") as file:
        file.write(text.partition("\n")[2])


def patch(tree: Path, text: str) -> None:
    """Replace the only place of the context and `-` lines of a diff without line numbers by its context and `+` lines."""
    name, *lines = text.splitlines()
    path = tree / name.removeprefix("+++ ")
    before, after = ("".join(f"{line[1:]}\n" for line in lines if line[:1] in marks) for marks in (" -", " +"))
    content = path.read_text(encoding="utf-8")
    assert content.count(before) == 1, f"{path.name} has {content.count(before)} places with\n{before}"
    path.write_text(content.replace(before, after), encoding="utf-8")


def run(tree: Path, command: str) -> Ending:
    """Run a command line in the tree: `python -m module …`, which may redirect its output, or another program."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "PYTHONPATH"))}
    line, _, redirected = command.partition(" > ")
    words = shlex.split(line)
    if words[:2] != ["python", "-m"]:
        done = subprocess.run(words, cwd=tree, env=environment, capture_output=True, text=True, check=False)
        return Ending(done.returncode, done.stdout, done.stderr)
    ending = run_module(words[2], words[3:], tree, environment)
    if redirected:
        (tree / redirected).write_text(ending.output, encoding="utf-8")
    return ending


def contents(tree: Path) -> dict[str, bytes]:
    """Content of every file of a tree, by its path. Links are not followed."""
    ignored = shutil.ignore_patterns(*NOT_COPIED)
    result = {}
    for folder, folders, files in os.walk(tree):
        folders[:] = sorted(set(folders) - ignored(folder, folders))
        for name in set(files) - ignored(folder, files):
            path = Path(folder, name)
            result[path.relative_to(tree).as_posix()] = path.read_bytes()
    return result


@pytest.fixture
def follow(tmp_path: Path) -> Callable[[str], Followed]:
    def followed(title: str) -> Followed:
        tree = tmp_path / "tree"
        shutil.copytree(ROOT, tree, symlinks=True, ignore=shutil.ignore_patterns(*NOT_COPIED))
        before, recipe = contents(tree), Followed(tree)
        for language, text in BLOCK.findall(section(title)):
            if language == "sh":
                recipe.outputs += [run(tree, command) for command in text.splitlines()]
            else:
                {"python": create, "diff": patch}[language](tree, text)
        after = contents(tree)
        recipe.changed = {name for name in {*before, *after} if before.get(name) != after.get(name)}
        return recipe

    return followed


def test_an_operator_is_a_row_of_a_table(follow: Callable[[str], Followed]) -> None:
    recipe = follow("Add an operator")
    assert recipe.changed == {"softplus.py", "conformance/cases/operators/elementwise.py"}
    assert recipe.rows
    assert {row["pattern"] for row in recipe.rows} == {"nn.Softplus"}
    assert {row["detail"] for row in recipe.rows} == {"lowered: ran in float: aten.softplus"}
    assert {"default", "beta_2.0", "keyword", "large"} <= {row["variant"] for row in recipe.rows}
    (suite,) = recipe.outputs
    assert suite.status == 1, suite.output


def test_a_backend_is_a_module_and_a_row(follow: Callable[[str], Followed]) -> None:
    recipe = follow("Add a backend")
    assert recipe.changed == {"configs/edge.py", "configs/engines.py"}
    claims, goldens, suite = recipe.outputs
    assert claims.output.splitlines()[0] == "edge: 4 patterns, 4 claims"
    assert goldens.status == 0, goldens.output
    assert "all as stored" in goldens.output
    assert suite.status == 0, suite.output
    assert {(row["id"], row["verdict"]) for row in recipe.rows} == {
        (f"edge/nn.Linear/static-quint8/ptq/default/{profile}@qnnpack", "conforms") for profile in ("exact", "typical")
    }


def test_a_library_that_quantizes_in_place_is_a_module_and_a_row(follow: Callable[[str], Followed]) -> None:
    recipe = follow("Add a library that quantizes in place")
    assert recipe.changed == {"rowwise.py", "configs/rowwise.py", "configs/engines.py"}
    claims, refused, suite = recipe.outputs
    assert claims.output.splitlines()[0] == "rowwise: 1 patterns, 6 claims"
    assert refused.status == 1, refused.output
    assert "2 failed, 2 passed" in refused.output
    assert "default/exact@torch-eager: stable: state_dict raises UnpicklingError" in refused.output
    assert suite.status == 0, suite.output
    assert {(row["id"].rpartition("/")[2], row["verdict"]) for row in recipe.rows} == {
        (run, "conforms")
        for run in ("exact@torch-eager", "typical@torch-eager", "exact@torch-compiled", "exact@torch-frozen")
    }


def test_an_engine_is_a_module_and_a_row(follow: Callable[[str], Followed]) -> None:
    recipe = follow("Add an engine")
    assert recipe.changed == {"conformance/engines/mirror.py", "configs/engines.py"}
    (suite,) = recipe.outputs
    assert suite.status == 0, suite.output
    assert {(row["engine"], row["verdict"]) for row in recipe.rows} == {("mirror", "conforms")}
    assert all("quantized.linear" in row["kernels"] for row in recipe.rows)


def test_a_check_is_a_module_and_a_row(follow: Callable[[str], Followed]) -> None:
    recipe = follow("Add a check")
    assert recipe.changed == {
        "conformance/checks/finite.py",
        "conformance/results/profiles.py",
        "conformance/results/rows.schema.json",
    }
    assert [output.status for output in recipe.outputs] == [0, 0, 0], [output.errors for output in recipe.outputs]
    assert recipe.rows
    assert {row["checks"]["finite"] for row in recipe.rows} == {"pass"}


def test_every_recipe_has_a_test() -> None:
    titles = re.findall(r"^## (.*)$", RECIPES.read_text(encoding="utf-8"), re.MULTILINE)
    followed = re.findall(r'follow\("(.*)"\)', Path(__file__).read_text(encoding="utf-8"))
    assert sorted(titles) == sorted(followed)


def test_a_diff_that_fits_nowhere_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "table.py").write_text("ROWS = [\n    1,\n]\n")
    patch(tmp_path, "+++ table.py\n     1,\n+    2,\n")
    assert (tmp_path / "table.py").read_text() == "ROWS = [\n    1,\n    2,\n]\n"
    with pytest.raises(AssertionError, match="0 places"):
        patch(tmp_path, "+++ table.py\n     3,\n+    4,\n")
