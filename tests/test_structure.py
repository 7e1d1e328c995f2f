"""The structure of the code: imports between packages run one way, modules and functions are short."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

LAYERS = (
    ("errors", "markdown", "progress", "stopwatch", "paths", "shortcuts", "suggestions", "templates", "configs"),
    ("host", "results", "oracle"),
    ("cases", "starter"),
    ("models",),
    ("networks", "engines", "goldens", "lint"),
    ("checks", "selection"),
    ("properties", "audit", "terminal"),
    ("execution", "bench"),
    ("repro", "migration", "show", "prediction"),
    ("repair", "fuzz"),
    ("trusted",),
    ("plugin", "commands"),
    (
        "test_conformance",
        "test_constraints",
        "test_laws",
        "test_codes",
        "test_operators",
        "test_benchmarks",
        "__main__",
    ),
)
"""A package imports itself and packages of earlier layers, and a leaf (the first layer) may import `errors`."""

REPORTS_IMPORT = {
    *("reports", "errors", "markdown", "progress", "paths", "suggestions", "templates", "results"),
    *("configs.engines", "configs.spelling", "bench.results", "bench.timings", "bench.verdicts"),
}
"""Modules that `reports` imports. Only the command line imports `reports`."""

CALLED = {"__main__", "plugin", "selection", "show", "terminal"}
"""Modules directly in `conformance` that people call, besides the tests of the suite."""

LEAVES = {"errors", "markdown", "progress", "stopwatch", "paths", "shortcuts", "suggestions", "templates"}

TABLES = {"tests/audit/causes.py": "minimal models, one for each cause in the ledger"}
"""Modules that may be longer than MOST_LINES, because they are tables."""

MOST_LINES = 400
MOST_LINES_OF_A_FUNCTION = 60

FX_API = (
    "prepare_fx",
    "prepare_qat_fx",
    "convert_fx",
    "convert_to_reference_fx",
    "_convert_to_reference_decomposed_fx",
    "fuse_fx",
)

WRITTEN = (
    ROOT / "conformance" / "known" / "scripts",
    ROOT / "configs" / "trusted",
    ROOT / "reports" / "out" / "found",
)
"""Folders of scripts and modules that the suite writes."""
FILES = sorted(
    path
    for name in ("conformance", "configs", "reports")
    for path in (ROOT / name).rglob("*.py")
    if path.parent not in WRITTEN
)
SIZED = (*FILES, *sorted((ROOT / "tests").rglob("*.py")))


def module_name(path: Path) -> str:
    """The name of a file's module as installed, without `conformance.`."""
    name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    return name.removeprefix("conformance.") if name.startswith("conformance") else name


def imported(path: Path, source: str | None = None) -> Iterator[str]:
    """Yield names that a file imports from the suite, at its top or inside a function, without `conformance.`."""
    source = path.read_text(encoding="utf-8") if source is None else source
    package = [*("conformance." + module_name(path)).split(".")]
    if path.name != "__init__.py":
        package.pop()
    for node in ast.walk(ast.parse(source)):
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


def may_import(importer: str, name: str) -> bool:
    """Whether the contract allows a module to import another one."""
    package, other = importer.split(".")[0], name.split(".")[0]
    if package == "reports":
        return any(name == allowed or name.startswith(f"{allowed}.") for allowed in REPORTS_IMPORT)
    if other == "reports":
        return package in ("commands", "__main__")
    if package == "conformance" or name == "__version__":
        return True
    siblings = other == "errors" or (package.startswith("test_") and other == "test_conformance")
    return other == package or layer(other) < layer(package) or siblings


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_module_imports_its_own_package_and_earlier_ones(path: Path) -> None:
    importer = module_name(path)
    assert [name for name in imported(path) if not may_import(importer, name)] == []


@pytest.mark.parametrize(
    ("importer", "name", "allowed"),
    [
        ("checks.judge", "checks.stages.prepare", True),
        ("checks.judge", "goldens.store.Store", True),
        ("goldens.store", "checks.judge.Judge", False),
        ("models.build", "models.fx", True),
        ("suggestions", "errors.UsageError", True),
        ("suggestions", "markdown.plain", False),
        ("reports.html", "results.rows.Row", True),
        ("reports.html", "checks.judge.Judge", False),
        ("reports.html", "bench.schedule.Bench", False),
        ("plugin.running", "reports.html.write", False),
        ("commands.reports", "reports.html.write", True),
        ("test_laws", "test_conformance.assert_expected", True),
    ],
)
def test_the_contract_tells_imports_that_run_back(importer: str, name: str, allowed: bool) -> None:
    assert may_import(importer, name) is allowed


def test_imports_inside_functions_are_seen() -> None:
    path = ROOT / "conformance" / "models" / "unwritten.py"
    source = "def f():\n    from conformance.checks.judge import Judge\n    from . import fx\n"
    assert [*imported(path, source)] == ["checks.judge.Judge", "models.fx"]


def test_every_package_has_a_layer() -> None:
    packages = {module_name(path).split(".")[0] for path in FILES} - {"conformance", "reports"}
    assert packages == {name for names in LAYERS for name in names}


def test_only_leaves_and_modules_that_people_call_are_outside_of_packages() -> None:
    modules = {path.stem for path in (ROOT / "conformance").glob("*.py") if not path.stem.startswith("test_")}
    assert modules <= CALLED | LEAVES | {"__init__"}


@pytest.mark.parametrize("path", SIZED, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_module_is_short_unless_it_is_a_table(path: Path) -> None:
    lines = len(path.read_text(encoding="utf-8").splitlines())
    assert (lines > MOST_LINES) == (str(path.relative_to(ROOT)) in TABLES), f"{lines} lines"


@pytest.mark.parametrize("path", SIZED, ids=lambda path: str(path.relative_to(ROOT)))
def test_functions_are_short(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or 0) - node.lineno + 1
            assert lines <= MOST_LINES_OF_A_FUNCTION, f"{node.name} has {lines} lines"


PART_OF_A_NAME = re.compile(
    r"""["'][A-Za-z.]+["']\ (not\ )?in\ \(?((self\.|layer\.)?operator|root|plain|pattern|claim\.pattern)\b"""
    r"""|\.startswith\(\(?["'](nn|F|Tensor|operator)\.["']""",
    re.VERBOSE,
)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_what_an_operator_is_stands_in_its_record(path: Path) -> None:
    """Nothing is recovered from a part of an operator's name, but by `operators.spelling`."""
    lines = enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
    assert [f"{number}: {line.strip()}" for number, line in lines if PART_OF_A_NAME.search(line)] == []


@pytest.mark.parametrize("line", ['if "inear" in operator:', 'if name.startswith("nn."):', "'Bn' not in root"])
def test_a_test_for_a_part_of_a_name_is_seen(line: str) -> None:
    assert PART_OF_A_NAME.search(line)


def test_the_suite_has_one_import_name() -> None:
    """`configs` and `reports` are imported as `conformance.configs` and `conformance.reports`, or they load twice."""
    for path in (*FILES, *sorted((ROOT / "tests").rglob("*.py"))):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            modules = [node.module] if isinstance(node, ast.ImportFrom) and not node.level else []
            modules += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            assert not [name for name in modules if str(name).split(".")[0] in ("configs", "reports")], path


def test_reports_load_neither_torch_nor_hypothesis() -> None:
    modules = [f"conformance.{module_name(path)}" for path in FILES if module_name(path).startswith("reports.")]
    optional = (
        "exchange",
        "history",
        "regression",
        "speedup",
        "latency_html",
        "cli",
    )  # import packages of `tox -e bench`
    needed = [name for name in modules if name.rpartition(".")[2] not in optional]
    code = f"import sys, {', '.join(needed)}; print(*{{'torch', 'hypothesis'}} & {{*sys.modules}})"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("\n", "")


def test_tests_of_the_suite_are_collected_without_optional_packages() -> None:
    """The environments of backends have none of them."""
    modules = [path for path in FILES if path.name.startswith("test_") or path.parent.name == "plugin"]
    needed = [f"conformance.{module_name(path)}" for path in modules]
    optional = ("scipy", "duckdb", "otava", "pytest_benchmark", "executorch", "covertable", "jsonschema")
    code = f"import sys; sys.modules |= dict.fromkeys({optional}); import {', '.join(needed)}"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_only_one_module_calls_the_fx_api() -> None:
    for path in FILES:
        called = {
            node.func.id
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in FX_API
        }
        assert not called or module_name(path) == "models.fx", f"{path} calls {', '.join(sorted(called))}"


UNPICKLING = {"host.isolation", "engines.torch_engine", "bench.saved"}
"""Modules that load a pickle: what their own child sends, what they have saved, and what has this invocation's seal."""


def test_no_pickle_of_others_is_loaded() -> None:
    loads = ("pickle.load", "pickle.loads", "pickle.Unpickler", "torch.load", "numpy.load", "np.load")
    found = set()
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom):
                assert node.module not in ("pickle", "marshal", "shelve", "joblib"), f"{path}:{node.lineno}"
            if isinstance(node, ast.Call) and ast.unparse(node.func) in loads:
                options = {ast.unparse(one) for one in node.keywords}
                safe = "weights_only=False" not in options and ast.unparse(node.func) == "torch.load"
                found |= set() if safe else {module_name(path)}
    assert found == UNPICKLING


BETWEEN_APIS = {"cases.apis", "cases.claims", "engines.executorch.runtime", "migration.counterparts", "models.pt2e"}
"""Modules that look for the config of a quantizer: where claims are loaded, and where PT2E alone is meant."""


def test_what_depends_on_the_api_asks_its_object() -> None:
    asking = {module_name(path) for path in FILES if "QuantizerConfig)" in path.read_text(encoding="utf-8")}
    assert {name for name in asking if not name.startswith("configs.")} <= BETWEEN_APIS
    assert not [path for path in FILES if re.search(r"quantizer is (not )?None", path.read_text(encoding="utf-8"))]


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
