"""Ranges of activation data on their quantization grid."""

from dataclasses import dataclass, replace

from .operators.variant import Operand, Variant


@dataclass(frozen=True)
class Range:
    """The part of the quantized range that activations cover, and the binary exponent of their step."""

    covers: str
    exponent: int


RANGES = {
    "full": Range("both", -4),
    "positive": Range("above", -4),
    "negative": Range("below", -4),
    "tiny": Range("both", -16),
    "huge": Range("both", 3),
    "unit": Range("above", -8),
    "signed_unit": Range("both", -7),
    "symmetric": Range("middle", -4),
}
"""Ranges by the name in a variant's `data`. `positive` and `negative` put the zero point at the ends of its range.

Ranges without a name are written as part and exponent, such as `above:-9`; `37:-4` covers 37 codes below zero."""


MAGNITUDES = {"tiny": range(-16, -8), "usual": range(-8, -1), "huge": range(-1, 4)}
"""The exponents of steps that count as tiny, usual and huge."""


def range_of(data: str) -> Range:
    """The range of data by its name, or written as part and exponent."""
    covers, _, exponent = data.partition(":")
    return Range(covers, int(exponent)) if exponent else RANGES[data]


def written(covers: str | int, exponent: int) -> str:
    """Data of a part, or of a number of codes below zero, and an exponent, as text."""
    return f"{covers}:{exponent}"


def moved(data: str, steps: int) -> str:
    """The same range with the exponent of its step greater by so many."""
    row = range_of(data)
    return written(row.covers, row.exponent + steps)


def magnitude(exponent: int) -> str:
    """The key of MAGNITUDES of an exponent, of which those beyond the ends count as the ends."""
    return next((name for name in ("tiny", "usual") if exponent < MAGNITUDES[name].stop), "huge")


def bounds(data: str, steps: int) -> tuple[int, int, int]:
    """Return the lowest and highest integer and the exponent of `data` quantized to `steps` + 1 codes."""
    row = range_of(data)
    if row.covers.isdecimal():
        below = int(row.covers) % (steps + 1)
        return -below, steps - below, row.exponent
    half = steps // 2
    low, high = {
        "both": (-(steps + 1) // 2, -(steps + 1) // 2 + steps),
        "middle": (-half, half),
        "above": (0, steps),
        "below": (-steps, 0),
    }[row.covers]
    return low, high, row.exponent


def in_range(variant: Variant, data: str) -> Variant:
    """The variant with data in another range. Operands with a range of their own keep it in relation to that."""
    steps = range_of(data).exponent - range_of(variant.data).exponent

    def in_relation(spec: Operand) -> Operand:
        return replace(spec, data=moved(spec.data, steps)) if spec.data and steps else spec

    every, executed = (
        {name: in_relation(spec) for name, spec in operands.items()}
        for operands in (variant.operands, variant.executed)
    )
    return replace(variant, data=data, operands=every, executed=executed)
