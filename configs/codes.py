"""The grid of the codes of a tensor, in plain values: what a workflow declares and what exact arithmetic computes with."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Codes:
    """The grid of a tensor.

    Attributes:
        low, high: least and greatest code; of float codes those of their dtype.
        mapping: `symmetric`, where half of the range stands for the greatest magnitude; `no_clipping`, where both ends do;
            `asymmetric`, with a zero point; `from_least`, where the least element has the least code, and zero need not
            have one; or `least_squares`, where each scale is chosen anew for its codes until it stays.
        blocks: what has a scale of its own: each `row`, of weights all that belongs to an output, of inputs a vector of the
            last dimension; the whole `tensor`; or each group of so many elements along the input channels.
        dtype: the float dtype of codes that are no integers.
        scale: the dtype in which scales are computed; empty for that of the tensor.
        floor: the least scale; 0 for the smallest normal number of the dtype of the tensor.
        stored: the dtype to which scales are rounded before codes are computed; empty for that of the tensor.
    """

    low: float
    high: float
    mapping: str = "symmetric"
    blocks: str | int = "row"
    dtype: str = ""
    scale: str = ""
    floor: float = 0.0
    stored: str = ""
