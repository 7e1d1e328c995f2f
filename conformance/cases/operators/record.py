"""Operators as records: the option space of each, and its points that are fixed, measured and swept."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property

from .space import Space, Values
from .variant import Shape, Variant

IMAGE: Shape = (2, 4, 7, 5)
"""Default shape: 280 elements, so that vector loops have a scalar tail."""

WIDE_INPUT = "self.prelude = nn.Hardtanh(-8.0, 8.0)"
"""Source of an operator with qparams of its own, which precedes a fixed-qparams function as in a network."""

LARGE: Shape = (8, 67, 13, 11)
"""76,648 elements: torch splits element-wise work among threads from 32,768 on; vectors are 16 to 64 bytes."""

BATCH = 257
"""Items of a large batch. An image of the default size has 35,980 elements then."""

EXTENTS = ("small", "medium", "large")
"""Costs of the layers of an operator that are timed, relative to each other."""

Layers = Mapping[str, tuple[str, Values]]
"""Layers of networks: extent and values by name."""

IMAGES: Mapping[str, tuple[str, Shape]] = {
    "resnet50_256_14": ("small", (1, 256, 14, 14)),
    "resnet50_256_56": ("medium", (1, 256, 56, 56)),
    "resnet50_batch8_56": ("large", (8, 256, 56, 56)),
}
"""Extents and shapes of the inputs of operators without a layer of their own, by name (ResNet-50, see `networks`)."""


class SweepKind(Enum):
    """What a sweep over all codes needs to know of an operator: how its output depends on them."""

    CODES = "a function of each code"
    FIXED = "a function of each code, with fixed qparams"
    MOVES = "the codes, copied or moved"
    PAIRS = "a function of two codes"
    CHANNELS = "a factor and an addend for each channel"
    WEIGHTS = "a weight for each channel"


CODES = 256
"""The number of codes of an 8-bit tensor."""

TAIL = 31
"""Elements after all codes: fewer than any engine's vector has bytes, except NEON's 16, and odd."""

EVERY_CODE: Shape = (1, 2 * CODES + TAIL)
EVERY_CODE_OF_IMAGE: Shape = (1, 1, 3, (2 * CODES + TAIL) // 3)
EVERY_PAIR: Shape = (1, CODES * CODES + TAIL)
CHANNELS = 35
"""Output channels of a swept layer: a tile of any engine and a remainder."""

SWEPT_SIGNALS: dict[int, Shape] = {1: (CODES + TAIL,), 2: (7, 41), 3: (7, 41, 1)}
"""Shapes of `CODES + TAIL` elements by the number of spatial dimensions."""


@dataclass(frozen=True)
class Operator:
    """What the suite knows of an operator.

    Values by name, of every kind, replace those of the default point, which itself replaces defaults of the space.

    Attributes:
        name: the name as in claims.
        space: the option space.
        points: the fixed variants; the first is the default one.
        core: the fixed variants that longer patterns have, too.
        large: the values for laws: larger than vectors, thread grains and cache tiles of kernels, with odd remainders.
        layers: the layers of networks on which latency is measured.
        counts: sizes whose counts need more bits than those of small models.
        sweep: how the output depends on codes; None for an operator without a sweep.
        sweeps: the variants for sweeps, if they are not those of SWEEPS.
        combined: whether values of the space are combined; not those of methods that torch lacks.
    """

    name: str
    space: Space
    points: Mapping[str, Values]
    core: frozenset[str] = frozenset({"default", "batch0"})
    large: Values = field(default_factory=dict)
    layers: Layers = field(default_factory=dict)
    counts: Mapping[str, Values] = field(default_factory=dict)
    sweep: SweepKind | None = None
    sweeps: Mapping[str, Values] = field(default_factory=dict)
    combined: bool = True

    @property
    def weighted(self) -> bool:
        """Whether the operator is a convolution or a linear layer."""
        return self.sweep is SweepKind.WEIGHTS

    @cached_property
    def variants(self) -> list[Variant]:
        """The fixed variants."""
        return [self.at(name, values, core=name in self.core) for name, values in self.points.items()]

    def at(self, name: str, values: Values, *, core: bool = False) -> Variant:
        """The variant of values, under a name."""
        return self.space.written(name, {**self.space.defaults, **self.points["default"], **values}, core=core)

    def shaped(self, shape: Shape) -> Values:
        """The values with which every operand has a shape."""
        form = self.space.defaults["form"]
        return {"form": (shape,) * len(form) if isinstance(form[0], tuple) else shape}

    def enlarged(self) -> Variant:
        """The variant for laws."""
        return self.at("default", self.large or self.shaped(LARGE))

    def timed(self) -> list[tuple[str, Variant]]:
        """Extent and variant of every layer on which the operator is timed, by extent."""
        layers = self.layers or {name: (extent, self.shaped(shape)) for name, (extent, shape) in IMAGES.items()}
        found = [(extent, self.at(name, values)) for name, (extent, values) in layers.items()]
        return sorted(found, key=lambda layer: EXTENTS.index(layer[0]))

    def counted(self) -> Iterator[Variant]:
        """The variants with large counts; none for most operators."""
        for name, values in self.counts.items():
            yield self.at(name, values)

    def swept(self, *, images: bool = False, channels_last: bool = False) -> Iterator[Variant]:
        """The variants for sweeps. `images` gives an operator of one tensor of any shape an image; `channels_last` says that
        images are in this format, which those of one channel do not show."""
        sweeps = self.sweeps or SWEEPS.get(self.sweep, {})
        for name, values in sweeps.items():
            if images and self.sweep is SweepKind.CODES:
                values = self.shaped(EVERY_CODE_OF_IMAGE)
            if name not in WEIGHTS_SWEPT or len(sweeps) == 1 or name == WEIGHTS_SWEPT[channels_last]:
                yield self.at(name, values)


WEIGHTS_SWEPT = ("one_weight", "two_weights")
"""The sweeps of a layer with one weight for each output channel, and with two."""

SWEEPS: Mapping[SweepKind | None, Mapping[str, Values]] = {
    SweepKind.CODES: {"every_code": {"form": EVERY_CODE}},
    SweepKind.MOVES: {"every_code": {}},
}
"""The sweeps of operators of one tensor of any shape, and of those that require certain shapes."""

MANY_IMAGES: Shape = (BATCH, *IMAGE[1:])
BATCHED: Mapping[str, Values] = {f"batch_{BATCH}": {"form": MANY_IMAGES}}
PAIR_BATCHED: Mapping[str, Values] = {f"batch_{BATCH}": {"form": (MANY_IMAGES, MANY_IMAGES)}}
"""The counts of operators of one image and of two."""

USUAL: Mapping[str, Values] = {
    **{f"batch{items}": {"batch": items} for items in (0, 1, 5)},
    **{part: {"data": part} for part in ("positive", "negative", "tiny", "huge", "symmetric")},
    **{layout: {"layout": layout} for layout in ("channels_last", "strided")},
}
"""Values of points that have the same name with all operators."""


def fixed(space: Space, names: str, values: Mapping[str, Values] = {}, **base: object) -> dict[str, Values]:
    """Points by name, in this order. `values` are theirs; others are USUAL, or named by labels of the space. All have `base`,
    unless their own values differ."""

    def own(name: str) -> Values:
        known = {} if name == "default" else values.get(name, USUAL.get(name))
        if known is not None:
            return known
        return {factor: space.by_name[factor].values[label] for factor, label in space.point(name).items()}

    return {name: {**base, **own(name)} for name in names.split()}
