"""Variants of an operator: calls, operands, data and batch size."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from conformance.results.findings.stages import INDICES, VIEWS

from .expressions import NONE, Call, expression

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Operand:
    """One argument of ``forward``.

    ``shape`` is the shape of the calibration data. ``kind`` is ``activation`` (float32), ``indices`` (int64 below
    ``limit``), ``offsets`` (int64, ascending) or ``weights`` (float32, small and positive). ``exponent`` shifts
    the data's scale by that power of two relative to the variant's, so that operands may have different scales.
    ``layout`` is the memory format: ``contiguous``, ``channels_last`` (4 or 5 dimensions), or ``strided``, with gaps
    between the elements of the last dimension. ``data`` is a key of `ranges.RANGES`, if it is not the variant's.
    An operand with ``degenerate`` data has those that this key of `DEGENERATE`, `VIEWS`, `BEYOND` or `INDICES` names.
    """

    shape: Shape
    kind: str = "activation"
    limit: int = 0
    exponent: int = 0
    layout: str = "contiguous"
    data: str = ""
    degenerate: str = ""


@dataclass(frozen=True)
class Wildcard:
    """The operand that a pattern's wildcard matches: its expression and, if that calls `self.other`, source of that layer."""

    expression: str
    layer: str = ""


@dataclass(frozen=True)
class Neighbour:
    """An operator beside a pattern: its name, the line that applies it, the line that makes its module, if it has one, and
    whether its output keeps the qparams of its input. One that the backend has no claim about may run in float, in kernels
    of the names `in_float`."""

    operator: str
    line: str
    layer: str = ""
    keeps_qparams: bool = False
    in_float: tuple[str, ...] = ()


@dataclass(frozen=True)
class Context:
    """The operators around a pattern.

    ``before`` and ``after`` are in order of execution; they rebind ``x``, which the pattern takes, and ``y``, which it
    computes. ``operands`` replace those of the variant, or are further ones. ``ties`` are lines that let two modules share a
    parameter. With two ``applications`` the pattern takes ``w`` too, or else its own result; its first result is ``z``.
    ``others`` has the modules, by name and source, that the second application calls in place of the pattern's own.
    ``unasked`` if the mapping leaves the pattern in float, and its neighbours alone are quantized. ``configured`` is the way,
    of `QuantizerSpec.ways`, in which the pattern's module alone is configured, not all operators. ``result`` is as in
    `Variant`.
    """

    before: tuple[Neighbour, ...] = ()
    after: tuple[Neighbour, ...] = ()
    operands: Mapping[str, Operand] = field(default_factory=dict)
    ties: tuple[str, ...] = ()
    applications: int = 1
    others: Mapping[str, str] = field(default_factory=dict)
    unasked: bool = False
    configured: str = ""
    result: str = "y"

    @property
    def neighbours(self) -> tuple[Neighbour, ...]:
        return (*self.before, *self.after)


ALONE = Context()
"""The context of a pattern that has no other operator around it."""


@dataclass(frozen=True)
class Variant:
    """One way to call an operator.

    ``init`` is the expression bound to ``self.op`` (empty for functions and methods), ``call`` the expression that
    applies the operator to the operands; both are a `Call` with its arguments, made of the text if a third party states that.
    ``parameters`` are the tensors a functional takes, bound to ``self`` by name.
    ``output`` is the shape of the result, stated if a second operand or a batch norm has to fit it. ``batch`` replaces
    the leading dimension between calibration and execution, and ``executed`` has operands of the execution that differ from
    those of the calibration in their sizes. ``data`` is a key of `ranges.RANGES`; for ``symmetric`` data
    the observers of activations are symmetric too. A variant that ``saturates`` is calibrated with the two ends of the
    data and zeros, so that its execution exceeds the observed range of the output, but not that of the input; with data that
    are not dyadic, its execution has inputs 1.5 and 2 times as large as those of the calibration. ``core``
    variants are also used if the operator begins a longer pattern. ``followers`` has arguments of operators that follow it in
    a pattern, as source text by operator. ``prelude`` is the source of an operator that precedes it, ``wildcard`` the operand
    of the pattern's wildcard, ``applications`` how often the module is applied, ``result`` the expression that the model
    returns, and ``context`` the operators around the pattern.
    """

    name: str
    call: str
    operands: Mapping[str, Operand]
    init: str = NONE
    parameters: Mapping[str, Shape] = field(default_factory=dict)
    output: Shape = ()
    batch: int | None = None
    executed: Mapping[str, Operand] = field(default_factory=dict)
    data: str = "full"
    per_channel: bool = False
    saturates: bool = False
    core: bool = False
    followers: Mapping[str, str] = field(default_factory=dict)
    prelude: str = ""
    wildcard: Wildcard | None = None
    applications: int = 1
    result: str = "y"
    context: Context = ALONE

    def __post_init__(self) -> None:
        for name in ("init", "call"):
            object.__setattr__(self, name, expression(getattr(self, name)))

    @property
    def stated(self) -> Call:
        """The call that states the options: of the module's constructor, of the function or of the method."""
        call = self.init or self.call
        assert isinstance(call, Call), call
        return call

    @property
    def keywords(self) -> Mapping[str, Any]:
        """The arguments of the call that are passed by name."""
        return self.call.keywords if isinstance(self.call, Call) else {}

    @property
    def channels(self) -> int:
        """Number of channels of the result: dimension 1, or the last one of a matrix."""
        return self.output[1]

    def executed_operand(self, name: str) -> Operand:
        """An operand as the execution has it."""
        spec = self.executed.get(name, self.operands[name])
        return spec if self.batch is None else replace(spec, shape=(self.batch, *spec.shape[1:]))

    @property
    def has_other_operators(self) -> bool:
        """Whether the model contains anything besides a single application of the pattern."""
        other_layer = self.wildcard is not None and bool(self.wildcard.layer)
        return bool(self.prelude) or other_layer or self.applications > 1 or self.context != ALONE

    @property
    def symmetric(self) -> bool:
        """Whether the observers of activations are symmetric."""
        return self.data == "symmetric"

    def named(self, name: str, **changes: object) -> "Variant":
        """The same variant under another name, with some fields changed."""
        return replace(self, name=name, **changes)  # type: ignore[arg-type]

    def beside(self, *, left: bool) -> Iterator["Variant"]:
        """The same variant with the operands that a pattern's wildcard may match.

        The wildcard is another input and, beside the default variant, the pattern's own input, another layer, a number, a
        smaller tensor, or an input that the model returns too. With the wildcard on the left, two layers are left out: they
        fit the pattern with the wildcard on the right too, and that one gets them.
        """
        second = {**self.operands, "other": Operand(self.output, exponent=1)}
        yield replace(self, operands=second, wildcard=Wildcard("other"))
        if self.name != "default":
            return
        yield from self._residual()
        if self.init and not left:
            yield self.named("two_layers", wildcard=Wildcard("self.other(x)", self.init))
        yield self.named("scalar", wildcard=Wildcard("0.5"))
        smaller = {**self.operands, "other": Operand((1, self.channels, 1, 1))}
        yield self.named("broadcast", operands=smaller, wildcard=Wildcard("other"))
        yield self.named("other_reused", operands=second, wildcard=Wildcard("other"), result="y, other")

    def _residual(self) -> Iterator["Variant"]:
        """The operator with its own input as the other operand; a layer gets as many output as input channels.

        There is none for a functional whose parameters change the number of channels.
        """
        batch, channels, *_ = self.operands["x"].shape
        if self.channels == channels:
            yield self.named("residual", wildcard=Wildcard("x"))
        elif self.init:
            layer = self.stated
            init = Call(layer.function, (channels, channels, *layer.positional[2:]), layer.keywords)
            output = (batch, channels, *self.output[2:])
            yield self.named("residual", init=init, output=output, wildcard=Wildcard("x"))


def in_sizes(variant: Variant, shapes: Mapping[str, Shape]) -> Variant:
    """The variant with operands of the execution in these shapes, by name. Offsets of bags spread over all indices."""
    specs = {name: replace(spec, shape=shapes[name]) for name, spec in variant.operands.items()}
    lookups = min((math.prod(spec.shape) for spec in specs.values() if spec.kind == "indices"), default=0)
    spread = {name: replace(spec, limit=lookups) for name, spec in specs.items() if spec.kind == "offsets"}
    return replace(variant, executed={**specs, **spread}, batch=None)


def in_degenerate_data(variant: Variant, data: str) -> Variant:
    """The variant whose execution has the data that a key of `DEGENERATE`, `VIEWS`, `BEYOND` or `INDICES` names."""
    kinds = ("activation",) if data not in INDICES else ("indices", "offsets") if data == "int32" else ("indices",)
    specs = {name: variant.executed_operand(name) for name in variant.operands}
    if data in VIEWS:
        specs = {name: replace(spec, layout="contiguous") for name, spec in specs.items()}
    changed = {n: replace(spec, degenerate=data) if spec.kind in kinds else spec for n, spec in specs.items()}
    return replace(variant, executed=changed, batch=None)


def operands(*shapes: Shape, **named: Shape | Operand) -> dict[str, Operand]:
    """Operands ``x``, ``y`` and ``z`` from shapes in order, and further ones by name."""
    positional = {name: Operand(shape) for name, shape in zip("xyz", shapes, strict=False)}
    return positional | {name: value if isinstance(value, Operand) else Operand(value) for name, value in named.items()}


def data_variants(base: Variant, *names: str) -> list[Variant]:
    """`base` with other ranges of data: zero points at the ends of the codes, the smallest and the largest scales."""
    return [base.named(name, data=name, core=False) for name in names or ("positive", "negative", "tiny", "huge")]


def static_variants(base: Variant) -> list[Variant]:
    """`base` with an output beyond its observed range, and with zero points in the middle of the codes.

    They apply only to statically quantized activations, whose scales and zero points are observed.
    """
    return [base.named("saturates", saturates=True), base.named("symmetric", data="symmetric")]


def layout_variants(base: Variant, name: str = "channels_last") -> list[Variant]:
    """`base` on images or volumes in channels-last memory format."""
    laid = {
        key: replace(spec, layout="channels_last") if len(spec.shape) in (4, 5) else spec
        for key, spec in base.operands.items()
    }
    return [base.named(name, operands=laid, core=False)] if laid != base.operands else []


def strided_variant(base: Variant) -> Variant:
    """`base` with gaps between the elements of every activation."""
    laid = {
        key: replace(spec, layout="strided") if spec.kind == "activation" else spec
        for key, spec in base.operands.items()
    }
    return base.named("strided", operands=laid, core=False)


def batch_variants(base: Variant, *sizes: int) -> list[Variant]:
    """`base` executed with other batch sizes than it is calibrated with."""
    return [base.named(f"batch{size}", batch=size, core=base.core and size == 0) for size in sizes or (0, 1, 5)]
