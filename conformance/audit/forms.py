"""Layers of networks as runs: the source text of their calls, by which the ledger knows runs like them."""

import inspect
import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor, nn
from torch.ao.quantization.utils import get_qconfig_dtypes
from torch.fx import Node
from torch.fx.node import map_arg

from conformance.cases.claims import BackendClaims, Claim
from conformance.cases.operators import OPERATORS, Operand
from conformance.cases.operators.expressions import Call, Source
from conformance.cases.operators.variant import Variant
from conformance.cases.runs import Run
from conformance.results.audits import Form

from .options import NotSource, arguments_of, call_name, parameters_of, text_of

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


def _init(module: nn.Module) -> Call:
    """The constructor call of a module of torch."""
    kind, arguments = type(module), arguments_of(module)
    required = [
        name
        for name, parameter in parameters_of(kind).items()
        if parameter.default is inspect.Parameter.empty and name in arguments
    ]
    others = {name: value for name, value in arguments.items() if name not in required}
    return Call(f"nn.{kind.__name__}", [arguments[name] for name in required], others)


PARAMETERS = ("weight", "bias")
"""Names of the parameters of functions in runs, in order."""


def _call(node: Node, root: nn.Module) -> tuple[Call, tuple[tuple[str, str], ...]]:
    """The call of a node, with its operands and parameters named as those of runs are, and the shapes of the parameters."""
    names: dict[Node, str] = {}
    parameters: dict[str, str] = {}

    def named(argument: Node) -> Any:
        if argument.op == "get_attr" and len(parameters) < len(PARAMETERS):
            name = PARAMETERS[len(parameters)]
            parameters[name] = text_of(attrgetter(str(argument.target))(root).shape)
            return Source(f"self.{name}")
        return Source(names.setdefault(argument, NAMES[min(len(names), len(NAMES) - 1)]))

    args: Sequence[Any] = map_arg(node.args, named)  # type: ignore[arg-type]
    kwargs: Mapping[str, Any] = map_arg(node.kwargs, named)  # type: ignore[arg-type]
    if node.op == "call_module":
        call = Call("self.op", args, kwargs)
    elif node.target in SYMBOLS and len(args) == 2 and not kwargs:
        call = Call(SYMBOLS[node.target], args)
    elif node.op == "call_method":
        call = Call(f"{args[0]}.{node.target}", args[1:], kwargs)
    else:
        call = Call(call_name(node, {}), args, kwargs)
    return call, tuple(parameters.items())


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
