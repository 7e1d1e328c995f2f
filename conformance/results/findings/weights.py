"""Findings about modules that were quantized in place: what the weight stores, and the dtype of what the module gives."""

from .finding import Finding
from .values import OfOutput


class WeightBlocks(Finding, kind="weight-blocks"):
    """There are more scales or fewer than the declared grid has blocks."""

    got: int
    expected: int
    template = "{got} scales of the weight, not {expected}"


class WeightScales(Finding, kind="weight-scales"):
    """Scales differ from those of the declared grid, by up to `worst` of them."""

    mismatched: int
    total: int
    worst: float
    template = "{mismatched} of {total} scales of the weight are not those of its blocks, by up to {worst:.2g} of them"


class WeightZeroPoints(Finding, kind="weight-zero-points"):
    """Zero points differ from those of the declared grid."""

    mismatched: int
    total: int
    template = "{mismatched} of {total} zero points of the weight are not those of its blocks"


class WeightCodes(Finding, kind="weight-codes"):
    """Codes are not the nearest ones on the grid of the stored scales and zero points."""

    mismatched: int
    total: int
    template = "{mismatched} of {total} codes of the weight are not the nearest ones"


class WeightVanishes(Finding, kind="weight-vanishes"):
    """All codes stand for zero, and the weight does not."""

    template = "all codes of the weight stand for zero"


class OutputDtype(OfOutput, kind="output-dtype"):
    """The dtype of a float output is not that of the float model's."""

    got: str
    expected: str
    template = "dtype {got}, not {expected}"
