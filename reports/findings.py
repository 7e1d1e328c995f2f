"""Known findings in order of importance, as data and as markdown."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from conformance.markdown import escaped, table
from conformance.results.audits import USABLE_DB
from conformance.results.known import Entry, KnownFinding
from conformance.results.reproductions import script_of
from conformance.results.severity import Assessment, Component, Severity, assessments
from conformance.results.status import STATUSES
from conformance.results.use import NEAR_STEPS, OF_LAYERS
from conformance.results.verdicts import Shown as Named

from . import documents
from .documents import count
from .load import Column, Report, Result
from .news import groups

WEIGHTS = {
    Severity.CRASHES: 8.0,
    Severity.WRONG: 8.0,
    Severity.UNSTABLE: 4.0,
    Severity.FLOAT: 3.0,
    Severity.REFUSES: 3.0,
    Severity.REFERENCE: 2.0,
    Severity.ACCEPTS: 1.0,
    Severity.IDLE: 1.0,
}
"""Weights of severities. Silent errors weigh more than those that are noticed at once."""
OPTIONS_ONLY = 0.25
"""The weight of a finding that default use does not show."""
SHOWN_NEW = 50
"""Maximum number of new deviations in the document."""
SHOWN_FORMS = 6
"""Maximum number of forms that are named where a finding shows."""
DETAIL = 240
"""Maximum number of characters of an example."""


POOR_DB = 30.0
"""The SQNR from which wrong numbers are slight: torch's documented reduced range costs as much."""
SLIGHT_STEPS, POOR_STEPS = NEAR_STEPS, 25
"""How many steps a code may be off by what is slight, and by what is not yet far off: a tenth of all codes."""


class Band(Named):
    """How far off wrong numbers are, at worst: in dB where that was measured, else in steps."""

    USELESS = "useless", f"far off: below {USABLE_DB:.0f} dB, or by more than {POOR_STEPS} steps", "✗"
    POOR = "poor", f"off: below {POOR_DB:.0f} dB, or by more than {SLIGHT_STEPS} steps", "✗"
    SLIGHT = "slight", f"slightly off: {POOR_DB:.0f} dB or more, or by {SLIGHT_STEPS} steps at most", "≈"


@dataclass(frozen=True)
class Shown:
    """A known finding and the runs that show it, the worst first, each with how bad the finding is there."""

    finding: KnownFinding
    entries: tuple[Entry, ...]
    runs: tuple[tuple[Assessment, Result], ...]
    by_network: Mapping[tuple[str, str], int]
    """How many layers of each network show it on each engine."""

    @cached_property
    def layers(self) -> int:
        """How many layers of networks in use show it, on the engine where most do."""
        by_engine: Counter[str] = Counter()
        for (_, engine), number in self.by_network.items():
            by_engine[engine] += number
        return max(by_engine.values(), default=0)

    @property
    def networks(self) -> list[str]:
        """The networks that show it, by name, and by name and engine, as `resnet50` and `resnet50@x86`."""
        return sorted({name for network, engine in self.by_network for name in (network, f"{network}@{engine}")})

    @property
    def names(self) -> list[str]:
        """The networks that show it, those first of which most layers do."""
        counts: Counter[str] = Counter()
        for (network, _), number in self.by_network.items():
            counts[network] = max(counts[network], number)
        return sorted(counts, key=lambda name: (-counts[name], name))

    @property
    def words(self) -> str:
        """What a search looks at: title and reason, operators, options, engines and networks."""
        patterns = {result.row.pattern for result in self.results}
        finding = self.finding.title, self.finding.reason, self.finding.id
        # shapes have the names of networks that do not show it
        forms = {result.form for result in self.results if result.row.profile not in OF_LAYERS}
        return " ".join([*finding, *sorted(patterns), *sorted(forms), *self.engines, *self.names]).lower()

    @property
    def engines(self) -> list[str]:
        """The engines that show it."""
        return sorted({column.engine for column in self.columns})

    @cached_property
    def results(self) -> tuple[Result, ...]:
        return tuple(result for _, result in self.runs)

    @property
    def worst(self) -> Assessment:
        return self.runs[0][0]

    @property
    def severity(self) -> Severity:
        return self.worst.severity

    @property
    def component(self) -> Component:
        """What is at fault: the component that the ledger states where rows leave open whether lowering or a kernel is."""
        if self.finding.component is not None and self.worst.component in (Component.KERNEL, Component.LOWERING):
            return Component(self.finding.component)
        return self.worst.component

    @property
    def what(self) -> str:
        """The severity in words, with the stage if one refuses."""
        stage = f" ({self.worst.stage})" if self.severity is Severity.REFUSES and self.worst.stage else ""
        return f"{self.severity.phrase}{stage}"

    @property
    def example(self) -> Result:
        """The worst run."""
        return self.results[0]

    @cached_property
    def default_use(self) -> frozenset[str]:
        """The claims that show it in default use."""
        return frozenset(result.row.claim for result in self.results if not result.form)

    @cached_property
    def default_severity(self) -> Severity | None:
        """How bad it is in default use, None if that does not show it."""
        found = [worst for worst, result in self.runs if not result.form]
        return min(found).severity if found else None

    @cached_property
    def claims(self) -> frozenset[str]:
        """The claims that show it in any form."""
        return frozenset(result.row.claim for result in self.results)

    @property
    def reach(self) -> str:
        """Where it shows, in words: in default use, or under which options."""
        default = f"in default use of {count(len(self.default_use), 'claim')}"
        if self.default_severity is self.severity:
            return default
        named = [form for form, _ in self.worst_forms.most_common(SHOWN_FORMS)]
        more = len(self.worst_forms) - len(named)
        forms = f"with {'; '.join(named)}{f'; and {more} more forms' if more else ''}"
        return f"{forms}; {default} it {self.default_severity.phrase}" if self.default_severity else forms

    @cached_property
    def worst_forms(self) -> Counter[str]:
        """How many runs show it at its worst in each form other than default use."""
        runs = ((worst, result.form) for worst, result in self.runs)
        return Counter(form for worst, form in runs if form and worst.severity is self.severity)

    @property
    def columns(self) -> dict[Column, int]:
        """Number of runs by column."""
        return dict(Counter(result.column for result in self.results))

    @cached_property
    def _worst_numbers(self) -> tuple[int, float | None]:
        """The most steps that a code is off, and the lowest SQNR in dB, None if none was measured."""
        rows = [result.row for worst, result in self.runs if worst.severity is Severity.WRONG]
        sqnr = min((row.sqnr_db for row in rows if row.sqnr_db is not None), default=None)
        return max(row.steps_max or 0 for row in rows), sqnr

    @property
    def damage(self) -> str:
        """How wrong its worst numbers are; empty if no number is."""
        if self.severity is not Severity.WRONG:
            return ""
        steps, sqnr = self._worst_numbers
        parts = [f"by up to {count(steps, 'step')}"] if steps else []
        return ", ".join([*parts, *([f"SQNR down to {sqnr:.1f} dB"] if sqnr is not None else [])])

    @property
    def band(self) -> Band | None:
        """How far off its worst numbers are; None if no number is wrong."""
        if self.severity is not Severity.WRONG:
            return None
        steps, sqnr = self._worst_numbers
        if sqnr is not None:
            return Band.USELESS if sqnr < USABLE_DB else Band.POOR if sqnr < POOR_DB else Band.SLIGHT
        return Band.USELESS if steps > POOR_STEPS else Band.POOR if steps > SLIGHT_STEPS else Band.SLIGHT

    @property
    def importance(self) -> float:
        """Severity × reach × use: the weight of its severity in default use, or a part of that under options if it is more,
        times the logarithm of the number of layers in use that show it."""
        default = self._weight(self.default_severity) if self.default_severity else 0.0
        return max(default, OPTIONS_ONLY * self._weight(self.severity)) * math.log2(2 + self.layers)

    def _weight(self, severity: Severity) -> float:
        """The weight of a severity; numbers that are off, but not below the SQNR floor, weigh half as much."""
        inaccurate = any("accuracy" in result.row.failed for result in self.results)
        return WEIGHTS[severity] * (0.5 if severity is Severity.WRONG and not inaccurate else 1.0)

    @property
    def order(self) -> tuple[object, ...]:
        """Sort key, the most important first."""
        return -self.importance, self.worst.rank, -len(self.claims), self.finding.id


def shown(report: Report) -> list[Shown]:
    """The known findings that runs of a report show, the most important first."""
    entries: dict[str, list[Entry]] = {}
    for entry in report.entries:
        entries.setdefault(entry.id, []).append(entry)
    alone: dict[str, list[tuple[Assessment, Result]]] = {}
    together: dict[str, list[tuple[Assessment, Result]]] = {}
    for result in report.results:
        if not result.row.failed or not result.expectation.entries:
            continue
        found = [*assessments(result.row)]
        checks: dict[str, set[str]] = {}
        for entry in result.expectation.entries:
            checks.setdefault(entry.id, set()).update(entry.check)
        for name, own in checks.items():
            others = set().union(*(of for other, of in checks.items() if other != name))
            for listed_checks, runs in ((own - others, alone), (own & others, together)):
                if worst := min((one for one in found if one.check in listed_checks), default=None):
                    runs.setdefault(name, []).append((worst, result))
    names = dict.fromkeys((*alone, *together))
    used = _by_network(report)
    listed = [_shown(entries[name], alone.get(name, []), together.get(name, []), used.get(name, {})) for name in names]
    return sorted(listed, key=lambda one: one.order)


def _by_network(report: Report) -> dict[str, dict[tuple[str, str], int]]:
    """How many layers of each network show each finding on each engine, in the environment where most do."""
    found: dict[str, dict[tuple[str, str], int]] = {}
    for column, use in report.uses.items():
        for network, of in use.networks.items():
            for finding, number in of.items():
                by_network = found.setdefault(finding, {})
                key = network, column.engine
                by_network[key] = max(number, by_network.get(key, 0))
    return found


def _shown(
    entries: Sequence[Entry],
    alone: list[tuple[Assessment, Result]],
    together: list[tuple[Assessment, Result]],
    by_network: Mapping[tuple[str, str], int],
) -> Shown:
    """A finding with its runs. Where another finding covers a check of a run too, that check tells how bad either is only if
    no run shows this one alone."""
    have = {id(result) for _, result in alone}
    if alone:
        limit = min(worst for worst, _ in alone)
        together = [(max(worst, limit), result) for worst, result in together if id(result) not in have]
    runs = sorted([*alone, *together], key=_importance)
    return Shown(entries[0].finding, tuple(entries), tuple(runs), by_network)


def _importance(run: tuple[Assessment, Result]) -> tuple[object, ...]:
    """Sort key: severity, then runs that show nothing else, the greatest error, the lowest SQNR, default use."""
    worst, result = run
    row, findings = result.row, {entry.id for entry in result.expectation.entries}
    sqnr = row.sqnr_db if row.sqnr_db is not None else math.inf
    return worst.rank, len(findings), -(row.steps_max or 0), sqnr, bool(result.form), row.id, result.column.order


def unseen(report: Report, listed: Iterable[Shown]) -> list[KnownFinding]:
    """The findings of the ledger that no run of a report shows."""
    names = {one.finding.id for one in listed}
    return [finding for finding in report.findings if finding.id not in names]


def document(report: Report, *, full: bool = False) -> list[str]:
    """The lines of the document in markdown: claims by environment, new deviations in groups, then every known finding, the
    most important first. With `full`, each has the reproduction of its worst run."""
    listed = shown(report)
    return documents.lines(
        "findings.md",
        report=report,
        tallies=tallies(report),
        listed=listed,
        others=unseen(report, listed),
        news=groups(report),
        full=full,
        shown_new=SHOWN_NEW,
        script=script_of,
        cut=_cut,
    )


def tallies(report: Report) -> Iterator[str]:
    """Yield the table of claims by backend, engine and environment."""
    columns = ["config", "engine", "environment", "torch", "claims", "work in default use", "in every form"]
    others = [status for status in STATUSES if not status.works_by_default]
    used = [status for status in others if any(counts.statuses[status] for counts in report.tallies.values())]
    heads = [*columns, *(status.phrase for status in used), "new runs"]
    rows = []
    for column, counts in report.tallies.items():
        texts = column.backend, column.engine, report.labels[column.environment], column.environment.torch
        figures = counts.claims, counts.works, counts.in_every_form, *(counts.statuses[status] for status in used)
        rows.append([*map(escaped, texts), *figures, report.new_by_column[column]])
    return table(heads, rows, range(4, len(heads)))


def _cut(text: str) -> str:
    return text if len(text) <= DETAIL else f"{text[:DETAIL].rstrip()} …"
