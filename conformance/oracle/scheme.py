"""How a case is quantized, in plain values: what observers are made from and what the oracle computes with.

Knows nothing of torch.ao, so that the oracle does not either.
"""

from dataclasses import dataclass

ALWAYS = (0, 1, 2, 3, 4)
"""Numbers of tensor arguments, for operators that keep their input's qparams whatever they are given."""


@dataclass(frozen=True)
class Grid:
    """The codes [`low`, `high`] of one tensor and how scale and zero point are chosen for them.

    `dtype` is torch's name of the quantized dtype. `zero_point` says where zero is: `affine` (an integer fitted to the data),
    `symmetric` (in the middle) or `float` (a float for each row, as embeddings have it). `floor` is the least scale, None
    for the observers' own, 2**-23. `axis` is the dimension that has a scale for each index, None for one scale in all.
    `fixed` gives scale and zero point outright.
    """

    dtype: str
    low: int
    high: int
    zero_point: str = "affine"
    floor: float | None = None
    axis: int | None = None
    fixed: tuple[float, int] | None = None


@dataclass(frozen=True)
class Scheme:
    """How the applications of one pattern are quantized.

    `kind` is `static`, `dynamic` or `weight`. `activation` and `weight` are None for what stays in float; `half` says that
    weights are float16. `shares` are the numbers of tensor arguments with which the output keeps the input's qparams.
    `fused` says that the model's operators are one pattern, quantized as one; otherwise each is quantized by itself.
    `others` is the grid of what stands before the pattern, None if that is `activation` too. With `qat`, observers see
    fake-quantized values.
    """

    kind: str
    activation: Grid | None
    weight: Grid | None
    half: bool = False
    shares: tuple[int, ...] = ()
    fused: bool = False
    others: Grid | None = None
    qat: bool = False
