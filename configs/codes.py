"""The grid of the codes of a tensor, in plain values: what a workflow declares and what exact arithmetic computes with."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Codes:
    """The grid of a tensor.

    Attributes:
        low, high: least and greatest code; of float codes those of their dtype.
        mapping: `symmetric`, where half of the range stands for the greatest magnitude; `no_clipping`, where both ends do;
            `asymmetric`, with a zero point; `from_least`, where the least element has the least code, and zero need not
            have one; `least_squares`, where each scale is chosen anew for its codes until it stays; or how scales that are
            powers of two are rounded, `floor`, `ceil`, `even` or `rceil`.
        blocks: what has a scale of its own: each `row`, of weights all that belongs to an output, of inputs a vector of the
            last dimension; the whole `tensor`; or each group of so many elements along the input channels.
        dtype: the float dtype of codes that are no integers; `float4_e2m1` is one.
        scale: the dtype in which scales are computed; empty for that of the tensor.
        floor: the least scale; 0 for the smallest normal number of the dtype of the tensor.
        stored: the dtype to which scales are rounded before codes are computed; empty for that of the tensor.
        shared: the greatest scale that is stored in a tensor whose scales are multiples of one float32; 0 if they are stored
            as they are. `floor` then counts in these multiples.
    """

    low: float
    high: float
    mapping: str = "symmetric"
    blocks: str | int = "row"
    dtype: str = ""
    scale: str = ""
    floor: float = 0.0
    stored: str = ""
    shared: float = 0.0

    @property
    def is_exact(self) -> bool:
        """Whether scales are powers of two, so that nothing but the codes is rounded."""
        return self.mapping in ("floor", "ceil", "even", "rceil")
