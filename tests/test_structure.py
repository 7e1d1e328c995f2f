"""The contract between packages: imports run one way."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

LAYERS = (
    ("errors", "markdown", "progress", "stopwatch", "paths", "configs"),
    ("host", "results", "oracle"),
    ("cases",),
    ("models",),
    ("engines",),
    ("goldens",),
    ("checks",),
    ("properties",),
    ("execution",),
    ("repro",),
    ("fuzz",),
    ("bench",),
    ("selection", "show", "terminal"),
    ("plugin",),
    ("test_conformance",),
    ("test_constraints", "test_laws", "test_operators", "test_benchmarks"),
    ("__main__",),
)
"""A package imports itself and those of earlier layers."""

REPORTS_READ = {"reports", "errors", "markdown", "progress", "paths", "results", "configs.engines", "bench.results"}
"""What `reports` imports; of the rest only the command line imports `reports`."""

FX_API = (
    "prepare_fx",
    "prepare_qat_fx",
    "convert_fx",
    "convert_to_reference_fx",
    "_convert_to_reference_decomposed_fx",
    "fuse_fx",
)

FILES = sorted(path for name in ("conformance", "configs", "reports") for path in (ROOT / name).rglob("*.py"))


def module_name(path: Path) -> str:
    """Name of a file as installed, below `conformance`."""
    name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    return name.removeprefix("conformance.") if name.startswith("conformance") else name


def imported(path: Path) -> Iterator[str]:
    """Names of the suite's modules that a file imports, at its top or inside a function."""
    package = [*("conformance." + module_name(path)).split(".")]
    if path.name != "__init__.py":
        package.pop()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = (
                ".".join([*package[: len(package) - node.level + 1], node.module or ""]) if node.level else node.module
            )
            names = [f"{str(base).rstrip('.')}.{alias.name}" for alias in node.names]
        else:
            continue
        yield from (name.removeprefix("conformance.") for name in names if name.startswith("conformance."))


def layer(name: str) -> int:
    return next(number for number, names in enumerate(LAYERS) if name.split(".")[0] in names)


def within(name: str, allowed: set[str]) -> bool:
    return any(name == one or name.startswith(f"{one}.") for one in allowed)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_module_imports_its_own_package_and_earlier_ones(path: Path) -> None:
    mine = module_name(path)
    package = mine.split(".")[0]
    for name in imported(path):
        if package == "reports":
            assert within(name, REPORTS_READ), f"{mine} imports {name}"
        elif name.split(".")[0] == "reports":
            assert package in ("__main__", "reports"), f"{mine} imports {name}"
        elif package != "conformance" and name != "__version__":
            other = name.split(".")[0]
            assert other == package or layer(other) < layer(package), f"{mine} imports {name}"


def test_every_package_has_a_layer() -> None:
    packages = {module_name(path).split(".")[0] for path in FILES} - {"conformance", "reports"}
    assert packages == {name for names in LAYERS for name in names}


def test_nothing_is_imported_by_another_name() -> None:
    """`configs` and `reports` are `conformance.configs` and `conformance.reports`, or each of them is there twice."""
    for path in (*FILES, *sorted((ROOT / "tests").rglob("*.py"))):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            modules = [node.module] if isinstance(node, ast.ImportFrom) and not node.level else []
            modules += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            assert not [name for name in modules if str(name).split(".")[0] in ("configs", "reports")], path


def test_reports_load_neither_torch_nor_hypothesis() -> None:
    modules = [f"conformance.{module_name(path)}" for path in FILES if module_name(path).startswith("reports.")]
    optional = ("exchange", "history", "regression", "speedup", "latency_html", "cli")  # read what `tox -e bench` has
    needed = [name for name in modules if name.rpartition(".")[2] not in optional]
    code = f"import sys, {', '.join(needed)}; print(*{{'torch', 'hypothesis'}} & {{*sys.modules}})"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("\n", "")


def test_only_one_module_calls_the_fx_api() -> None:
    for path in FILES:
        called = {
            node.func.id
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in FX_API
        }
        assert not called or module_name(path) == "models.fx", f"{path} calls {', '.join(sorted(called))}"


def test_no_regular_expression_reads_a_sentence() -> None:
    """Numbers and names come from findings. Sentences are what variables and attributes of these names have."""
    sentences = {"detail", "text", "said", "problem", "reason", "message"}
    for path in FILES:
        if module_name(path).split(".")[0] not in ("repro", "properties", "checks", "reports", "show", "terminal"):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func).startswith("re."):
                words = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
                words |= {part.attr for part in ast.walk(node) if isinstance(part, ast.Attribute)}
                assert not words & sentences, f"{path}:{node.lineno} applies {ast.unparse(node.func)} to a sentence"
