"""Operators by name: their variants, and how each of them follows another one in a pattern."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from conformance.configs.names import operator_named

from .operators import OPERATORS, Variant
from .operators.declared import DECLARED
from .operators.signatures import tried
from .operators.variant import Shape


@dataclass(frozen=True)
class Follower:
    """An operator that follows another one in a pattern.

    `module` is the source of the module, if it is one, and `call` that of the call, over the names `{name}` of the module,
    `{inner}` of what it is applied to, and `{channels}` of that. `parameters` are those of a function.
    """

    module: str
    call: str
    parameters: Mapping[str, Shape] = field(default_factory=dict)

    def with_argument(self, argument: str) -> "Follower":
        """The operator with a further argument of its module, or of the call of a function."""
        if self.module:
            return replace(self, module=_called_with(self.module, argument))
        return replace(self, call=_called_with(self.call, argument))


def _called_with(call: str, argument: str) -> str:
    return f"{call[:-1]}{'' if call.endswith('()') else ', '}{argument})"


FOLLOWERS: dict[str, Follower] = {
    "nn.LeakyReLU": Follower("nn.LeakyReLU(0.25)", "self.{name}({inner})"),
    "nn.RReLU": Follower("nn.RReLU(0.25, 0.25)", "self.{name}({inner})"),
    "nn.Softmax": Follower("nn.Softmax(dim=-1)", "self.{name}({inner})"),  # vectors have no other dimension
    "nn.SiLU": Follower("nn.SiLU()", "self.{name}({inner})"),
    "nn.GELU": Follower("nn.GELU()", "self.{name}({inner})"),
    "F.leaky_relu": Follower("", "F.leaky_relu({inner}, 0.25)"),
    "nn.BatchNorm1d": Follower("nn.BatchNorm1d({channels})", "self.{name}({inner})"),
    "nn.BatchNorm2d": Follower("nn.BatchNorm2d({channels})", "self.{name}({inner})"),
    "nn.BatchNorm3d": Follower("nn.BatchNorm3d({channels})", "self.{name}({inner})"),
}
"""Operators that follow another one otherwise than their default variant says, or that no table has."""

_NORM = {
    "norm_no_affine": "affine=False",
    "norm_no_statistics": "track_running_stats=False",
    "norm_momentum_none": "momentum=None",
    "norm_eps": "eps=0.5",
}
_IN_PLACE = {"in_place": "inplace=True"}
OPTIONS: dict[str, Mapping[str, str]] = {
    **{f"nn.BatchNorm{rank}d": _NORM for rank in (1, 2, 3)},
    **dict.fromkeys(("nn.ReLU", "F.relu", "nn.LeakyReLU", "F.leaky_relu", "nn.SiLU"), _IN_PLACE),
}
"""Options of operators that follow another one: an argument as source text, by the name of the variant that has it."""

JOINS = {"operator.add": "{left} + {right}", "torch.add": "torch.add({left}, {right})"}
"""Operators of two operands inside a pattern, and source of the call."""


def variants_of(operator: str) -> list[Variant]:
    """The variants of an operator: those of the tables, those that a third party declares, or the one from its signature.

    There are none for an operator that cannot be called.
    """
    if operator in OPERATORS:
        return OPERATORS[operator]
    if operator in DECLARED:
        return DECLARED[operator].variants
    variant = tried(operator).variant
    return [variant] if variant is not None else []


def follower(operator: str) -> Follower | None:
    """How an operator follows another one: as `FOLLOWERS` says, or as its default variant does if that has one operand."""
    if operator in FOLLOWERS:
        return FOLLOWERS[operator]
    default = next(iter(variants_of(operator)), None)
    if default is None or [*default.operands] != ["x"] or default.prelude:
        return None
    call = default.call.replace("{", "{{").replace("}", "}}")
    call = re.sub(r"\bself\.op\b", "self.{name}", call)
    for name in default.parameters:
        call = re.sub(rf"\bself\.{name}\b", f"self.{{name}}_{name}", call)
    call = re.sub(r"\bx\b", "{inner}", call)
    parameters = {f"{{name}}_{name}": shape for name, shape in default.parameters.items()}
    return Follower(default.init.replace("{", "{{").replace("}", "}}"), call, parameters)


def modules_of(operator: str) -> Iterator[str]:
    """The modules of third parties that the source of an operator needs."""
    if operator in OPERATORS or operator in FOLLOWERS:
        return
    if operator in DECLARED and DECLARED[operator].module:
        yield DECLARED[operator].module
    if module := operator_named(operator)[1]:
        yield module
