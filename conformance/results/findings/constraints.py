"""Findings about constraints: tensors that violate a `DTypeWithConstraints`."""

from dataclasses import dataclass

from .finding import Finding

Number = int | float

TENSOR_SENTENCES = {
    "scale_min_lower_bound": "scale {got!r} is below {bound!r}",
    "scale_max_upper_bound": "scale {got!r} is above {bound!r}",
    "scale_exact_match": "scale is {got!r}, not {bound!r}",
    "zero_point_exact_match": "zero point is {got:g}, not {bound}",
    "quant_min_lower_bound": "has code {got}, below quant_min {bound}",
    "quant_max_upper_bound": "has code {got}, above quant_max {bound}",
}
"""The sentence about a violating tensor, by field."""


@dataclass(frozen=True)
class ConstraintViolated(Finding, kind="constraint-violated"):
    """A tensor of a run violates a field of the dtype config's constraints.

    `what` names the tensor: input, output, weight, engine's output or packed weight.
    """

    what: str
    field: str
    got: Number
    bound: Number

    @property
    def text(self) -> str:
        return f"{self.what} {TENSOR_SENTENCES[self.field].format(got=self.got, bound=self.bound)}"
