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
from conformance.engines import mutation
from conformance.engines.executorch import bridge
from conformance.host import guard, poison
from conformance.models import data, observers, pt2e, qparams, scripting
from conformance.properties.codes import settings
from conformance.properties.metamorphic import transforms

IMPORTS = {
    **{
        name: f"import {name}"
        for name in ("copy", "hashlib", "io", "math", "operator", "os", "signal", "sys", "torch", "warnings")
    },
    "nn": "from torch import nn",
    "F": "import torch.nn.functional as F",
    "nni": "import torch.ao.nn.intrinsic as nni",
    "nnqat": "import torch.ao.nn.qat as nnqat",
    "nniqat": "import torch.ao.nn.intrinsic.qat as nniqat",
    **{
        name: f"from torch.ao.quantization.quantize_fx import {name}"
        for name in ("convert_fx", "convert_to_reference_fx", "prepare_fx", "prepare_qat_fx")
    },
    **{
        name: f"from torch.ao.quantization import {name}"
        for name in (*recipes.NAMES, "FakeQuantizeBase", "ObserverBase")
    },
    "nnqr": "import torch.ao.nn.quantized.reference as nnqr",
    **{
        name: f"from torch.ao.quantization.backend_config import {name}"
        for name in ("BackendConfig", "BackendPatternConfig", "DTypeConfig", "DTypeWithConstraints", "ObservationType")
    },
    "_convert_to_reference_decomposed_fx": (
        "from torch.ao.quantization.quantize_fx import _convert_to_reference_decomposed_fx"
    ),
    "xnnpack_preprocess": "from executorch.backends.xnnpack import xnnpack_preprocess",
    "XnnpackPartitioner": "from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner",
    **{
        name: f"from executorch.exir import {name}"
        for name in ("EdgeCompileConfig", "ExecutorchBackendConfig", "to_edge", "to_edge_transform_and_lower")
    },
    "CortexMPassManager": "from executorch.backends.cortex_m.passes.cortex_m_pass_manager import CortexMPassManager",
    "TOSAPartitioner": "from executorch.backends.arm.tosa.partitioner import TOSAPartitioner",
    "TosaCompileSpec": "from executorch.backends.arm.tosa.compile_spec import TosaCompileSpec",
    "tosa_reference_model": "import tosa_reference_model",
    "Interpreter": "from torch.fx import Interpreter",
    "Runtime": "from executorch.runtime import Runtime",
    "lower_pt2e_quantized_to_x86": "from torchao.quantization.pt2e.lowering import lower_pt2e_quantized_to_x86",
    "PrepareCustomConfig": "from torch.ao.quantization.fx.custom_config import PrepareCustomConfig",
    "MatchAllNode": "from torch.ao.quantization.utils import MatchAllNode",
    **{
        f"get_{name}_backend_config": f"from torch.ao.quantization.backend_config import get_{name}_backend_config"
        for name in BACKENDS
    },
    "TorchDispatchMode": "from torch.utils._python_dispatch import TorchDispatchMode",
    "tree_leaves": "from torch.utils._pytree import tree_leaves",
}
"""Import statements by the names that scripts use. The backend configs are torch's, which equal the registered ones."""

COMPLETES = "import torch.ao.quantization.quantize_fx"
"""Precedes every other import of torch.ao, whose modules import each other in a circle."""

TRACE = '''\
class Trace(TorchDispatchMode):
    """Keeps every operator call: its name, the tensors it took, and what it gave."""

    def __init__(self):
        super().__init__()
        self.calls = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        self.calls.append((f"{func.namespace}.{func.overloadpacket.__name__}", tensors([args, kwargs]), result))
        return result

    def source(self, tensor):
        """The quantized tensor of an output: itself, or the argument of the dequantize call that returned it, or None."""
        if tensor.is_quantized:
            return tensor
        made = [(name, taken) for name, taken, given in self.calls if given is tensor]
        name, taken = made[-1] if made else ("", [None])
        return taken[0] if name.startswith(("aten.quantize_per", "aten.dequantize")) else None
'''
TENSORS = """\
def tensors(outputs):
    return [x for x in tree_leaves(outputs) if isinstance(x, torch.Tensor)]
"""
DEVIATES = """\
def deviates(check, what):
    found.append(check)
    print(f"DEVIATES {check}: {what}")
"""
OBSERVER = '''\
def observer(node):
    """The observer that a node of the prepared model calls, or None."""
    module = prepared.get_submodule(node.target) if node.op == "call_module" else None
    return module if isinstance(module, (ObserverBase, FakeQuantizeBase)) else None
'''
OBSERVERS = '''\
def observers(*names):
    """What the users of these inputs are, as far as they are observers; None for another user."""
    users = [user for name in names for user in nodes[name].users]
    return [observer(user) for user in users if user.op != "output" and user.target is not getattr]
'''
QUANTIZED = '''\
def quantized(name, taken):
    """Whether a call of this name, that took these tensors, is of a quantized kernel."""
    return "quantized" in name or any(x.is_quantized for x in taken)
'''
SCALES = """\
def scales(t):
    per_tensor = t.qscheme() in (torch.per_tensor_affine, torch.per_tensor_symmetric)
    return [t.q_scale()] if per_tensor else t.q_per_channel_scales().tolist()
"""
ZERO_POINTS = """\
def zero_points(t):
    per_tensor = t.qscheme() in (torch.per_tensor_affine, torch.per_tensor_symmetric)
    return [t.q_zero_point()] if per_tensor else t.q_per_channel_zero_points().tolist()
"""
CHANNELS_LAST = """\
formats = {4: torch.channels_last, 5: torch.channels_last_3d}
channels_last = [x.contiguous(memory_format=formats.get(x.dim(), torch.contiguous_format)) for x in inputs()]
"""
LOADED = """\
fill(blank, "other", {levels})
blank.eval()
other = convert_fx(blank, backend_config=backend_config)
saved = io.BytesIO()
with fresh_memory_holds(0xAA):  # which is what a weight is that the engine does not unpack
    torch.save(lowered.state_dict(), saved)
saved.seek(0)
other.load_state_dict(torch.load(saved, weights_only=False))
"""
TO_EXECUTORCH = '''\
class Program:
    """A model lowered to XNNPACK, loaded in the ExecuTorch runtime, and the calls that it consists of."""

    def __init__(self, model, inputs):
        self.model, self.calls = model, []
        serialize = xnnpack_preprocess.serialize_xnnpack_binary

        def seen(graph, constants):
            values = [getattr(value.xvalue_union, "tensor_value", value.xvalue_union) for value in graph.xvalues]
            dtypes = {value.id_out: value.datatype.name.removeprefix("xnn_datatype_") for value in values}
            for node in graph.xnodes:
                fields = vars(node.xnode_union).items()
                taken = [dtypes.get(number, "") for name, number in fields if name.startswith("input")]
                name = "xnnpack." + type(node.xnode_union).__name__.removeprefix("XNN")
                self.calls.append((name, any(x.startswith("q") for x in taken), any(x.startswith("f") for x in taken)))
            return serialize(graph, constants)

        xnnpack_preprocess.serialize_xnnpack_binary = seen
        exported = torch.export.export(model, inputs)
        edge = to_edge_transform_and_lower(exported, partitioner=[XnnpackPartitioner()])
        fuses = any("embedding" in str(node.target) for node in edge.exported_program().graph.nodes)
        made = edge.to_executorch(ExecutorchBackendConfig(do_quant_fusion_and_const_prop=fuses))
        for node in made.exported_program().graph.nodes:
            if isinstance(node.target, torch._ops.OpOverload):
                taken = [one.meta.get("spec") for one in node.all_input_nodes if one is not node.kwargs.get("out")]
                dtypes = {spec.dtype for spec in taken if hasattr(spec, "dtype")}
                name = "portable." + node.target._schema.name.replace("::", ".")
                self.calls.append((name, bool(dtypes & {torch.int8, torch.uint8}), any(x.is_floating_point for x in dtypes)))
        self.program = Runtime.get().load_program(made.buffer)  # its method needs it alive
        self.method = self.program.load_method("forward")

    def __call__(self, *inputs):
        return self.method.execute(inputs)
'''
DEQUANTIZED = '''\
class Dequantized:
    """The outputs of a program that a decomposed model was lowered to, whose last calls dequantize them."""

    def __init__(self, model, outputs, calls=()):
        self.outputs, self.calls = outputs, calls
        (last,) = [node for node in model.graph.nodes if node.op == "output"]
        self.nodes = tree_leaves(last.args[0])

    def source(self, output):
        """The quantized tensor that is dequantized to give an output."""
        node = next(node for node, one in zip(self.nodes, self.outputs) if one is output)
        if "dequantize_per_tensor" not in str(node.target):
            return None
        _, scale, zero_point, _, _, dtype = node.args
        quantized = {torch.int8: torch.qint8, torch.uint8: torch.quint8}[dtype]
        return torch.quantize_per_tensor(output, scale, zero_point, quantized)
'''
TO_TOSA = '''\
class Tosa(Interpreter):
    """A model lowered to TOSA: Arm's reference model executes the graphs that are delegated, torch what is left."""

    def __init__(self, model, inputs):
        exported, spec = torch.export.export(model, inputs), TosaCompileSpec("TOSA-1.0+INT")
        edge = to_edge_transform_and_lower(exported, partitioner=[TOSAPartitioner(spec)])
        super().__init__(edge.exported_program().module(check_guards=False))

    def __call__(self, *inputs):
        return self.run(*inputs)

    def call_function(self, target, args, kwargs):
        if target is not torch.ops.higher_order.executorch_call_delegate:
            return super().call_function(target, args, kwargs)
        graph, *inputs = args  # whose tensors have their dimensions in the order in which these lie in memory
        physical = [x.permute(x.dim_order()).contiguous().numpy() for x in inputs]
        arrays, status = tosa_reference_model.run(graph.processed_bytes, physical)
        if status != tosa_reference_model.GraphStatus.TOSA_VALID:
            raise RuntimeError(f"the reference model of TOSA returns {status.name}")
        nodes = tree_leaves(graph.original_module.graph.output_node().args)
        orders = [node.meta["val"].dim_order() for node in nodes]
        logical = [[order.index(dimension) for dimension in range(len(order))] for order in orders]
        return [torch.from_numpy(array).permute(order) for array, order in zip(arrays, logical)]
'''
TO_CORTEX_M = '''\
def lower_to_cortex_m(model, inputs):
    """A model lowered to the operators for CMSIS-NN, which ExecuTorch implements in Python as well."""
    aten = torch.ops.aten
    kept = [aten.linear, aten.hardsigmoid, aten.hardsigmoid_, aten.hardswish, aten.hardswish_, aten.silu]
    config = EdgeCompileConfig(
        preserve_ops=[operator.default for operator in kept],
        _check_ir_validity=False,
        _core_aten_ops_exception_list=[aten.max_pool2d.default],
    )
    edge = to_edge(torch.export.export(model, inputs), compile_config=config)
    return CortexMPassManager(edge.exported_program()).transform().module(check_guards=False)
'''
TEMPLATES = {
    "Program": TO_EXECUTORCH,
    "Tosa": TO_TOSA,
    "lower_to_cortex_m": TO_CORTEX_M,
    "Dequantized": DEQUANTIZED,
    "tensors": TENSORS,
    "Trace": TRACE,
    "deviates": DEVIATES,
    "observer": OBSERVER,
    "observers": OBSERVERS,
    "quantized": QUANTIZED,
    "scales": SCALES,
    "zero_points": ZERO_POINTS,
}
"""Definitions that exist in scripts only, in the order in which scripts have them."""


@lru_cache(4096)  # nearly all texts are definitions, which every script shares
def free(text: str) -> frozenset[str]:
    """The names that a text loads but does not bind, without builtins."""
    loaded: set[str] = set()
    bound: set[str] = set(vars(builtins))
    tables = [symtable(text, "<script>", "exec")]  # several times as fast as a walk over the syntax tree
    while tables:
        table = tables.pop()
        tables += table.get_children()
        for symbol in table.get_symbols():
            if symbol.is_referenced():
                loaded.add(symbol.get_name())
            if symbol.is_assigned() or symbol.is_parameter() or symbol.is_imported():
                bound.add(symbol.get_name())
    return frozenset(loaded - bound)


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


MODULES = tuple(
    module.__name__
    for module in (recipes, data, poison, guard, scripting, transforms, settings, qparams, observers, mutation, bridge)
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
    modules, imported = [*first, *MODULES], {**IMPORTS, **others}
    defined: list[str] = []
    for name in reversed(TEMPLATES):
        if name in wanted:
            defined.insert(0, TEMPLATES[name])
            wanted |= free(TEMPLATES[name])
    everything: set[str] = set()
    for module in modules:
        definitions, imports = _module(module)
        used: set[str] = set()
        new = wanted & set(definitions) - everything
        while new:
            used |= new
            inner = {name for definition in new for name in free(definitions[definition])}
            inlined = {name for name in inner if imports.get(name, "").startswith("from conformance.")}
            wanted |= inlined
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
