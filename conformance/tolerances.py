"""The one table of tolerances wider than a tie: operator, engine, how wide, why, and what shows it."""

import fnmatch
from collections.abc import Iterable
from dataclasses import dataclass, replace

from .cases import Run
from .models import root_of
from .rows import Row


@dataclass(frozen=True)
class Tolerance:
    """`steps` of the output's grid, or `relative` to the greatest value where the output is float.

    `magnitude` is the least that counts as the greatest value: what float32 rounded on the way may have cancelled out.
    """

    operator: str
    engine: str
    reason: str
    evidence: str
    steps: int = 0
    relative: float = 0.0
    magnitude: float = 0.0

    def speaks_of(self, operator: str, engine: str) -> bool:
        return fnmatch.fnmatchcase(operator, self.operator) and fnmatch.fnmatchcase(engine, self.engine)


TABLE: tuple[Tolerance, ...] = ()
"""Looked up in order. A row that no run of a whole invocation needs fails."""

EQUAL = Tolerance("*", "*", "equal, ties aside", "")
WITHIN_ONE = Tolerance("*", "*", "data that are not dyadic: float32 rounds before the kernel does", "", steps=1)
RECURRENT = frozenset({"nn.LSTM", "nn.GRU", "nn.LSTMCell", "nn.GRUCell", "nn.RNNCell"})
"""Their gates lie between -1 and 1, whatever is left of them in the output."""


def tolerance(run: Run, table: Iterable[Tolerance] = TABLE) -> Tolerance:
    """Return what a run may be off by: the table's row for its operator and engine, or what its profile says."""
    operator = root_of(run.claim.tree)
    general = WITHIN_ONE if run.profile == "typical" else EQUAL
    found = next((row for row in table if row.speaks_of(operator, run.engine)), general)
    found = replace(found, steps=max(found.steps, general.steps))
    return replace(found, magnitude=1.0) if operator in RECURRENT else found


def unneeded(rows: Iterable[Row], runs: Iterable[Run], table: Iterable[Tolerance] = TABLE) -> list[Tolerance]:
    """Rows of the table that some of the runs could have needed and none did."""
    needed = {row.id for row in rows if row.tolerated}
    found = []
    for entry in table:
        about = {run.id for run in runs if entry.speaks_of(root_of(run.claim.tree), run.engine)}
        if about and not about & needed:
            found.append(entry)
    return found
