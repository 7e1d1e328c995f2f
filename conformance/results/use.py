"""Use: what becomes of the layers of public networks on an engine, from its rows and the table of layers in use."""

from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from conformance.configs.engines import is_signed

from .in_use import SHRUNK, LayerInUse, read
from .profiles import IN_USE, INITIALIZED, TRAINED
from .rows import Row
from .severity import Severity, assessments
from .verdicts import Shown, Verdict

OF_LAYERS = frozenset(profile.name for profile in (IN_USE, INITIALIZED, TRAINED))
"""Profiles whose runs are of layers in use with data like theirs."""

MAPPED = ("static", "weight", "dynamic")
"""Kinds of dtype configs in the order in which a default mapping asks for one of a pattern."""

NEAR_STEPS = 2
"""By how many steps a code may be off that is nearly right: rounding explains no more."""

MOST_UNTRIED = 0.1
"""The share of layers that are not tried above which the others are a selection."""

NEAR_KINDS = frozenset({"codes-differ", "swept-codes", "output-qparams", "lies"})
"""Kinds of findings of which all values may be nearly right."""


class Fate(Shown):
    """What becomes of a layer. Members are in the order in which they are shown."""

    RIGHT = "right", "right in integers", "✓"
    NEAR = "near", "wrong by two steps at most", "≈"
    WRONG = "wrong", "wrong", "✗"
    FLOAT = "float", "claimed, yet in float", "ƒ"
    REFUSED = "refused", "refused", "⊘"
    UNCLAIMED = "unclaimed", "not claimed, so in float", "○"
    UNTRIED = "untried", "not tried", "–"


IN_ORDER = (Fate.WRONG, Fate.NEAR, Fate.REFUSED, Fate.FLOAT, Fate.RIGHT)
"""Fates of a layer that was tried, the worst first."""


@dataclass(frozen=True)
class Outcome:
    """What becomes of a layer in use: its fate, and the known findings that it shows."""

    layer: LayerInUse
    fate: Fate
    findings: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Use:
    """What becomes of the layers of the corpus on an engine, and the dtype config of each pattern that says so."""

    outcomes: Sequence[Outcome]
    dtypes: Mapping[str, str]

    @cached_property
    def layers(self) -> int:
        """How many layers the networks have."""
        return sum(one.layer.occurrences for one in self.outcomes)

    @cached_property
    def fates(self) -> Mapping[Fate, int]:
        """How many layers have each fate."""
        return self._counted(lambda layer: layer.occurrences)

    @cached_property
    def findings(self) -> Mapping[str, int]:
        """How many layers show each known finding."""
        counts: Counter[str] = Counter()
        for (_, finding), number in self.by_pattern.items():
            counts[finding] += number
        return counts

    @cached_property
    def by_pattern(self) -> Mapping[tuple[str, str], int]:
        """How many layers of each pattern show each known finding."""
        counts: Counter[tuple[str, str]] = Counter()
        for one in self.outcomes:
            for finding in one.findings:
                counts[one.layer.pattern, finding] += one.layer.occurrences
        return counts

    @cached_property
    def by_variant(self) -> Mapping[tuple[str, str], int]:
        """In the place of how many layers each variant of a pattern is run."""
        counts: Counter[tuple[str, str]] = Counter()
        for one in self.outcomes:
            counts[one.layer.run_as or one.layer.pattern, one.layer.variant] += one.layer.occurrences
        return counts

    @cached_property
    def networks(self) -> Mapping[str, Mapping[str, int]]:
        """How many layers of each network show each known finding."""
        counts: dict[str, Counter[str]] = defaultdict(Counter)
        for one in self.outcomes:
            for network, number in one.layer.networks.items():
                for finding in one.findings:
                    counts[network][finding] += number
        return {
            network: counts[network]
            for network in sorted({name for one in self.outcomes for name in one.layer.networks})
        }

    def share(self, fate: Fate) -> float:
        """The share of the layers with a fate."""
        return self.fates[fate] / self.layers

    def of(self, network: str) -> Mapping[Fate, int]:
        """How many layers of a network have each fate."""
        return self._counted(lambda layer: layer.networks.get(network, 0))

    def _counted(self, weight: Callable[[LayerInUse], int]) -> Mapping[Fate, int]:
        counts = dict.fromkeys(Fate, 0)
        for one in self.outcomes:
            counts[one.fate] += weight(one.layer)
        return counts


def use_of(rows: Iterable[Row], layers: Sequence[LayerInUse] | None = None) -> Use:
    """What becomes of every layer in use, from the rows of a backend on an engine.

    A layer is as the worst run of its variant, with the dtype config that a default mapping asks for, or of the variant that
    engines which lower ahead of time run in its place. One that no claim covers stays in float as its config says, and one
    that no run tried, of a pattern with claims, is not tried.
    """
    runs: dict[tuple[str, str], list[Row]] = defaultdict(list)
    claimed: dict[str, set[str]] = defaultdict(set)
    engine = ""
    for row in rows:
        claimed[row.pattern].add(row.dtype_config)
        if row.profile in OF_LAYERS:
            runs[f"{row.pattern}/{row.dtype_config}", row.variant].append(row)
        engine = row.engine
    mapped = mapped_of(claimed, engine)
    found = []
    for layer in read(SHRUNK) if layers is None else layers:
        fate, findings = Fate.UNCLAIMED, frozenset[str]()
        if _is_claimed(layer.pattern, claimed):
            executed = _executed(layer, runs, mapped)
            fate, findings = _worst(executed) if executed else (Fate.UNTRIED, findings)
        found.append(Outcome(layer, fate, findings))
    return Use(found, mapped)


def mapped_of(claimed: Mapping[str, Iterable[str]], engine: str) -> dict[str, str]:
    """The dtype config of each pattern that a default mapping of an engine asks for, of those that are claimed."""
    signed = is_signed(engine)
    return {pattern: min(of, key=lambda dtypes: _mapped(dtypes, signed)) for pattern, of in claimed.items()}


def _mapped(dtypes: str, signed: bool) -> tuple[int, int, str]:
    """Sort key: which dtype config a default mapping asks for."""
    kind, _, dtype = dtypes.partition("-")
    wanted = ("qint8", "quint8") if signed else ("quint8", "qint8")
    place = MAPPED.index(kind) if kind in MAPPED else len(MAPPED)
    return place, wanted.index(dtype) if dtype in wanted else len(wanted), dtype


def _is_claimed(pattern: str, claimed: Container[str]) -> bool:
    """Whether a claim covers a pattern, or its first operators."""
    return pattern in claimed or ("+" in pattern and _is_claimed(pattern.rpartition("+")[0], claimed))


def _executed(layer: LayerInUse, runs: Mapping[tuple[str, str], list[Row]], mapped: Mapping[str, str]) -> list[Row]:
    """The runs of the layer, or of the one in its place, that were executed."""
    for pattern, variant in ((layer.run_as or layer.pattern, layer.variant), layer.representative or ("", "")):
        rows = runs.get((f"{pattern}/{mapped.get(pattern)}", variant), ())
        if executed := [row for row in rows if row.verdict.executed]:
            return executed
    return []


def _worst(rows: Sequence[Row]) -> tuple[Fate, frozenset[str]]:
    """The worst fate of runs, and the known findings that they show."""
    fates = {fate for row in rows for fate in _fates(row)} or {Fate.RIGHT}
    return min(fates, key=IN_ORDER.index), frozenset(row.known for row in rows if row.failed and row.known)


def _fates(row: Row) -> Iterator[Fate]:
    for one in assessments(row):
        if one.severity is Severity.FLOAT:
            yield Fate.FLOAT
        elif one.severity is Severity.REFUSES:
            yield Fate.REFUSED
        elif one.severity not in (Severity.ACCEPTS, Severity.IDLE):
            yield Fate.NEAR if _is_near(row, one.check) else Fate.WRONG
    if row.verdict is Verdict.UNDEFINED:
        yield Fate.WRONG


def _is_near(row: Row, check: str) -> bool:
    kinds = {finding.kind for finding in row.findings if finding.check == check}
    return check == "numerics" and kinds <= NEAR_KINDS and (row.steps_max or 0) <= NEAR_STEPS
