"""What causes in the ledger refer to: features of layers, and layers as runs by the source text of their calls."""

import inspect
import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.ao.quantization.utils import get_qconfig_dtypes
from torch.fx import Node
from torch.fx.node import map_arg

from conformance.cases.claims import BackendClaims, Claim
from conformance.cases.operators import OPERATORS, Operand
from conformance.cases.operators.variant import Variant
from conformance.cases.recipes import dtype_name
from conformance.cases.runs import Run
from conformance.configs.names import pattern_name
from conformance.results.audits import Form

from .agreement import qparams
from .options import NotSource, arguments_of, call_name, is_constant, options_of, parameters_of, text_of

if TYPE_CHECKING:
    from .execution import Step

SYMBOLS = {operator.add: "+", operator.sub: "-", operator.mul: "*", operator.truediv: "/", operator.matmul: "@"}
"""Operators of Python that runs write infix."""

NAMES = ("x", "y", "z")
"""Names of operands in runs, in order."""


def form_of_layer(inputs: Sequence[Any], formats: Sequence[str], node: Node, root: nn.Module) -> Form | None:
    """How a network calls the operator of an executed layer, with the inputs that it was given and their memory formats;
    `node` is that of the float network, whose modules `root` has."""
    called = form_of_node(node, root)
    number = sum(one.op != "get_attr" for one in node.all_input_nodes)
    # the scale and the zero point of the output come last
    operands = [
        (text_of(value.shape), layout)
        for value, layout in zip(inputs, formats, strict=True)
        if isinstance(value, Tensor)
    ][:number]
    if called is None or not operands or len(operands) > len(NAMES):
        return None
    return replace(called, operands=tuple(operands))


def form_of_node(node: Node, root: nn.Module) -> Form | None:
    """How a node of a float network calls its operator, None if it cannot be written down."""
    try:
        init = _init(root.get_submodule(str(node.target))) if node.op == "call_module" else ""
        call, parameters = _call(node, root)
    except (NotSource, AttributeError):
        return None
    return Form(init, call, parameters=parameters)


def form_of_module(module: nn.Module) -> Form | None:
    """How a network calls a module of torch with one input."""
    try:
        return Form(_init(module), "self.op(x)")
    except NotSource:
        return None


def _sizes(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split("x"))) if text else ()


def _init(module: nn.Module) -> str:
    """The constructor call of a module of torch."""
    return f"nn.{type(module).__name__}({', '.join(_arguments(type(module), arguments_of(module)))})"


def _arguments(kind: type[nn.Module], arguments: Mapping[str, Any]) -> Iterator[str]:
    required = [
        name
        for name, parameter in parameters_of(kind).items()
        if parameter.default is inspect.Parameter.empty and name in arguments
    ]
    yield from (repr(arguments[name]) for name in required)
    yield from (f"{name}={value!r}" for name, value in arguments.items() if name not in required)


PARAMETERS = ("weight", "bias")
"""Names of the parameters of functions in runs, in order."""


def _call(node: Node, root: nn.Module) -> tuple[str, tuple[tuple[str, str], ...]]:
    """The call of a node, with its operands and parameters named as those of runs are, and the shapes of the parameters."""
    names: dict[Node, str] = {}
    parameters: dict[str, str] = {}

    def named(argument: Node) -> Any:
        if argument.op == "get_attr" and len(parameters) < len(PARAMETERS):
            name = PARAMETERS[len(parameters)]
            parameters[name] = text_of(attrgetter(str(argument.target))(root).shape)
            return _Text(f"self.{name}")
        return _Text(names.setdefault(argument, NAMES[min(len(names), len(NAMES) - 1)]))

    args: Sequence[Any] = map_arg(node.args, named)  # type: ignore[arg-type]
    kwargs: Mapping[str, Any] = map_arg(node.kwargs, named)  # type: ignore[arg-type]
    texts = [*map(repr, args), *(f"{name}={value!r}" for name, value in kwargs.items())]
    if node.op == "call_module":
        text = f"self.op({', '.join(texts)})"
    elif node.target in SYMBOLS and len(texts) == 2:
        text = f"{texts[0]} {SYMBOLS[node.target]} {texts[1]}"
    elif node.op == "call_method":
        text = f"{texts[0]}.{node.target}({', '.join(texts[1:])})"
    else:
        text = f"{call_name(node, {})}({', '.join(texts)})"
    return text, tuple(parameters.items())


class _Text(str):
    """Source text, which stands for itself."""

    def __repr__(self) -> str:
        return str(self)


def allowing(claims: Iterable[Claim], qconfig: Any) -> list[Claim]:
    """The claims whose dtypes are those of a qconfig."""
    if qconfig is None:
        return []
    try:
        activation, weight, dynamic = get_qconfig_dtypes(qconfig)  # type: ignore[no-untyped-call]
    except AttributeError:  # of what is no observer
        return []
    return [
        claim
        for claim in claims
        if bool(claim.dtypes.is_dynamic) is bool(dynamic)
        and claim.dtypes.weight_dtype in (None, weight)
        and (dynamic or claim.dtypes.input_dtype in (activation, torch.float))
    ]


def runs_of(
    called: Form,
    among: Sequence[Claim],
    claims: BackendClaims,
    engine: str,
    shape: Sequence[int] = (),
    applications: int = 1,
) -> Iterator[Run]:
    """Yield the runs of some claims that a call of the operator which their patterns begin with is like."""
    for one in among:
        root = one.root
        if root not in OPERATORS:
            continue
        default = OPERATORS[root][0]
        operands = {
            name: Operand(_sizes(sizes), layout=layout)
            for name, (sizes, layout) in zip(NAMES, called.operands, strict=False)
        }
        variant = Variant(
            "in_network",
            called.call,
            operands or default.operands,
            called.init,
            {name: _sizes(sizes) for name, sizes in called.parameters},
            tuple(shape) or default.output,
            applications=min(applications, 2),
        )
        yield Run(claims, one, "ptq", variant, "exact", engine)


def features(
    step: "Step", node: Node, modules: Mapping[str, nn.Module], lowered: Mapping[str, nn.Module]
) -> dict[str, str]:
    """What distinguishes a layer from others of its pattern: the operator with its options, its inputs, its neighbours.

    `node` is that of the network before lowering, whose modules are `modules`; the neighbours are those after it.
    """
    found = {"operator": call_name(node, modules)}
    module = modules.get(str(node.target)) if node.op == "call_module" else None
    if isinstance(module, nn.Sequential) and len(module):  # a fused module
        module = module[0]
        found["operator"] = pattern_name(type(module))
    if module is not None:
        found |= options_of(module)
    else:
        found |= {f"arg{number}": text_of(value) for number, value in enumerate(node.args) if is_constant(value)}
        found |= {name: text_of(value) for name, value in node.kwargs.items() if is_constant(value)}
    tensors = [x for x in step.inputs if isinstance(x, Tensor)]
    found |= {
        "inputs": " ".join("x".join(map(str, x.shape)) for x in tensors),
        "formats": " ".join(name for name in step.formats if name),
        "aliased": str(step.aliased),
        "dtypes": " ".join(dtype_name(x.dtype) for x in tensors),
        "producers": " ".join(call_name(one, lowered) for one in step.node.all_input_nodes),
        "consumers": " ".join(call_name(one, lowered) for one in step.node.users),
    }
    scales = [own.scale for x in tensors if (own := qparams(x))]
    if scales and (output := qparams(step.value)):
        found["greatest_scale_ratio"] = f"{max(scales) / output.scale:.6g}"
        found["least_scale_ratio"] = f"{min(scales) / output.scale:.6g}"
    quantized = [x for x in tensors if x.is_quantized]
    if isinstance(step.value, Tensor):
        found["broadcast"] = str(any(_broadcasts(x, step.value) for x in quantized))
    if isinstance(step.value, Tensor) and isinstance(step.local, Tensor):
        if step.value.is_quantized != step.local.is_quantized:
            found["kind"] = "codes for float" if step.value.is_quantized else "float for codes"
        elif qparams(step.value) != qparams(step.local):
            found["grid"] = "other"
    if output := qparams(step.value):
        found["scale"] = f"{output.scale:.6g}"
    codes = [int(x.int_repr().max()) for x in quantized if x.numel()]
    if codes:
        found["greatest_code"] = str(max(codes))
        found["elements"] = str(max(x[0, 0].numel() if x.dim() > 2 else 1 for x in quantized if x.numel()))
    if isinstance(module, nn.PReLU):
        found["greatest_slope"] = f"{float(module.weight.max()):.6g}"
    if "in_channels" in found:
        found["equal_channels"] = str(found["in_channels"] == found["out_channels"])
    return found


def _broadcasts(x: Tensor, result: Tensor) -> bool:
    """Whether an input has one item, row or column where the result has more."""
    return x.dim() == result.dim() and any(
        own == 1 < other for dim, (own, other) in enumerate(zip(x.shape, result.shape, strict=True)) if dim != 1
    )
