"""Source text that scripts share, and the definitions and imports that a script needs."""

import ast
import builtins
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, lru_cache
from importlib.util import find_spec
from pathlib import Path
from symtable import symtable

from conformance.cases import recipes
from conformance.configs.quantizer import QuantizerSpec
from conformance.configs.registry import BACKENDS
from conformance.engines import cortex_m
from conformance.engines.executorch import bridge
from conformance.host import guard, poison
from conformance.models import data, mutation, observers, pt2e, qparams, scripting
from conformance.properties.codes import settings
from conformance.properties.metamorphic import transforms

NAMES = {
    "collections.abc": ("Sequence",),
    "torch.ao.quantization": (*recipes.NAMES, "FakeQuantizeBase", "ObserverBase"),
    "torch.ao.quantization.backend_config": (
        *("BackendConfig", "BackendPatternConfig", "DTypeConfig", "DTypeWithConstraints", "ObservationType"),
        *(f"get_{name}_backend_config" for name in BACKENDS),
    ),
    "torch.ao.quantization.fx.custom_config": ("PrepareCustomConfig",),
    "torch.ao.quantization.quantize_fx": (
        *(
            "_convert_to_reference_decomposed_fx",
            "convert_fx",
            "convert_to_reference_fx",
            "prepare_fx",
            "prepare_qat_fx",
        ),
    ),
    "torch.ao.quantization.utils": ("MatchAllNode",),
    "torch.ao.nn.intrinsic.qat": ("freeze_bn_stats",),
    "torch": ("Tensor", "nn"),
    "torch.fx": ("GraphModule", "Interpreter"),
    "torch.utils._python_dispatch": ("TorchDispatchMode",),
    "torch.utils._pytree": ("tree_leaves",),
    "torchao.quantization.pt2e.lowering": ("lower_pt2e_quantized_to_x86",),
    "executorch.backends.arm.tosa.compile_spec": ("TosaCompileSpec",),
    "executorch.backends.arm.tosa.partitioner": ("TOSAPartitioner",),
    "executorch.backends.xnnpack": ("xnnpack_preprocess",),
    "executorch.backends.xnnpack.partition.xnnpack_partitioner": ("XnnpackPartitioner",),
    "executorch.exir": ("ExecutorchBackendConfig", "to_edge_transform_and_lower"),
    "executorch.runtime": ("Runtime",),
}
"""Names that scripts import, by the module that they import them from."""
WHOLE = (
    *("copy", "ctypes", "hashlib", "io", "math", "operator", "os", "signal", "sys", "torch", "warnings"),
    "tosa_reference_model",
)
ALIASES = {
    "F": "torch.nn.functional",
    "nni": "torch.ao.nn.intrinsic",
    "nniqat": "torch.ao.nn.intrinsic.qat",
    "nnqat": "torch.ao.nn.qat",
    "nnqr": "torch.ao.nn.quantized.reference",
}
IMPORTS = {
    **{name: f"from {module} import {name}" for module, names in NAMES.items() for name in names},
    **{name: f"import {name}" for name in WHOLE},
    **{alias: f"import {module} as {alias}" for alias, module in ALIASES.items()},
}
"""Import statements by the names that scripts use. The backend configs are torch's, which equal the registered ones."""

COMPLETES = "import torch.ao.quantization.quantize_fx"
"""Precedes every other import of torch.ao, whose modules import each other in a circle."""


@lru_cache(4096)  # nearly all texts are definitions, which every script shares
def free(text: str) -> frozenset[str]:
    """The names that a text loads but does not bind, without builtins."""
    module = symtable(text, "<script>", "exec")  # several times as fast as a walk over the syntax tree
    bound = {symbol.get_name() for symbol in module.get_symbols() if symbol.is_assigned() or symbol.is_imported()}
    loaded, tables = set[str](), [module]
    while tables:
        table = tables.pop()
        tables += table.get_children()
        loaded |= {
            s.get_name() for s in table.get_symbols() if s.is_referenced() and (s.is_global() or table is module)
        }
    return frozenset(loaded - bound - vars(builtins).keys())


def _imported(node: ast.stmt) -> dict[str, str]:
    """The names that an import binds, each with a statement that imports it alone."""
    if isinstance(node, ast.Import):
        return {a.asname or a.name: f"import {a.name}" + (f" as {a.asname}" if a.asname else "") for a in node.names}
    if isinstance(node, ast.ImportFrom) and not node.level:
        return {a.name: f"from {node.module} import {a.name}" for a in node.names}
    return {}


def _defined(node: ast.stmt) -> list[str]:
    """The names that a definition or an assignment binds."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return [target.id for target in targets if isinstance(target, ast.Name)]


DEFINITIONS = "conformance.repro.definitions"
"""The module whose definitions come last in scripts, and refer to names that it does not import."""
MODULES = tuple(
    module.__name__
    for module in (
        *(recipes, data, poison, guard, scripting, transforms),
        *(settings, qparams, observers, mutation, bridge, cortex_m),
    )
)
"""The modules whose definitions scripts inline, one after those that import from it."""
PT2E_MODULES = ("conformance.models.pt2e_names", "conformance.models.pt2e")
"""Those of scripts about quantizers, whose definitions come before others of the same name."""


@cache
def _module(name: str) -> tuple[dict[str, str], dict[str, str]]:
    """The definitions of a module by name, in source order, and its imports: a statement for each imported name.

    The module is read and not imported, because it may import what is not installed here.
    """
    spec = find_spec(name)
    assert spec is not None
    assert spec.origin is not None
    text = Path(spec.origin).read_text(encoding="utf-8")
    lines = text.splitlines()
    definitions: dict[str, str] = {}
    imports: dict[str, str] = {}
    for node in ast.parse(text).body:
        imports |= _imported(node)
        decorators = getattr(node, "decorator_list", [])
        first = decorators[0].lineno if decorators else node.lineno
        definitions |= {name: "\n".join(lines[first - 1 : node.end_lineno]) + "\n" for name in _defined(node)}
    if name == guard.__name__:  # which reads a file that a script does not have
        definitions["SOURCE"] = f'SOURCE = r"""\n{guard.SOURCE}"""\n'
    return definitions, imports


@cache
def lowering_definitions() -> Mapping[str, str]:
    """The source of the definitions that lower models, by name."""
    return {**_module(DEFINITIONS)[0], **_module(cortex_m.__name__)[0]}


def pt2e_imports(quantizer: QuantizerSpec) -> dict[str, str]:
    """Import statements by the names that scripts about a quantizer use in place of those of FX."""
    observers, flows = "torchao.quantization.pt2e", "torchao.quantization.pt2e.quantize_pt2e"
    modules = {
        **dict.fromkeys((*pt2e.NAMES, "FakeQuantizeBase", "ObserverBase", "move_exported_model_to_eval"), observers),
        **dict.fromkeys(pt2e.QUANTIZER_NAMES, f"{observers}.quantizer"),
        **dict.fromkeys(("prepare_pt2e", "prepare_qat_pt2e", "convert_pt2e"), flows),
        **quantizer.names,
    }
    return {name: f"from {module} import {name}" for name, module in modules.items()}


def needs(body: str, first: Sequence[str], others: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """The import statements and definitions that a script's body needs, directly or through other definitions.

    The definitions of the modules `first`, and the import statements `others` by name, come before those of the same name.
    """
    wanted, statements = set(free(body)), set()
    imported = {**IMPORTS, **others}
    defined: list[str] = []
    everything: set[str] = set()
    for module in (DEFINITIONS, *first, *MODULES):
        definitions, imports = _module(module)
        used: set[str] = set()
        new = wanted & set(definitions) - everything
        while new:
            used |= new
            inner = {name for definition in new for name in free(definitions[definition])}
            inlined = {name for name in inner if imports.get(name, "").startswith("from conformance.")}
            wanted |= inlined | (inner - imports.keys())
            statements |= {imports[name] for name in inner - inlined if name in imports}
            new = (inner & set(definitions)) - used - everything
        everything |= used
        defined = [*(definitions[name] for name in definitions if name in used), *defined]
    statements |= {imported[name] for name in wanted - everything if name in imported}
    return sorted(statements), defined


def merged(statements: Iterable[str]) -> str:
    """The text of import statements: `import` statements, then COMPLETES, then one `from` statement for each module."""
    whole = [statement for statement in statements if statement.startswith("import ")]
    parts: dict[str, list[str]] = {}
    for statement in statements:
        if statement not in whole:
            head, _, name = statement.partition(" import ")
            parts.setdefault(head, []).append(name)
    merged = [f"{head} import {', '.join(sorted(names))}" for head, names in parts.items()]
    return "\n".join([*whole, COMPLETES, *merged]) + "\n"


def standalone(body: str, modules: Sequence[str]) -> str:
    """The text of a module with this body, with the imports and the definitions of `modules` that it needs."""
    imports, definitions = needs(body, modules, {"Any": "from typing import Any"})
    return "\n\n".join([merged(imports), *definitions, body])
