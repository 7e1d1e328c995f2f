"""The wheel, the editable install and the symbolic links: all code is under `conformance`, with its data."""

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml
from forking import run_module
from packaging.requirements import Requirement
from workflow_steps import Runner

from conformance.errors import EXTRAS

pytestmark = pytest.mark.xdist_group("wheel")  # one worker: its fixtures take seconds
ROOT = Path(__file__).parent.parent
OWN_ENGINE = ROOT / "docs" / "own-engine.md"
LINKS = ("configs", "reports", "golden")
RUN = "fbgemm/nn.Linear/static-quint8/ptq/default/exact@x86"
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q"]
OFFLINE = ["--no-deps", "--no-index"]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def run(*command: str | Path, folder: Path, packages: Path | None = None) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "PYTHONPATH"))}
    if packages is not None:
        environment["PYTHONPATH"] = str(packages)
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def succeed_in_a_fork(module: str, *arguments: str, folder: Path, packages: Path) -> str:
    """The output of `python -m module`, which has to succeed with these packages on the path."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    ending = run_module(module, arguments, folder, {**environment, "PYTHONPATH": str(packages)})
    output: str = ending.output
    assert ending.status == 0, output + ending.errors
    return output


def succeed(*command: str | Path, folder: Path, packages: Path | None = None) -> str:
    done = run(*command, folder=folder, packages=packages)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what is built: setuptools leaves files in the folder that it builds from."""
    folder = tmp_path_factory.mktemp("project")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    ignored = shutil.ignore_patterns("__pycache__", "out", "*.egg-info")
    for name in ("conformance", *LINKS):
        shutil.copytree(ROOT / name, folder / name, symlinks=True, ignore=ignored)
    return folder


@pytest.fixture(scope="module")
def wheel(project: Path) -> Path:
    built = project / "dist"
    succeed(*PIP, "wheel", *OFFLINE, "--no-build-isolation", "-w", built, ".", folder=project)
    (path,) = built.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def source_distribution(project: Path) -> Path:
    build = "from setuptools import build_meta; build_meta.build_sdist('dist')"
    succeed(sys.executable, "-c", build, folder=project)
    (path,) = (project / "dist").glob("*.tar.gz")
    return path


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    succeed(*PIP, "install", *OFFLINE, "--target", folder, wheel, folder=folder)
    return folder


def test_the_wheel_holds_every_module_and_all_data_under_one_name(wheel: Path) -> None:
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert all(name.startswith("conformance/") for name in names)
    folders = {name: ROOT / name for name in LINKS} | {"": ROOT / "conformance"}
    expected = {
        "/".join(filter(None, ("conformance", prefix, path.relative_to(folder).as_posix())))
        for prefix, folder in folders.items()
        for path in folder.rglob("*")
        if path.is_file() and not {"__pycache__", "out"} & {*path.relative_to(folder).parts}
    }
    assert names == expected


def test_a_package_index_accepts_both_distributions(wheel: Path, source_distribution: Path) -> None:
    output = succeed(
        sys.executable, "-m", "twine", "check", "--strict", wheel, source_distribution, folder=wheel.parent
    )
    assert output.count("PASSED") == 2


def test_the_source_distribution_holds_the_same_files(source_distribution: Path, wheel: Path) -> None:
    """An archive has no symbolic links: the linked folders are in it as folders of the package."""
    with tarfile.open(source_distribution) as archive:
        members = [member for member in archive.getmembers() if not member.isdir()]
    assert all(member.isfile() for member in members)
    names = {member.name.partition("/")[2] for member in members}
    expected = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert {name for name in names if name.startswith("conformance/")} == expected
    assert {"pyproject.toml", "README.md", "LICENSE"} <= names


def test_what_is_missing_is_installed_as_the_extras_say() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert {name: tuple(of) for name, of in project["optional-dependencies"].items()} == EXTRAS


def test_a_starter_requires_the_wheel_that_is_installed(installed: Path, wheel: Path, tmp_path: Path) -> None:
    """pip records the file and its hash; a wheel that is named is required in the same form."""
    (text,) = (text for language, text in BLOCK.findall(OWN_ENGINE.read_text()) if text.startswith("# edge.py\n"))
    (tmp_path / "edge.py").write_text(text)
    for folder, suite in (("one", []), ("other", ["--suite", str(wheel)])):
        options = [folder, "--backend-config", "edge:CONFIG", "--engine", "edge:Edge", *suite]
        succeed_in_a_fork("conformance", "init", *options, folder=tmp_path, packages=installed)
        written = (tmp_path / folder / "quantized" / "tox.ini").read_text()
        digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
        assert f"quantized-backend-conformance @ {wheel.as_uri()}#sha256={digest}\n" in written


def test_the_installed_command_line_lists_claims(installed: Path, tmp_path: Path) -> None:
    output = succeed_in_a_fork("conformance", "claims", "--backend", "fbgemm", folder=tmp_path, packages=installed)
    assert output.startswith("fbgemm: 192 patterns, 225 claims\n")


def test_the_installed_suite_runs_a_case_with_pytest(installed: Path, tmp_path: Path) -> None:
    options = ["--pyargs", "conformance", "-q", "--case", RUN]
    output = succeed_in_a_fork("pytest", *options, folder=tmp_path, packages=installed)
    assert "1 passed" in output
    assert "x86: 1 runs: 1 conforms; 0 in the ledger" in output
    assert [*(tmp_path / "reports" / "out").glob("*-selection.jsonl")]


def test_the_guide_to_engines_holds_in_an_empty_folder(installed: Path, tmp_path: Path) -> None:
    """Each block of Python creates the file that its first line names; each line of shell is a command that succeeds."""
    outputs = []
    for language, text in BLOCK.findall((ROOT / "docs" / "own-engine.md").read_text(encoding="utf-8")):
        if language == "python":
            (tmp_path / text.partition("\n")[0].removeprefix("# ")).write_text(text)
        for command in text.splitlines() if language == "sh" else ():
            program, *arguments = shlex.split(command)
            assert program == "python"
            outputs.append(succeed(sys.executable, *arguments, folder=tmp_path, packages=installed))
    compiled, edge, swept, shown = outputs
    assert "compiled: 1 runs: 1 conforms" in compiled
    assert "edge: 245 runs: 244 conforms, 1 deviates; 1 in the ledger" in edge
    assert "edge: 2 runs: 2 conforms" in swept
    assert "quantized  edge.linear" in shown


THEIR_CONFTEST = """
def pytest_addoption(parser):
    parser.addoption("--backend", default="theirs")
"""
THEIR_TEST = """
import sys

def test_theirs(pytestconfig):
    assert pytestconfig.getoption("backend") == "ours"
    assert not {"torch", "hypothesis", "conformance.plugin.selecting"} & {*sys.modules}
    assert "conformance.plugin.entry" in sys.modules
"""


def test_an_installed_suite_leaves_other_tests_their_options(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(THEIR_CONFTEST)
    (tmp_path / "test_theirs.py").write_text(THEIR_TEST)
    options = ["-q", "-p", "no:hypothesispytest", "-p", "no:randomly", "test_theirs.py", "--backend", "ours"]
    done = run(sys.executable, "-m", "pytest", *options, folder=tmp_path, packages=installed)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_options_of_an_installed_suite_have_one_heading(installed: Path, tmp_path: Path) -> None:
    done = run(sys.executable, "-m", "pytest", "--pyargs", "conformance", "--help", folder=tmp_path, packages=installed)
    assert done.returncode == 0, done.stdout + done.stderr
    _, heading, rest = done.stdout.partition("\nconformance of quantized backends:\n")
    assert heading
    options = rest.partition("\n\n")[0]
    for name in ("--backend-config", "--engine", "--results", "--bench", "--shard"):
        assert f"  {name}" in options


def test_the_console_script_is_the_command_line(installed: Path, tmp_path: Path) -> None:
    script = installed / "bin" / "conformance"
    done = run(sys.executable, script, "lint", "--rules", folder=tmp_path, packages=installed)
    assert done.returncode == 0, done.stderr
    assert "pattern-missing (error)\n" in done.stdout


def test_the_installed_goldens_are_checked(installed: Path, tmp_path: Path) -> None:
    output = succeed_in_a_fork("conformance", "golden", "check", "--case", RUN, folder=tmp_path, packages=installed)
    assert output == "1 goldens recomputed: all as stored\n"


WHERE = """
import importlib.util, conformance.configs.registry, conformance.reports.html
print(conformance.configs.registry.__file__)
print([name for name in ("configs", "reports", "golden") if importlib.util.find_spec(name)])
"""


def test_nothing_installed_is_importable_at_the_top(installed: Path, tmp_path: Path) -> None:
    output = succeed(sys.executable, "-c", WHERE, folder=tmp_path, packages=installed)
    assert output.splitlines() == [str(installed / "conformance" / "configs" / "registry.py"), "[]"]


def test_an_editable_install_imports_from_the_checkout(project: Path, tmp_path: Path) -> None:
    packages, empty = tmp_path / "packages", tmp_path / "empty"
    empty.mkdir()
    options = [*OFFLINE, "--no-build-isolation", "--target", str(packages)]
    succeed(*PIP, "install", *options, "-e", ".", folder=project)
    code = f"import site; site.addsitedir({str(packages)!r})\n{WHERE}"
    output = succeed(sys.executable, "-c", code, folder=empty)
    assert output.splitlines() == [str(project / "conformance" / "configs" / "registry.py"), "[]"]


@pytest.mark.parametrize("name", LINKS)
def test_links_are_relative_to_the_checkout(name: str) -> None:
    assert (ROOT / "conformance" / name).readlink() == Path("..", name)


@pytest.mark.parametrize("name", LINKS)
def test_a_checkout_without_symbolic_links_is_refused_with_the_fix(name: str, tmp_path: Path) -> None:
    package = tmp_path / "conformance"
    package.mkdir()
    shutil.copy(ROOT / "conformance" / "__init__.py", package)
    (package / name).write_text(f"../{name}")
    done = run(sys.executable, "-c", "import conformance", folder=tmp_path)
    assert done.returncode == 1
    assert done.stderr.rstrip().rpartition("\n")[2] == (
        f"ImportError: conformance/{name} has to be a symbolic link to ../{name}, but is a file: run `git config "
        "core.symlinks true && git checkout -- conformance/configs conformance/reports conformance/golden`"
    )


def test_dependencies_and_groups_agree() -> None:
    """A group of tox cannot include the project's dependencies: both lists are written out."""
    document = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    project, groups = document["project"], document["dependency-groups"]
    dependencies = [name for name in project["dependencies"] if not name.startswith("torch")]
    extras = {
        name: [requirement for requirement in requirements if not requirement.startswith("torch")]
        for name, requirements in project["optional-dependencies"].items()
    }
    written = {
        name: [requirement for requirement in group if isinstance(requirement, str)] for name, group in groups.items()
    }
    assert written["run"] == dependencies
    # tox.ini has the versions of executorch, of which the extra has the default
    (executorch,) = (Requirement(name) for name in written.pop("executorch"))
    (default,) = (Requirement(name) for name in extras.pop("executorch"))
    (pinned,) = default.specifier
    assert executorch.name == default.name
    assert pinned.version in executorch.specifier
    assert f"{default.name}=={{env:EXECUTORCH_VERSION:{pinned.version}}}" in (ROOT / "tox.ini").read_text(
        encoding="utf-8"
    )
    assert {name: written[name] for name in extras} == extras
    assert [name for name in written["test"] if name.startswith("setuptools")] == ["setuptools>=77,<90"]


def test_the_steps_of_the_workflow_that_init_writes_run(installed: Path, tmp_path: Path) -> None:
    """In an empty repository with a config of its own and without a pyproject.toml, of which every job is run."""
    repository = tmp_path / "repository"
    repository.mkdir()
    (text,) = (text for language, text in BLOCK.findall(OWN_ENGINE.read_text()) if text.startswith("# edge.py\n"))
    (repository / "edge.py").write_text(text)
    theirs = ["--backend-config", "edge:CONFIG", "--engine", "edge:Edge", "--suite", "someone/suite@v1"]
    written = succeed_in_a_fork("conformance", "init", *theirs, folder=repository, packages=installed)
    called = yaml.safe_load((repository / written.splitlines()[-1]).read_text())["jobs"]["conformance"]
    assert called["uses"] == "someone/suite/.github/workflows/backend.yml@v1"
    inputs = {**called["with"], "options": f"{called['with']['options']} --case edge/*/default/*", "shards": "[1, 2]"}
    runner = Runner(repository, installed, tmp_path)
    outputs = dict(runner.run(ROOT / ".github" / "workflows" / "backend.yml", inputs))
    assert len(runner.artifacts["report"]) == 2
    assert (
        "edge: 1 of 1 claims work in default use" in outputs["run 1: Run the claims"] + outputs["run 2: Run the claims"]
    )
    lines = (tmp_path / "installed.txt").read_text().splitlines()
    suite = "quantized-backend-conformance @ git+https://github.com/someone/suite@v1"
    assert {line for line in lines if suite in line} == {
        f"-m uv pip install --system --torch-backend cpu {suite} .",
        f"-m uv pip install --system --torch-backend cpu {suite}",
    }
    assert "# Conformance" in (tmp_path / "summary.md").read_text()
