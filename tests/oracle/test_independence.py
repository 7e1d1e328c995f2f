"""The oracle is independent of the code under test."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


ORACLE = sorted((ROOT / "conformance" / "oracle").glob("*.py"))


def imports(tree: ast.AST, path: Path) -> set[str]:
    """Full names of the modules and of the single names that a file imports."""
    names = set()
    package = path.relative_to(ROOT).parts[:-1]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            beside = package[: len(package) - node.level + 1] if node.level else ()
            names |= {".".join((*beside, *filter(None, [node.module]), alias.name)) for alias in node.names}
    return names


@pytest.mark.parametrize("path", ORACLE, ids=lambda path: path.name)
def test_the_oracle_does_not_import_the_code_under_test(path: Path) -> None:
    names = imports(ast.parse(path.read_text()), path)
    assert names
    own = ("conformance.oracle.",)
    for name in names:
        assert not f"{name}.".startswith("torch.ao."), name
        assert not name.startswith(("conformance", "configs")) or name.startswith(own), name


@pytest.mark.parametrize("path", ORACLE, ids=lambda path: path.name)
def test_the_oracle_calls_no_quantized_operator(path: Path) -> None:
    tree = ast.parse(path.read_text())
    names = imports(tree, path)
    names |= {ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Attribute | ast.Name)}
    judged = ("quantize_per", "fake_quantize", "torch.ops", "torch.ao", "import_module", "__import__")
    for name in names:
        assert not any(part in name for part in judged), name
