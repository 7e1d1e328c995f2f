"""Layers of networks as runs: the source text of their calls, by which the ledger knows runs like them."""

import inspect
import operator
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from torch import Tensor, nn
from torch.fx import Node
from torch.fx.node import map_arg

from conformance.cases.claims import BackendClaims, Claim
from conformance.cases.operators import Operand
from conformance.cases.operators.variant import Variant
from conformance.cases.runs import Run
from conformance.results.audits import Form, Layer

from .execution import Step
from .naming import call_name
from .parts import NotSource, arguments_of

SYMBOLS = {operator.add: "+", operator.sub: "-", operator.mul: "*", operator.truediv: "/", operator.matmul: "@"}
"""Operators of Python that runs write infix."""

NAMES = ("x", "y", "z")
"""Names of operands in runs, in order."""


def form(step: Step, node: Node, modules: Mapping[str, nn.Module]) -> Form | None:
    """How a network calls an operator, None if it cannot be written down. `node` is that of the float network."""
    number = sum(one.op != "get_attr" for one in node.all_input_nodes)
    # the scale and the zero point of the output come last
    operands = [
        ("x".join(map(str, value.shape)), layout)
        for value, layout in zip(step.inputs, step.formats, strict=True)
        if isinstance(value, Tensor)
    ][:number]
    if not operands or len(operands) > len(NAMES):
        return None
    try:
        init = _init(modules[str(node.target)]) if node.op == "call_module" else ""
        return Form(init, _call(node, modules), tuple(operands))
    except NotSource:
        return None


def _init(module: nn.Module) -> str:
    """The constructor call of a module of torch."""
    return f"nn.{type(module).__name__}({', '.join(_arguments(type(module), arguments_of(module)))})"


def _arguments(kind: type[nn.Module], arguments: Mapping[str, Any]) -> Iterator[str]:
    required = [
        name
        for name, parameter in inspect.signature(kind.__init__).parameters.items()
        if parameter.default is inspect.Parameter.empty and name in arguments
    ]
    yield from (repr(arguments[name]) for name in required)
    yield from (f"{name}={value!r}" for name, value in arguments.items() if name not in required)


def _call(node: Node, modules: Mapping[str, nn.Module]) -> str:
    """The call of a node, with its operands named as those of runs are."""
    names: dict[Node, str] = {}

    def named(argument: Node) -> Any:
        if argument.op == "get_attr":
            return _Text(f"self.{str(argument.target).rpartition('.')[2]}")
        return _Text(names.setdefault(argument, NAMES[min(len(names), len(NAMES) - 1)]))

    args: Sequence[Any] = map_arg(node.args, named)  # type: ignore[arg-type]
    kwargs: Mapping[str, Any] = map_arg(node.kwargs, named)  # type: ignore[arg-type]
    texts = [*map(repr, args), *(f"{name}={value!r}" for name, value in kwargs.items())]
    if node.op == "call_module":
        return f"self.op({', '.join(texts)})"
    if node.target in SYMBOLS and len(texts) == 2:
        return f"{texts[0]} {SYMBOLS[node.target]} {texts[1]}"
    if node.op == "call_method":
        return f"{texts[0]}.{node.target}({', '.join(texts[1:])})"
    return f"{call_name(node, modules)}({', '.join(texts)})"


class _Text(str):
    """Source text, which stands for itself."""

    def __repr__(self) -> str:
        return str(self)


def run_of(layer: Layer, claims: BackendClaims, engine: str) -> Run | None:
    """The run of a claim that a layer is like, None if there is none."""
    claim = _claim(layer, claims)
    if claim is None or layer.form is None:
        return None
    operands = {
        name: Operand(tuple(map(int, shape.split("x"))) if shape else (), layout=layout)
        for name, (shape, layout) in zip(NAMES, layer.form.operands, strict=False)
    }
    calls = int(layer.features.get("calls", "1"))
    variant = Variant(
        "in_network",
        layer.form.call,
        operands,
        layer.form.init,
        output=layer.shape,
        applications=min(calls, 2),
    )
    return Run(claims, claim, "ptq", variant, "exact", engine)


def _claim(layer: Layer, claims: BackendClaims) -> Claim | None:
    named = (claim for claim in claims.claims if claim.id == layer.claim)
    return next(named, next((claim for claim in claims.claims if claim.pattern == layer.pattern), None))
