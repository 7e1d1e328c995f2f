"""A repair as text: the network before and after, and what was done."""

from collections import Counter
from collections.abc import Iterator

from conformance.results.audits import Audit
from conformance.results.remedies import REMEDIES

from .audit_words import decibels, percent, ratio
from .columns import padded, wrapped

WIDTH = 100
LABEL, VALUE = 34, 12


def table(before: Audit, after: Audit) -> list[str]:
    """A line for each figure of a network, before and after."""
    rows = [
        ("", "before", "after"),
        ("dB against float", *(_quality(one) for one in (before, after))),
        ("dB of its reference model", *(decibels(one.reference_db) for one in (before, after))),
        ("layers in integers", *(percent(one.integer_share) for one in (before, after))),
        ("layers to blame", *(str(len(one.blamed)) for one in (before, after))),
        ("layers refused", *(str(sum(len(r.layers) for r in one.refusals)) for one in (before, after))),
        ("time beside the float model's", *(ratio(one.time_ratio) for one in (before, after))),
    ]
    return [
        padded(label, LABEL) + "".join(padded(value, VALUE, right=True) for value in values) for label, *values in rows
    ]


def steps_text(steps: Counter[tuple[str, str]]) -> Iterator[str]:
    """Yield lines of what was done, by remedy and the finding that it is for."""
    for (kind, cause), number in steps.most_common():
        layers = f"{number} layer{'' if number == 1 else 's'}"
        yield from wrapped(f"{cause or 'not in the ledger'}, {layers}: {REMEDIES[kind]}", WIDTH)


def _quality(audit: Audit) -> str:
    return "does not run" if audit.failure or audit.broken is not None else decibels(audit.engine_db)
