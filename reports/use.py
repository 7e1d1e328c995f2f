"""Shares by use: what becomes of the layers of public networks, by engine, platform and version, as data and as markdown."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from conformance.configs.engines import ahead_of_time
from conformance.errors import UsageError
from conformance.markdown import code, escaped, table
from conformance.results.codec import Count, decode, encode
from conformance.results.known import KnownFinding
from conformance.results.use import MOST_UNTRIED, Fate, Use
from conformance.suggestions import did_you_mean

from . import documents
from .load import Report

RECORDED = Path(__file__).parent / "use.json"
"""The committed shares, which `use` reads if it is given no rows."""


DEFAULT = "x86"
"""torch's engine on x86 unless another is chosen. Its share is the first."""


@dataclass(frozen=True)
class Place:
    """An engine in an environment. `packages` are versions that matter beside torch's, as `executorch 1.4.1`."""

    backend: str
    engine: str
    platform: str
    torch: str
    packages: str = ""

    @property
    def version(self) -> str:
        """The version that the engine comes with."""
        return self.packages or f"torch {self.torch}"


@dataclass(frozen=True)
class Share:
    """What becomes of the layers in use in a place: how many have each fate and show each finding, and those of each
    network."""

    place: Place
    fates: Mapping[Fate, Count]
    findings: Mapping[str, Count]
    networks: Mapping[str, Mapping[str, Count]]
    found: Mapping[str, Mapping[str, Count]]

    @cached_property
    def layers(self) -> int:
        """How many layers there are."""
        return sum(self.fates.values())

    def text(self, *fates: Fate) -> str:
        """The share of layers with one of the fates, in percent."""
        return percent(sum(self.fates[fate] for fate in fates), self.layers)


def percent(part: int, whole: int) -> str:
    """A share in percent, with two digits where it is small, so that a few layers are not nothing."""
    share = 100 * part / whole if whole else 0.0
    return "0" if not part else f"{share:.0f}%" if share >= 10 else f"{share:.1f}%" if share >= 0.1 else f"{share:.2f}%"


def shares(report: Report) -> list[Share]:
    """The shares of every column of a report that has runs of layers in use."""
    found = []
    for column, use in report.uses.items():
        environment = column.environment
        packages = [one for one in environment.packages if one.partition(" ")[0] == column.engine]
        torch = environment.torch.partition("+")[0]
        found.append(_share(Place(column.backend, column.engine, environment.platform, torch, " ".join(packages)), use))
    return sorted(found, key=lambda share: (ahead_of_time(share.place.engine), share.place.engine != DEFAULT))


def _share(place: Place, use: Use) -> Share:
    networks = {name: {str(fate): count for fate, count in use.of(name).items() if count} for name in use.networks}
    findings = dict(sorted(use.findings.items(), key=lambda of: (-of[1], of[0])))
    return Share(place, use.fates, findings, networks, {name: dict(of) for name, of in use.networks.items() if of})


def json_text(made: Iterable[Share]) -> str:
    """The shares as JSON, a line for each place."""
    return "[\n" + ",\n".join(json.dumps(encode(one), separators=(",", ":")) for one in made) + "\n]\n"


def recorded(path: Path = RECORDED) -> list[Share]:
    """The committed shares."""
    return [decode(Share, values) for values in json.loads(path.read_text(encoding="utf-8"))]


COLUMNS: Mapping[str, tuple[Fate, ...]] = {
    "right": (Fate.RIGHT,),
    "off by ≤ 2 steps": (Fate.NEAR,),
    "wrong": (Fate.WRONG,),
    "claimed, in float": (Fate.FLOAT,),
    "refused": (Fate.REFUSED,),
    "not claimed": (Fate.UNCLAIMED,),
    "not tried": (Fate.UNTRIED,),
}
"""Columns of a table of shares, and the fates that each counts."""


CLAIMED = ("claims that work by default", "in every form")
"""Columns of counts of claims."""

Claims = Mapping[tuple[str, str, str], Mapping[str, str]]
"""Counts of claims in words by column of `CLAIMED`, by engine, platform and torch."""


def places_markdown(made: Sequence[Share], further: Mapping[str, Mapping[str, str]] | None = None) -> list[str]:
    """A table with a row for each place, and with further columns by engine."""
    several = len({(one.place.platform, one.place.version) for one in made if not one.place.packages}) > 1
    rows = []
    for one in made:
        where = [one.place.engine, *([one.place.platform, one.place.version] if several else [])]
        texts = [of.get(one.place.engine, "") for of in (further or {}).values()]
        rows.append([*where, *(one.text(*fates) for fates in COLUMNS.values()), *texts])
    heads = ["engine", *(["platform", "version"] if several else []), *COLUMNS, *(further or {})]
    return [*table(heads, rows, range(3 if several else 1, len(heads)))]


def versions_markdown(made: Sequence[Share]) -> list[str]:
    """A table with a row for each platform and version, and a column for each engine: right, off or wrong, refused. Versions
    of a platform with equal cells have one row."""
    engines = [*dict.fromkeys(one.place.engine for one in made)]
    by_version: dict[tuple[str, str], dict[str, str]] = {}
    for one in made:
        by_version.setdefault((one.place.platform, one.place.version), {})[one.place.engine] = _summary(one)
    rows: dict[tuple[str, ...], list[str]] = {}
    for (platform, version), cells in by_version.items():
        package, _, number = version.partition(" ")
        rows.setdefault((platform, package, *(cells.get(engine, "") for engine in engines)), []).append(number)
    lines = [[platform, f"{package} {', '.join(of)}", *cells] for (platform, package, *cells), of in rows.items()]
    return [*table(["platform", "version", *engines], lines)]


def _summary(one: Share) -> str:
    """The shares in one cell: of all layers, or, where a part of them was selected, of those that were tried."""
    counts = [
        sum(one.fates[fate] for fate in fates) for fates in ((Fate.RIGHT,), (Fate.WRONG, Fate.NEAR), (Fate.REFUSED,))
    ]
    if one.fates[Fate.UNTRIED] <= MOST_UNTRIED * one.layers:
        return " · ".join(percent(number, one.layers) for number in counts)
    cell = " · ".join(percent(number, sum(counts)) for number in counts)
    return f"{cell} of {percent(sum(counts), one.layers)} tried"


def document(made: Sequence[Share], findings: Mapping[str, KnownFinding]) -> list[str]:
    """The page of shares in markdown. `findings` are those of the ledger, by id."""
    names = dict.fromkeys(name for one in made for name in one.findings)
    ordered = sorted(names, key=lambda name: (-max(one.findings.get(name, 0) for one in made), name))
    engines = [*dict.fromkeys(one.place.engine for one in made)]
    rows = []
    for name in ordered:
        greatest = (max(one.findings.get(name, 0) for one in made if one.place.engine == engine) for engine in engines)
        title = findings[name].title if name in findings else ""
        rows.append([code(name), escaped(title), *(f"{count:,}" if count else "" for count in greatest)])
    by_finding = table(["finding", "", *engines], rows, range(2, 2 + len(engines)))
    tables = {"places": places_markdown(made), "versions": versions_markdown(made), "by_finding": [*by_finding]}
    return documents.lines("use.md", layers=made[0].layers, networks=len(made[0].networks), **tables)


def of_network(made: Sequence[Share], network: str, findings: Mapping[str, KnownFinding]) -> Iterator[str]:
    """Yield lines for a terminal about one network: what becomes of its layers in each place, and the findings that they
    show. Raises UsageError, with the nearest name, for a network that is not in the corpus."""
    known = {name for one in made for name in one.networks}
    if network not in known:
        suggestion = did_you_mean(network, known)
        raise UsageError(f"{network}: no network of the corpus{suggestion and f'; {suggestion}?'}")
    for one in made:
        fates = {Fate(name): count for name, count in one.networks[network].items()}
        texts = [f"{count} {fate.phrase}" for fate in Fate if (count := fates.get(fate))]
        where = ", ".join((one.place.engine, one.place.platform, one.place.version))
        yield f"{where}: of {sum(fates.values())} layers {', '.join(texts)}"
        for name, count in sorted(one.found.get(network, {}).items(), key=lambda of: (-of[1], of[0])):
            yield f"    {count} × {findings[name].title if name in findings else 'new'} ({name})"


BEGIN, END = "<!-- use -->", "<!-- /use -->"
"""What the shares are between in the README."""


def readme(text: str, made: Sequence[Share], claims: Claims) -> str:
    """The README with the shares where `claims` were counted beside these, and the shares of every version. Raises UsageError
    if it has no place for them."""
    shown = [one for one in made if (one.place.engine, one.place.platform, one.place.torch) in claims]
    columns = {
        name: {one.place.engine: claims[one.place.engine, one.place.platform, one.place.torch][name] for one in shown}
        for name in CLAIMED
    }
    where = sorted({f"{one.place.platform} with {one.place.version}" for one in shown})
    lines = [
        *places_markdown(shown, columns),
        "",
        f"On {', '.join(map(escaped, where))}.",
        "",
        *versions_markdown(made),
    ]
    return documents.between(text, BEGIN, END, lines, "README.md")


def write(made: Sequence[Share], findings: Mapping[str, KnownFinding], claims: Claims, root: Path) -> Iterator[Path]:
    """Write the committed shares, their page and the README's tables, and yield their paths."""
    front = root / "README.md"
    texts = {
        RECORDED: json_text(made),
        root / "docs" / "use.md": "\n".join(document(made, findings)) + "\n",
        front: readme(front.read_text(encoding="utf-8"), made, claims),
    }
    return documents.written(texts)
