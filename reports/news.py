"""New deviations in groups, one for each likely cause: those that are peculiar to the config or engine first, then those that
torch's own engines have too."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from string import digits

from conformance.configs.engines import ENGINE_TABLE, ENGINES
from conformance.configs.spelling import computation, root_named
from conformance.results.findings.stages import Raises
from conformance.results.known import Coverage, Entry, KnownFinding
from conformance.results.severity import Assessment, Severity, assessment
from conformance.results.status import is_corner
from conformance.results.verdicts import Verdict

from .load import Report, Result

SHOWN, SHOWN_IN_TITLE = 5, 2
"""Maximum number of claims and of forms that are named for a group, and in its title."""

NUMBERS = str.maketrans("", "", f"{digits}.,[]()- ")
"""What tells apart messages of one cause: shapes, numbers of groups."""

OWN = [(backend, engine) for backend, engines in ENGINES.items() for engine in engines if ENGINE_TABLE[engine].native]
"""torch's own engines, each with its config."""


@dataclass(frozen=True)
class Group:
    """New deviations of one likely cause, the worst first. `like` is the finding of the ledger that torch's own engines have
    in the same cases."""

    results: tuple[Result, ...]
    worst: Assessment | None
    like: KnownFinding | None = None

    @property
    def example(self) -> Result:
        """The worst run; in default use if that is as bad."""
        return self.results[0]

    @property
    def what(self) -> str:
        """How bad it is, in words."""
        if self.worst is None:
            unjudged = self.example.row.verdict is Verdict.UNJUDGED
            return "cannot be judged" if unjudged else "conforms, which the ledger does not expect"
        stage = f" ({self.worst.stage})" if self.worst.severity is Severity.REFUSES and self.worst.stage else ""
        return f"{self.worst.severity.phrase}{stage}"

    @property
    def symbol(self) -> str:
        """What stands for how bad it is."""
        return self.worst.severity.symbol if self.worst else "∅"

    @cached_property
    def claims(self) -> list[str]:
        """The claims that show it, those of most runs first."""
        return [claim for claim, _ in Counter(result.row.claim for result in self.results).most_common()]

    @cached_property
    def forms(self) -> list[str]:
        """The forms in which it shows; `default use` first."""
        found = Counter(result.form or "default use" for result in self.results)
        return sorted(found, key=lambda form: (form != "default use", is_corner(form), -found[form], form))

    @property
    def title(self) -> str:
        """Where it shows, and how bad it is."""
        shape = "" if "default use" in self.forms else f", {_some(self.forms, SHOWN_IN_TITLE)}"
        return f"{self.what}: {_some(self.claims, SHOWN_IN_TITLE)}{shape}"

    @property
    def where(self) -> str:
        """The claims and forms."""
        return f"{_some(self.claims)} · {_some(self.forms)}"


def _some(texts: Sequence[str], most: int = SHOWN) -> str:
    more = len(texts) - most
    return "; ".join(texts[:most]) + (f"; and {more} more" if more > 0 else "")


def groups(report: Report) -> list[Group]:
    """The new deviations of a report by likely cause.

    Where default use deviates, all that computes the same has one cause. Else what raises the same message has one, whatever
    the operator, and so have runs with an option in common in which a check finds the same kind of deviation.
    """
    coverage = [Coverage(ledger) for ledger in report.ledgers]
    by_likeness: dict[str, tuple[KnownFinding | None, list[Result]]] = {}
    for result in report.new:
        like = next((found for one in coverage if (found := _like(result, one))), None)
        by_likeness.setdefault(like.id if like else "", (like, []))[1].append(result)
    parted = [
        _group(members, like)
        for like, results in by_likeness.values()
        for members in ([results] if like else _by_cause(results))
    ]
    return sorted(parted, key=lambda one: (one.like is not None, *_badness(one.worst), -len(one.results)))


def _badness(worst: Assessment | None) -> tuple[int, str, str]:
    """Sort key: the worst first, and last what only conforms where it should not."""
    return (worst.rank, worst.check, worst.stage) if worst else (len(Severity), "", "")


def _group(results: Sequence[Result], like: KnownFinding | None) -> Group:
    def order(result: Result) -> tuple[object, ...]:
        return (
            *_badness(assessment(result.row)),
            bool(result.form),
            is_corner(result.form),
            len(result.form),
            result.row.id,
        )

    ordered = sorted(results, key=order)
    return Group(tuple(ordered), assessment(ordered[0].row), like)


def _like(result: Result, coverage: Coverage) -> KnownFinding | None:
    """The finding that torch's own engines have in the same case with the same checks: every one of them in default use, any
    with options. None if there is none."""
    row = result.row
    if not row.failed or (row.backend, row.engine) in OWN:
        return None
    case = row.id.partition("/")[2].rpartition("@")[0]
    known = [{entry.id: entry for entry in coverage.of(f"{backend}/{case}@{engine}")} for backend, engine in OWN]
    found = {name: entry for entries in known for name, entry in entries.items() if _explains(entry, result)}
    shared = all if not result.form else any
    return next((entry.finding for name, entry in found.items() if shared(name in entries for entries in known)), None)


def _explains(entry: Entry, result: Result) -> bool:
    return bool(entry.must) and entry.must <= result.row.failed <= entry.check


def _by_cause(results: Sequence[Result]) -> Iterator[list[Result]]:
    by_default = {(result.column, _computed(result)) for result in results if not result.form}
    alike: dict[tuple[object, ...], list[Result]] = defaultdict(list)
    for result in results:
        computed = result.column, _computed(result)
        alike[computed if computed in by_default else _kind(result)].append(result)
    for kind, members in alike.items():
        yield from [members] if kind in by_default or kind[0] == "raises" else _by_option(members)


def _computed(result: Result) -> str:
    """What the root of a pattern computes."""
    return computation(root_named(result.row.pattern))


def _kind(result: Result) -> tuple[object, ...]:
    """What the deviations of one cause have in common, besides options."""
    row, worst = result.row, assessment(result.row)
    findings = [finding for finding in row.findings if worst and finding.check == worst.check]
    for finding in findings:
        if isinstance(finding, Raises):
            return "raises", finding.stage, finding.exception, finding.message.translate(NUMBERS)
    kind = min((finding.kind for finding in findings), default="")
    return "differs", worst and worst.check, kind, _computed(result), not row.failed


def _by_option(results: Sequence[Result]) -> Iterator[list[Result]]:
    """Runs by the option that most of them have, one group after the other."""
    rest = [(result, {*result.form.split(", ")}) for result in results]
    while rest:
        options = Counter(option for _, having in rest for option in having)
        most = min(options, key=lambda option: (-options[option], option))
        yield [result for result, having in rest if most in having]
        rest = [(result, having) for result, having in rest if most not in having]
