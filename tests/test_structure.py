"""Data flow one way: a module imports only what comes before it."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ORDER = (
    "errors", "isa", "markdown", "memory", "progress", "retrials", "scheme", "oracle", "quantization", "operators", "claims",
    "constraints", "models", "probes", "cases", "pipeline", "trace", "bridge", "engines", "golden", "rows", "details",
    "tolerances", "comparison", "checks", "ledger", "judge", "isolation", "search", "strategies", "quantizers",
    "enforcement", "forms", "exhibits", "laws", "instructions", "latency", "timings", "benchmarks", "measuring",
    "generated", "session", "summary", "show", "snippets",
    "counterexample", "lawbreaking", "repro", "trials", "upkeep", "gaps", "plugin", "test_conformance",
    "test_constraints", "test_laws", "test_operators", "test_benchmarks", "__main__",
)  # fmt: skip
"""Modules and packages of `conformance`, each of which may import the ones before it."""

FX_API = (
    "prepare_fx",
    "prepare_qat_fx",
    "convert_fx",
    "convert_to_reference_fx",
    "_convert_to_reference_decomposed_fx",
    "fuse_fx",
)


def imported(path: Path) -> set[str]:
    """Names of the modules of `conformance` that a file imports, at its top or inside a function."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            within = path.parent == ROOT / "conformance"
            if node.level == (1 if within else 2):
                names |= {node.module.split(".")[0]} if node.module else {alias.name for alias in node.names}
            elif node.module == "conformance":
                names |= {alias.name for alias in node.names}
            elif node.module and node.module.startswith("conformance."):
                names.add(node.module.split(".")[1])
    return names - {"__version__"}


def test_reports_come_after_everything_but_the_command_line() -> None:
    """Everything shown is rendered from files: what makes rows knows nothing of it."""
    for name, path in modules():
        assert name == "__main__" or "from reports" not in path.read_text(), f"{path.name} imports reports"
    late = {"plugin", "__main__", *(name for name in ORDER if name.startswith("test_"))}
    for path in sorted((ROOT / "reports").rglob("*.py")):
        assert not imported(path) & late, f"{path.relative_to(ROOT)} imports {', '.join(sorted(imported(path) & late))}"


def modules() -> list[tuple[str, Path]]:
    paths = sorted((ROOT / "conformance").rglob("*.py"))
    return [(path.relative_to(ROOT / "conformance").parts[0].removesuffix(".py"), path) for path in paths]


@pytest.mark.parametrize(("name", "path"), [(n, p) for n, p in modules() if n != "__init__"])
def test_a_module_imports_only_earlier_ones(name: str, path: Path) -> None:
    later = {other for other in imported(path) if ORDER.index(other) > ORDER.index(name)}
    assert not later, f"{path.relative_to(ROOT)} imports {', '.join(sorted(later))}"


def test_every_module_has_its_place_in_the_order() -> None:
    assert {name for name, _ in modules()} - {"__init__"} == set(ORDER)


def test_configs_do_not_know_the_suite() -> None:
    for path in (ROOT / "configs").glob("*.py"):
        assert "conformance" not in path.read_text().replace("conformance suite", "")


def test_only_the_pipeline_calls_the_fx_api() -> None:
    for name, path in modules():
        called = {
            node.func.id
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in FX_API
        }
        assert not called or name == "pipeline", f"{path.name} calls {', '.join(sorted(called))}"
