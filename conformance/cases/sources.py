"""Source text of a model from a claim and a variant, which is executed and printed in reproductions."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn
from torch.ao.nn.intrinsic.modules.fused import _FusedModule
from torch.ao.quantization.utils import MatchAllNode

from conformance.configs.names import operator_named, pattern_name
from conformance.configs.spelling import spelled

from .claims import Claim, operators_of
from .followers import JOINS, follower, modules_of
from .operators import Operand, Variant
from .operators.fused import WITHOUT_RELU, init_without_relu
from .operators.variant import Shape


@dataclass(frozen=True)
class Model:
    """A model as source text: lines of `__init__`, lines of `forward`, the operands of `forward` in order, and the modules of
    third parties that it needs."""

    init: tuple[str, ...]
    forward: tuple[str, ...]
    operands: tuple[tuple[str, Operand], ...]
    imports: tuple[str, ...] = ()

    @property
    def source(self) -> str:
        imports = "".join(f"import {module}\n" for module in self.imports)
        init = "".join(f"        {line}\n" for line in self.init)
        forward = "".join(f"        {line}\n" for line in self.forward)
        names = ", ".join(name for name, _ in self.operands)
        return (
            f"{imports}class Model(nn.Module):\n"
            f"    def __init__(self):\n        super().__init__()\n{init}\n"
            f"    def forward(self, {names}):\n{forward}"
        )


def untraced(claim: Claim) -> list[tuple[str, type[nn.Module]]]:
    """The module classes of a pattern, with their names, that torch would trace through, so that the pattern never matched.

    A user of such a module tells `prepare_fx` that it is not traceable, with a `PrepareCustomConfig`.
    """
    named = dict.fromkeys(name for name in claim.operators if next(modules_of(name), ""))
    classes = [(name, operator_named(name)[0]) for name in named]
    return [
        (name, one)
        for name, one in classes
        if isinstance(one, type) and issubclass(one, nn.Module) and not _is_leaf(one)
    ]


def _is_leaf(module: type[nn.Module]) -> bool:
    """Whether torch's quantization traces a call of a module as one node."""
    if issubclass(module, _FusedModule):
        return True
    return module.__module__.startswith(("torch.nn", "torch.ao.nn")) and not issubclass(module, nn.Sequential)


def model_source(claim: Claim, variant: Variant) -> Model:
    """Write the model of a claim and a variant."""
    return written(claim.tree, variant)


def written(whole: Any, variant: Variant) -> Model:
    """Write the model of a nested pattern and a variant."""
    init = [f"self.op = {variant.init}"] if variant.init else []
    if variant.prelude:
        init.insert(0, variant.prelude)
    init += _parameters(variant.parameters)
    imports = dict.fromkeys(module for name in operators_of(whole) for module in modules_of(name))
    forward = ["x = self.prelude(x)"] if variant.prelude else []
    if variant.wildcard and variant.wildcard.layer:
        init.append(f"self.other = {variant.wildcard.layer}")

    def write(tree: Any) -> str:
        """Add the lines that compute `tree` and return the expression of its result."""
        if tree is MatchAllNode:
            assert variant.wildcard is not None
            return variant.wildcard.expression
        if not isinstance(tree, tuple):
            forward.append(f"y = {variant.call}")
            return "y"
        name = pattern_name(tree[0])
        if name in JOINS:
            left, right = (write(part) for part in tree[1:])
            forward.append(f"y = {JOINS[name].format(left=left, right=right)}")
            return "y"
        inner = write(tree[1])
        after = follower(name)
        assert after is not None  # a claim with another operator is not covered
        if argument := variant.followers.get(name):
            after = after.with_argument(argument)
        bound = name.rpartition(".")[2].lower()
        if after.module:
            channels = variant.channels if "{channels}" in after.module else 0
            init.append(f"self.{bound} = {after.module.format(channels=channels)}")
        init.extend(_parameters({key.format(name=bound): shape for key, shape in after.parameters.items()}))
        forward.append(f"y = {after.call.format(name=bound, inner=inner)}")
        return "y"

    context = variant.context
    for neighbour in context.neighbours:
        init += [neighbour.layer] if neighbour.layer else []
    init += context.ties
    forward += (neighbour.line for neighbour in context.before)
    write(whole)
    for _ in range(1, context.applications):
        forward.append("z, x = y, w" if "w" in context.operands else "x = y")
        first = len(forward)
        write(whole)
        for name, source in context.others.items():
            init.append(f"self.second_{name} = {source}")
            forward[first:] = [line.replace(f"self.{name}(", f"self.second_{name}(") for line in forward[first:]]
    forward += (neighbour.line for neighbour in context.after)
    forward.append(f"return {variant.result}")
    return Model(tuple(dict.fromkeys(init)), tuple(forward), tuple(variant.operands.items()), tuple(imports))


def _parameters(shapes: Mapping[str, Shape]) -> list[str]:
    """The lines that make the parameters of functions."""
    return [f"self.{name} = nn.Parameter(torch.empty({shape}))" for name, shape in shapes.items()]


def without_relu(claim: Claim, variant: Variant) -> Model | None:
    """The model without the ReLU that its pattern or fused module ends in, or None if that does not end in a ReLU."""
    if isinstance(claim.tree, tuple):
        return written(claim.tree[1], variant) if pattern_name(claim.tree[0]).lower().endswith(".relu") else None
    operator = claim.root
    if operator not in WITHOUT_RELU:
        return None
    return written(claim.tree, variant.named(variant.name, init=init_without_relu(operator, variant.init)))


def target_source(claim: Claim) -> str:
    """Source of the object type that gets the claim's qconfig if the model contains other operators."""
    name = claim.root
    return repr(name.removeprefix("Tensor.")) if spelled(name).namespace == "Tensor" else name
