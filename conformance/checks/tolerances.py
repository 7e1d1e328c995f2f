"""The one table of tolerances wider than a tie: operator, engine, how wide, why, and what shows it."""

import fnmatch
from collections.abc import Iterable
from dataclasses import dataclass, replace

from conformance.cases.operators import WEIGHTED
from conformance.cases.runs import Run
from conformance.cases.sources import root_of
from conformance.models.data import GREATEST_BIAS
from conformance.results.profiles import PROFILES
from conformance.results.rows import Row


@dataclass(frozen=True)
class Tolerance:
    """`steps` of the output's grid, or `relative` to the greatest value where the output is float.

    The steps are allowed where the exact position on the grid is within `band` of the middle between two codes: anywhere with
    1/2. `magnitude` is the least that counts as the greatest value: what float32 rounded on the way may have cancelled out.
    """

    operator: str
    engine: str
    reason: str
    evidence: str
    steps: int = 0
    band: float = 0.5
    relative: float = 0.0
    magnitude: float = 0.0

    @property
    def anywhere(self) -> int:
        """Steps that are allowed wherever an element lies."""
        return self.steps if self.band >= 0.5 else 0

    def speaks_of(self, operator: str, engine: str) -> bool:
        return fnmatch.fnmatchcase(operator, self.operator) and fnmatch.fnmatchcase(engine, self.engine)


TABLE: tuple[Tolerance, ...] = ()
"""Looked up in order. A row that no run of a whole invocation needs fails."""

EQUAL = Tolerance("*", "*", "equal, ties aside", "")
TYPICAL_BAND = 2.0**-6
"""How far from the middle between two codes, in steps, an engine may take a typical value for one beyond it.

Most of what is done to a value before it is rounded to its code is that QNNPACK rounds the bias to its accumulator's grid: by
half of s_x s_w / s_y steps. With 8 bits for data of a few deviations and K products of weights of variance 1 / K that is
2 / (127 sqrt(K)), and twice that behind a ReLU, which halves the range: 2**-7 for K = 16, the fewest there are. float32 adds
some 2**-16: 2**-24 of the greatest code for each of the few roundings of a function, or of the products of a sum.
"""
NEAR_TIES = Tolerance("*", "*", "data that are not dyadic: float32 rounds before the kernel does", "", 1, TYPICAL_BAND)
RECURRENT = frozenset({"nn.LSTM", "nn.GRU", "nn.LSTMCell", "nn.GRUCell", "nn.RNNCell"})
"""Their gates lie between -1 and 1, whatever is left of them in the output."""


def tolerance(run: Run, table: Iterable[Tolerance] = TABLE) -> Tolerance:
    """Return what a run may be off by: the table's row for its operator and engine, or what its profile says."""
    operator = root_of(run.claim.tree)
    general = NEAR_TIES if PROFILES[run.profile].data == "normal" else EQUAL
    found = next((row for row in table if row.speaks_of(operator, run.engine)), general)
    if found.steps < general.steps:
        found = replace(found, steps=general.steps, band=general.band)
    if operator in RECURRENT:
        return replace(found, magnitude=max(1.0, _state(run)))
    if operator in WEIGHTED and run.recipe.kind != "static" and _has_bias(run):
        return replace(found, magnitude=GREATEST_BIAS)
    return found


def _has_bias(run: Run) -> bool:
    """Whether a layer adds a bias, which may cancel out what float32 has rounded."""
    assert run.variant is not None
    return "bias" in run.variant.parameters or (bool(run.variant.init) and "bias=False" not in run.variant.init)


def _state(run: Run) -> float:
    """The greatest value of the state that a recurrent layer begins with, which it adds to."""
    assert run.variant is not None
    ends = [run.bounds(spec) for name, spec in run.variant.operands.items() if name != "x"]
    return max((max(-low, high) * 2.0**exponent for low, high, exponent in ends), default=0.0)


def unneeded(rows: Iterable[Row], runs: Iterable[Run], table: Iterable[Tolerance] = TABLE) -> list[Tolerance]:
    """Rows of the table that some of the runs could have needed and none did."""
    needed = {row.id for row in rows if row.tolerated}
    found = []
    for entry in table:
        about = {run.id for run in runs if entry.speaks_of(root_of(run.claim.tree), run.engine)}
        if about and not about & needed:
            found.append(entry)
    return found
