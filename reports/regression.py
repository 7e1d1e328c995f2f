"""Comparison of latencies: between two files of timings, or between two builds of torch timed in one file.

Each pass over a case is one observation. For two builds timed in turns it is the logarithm of the ratio of the two lowered
models' latencies. For two files it is that of the lowered model's latency in units of a reference computation, and the
change of the float models of the same family and layer is subtracted; files without that computation have the ratio to the
case's own float model. Every pass has its own process, because the rounds of one process are not independent.
`conformance.bench.verdicts` has the tests.
"""

import json
import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass

from conformance.bench.results import TimingsFile
from conformance.bench.timings import LayerTime, Timing, is_network, log_floating, log_ratios
from conformance.bench.verdicts import CONFIDENCE, FEWEST, RATE, VERDICTS, Judged, Observed, drift, judge
from conformance.errors import UsageError
from conformance.markdown import code, plain, table

from .load import family

MACHINE = ("cpu", "arch", "isa", "cores")
"""Fields of a header that must be equal in two files that are compared."""
CHANGES = ("slower", "faster")
"""Verdicts that a case has changed."""
FEWEST_OF_A_KIND = 8
"""Cases with float models of one kind from which on their drift is estimated together."""
MOST_LAYERS = 5
"""Layers of a network that are named as the explanation of its change."""
LEAST_SHARE = 0.1
"""Share of a network's change that a layer must have to be named."""


@dataclass(frozen=True)
class Changed:
    """Comparison of one case: its ratio before and after, the relative change with its interval, the adjusted p-value `q`,
    and the verdict. `counts` describes the counts that changed, `layers` which layers of a network, with their kernels,
    explain a change of its latency, by seconds."""

    case: str
    before: float
    after: float
    change: float
    low: float
    high: float
    q: float
    verdict: str
    counts: tuple[str, ...]
    layers: tuple[str, ...] = ()

    @property
    def listed(self) -> bool:
        """Whether reports list the case: it is slower or faster, or its counts changed."""
        return self.verdict in CHANGES or bool(self.counts)

    @property
    def interval(self) -> str:
        return f"{self.low:+.1%} to {self.high:+.1%}"


@dataclass(frozen=True)
class Regression:
    """Comparison of two sets of timings. `paired` is true for two builds timed in turns in one file. `few` are the cases with
    too few passes to be compared, which count as inconclusive."""

    before: str
    after: str
    paired: bool
    margin: float
    rate: float
    cases: tuple[Changed, ...]
    gone: tuple[str, ...] = ()
    came: tuple[str, ...] = ()
    few: tuple[str, ...] = ()

    @property
    def worse(self) -> bool:
        """Whether any case is slower."""
        return any(case.verdict == "slower" for case in self.cases)


@dataclass(frozen=True)
class Case:
    """A case before it is judged together with the others. `old` has the passes before, `new` those after; for two builds
    both are the same passes."""

    name: str
    old: Sequence[Timing]
    new: Sequence[Timing]
    paired: bool
    drift: tuple[float, float] | None = None

    @property
    def enough(self) -> bool:
        return min(len(self.old), len(self.new)) >= FEWEST

    @property
    def observed(self) -> Observed:
        if self.paired:
            return Observed([timing.log_builds for timing in self.new])
        if self.drift:
            new, old = ([timing.log_paced for timing in passes] for passes in (self.new, self.old))
            return Observed(new, old, *self.drift)
        return Observed(log_ratios(self.new), log_ratios(self.old))

    def changed(self, judged: Judged) -> Changed:
        """The comparison of the case. Its ratios are geometric means over passes."""
        builds = [timing.base if self.paired and timing.base else timing.new for timing in self.old]
        before = statistics.mean(build.log_ratio for build in builds if build.floating)
        after = statistics.mean(log_ratios(self.new))
        old, new = (asdict(passes[0].counts) for passes in (self.old, self.new))
        counts = tuple(
            f"{name}: {old[name]} → {new[name]}"
            for name in old
            if old[name] != new[name] and None not in (old[name], new[name])  # older files lack some of them
        )
        explained = judged.verdict in CHANGES and not self.paired
        layers = tuple(explaining(_layers(self.old), _layers(self.new))) if explained else ()
        return Changed(
            case=self.name,
            before=math.exp(before),
            after=math.exp(after),
            **asdict(judged),
            counts=counts,
            layers=layers,
        )


def compare(before: TimingsFile, after: TimingsFile | None = None, *, other_machines: bool = False) -> Regression:
    """Compare two files, or the two builds of one, by the aim with which the later file was timed.

    Raises UsageError for files of different machines unless `other_machines`, for files without common cases, for a file
    without a second build, and if no case has enough passes.
    """
    later = after or before
    margin, looks = later.header["aim"], later.header["looks"]
    if after is None:
        if before.header["against"] is None:
            raise UsageError(f"{before.path}: has one build: time it with --against, or name a second file")
        cases = [Case(case, passes, passes, paired=True) for case, passes in before.cases.items()]
        judged, few = _judged(cases, looks, margin)
        old_torch, new_torch = (f"torch {head['torch']}" for head in (before.header["against"], before.header))
        return Regression(old_torch, new_torch, True, margin, RATE, judged, few=few)
    if not other_machines:
        _same_machine(before, after)
    old, new = before.cases, after.cases
    common = sorted(old.keys() & new.keys())
    if not common:
        raise UsageError(
            f"{before.path} and {after.path}: no case was timed in both: they are of other backends or forms"
        )
    drifts = _drifts(old, new)
    cases = [Case(case, old[case], new[case], paired=False, drift=drifts.get(_kind(case))) for case in common]
    judged, few = _judged(cases, looks, margin)
    gone, came = tuple(sorted(old.keys() - new.keys())), tuple(sorted(new.keys() - old.keys()))
    return Regression(str(before.path), str(after.path), False, margin, RATE, judged, gone, came, few)


def _same_machine(before: TimingsFile, after: TimingsFile) -> None:
    for name in MACHINE:
        if (old := before.header.get(name)) != (new := after.header.get(name)):
            raise UsageError(
                f"{before.path} and {after.path}: {name} is {old!r} in one and {new!r} in the other, so a change may be "
                "the machine's; --other-machines compares them nevertheless"
            )


def _kind(case: str) -> tuple[str, str, str]:
    """What cases with float models of one kind have in common: the family of operators or the network, the layer or the
    batch, and the number of threads."""
    run, _, threads = case.rpartition("#")
    _, second, *others = run.split("/")
    return (second, others[0], threads) if is_network(run) else (family(second), others[2], threads)


def _drifts(
    old: Mapping[str, Sequence[Timing]], new: Mapping[str, Sequence[Timing]]
) -> dict[tuple[str, str, str], tuple[float, float]]:
    """The drift of the machine with its standard error by kind of float model, of kinds with enough cases that were timed
    beside the reference computation."""
    changes: dict[tuple[str, str, str], list[float]] = {}
    for case in old.keys() & new.keys():
        if all(timing.pace for timing in (*old[case], *new[case])):
            before, after = (statistics.mean(log_floating(passes)) for passes in (old[case], new[case]))
            changes.setdefault(_kind(case), []).append(after - before)
    return {kind: drift(of) for kind, of in changes.items() if len(of) >= FEWEST_OF_A_KIND}


def _judged(cases: Sequence[Case], looks: Sequence[int], margin: float) -> tuple[tuple[Changed, ...], tuple[str, ...]]:
    """The compared cases, the greatest slowdown first, and the names of those that have too few passes."""
    enough = [case for case in cases if case.enough]
    few = tuple(case.name for case in cases if not case.enough)
    if cases and not enough:
        passes = max(min(len(case.old), len(case.new)) for case in cases)
        raise UsageError(f"{cases[0].name}: {passes} passes: a comparison needs {FEWEST} at least (--passes, --budget)")
    verdicts = judge([case.observed for case in enough], looks, margin)
    changed = [case.changed(judged) for case, judged in zip(enough, verdicts, strict=True)]
    return tuple(sorted(changed, key=lambda case: (-case.change, case.case))), few


def _layers(passes: Sequence[Timing]) -> dict[str, LayerTime]:
    """The layers of a network by name, from the pass that timed them; empty for a layer alone."""
    return next(({layer.name: layer for layer in timing.layers} for timing in passes if timing.layers), {})


def explaining(old: Mapping[str, LayerTime], new: Mapping[str, LayerTime]) -> Iterator[str]:
    """Yield the layers with the greatest changes of their seconds, their kernels before and after, and the share of the
    network's change that each has."""
    if not old or not new:
        return
    changes = {
        name: (new[name].seconds if name in new else 0.0) - (old[name].seconds if name in old else 0.0)
        for name in {*old, *new}
    }
    total = sum(changes.values())
    for name in sorted(changes, key=lambda name: (-abs(changes[name]), name))[:MOST_LAYERS]:
        if total == 0 or changes[name] / total < LEAST_SHARE:
            continue
        kernels = [" ".join(side[name].kernels) if name in side else "none" for side in (old, new)]
        text = kernels[0] if kernels[0] == kernels[1] else " → ".join(kernels)
        yield f"{name}: {1e6 * changes[name]:+.0f} µs, {changes[name] / total:.0%} of the change ({text})"


def counted(regression: Regression) -> dict[str, int]:
    """The number of cases by verdict."""
    counts = Counter([*(case.verdict for case in regression.cases), *("inconclusive" for _ in regression.few)])
    return {verdict: counts[verdict] for verdict in VERDICTS}


def explanation(regression: Regression) -> str:
    """Sentences that explain the figures."""
    change = (
        "the ratio of one build to the other's latency"
        if regression.paired
        else "the lowered models' latencies, of which the change of the float models, and so of the machine, is taken away"
    )
    return (
        f"The change is that of {change}. Verdicts are about changes of more than {regression.margin:.1%}; "
        f"at most {regression.rate:.0%} of the verdicts slower and faster are expected to be wrong. Intervals are of "
        f"{CONFIDENCE:.0%} confidence, whenever the passes ended."
    )


def as_text(regression: Regression) -> Iterator[str]:
    """Yield lines for a terminal: the names of both sides, the number of cases by verdict, and the listed cases."""
    yield f"{plain(regression.before)} → {plain(regression.after)}"
    yield ", ".join(f"{count} {verdict}" for verdict, count in counted(regression).items())
    yield explanation(regression)
    for case in regression.cases:
        if not case.listed:
            continue
        yield f"{case.verdict:12} {case.change:>+7.1%} ({case.interval}) {plain(case.case)}"
        yield from (f"{'':12} {plain(text)}" for text in (*case.counts, *case.layers))
    for name, cases in (("few passes", regression.few), ("gone", regression.gone), ("came", regression.came)):
        yield from (f"{name:12} {plain(case)}" for case in cases)


def as_markdown(regression: Regression) -> Iterator[str]:
    """Yield lines of a section of a release note or job summary."""
    counts = ", ".join(f"**{count}** {verdict}" for verdict, count in counted(regression).items())
    yield from (
        f"## Latency: {code(regression.before)} → {code(regression.after)}",
        "",
        f"{counts}. {explanation(regression)}",
    )
    rows = [
        [
            *(case.verdict, f"{case.change:+.1%}", case.interval, code(case.case)),
            *(f"{case.before:.3g}", f"{case.after:.3g}", "; ".join(map(code, (*case.counts, *case.layers)))),
        ]
        for case in regression.cases
        if case.listed
    ]
    if rows:
        yield ""
        titles = ["verdict", "change", "interval", "case", "before", "after", "counts, layers"]
        yield from table(titles, rows, (1, 4, 5))
    named = {"Too few passes": regression.few, "No longer timed": regression.gone, "Newly timed": regression.came}
    for name, cases in named.items():
        if cases:
            yield from ("", f"{name}: {', '.join(map(code, cases))}")


def as_json(regression: Regression) -> Iterator[str]:
    yield json.dumps({**asdict(regression), "verdicts": counted(regression)}, indent=1)


FORMATS: Mapping[str, Callable[[Regression], Iterator[str]]] = {
    "text": as_text,
    "markdown": as_markdown,
    "json": as_json,
}
