"""Ranges of activation data on their quantization grid."""

from dataclasses import dataclass


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


def bounds(data: str, steps: int) -> tuple[int, int, int]:
    """Return the lowest and highest integer and the exponent of `data` quantized to `steps` + 1 codes."""
    covers, _, exponent = data.partition(":")
    row = Range(covers, int(exponent)) if exponent else RANGES[data]
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
