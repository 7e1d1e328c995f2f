"""How long tests take, roughly. The order of work, its division and the time left depend on it; no result does."""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from .verdicts import Verdict

SEARCH = 5.0
"""Seconds of a search in one family of operators."""

LEDGER = 3.0
"""Seconds of matching every ledger entry with every run, which one process does once."""

ALONE = 0.3
"""Seconds of a run that is known to crash: two children die of it, and a third writes its diagnostics."""

OTHER = 0.1
"""Seconds of a test that is none of these."""


UNEXPECTED = ((Verdict.CONFORMS,), (Verdict.DEVIATES, Verdict.CRASHES, Verdict.UNJUDGED))
"""Verdicts that are not expected of a run with an entry of the ledger, and of one without."""


@dataclass(frozen=True)
class LastTime:
    """The rows file that an invocation will replace: the seconds of each run, and the runs that deviated without an entry of
    the ledger, or conformed in spite of one."""

    seconds: Mapping[str, float]
    unexpected: Collection[str]


def last_time(path: Path) -> LastTime:
    """Skim a rows file. A damaged one, or none, is as good as an empty one here."""
    try:
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        rows = [line for line in lines if line["kind"] == "row"]
        return LastTime(
            {row["id"]: float(row["seconds"]) for row in rows},
            {row["id"] for row in rows if row["verdict"] in UNEXPECTED[row["known"] is None]},
        )
    except (OSError, ValueError, KeyError, TypeError):
        return LastTime({}, ())
