"""How long tests take, roughly. The order of work, its division and the time left depend on it; no result does."""

import json
from collections.abc import Mapping
from pathlib import Path

SEARCH = 5.0
"""Seconds of a search in one family of operators."""

LEDGER = 3.0
"""Seconds of matching every ledger entry with every run, which one process does once."""

ALONE = 0.3
"""Seconds of a run that is known to crash: two children die of it, and a third writes its diagnostics."""

OTHER = 0.1
"""Seconds of a test that is none of these."""


def earlier_seconds(path: Path) -> Mapping[str, float]:
    """The seconds of each run in the rows file of an earlier invocation, by run id; empty if it cannot be read.

    The file is only skimmed: a damaged one is as good as none here.
    """
    try:
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        return {line["id"]: float(line["seconds"]) for line in lines if line["kind"] == "row"}
    except (OSError, ValueError, KeyError, TypeError):
        return {}
