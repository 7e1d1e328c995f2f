"""How a case is quantized, in plain values. Both the observers and the oracle are configured from it.

It does not import torch.ao, because the oracle must not.
"""

from dataclasses import dataclass

ALWAYS = (0, 1, 2, 3, 4)
"""`Scheme.shares` of an operator that keeps its input's qparams for any number of tensor arguments."""


PARTS = ("tensor", "row", "item", "pixel")
"""What a kernel chooses the qparams of a dynamically quantized activation for: the whole tensor, each vector of its last
dimension, each item of the batch, or each vector of its channels, dimension 1."""


@dataclass(frozen=True)
class Grid:
    """The codes of one tensor and the rule for its scale and zero point.

    Attributes:
        dtype: torch's name of the quantized dtype, such as `quint8`.
        low, high: least and greatest code (quant_min, quant_max).
        zero_point: `affine` (an integer computed from the data), `symmetric` (the middle of the codes) or `float` (a float
            for each row, as in embeddings).
        floor: the least scale; None for the observers' default, 2**-23.
        axis: the dimension that has a scale for each index; None for one scale per tensor.
        fixed: scale and zero point that do not depend on data.
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
    """How a model of one pattern is quantized.

    Attributes:
        kind: `static`, `dynamic` or `weight`.
        activation: the grid of activations; None if they stay in float.
        weight: the grid of weights; None if they stay in float or are float16.
        half: whether weights are float16.
        shares: numbers of tensor arguments with which an operator's output keeps its input's qparams.
        fused: whether the operators of the pattern are quantized as one; otherwise each has an output of its own.
        others: the grid of operators beside the pattern; None if it is `activation`.
        qat: whether observers see fake-quantized values.
        before, after: the operators before and after the pattern, in order of execution: whether the output of each keeps
            its input's qparams.
        applications: how often the pattern is applied, one time after the other.
        prelude_keeps: whether the output of an activation that precedes the pattern keeps its input's qparams.
        float_results: whether the results of operators that no operator takes stay in float in a static model.
        floats: inputs of the model that stay in float.
        dynamic_inputs: whether every tensor that a dynamic pattern takes is quantized, not only the input of its layer.
        dynamic_parts: what has qparams of its own in a dynamically quantized activation: a key of `PARTS`.
    """

    kind: str
    activation: Grid | None
    weight: Grid | None
    half: bool = False
    shares: tuple[int, ...] = ()
    fused: bool = False
    others: Grid | None = None
    qat: bool = False
    before: tuple[bool, ...] = ()
    after: tuple[bool, ...] = ()
    applications: int = 1
    prelude_keeps: bool = True
    float_results: bool = False
    floats: tuple[str, ...] = ()
    dynamic_inputs: bool = False
    dynamic_parts: str = "tensor"
