"""The fields of a `DTypeWithConstraints` with their documented meaning, and the constraint that a run tests."""

from dataclasses import dataclass

SIDES = ("input", "output", "weight")
"""The sides that a dtype config constrains; the bias has a dtype only."""

DOCUMENTED = {
    "quant_min_lower_bound": "no code is below it; a QConfig whose quant_min is below is ignored",
    "quant_max_upper_bound": "no code is above it; a QConfig whose quant_max is above is ignored",
    "scale_min_lower_bound": "no scale is below it; a QConfig whose least scale, its eps, is below is ignored",
    "scale_max_upper_bound": "no scale is above it; said to be not enforced",
    "scale_exact_match": "the scale is this one; a QConfig without a fixed-qparams observer of this scale is ignored",
    "zero_point_exact_match": "the zero point is this one; a QConfig whose fixed-qparams observer has another is ignored",
}
"""The documented meaning of each field."""

FIELDS = tuple(DOCUMENTED)


UNENFORCED = frozenset({"scale_max_upper_bound"})
"""Fields that are documented as not enforced."""


@dataclass(frozen=True)
class Constraint:
    """One field of one side of a dtype config. A run that tests it has a variant of this name."""

    side: str
    field: str

    @property
    def name(self) -> str:
        return f"{self.side}.{self.field}"


CONSTRAINTS = {f"{side}.{field}": Constraint(side, field) for side in SIDES for field in FIELDS}
"""Every constraint by its name."""
