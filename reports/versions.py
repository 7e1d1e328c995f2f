"""Known findings by version: since when each shows, in which it still does, and in which it is mended, as runs confirm."""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from conformance.markdown import code, escaped, table
from conformance.results.known import KnownFinding
from conformance.results.severity import Assessment
from conformance.results.verdicts import Verdict

from . import documents
from .findings import Shown, shown
from .load import Report, Result


@dataclass(frozen=True)
class Record:
    """What runs confirm of a finding: the package whose versions count, those that show it, and those in which runs that show
    it elsewhere conform. In `others` none of them conforms, or ran."""

    finding: KnownFinding
    worst: Assessment
    package: str
    showing: tuple[str, ...]
    mended: tuple[str, ...]
    others: tuple[str, ...]

    @property
    def since(self) -> str:
        """The version that shows it first, after one that does not, or the first that was tried."""
        first, *_ = self.showing
        before = [version for version in self.mended if _key(version) < _key(first)]
        return first if before else f"≤ {first}"

    @property
    def state(self) -> str:
        """Whether the newest version that was tried shows it."""
        *_, last = self.showing
        after = [version for version in self.mended if _key(version) > _key(last)]
        return f"mended in {after[0]}" if after else f"in {last}"


def _key(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version)))


def _version(result: Result) -> tuple[str, str]:
    """The package and the version that a result is of."""
    environment = result.column.environment
    installed = dict(package.split(" ") for package in environment.packages)
    package = result.column.engine if result.column.engine in installed else "torch"
    return package, installed.get(package, environment.torch.partition("+")[0])


def records(report: Report) -> list[Record]:
    """The records of the findings that runs of a report show, the most important first."""
    conforming: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for result in report.results:
        package, version = _version(result)
        ids = conforming[package][version]
        if result.row.verdict is Verdict.CONFORMS:
            ids.add(result.row.id)
    return [record for one in shown(report) for record in _records(one, conforming)]


def _records(one: Shown, conforming: Mapping[str, Mapping[str, set[str]]]) -> Iterable[Record]:
    by_package: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for result in one.results:
        package, version = _version(result)
        by_package[package][version].add(result.row.id)
    for package, showing in by_package.items():
        ids = set().union(*showing.values())
        mended = {version for version, found in conforming[package].items() if found & ids and version not in showing}
        ordered = sorted(conforming[package], key=_key)
        yield Record(
            one.finding,
            one.worst,
            package,
            tuple(version for version in ordered if version in showing),
            tuple(version for version in ordered if version in mended),
            tuple(version for version in ordered if version not in mended and version not in showing),
        )


def document(report: Report) -> list[str]:
    """The public list of defects in markdown: what each does, since when, whether it is mended, and its issue."""
    found = records(report)
    versions = {record.package: sorted({*record.showing, *record.mended, *record.others}, key=_key) for record in found}
    rows = []
    for record in found:
        upstream = documents.link(record.finding.upstream)
        issue = f"[{escaped(record.finding.upstream)}]({upstream})" if upstream else "unreported"
        what = f"{record.worst.severity.symbol} {escaped(record.finding.title)} ({code(record.finding.id)})"
        rows.append([what, record.package, record.since, record.state, issue])
    lines = [f"{package} {', '.join(of)}" for package, of in sorted(versions.items())]
    listed = [*table(["defect", "of", "since", "state", "upstream"], rows)]
    return documents.lines("defects.md", versions="; ".join(lines), count_of=len(found), listed=listed)
