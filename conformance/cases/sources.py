"""Source text of a model from a claim and a variant, which is executed and printed in reproductions."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from torch.ao.quantization.utils import MatchAllNode

from conformance.cases.operators.networks import layers
from conformance.cases.operators.sizes import enlarged
from conformance.configs.names import pattern_name
from conformance.errors import UsageError

from .claims import Claim
from .operators import OPERATORS, Operand, Variant, codes
from .operators.expressions import Call
from .operators.variant import Wildcard
from .operators.weighted import WITHOUT_RELU, init_without_relu, plain_of, wrapped
from .recipes import QUANTIZED, dtype_config_name

FOLLOWERS: dict[str, tuple[str, str]] = {
    "nn.ReLU": ("nn.ReLU()", "self.{name}({inner})"),
    "F.relu": ("", "F.relu({inner})"),
    "torch.relu": ("", "torch.relu({inner})"),
    "nn.LeakyReLU": ("nn.LeakyReLU(0.25)", "self.{name}({inner})"),
    "F.leaky_relu": ("", "F.leaky_relu({inner}, 0.25)"),
    "nn.Tanh": ("nn.Tanh()", "self.{name}({inner})"),
    "torch.tanh": ("", "torch.tanh({inner})"),
    "nn.BatchNorm1d": ("nn.BatchNorm1d({channels})", "self.{name}({inner})"),
    "nn.BatchNorm2d": ("nn.BatchNorm2d({channels})", "self.{name}({inner})"),
    "nn.BatchNorm3d": ("nn.BatchNorm3d({channels})", "self.{name}({inner})"),
}
"""Operators that follow another one in a pattern: source of the module, if any, and of the call."""

JOINS = {"operator.add": "{left} + {right}", "torch.add": "torch.add({left}, {right})"}
"""Operators of two operands inside a pattern, and source of the call."""


@dataclass(frozen=True)
class Model:
    """A model as source text: lines of `__init__`, lines of `forward`, and the operands of `forward` in order."""

    init: tuple[str, ...]
    forward: tuple[str, ...]
    operands: tuple[tuple[str, Operand], ...]

    @property
    def source(self) -> str:
        init = "".join(f"        {line}\n" for line in self.init)
        forward = "".join(f"        {line}\n" for line in self.forward)
        names = ", ".join(name for name, _ in self.operands)
        return (
            "class Model(nn.Module):\n"
            f"    def __init__(self):\n        super().__init__()\n{init}\n"
            f"    def forward(self, {names}):\n{forward}"
        )


def operators_of(tree: Any) -> Iterator[str]:
    """Names of the operators of a nested pattern without its wildcards, the root operator first."""
    if not isinstance(tree, tuple):
        if tree is not MatchAllNode:
            yield pattern_name(tree)
        return
    for part in tree[1:]:
        yield from operators_of(part)
    yield pattern_name(tree[0])


def root_of(tree: Any) -> str:
    """Name of the operator that takes the pattern's input."""
    return next(operators_of(tree))


def is_qat_module(name: str) -> bool:
    return name.startswith(("nnqat.", "nniqat."))


def missing_operators(claim: Claim) -> list[str]:
    """Names of the pattern's operators that the tables lack."""
    root, *rest = operators_of(claim.tree)
    missing = [] if root in OPERATORS else [root]
    return missing + [name for name in rest if name not in FOLLOWERS and name not in JOINS]


def flows(claim: Claim, config_entries: dict[Any, Any]) -> tuple[str, ...]:
    """`ptq`, and `qat` for an entry with a QAT module; a QAT module itself exists only in models prepared for training."""
    entry = claim.entry
    if is_qat_module(root_of(claim.tree)):
        return ("qat",)
    fused = config_entries.get(entry.fused_module)
    trainable = entry.qat_module is not None or (fused is not None and fused.qat_module is not None)
    return ("ptq", "qat") if trainable else ("ptq",)


def variants(claim: Claim) -> list[Variant]:
    """All variants of a claim. Raises UsageError naming an operator that the tables lack."""
    if lacking := missing_operators(claim):
        raise UsageError(
            f"{claim.id}: no operator {lacking[0]!r} in the tables: add an entry for it to conformance/cases/operators/"
        )
    applicable = _variants(claim.tree)
    if claim.dtypes.weight_dtype not in QUANTIZED:
        applicable = [variant for variant in applicable if not variant.per_channel]
    if claim.dtypes.is_dynamic or claim.dtypes.input_dtype not in QUANTIZED:  # ranges of activations are not observed
        applicable = [variant for variant in applicable if not variant.saturates and not variant.symmetric]
    return applicable


def large(claim: Claim) -> Variant:
    """The variant of a claim for the metamorphic relations: the enlarged default one, per channel if any variant is."""
    return _large(claim.tree, has_per_channel(claim))


def deployed(claim: Claim) -> Iterator[tuple[str, Variant]]:
    """Extents and variants of a claim for timing: layers of networks, per channel if any variant is."""
    root = root_of(claim.tree)
    per_channel = has_per_channel(claim)
    layer = plain_of(root)
    for extent, sized in layers(layer, OPERATORS[layer][0]):
        variant, *_ = continuing(claim.tree, [wrapped(sized, root)])
        yield extent, variant.named(sized.name, per_channel=per_channel)


def swept(claim: Claim) -> Iterator[Variant]:
    """Variants of a statically quantized claim for sweeps over all codes; none for a claim whose operator has none.

    Layers are per channel if any variant is, and those that are not part of a pattern or module also per tensor.
    """
    if not dtype_config_name(claim.dtypes).startswith("static"):
        return
    root = root_of(claim.tree)
    layer = plain_of(root)
    for sized in codes.swept(layer, OPERATORS[layer]):
        variant, *_ = continuing(claim.tree, [wrapped(sized, root)])
        per_channel = layer in codes.ONE_WEIGHT and has_per_channel(claim)
        if not per_channel or (root == layer and not isinstance(claim.tree, tuple)):
            yield variant
        if per_channel:
            yield variant.named(f"{variant.name}_per_channel", per_channel=True)


def has_per_channel(claim: Claim) -> bool:
    """Whether any variant of a claim quantizes weights per channel."""
    return any(variant.per_channel for variant in variants(claim))


@cache
def _large(tree: Any, per_channel: bool) -> Variant:
    root = root_of(tree)
    layer = plain_of(root)
    variant, *_ = continuing(tree, [wrapped(enlarged(layer, OPERATORS[layer][0]), root)])
    return variant.named("large", per_channel=per_channel)


@cache
def _variants(tree: Any) -> list[Variant]:
    root = root_of(tree)
    if not isinstance(tree, tuple):
        return OPERATORS[root]
    return continuing(tree, [v for v in OPERATORS[root] if v.core])


def continuing(tree: Any, core: list[Variant]) -> list[Variant]:
    """Variants of a pattern from variants of its root operator."""
    if _has_wildcard(tree):
        core = [wild for v in core for wild in _wildcards(v, left=_wildcard_is_left(tree))]
    if any(name.startswith("nn.BatchNorm") for name in operators_of(tree)):
        core = [v for v in core if v.output]
    return core


def _has_wildcard(tree: Any) -> bool:
    return tree is MatchAllNode or (isinstance(tree, tuple) and any(_has_wildcard(part) for part in tree))


def _wildcard_is_left(tree: Any) -> bool:
    """Whether the wildcard is the first operand, as in `(torch.add, MatchAllNode, nn.Conv2d)`."""
    return isinstance(tree, tuple) and (tree[1] is MatchAllNode or _wildcard_is_left(tree[1]))


def _wildcards(variant: Variant, *, left: bool) -> Iterator[Variant]:
    """Variants for the operand that the wildcard matches.

    It is another input and, beside the default variant, the pattern's own input, another layer, a number, a smaller
    tensor, or an input that the model returns too. With the wildcard on the left, two layers are left out: they fit the
    pattern with the wildcard on the right too, and that one gets them.
    """
    second = {**variant.operands, "other": Operand(variant.output, exponent=1)}
    yield variant.named(variant.name, operands=second, wildcard=Wildcard("other"))
    if variant.name != "default":
        return
    yield from _residual(variant)
    if variant.init and not left:
        yield variant.named("two_layers", wildcard=Wildcard("self.other(x)", variant.init))
    yield variant.named("scalar", wildcard=Wildcard("0.5"))
    smaller = {**variant.operands, "other": Operand((1, variant.channels, 1, 1))}
    yield variant.named("broadcast", operands=smaller, wildcard=Wildcard("other"))
    yield variant.named("other_reused", operands=second, wildcard=Wildcard("other"), result="y, other")


def _residual(variant: Variant) -> Iterator[Variant]:
    """The operator with its own input as the other operand; a layer gets as many output as input channels.

    There is none for a functional whose parameters change the number of channels.
    """
    batch, channels, *_ = variant.operands["x"].shape
    if variant.channels == channels:
        yield variant.named("residual", wildcard=Wildcard("x"))
    elif variant.init:
        layer = Call.parse(variant.init).with_arguments({0: channels, 1: channels})
        output = (batch, channels, *variant.output[2:])
        yield variant.named("residual", init=layer.source, output=output, wildcard=Wildcard("x"))


def model_source(claim: Claim, variant: Variant) -> Model:
    """Write the model of a claim and a variant."""
    return written(claim.tree, variant)


def written(whole: Any, variant: Variant) -> Model:
    """Write the model of a nested pattern and a variant."""
    init = [f"self.op = {variant.init}"] if variant.init else []
    if variant.prelude:
        init.insert(0, variant.prelude)
    init += [f"self.{name} = nn.Parameter(torch.empty({shape}))" for name, shape in variant.parameters.items()]
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
        module, call = FOLLOWERS[name]
        bound = name.rpartition(".")[2].lower()
        if module:
            init.append(f"self.{bound} = {module.format(channels=variant.channels)}")
        forward.append(f"y = {call.format(name=bound, inner=inner)}")
        return "y"

    context = variant.context
    for neighbour in context.neighbours:
        init += [neighbour.layer] if neighbour.layer else []
    init += context.ties
    forward += (neighbour.line for neighbour in context.before)
    write(whole)
    for _ in range(1, context.applications):
        forward += ["z, x = y, w"]
        write(whole)
    forward += (neighbour.line for neighbour in context.after)
    forward.append(f"return {variant.result}")
    return Model(tuple(dict.fromkeys(init)), tuple(forward), tuple(variant.operands.items()))


def without_relu(claim: Claim, variant: Variant) -> Model | None:
    """The model without the ReLU that its pattern or fused module ends in, or None if that does not end in a ReLU."""
    if isinstance(claim.tree, tuple):
        return written(claim.tree[1], variant) if pattern_name(claim.tree[0]).lower().endswith(".relu") else None
    operator = root_of(claim.tree)
    if operator not in WITHOUT_RELU:
        return None
    return written(claim.tree, variant.named(variant.name, init=init_without_relu(operator, variant.init)))


def target_source(claim: Claim) -> str:
    """Source of the object type that gets the claim's qconfig if the model contains other operators."""
    name = root_of(claim.tree)
    return repr(name.removeprefix("Tensor.")) if name.startswith("Tensor.") else name
