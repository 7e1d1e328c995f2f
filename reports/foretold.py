"""Predictions beside audits as markdown: two tables, by finding and by the reason why layers stay in float."""

from collections import Counter
from collections.abc import Iterator, Sequence

from conformance.markdown import code, table
from conformance.results.audits import Audit
from conformance.results.confusion import Confusion, Outcome, findings, in_float
from conformance.results.predictions import Prediction

BY_REASON = (Outcome.CERTAIN, Outcome.MISSED, Outcome.FALSE)


def document(pairs: Sequence[tuple[Prediction, Audit]]) -> list[str]:
    """The lines of the tables, each with what it amounts to."""
    by_finding, by_reason = findings(pairs), in_float(pairs)
    return [
        _recall(by_finding, "Of the layers and kinds of layers with a known finding"),
        "",
        *_table("finding", {code(name): counts for name, counts in by_finding.items()}, tuple(Outcome)),
        "",
        _recall(by_reason, "Of the layers in float"),
        "",
        *_table("reason", by_reason, BY_REASON),
    ]


def _recall(found: Confusion, of: str) -> str:
    total = sum(found.values(), Counter[Outcome]())
    shown = total[Outcome.CERTAIN] + total[Outcome.CONDITIONAL] + total[Outcome.MISSED]
    said = total[Outcome.CERTAIN] + total[Outcome.FALSE]
    named = total[Outcome.CERTAIN] + total[Outcome.CONDITIONAL]
    return (
        f"{of}, {named:,} of {shown:,} ({named / (shown or 1):.1%}) are named; of {said:,} that are foretold without a "
        f"condition, {total[Outcome.FALSE]:,} ({total[Outcome.FALSE] / (said or 1):.1%}) are not so."
    )


def _table(head: str, found: Confusion, outcomes: Sequence[Outcome]) -> Iterator[str]:
    ordered = sorted(found.items(), key=lambda of: -sum(of[1][one] for one in BY_REASON) - of[1][Outcome.CONDITIONAL])
    rows = [[name, *(f"{counts[one]:,}" for one in outcomes)] for name, counts in ordered]
    return table((head, *outcomes), rows, range(1, len(outcomes) + 1))
