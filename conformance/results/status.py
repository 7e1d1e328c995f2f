"""The status of a claim on an engine, from its rows: in default use, and under every option."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from .profiles import OF_MAPPINGS
from .rows import Row
from .severity import Assessment, Severity, assessment
from .verdicts import Shown, Verdict

DEFAULT = "default"
"""The name of the variant that writes a pattern down without options."""

USUAL = frozenset({"exact", "typical"})
"""Profiles whose runs of the default variant are a claim's default use."""


def is_default_use(row: Row) -> bool:
    """Whether a row is of a claim's default use: no options, shapes as they come, and ordinary data."""
    return row.variant == DEFAULT and row.profile in USUAL


def form_of(row: Row) -> str:
    """What distinguishes a run from default use, in words. Rows of schema 1 and 2 have the names of variants only."""
    return row.form or row.variant.replace("_", " ")


CORNERS = frozenset(
    {
        "an empty batch",
        "input by keyword",
        "unasked",
        "every code",
        "every pair",
        "every code same tensor",
        "spread",
        "tie",
    }
)
"""Parts of forms that are corners: no network has them, or only for some data."""

OF_CONSTRAINTS = (" bound", " exact match")
"""How the forms of constraints end."""


def is_corner(form: str) -> bool:
    """Whether a form is one that networks hardly have: of data, of how a model is called, or of what must be refused."""
    return form.endswith(OF_CONSTRAINTS) or not CORNERS.isdisjoint(form.split(", "))


class Support(Shown):
    """A status where nothing is wrong in default use. Members are in order, the best first."""

    WORKS = "works", "works", "✓"
    EXCEPT = "except", "works, except for some options", "◐"
    UNAVAILABLE = "unavailable", "not executed", "–"

    @property
    def works_by_default(self) -> bool:
        return self is not Support.UNAVAILABLE


Status = Support | Severity
STATUSES: tuple[Status, ...] = (Support.WORKS, Support.EXCEPT, *Severity, Support.UNAVAILABLE)
"""Every status in the order in which they are shown: what works, then severities, the worst first, then what may hide any."""


@dataclass(frozen=True)
class Deviation:
    """A form in which a claim does not work: how it differs from default use, its worst row, and that row's assessment."""

    form: str
    row: Row
    assessment: Assessment


@dataclass(frozen=True)
class ClaimStatus:
    """The status of a claim on an engine. `executed` says whether default use was, and all of it judged, `default` is the
    worst deviation there, if any, and `exceptions` are those in other forms."""

    claim: str
    executed: bool
    default: Deviation | None
    exceptions: tuple[Deviation, ...]

    @cached_property
    def status(self) -> Status:
        if self.default is not None:
            return self.default.assessment.severity
        if not self.executed:
            return Support.UNAVAILABLE
        return Support.EXCEPT if self.exceptions else Support.WORKS

    @property
    def works(self) -> bool:
        """Whether the claim works in default use."""
        return self.status.works_by_default

    @property
    def worst(self) -> Deviation | None:
        """The worst deviation in any form, None if there is none."""
        found = [*self.exceptions, *([self.default] if self.default else [])]
        return min(found, key=lambda one: one.assessment, default=None)


def status_of(claim: str, rows: Iterable[Row]) -> ClaimStatus:
    """The status of a claim from its rows on one engine. Those whose mapping leaves it in float say nothing about it."""
    default: list[Deviation] = []
    by_form: dict[str, list[Deviation]] = {}
    verdicts = set()
    for row in rows:
        verdicts |= {row.verdict} if is_default_use(row) else set()
        if any(row.checks.get(name, "skip") != "skip" for name in OF_MAPPINGS):
            continue
        if (worst := assessment(row)) is None:
            continue
        if is_default_use(row):
            default.append(Deviation("", row, worst))
        else:
            form = form_of(row)
            by_form.setdefault(form, []).append(Deviation(form, row, worst))
    executed = Verdict.UNJUDGED not in verdicts and any(verdict.executed for verdict in verdicts)
    exceptions = sorted(map(_worst, by_form.values()), key=lambda one: (one.assessment, one.form))
    return ClaimStatus(claim, executed, _worst(default) if default else None, tuple(exceptions))


def _worst(found: Iterable[Deviation]) -> Deviation:
    return min(found, key=lambda one: (one.assessment, one.row.id))


def statuses(rows: Iterable[Row]) -> dict[str, ClaimStatus]:
    """The status of every claim, by id, from the rows of one backend on one engine."""
    by_claim: dict[str, list[Row]] = {}
    for row in rows:
        by_claim.setdefault(row.claim, []).append(row)
    return {claim: status_of(claim, members) for claim, members in by_claim.items()}


@dataclass(frozen=True)
class Tally:
    """Counts of claims: by status, and of those that do not deviate in default use by the worst severity under options."""

    statuses: Mapping[Status, int]
    exceptions: Mapping[Severity, int]

    @property
    def claims(self) -> int:
        return sum(self.statuses.values())

    @property
    def works(self) -> int:
        """The claims that work in default use."""
        return sum(number for status, number in self.statuses.items() if status.works_by_default)

    @property
    def in_every_form(self) -> int:
        """The claims that work in every form that was executed."""
        return self.statuses[Support.WORKS]

    @property
    def executed(self) -> int:
        """The claims of which default use was executed."""
        return self.claims - self.statuses[Support.UNAVAILABLE]


def tally(found: Iterable[ClaimStatus]) -> Tally:
    """Count claims by status."""
    found = list(found)
    by_status = Counter(one.status for one in found)
    otherwise = [one for one in found if one.default is None and one.exceptions]
    worst = Counter(one.exceptions[0].assessment.severity for one in otherwise)
    return Tally(
        {status: by_status[status] for status in STATUSES},
        {severity: worst[severity] for severity in Severity},
    )


def sentences(name: str, counts: Tally, *, whole: bool = True) -> Iterator[str]:
    """Yield the counts in words: how many claims work, what the others do in default use, and the worst that an option does
    to those that do nothing wrong there. `whole` is whether all forms of the claims were executed."""
    if counts.executed:
        forms = "form" if whole else "form that ran"
        yield f"{name}: {counts.works} of {counts.claims} claims work in default use, {counts.in_every_form} in every {forms}"
    else:
        yield f"{name}: {counts.claims} claims, none of them executed in default use"
    unavailable = [Support.UNAVAILABLE] if counts.executed else []
    default = {status.phrase: counts.statuses[status] for status in (*Severity, *unavailable)}
    options = {severity.phrase: number for severity, number in counts.exceptions.items()}
    for use, by_phrase in (("in default use", default), ("under some option", options)):
        if listed := "; ".join(f"{phrase}: {number}" for phrase, number in by_phrase.items() if number):
            yield f"{name}: {use}: {listed}"
