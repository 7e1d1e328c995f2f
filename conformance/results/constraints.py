"""The fields of a `DTypeWithConstraints` and what the documentation says of them."""

SIDES = ("input", "output", "weight")
"""What a dtype config constrains; the bias has a dtype only."""


DOCUMENTED = {
    "quant_min_lower_bound": "no code is below it; a QConfig whose quant_min is below is ignored",
    "quant_max_upper_bound": "no code is above it; a QConfig whose quant_max is above is ignored",
    "scale_min_lower_bound": "no scale is below it; a QConfig whose least scale, its eps, is below is ignored",
    "scale_max_upper_bound": "no scale is above it; said to be not enforced",
    "scale_exact_match": "the scale is this one; a QConfig without a fixed-qparams observer of this scale is ignored",
    "zero_point_exact_match": "the zero point is this one; a QConfig whose fixed-qparams observer has another is ignored",
}
"""What the documentation says of each field, in our words."""


FIELDS = tuple(DOCUMENTED)


UNENFORCED = frozenset({"scale_max_upper_bound"})
"""Fields of which the documentation itself says that they are not enforced."""
