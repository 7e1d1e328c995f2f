"""Known findings: what is wrong, and where it shows."""

import fnmatch
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property

from conformance.configs.engines import PACKAGES

from .causes import RELATIONS, LayerCause
from .findings.stages import FURTHER, INPUTS
from .profiles import CHECKS, OF_SOME_RUNS, PROFILES
from .rows import Row
from .verdicts import AS_CHECKS
from .where import Conditions, Where, values_of

VERSIONS = ("torch", *PACKAGES)
"""Packages of whose versions an entry may depend."""

CONDITIONS = (*VERSIONS, "arch", "isa", "vnni")
"""Properties of a host that an entry may depend on."""


@dataclass(frozen=True)
class Host:
    """Properties of a host that conditions of entries refer to. `flags` are those of its CPU, which no limit takes away,
    `packages` those beside torch with their versions, as `executorch 1.4.1`."""

    torch: str
    arch: str
    isa: str
    flags: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()

    def fulfils(self, name: str, condition: str) -> bool:
        """Whether the host has a property. A package whose version is not known may have any."""
        if name not in VERSIONS:
            return fnmatch.fnmatchcase(getattr(self, name), condition)
        versions = {"torch": self.torch, **dict(package.split(" ") for package in self.packages)}
        return name not in versions or _version_in(versions[name], condition)

    @property
    def vnni(self) -> str:
        """Whether the CPU has AVX-512 VNNI, as `True` or `False`. torch's engine x86 decides by it whether a layer gets
        oneDNN's kernels or FBGEMM's, whatever limits the libraries."""
        return str("avx512_vnni" in self.flags or self.isa.startswith("avx512_vnni"))

    @property
    def platform(self) -> str:
        """Architecture and instruction set, as a ledger names its platforms."""
        return f"{self.arch} {self.isa}"

    def among(self, platforms: Collection[str]) -> bool:
        """Whether globs over platforms include this host. A ledger that names none is for every platform."""
        return not platforms or any(fnmatch.fnmatchcase(self.platform, glob) for glob in platforms)


@dataclass(frozen=True)
class KnownFinding:
    """One cause of deviations.

    `title` says what is wrong, for a reader without context, `reason` what the engine does instead. `upstream` names the
    issue, or is `unreported`. `component` is at fault where rows leave open whether lowering or a kernel is. `formerly` are
    other ids that earlier reports and histories have for it. `remedies` are the rewritings of a network that avoid it
    (`conformance.repair.rewrites`), in the order in which they are tried before a layer is left in float.

    A report for upstream has `why` it is a bug, and the `source` that is to blame, as `PATH: FUNCTION` in its repository.
    `no_report` is the reason why a maintainer would close it: as designed, or as mended in a newer version.
    """

    id: str
    title: str
    reason: str
    upstream: str
    component: str | None = None
    formerly: tuple[str, ...] = ()
    remedies: tuple[str, ...] = ()
    why: str = ""
    source: str = ""
    no_report: str = ""


@dataclass(frozen=True)
class Entry:
    """Where a known finding shows.

    `where` are conditions on runs, `exclude` (`except` in the file) conditions on runs that are exceptions. All checks in
    `must` that a run has fail in every run for which a condition holds; those in `may` can fail too. They have findings of no
    other kind than `kind` if it states any; with one of `FURTHER`, which differ between runs, the checks are in `may`. Runs
    with a feature of `unless` are not covered because of others like them. `undefined` names the reason (one of `UNDEFINED`)
    why a run may have any outcome; its check is `undefined`. `when` are conditions on the host. `source` is the
    entry's place in the ledger, `number` its place among those of the finding. `layers` are the layers of networks that show
    the finding, maybe alone; `predicts` those that will, by what is known of a layer before any kernel runs: `layers`, if
    none are stated. `platforms` are globs over the platforms that the ledger was written on: on others a run
    may deviate, and need not.
    """

    finding: KnownFinding
    where: tuple[Where, ...]
    must: frozenset[str]
    source: str
    number: int = 1
    when: Mapping[str, str] = field(default_factory=dict)
    exclude: tuple[Where, ...] = ()
    layers: tuple[LayerCause, ...] = ()
    predicts: tuple[LayerCause, ...] = ()
    kind: tuple[str, ...] = ()
    unless: frozenset[str] = frozenset()
    undefined: str = ""
    platforms: tuple[str, ...] = ()
    may: frozenset[str] = frozenset()

    @cached_property
    def check(self) -> frozenset[str]:
        """The checks that fail, or may."""
        return self.must | self.may

    @property
    def id(self) -> str:
        """The id of the finding."""
        return self.finding.id

    @property
    def name(self) -> str:
        """The id of the finding, with the number of the entry unless it is the first."""
        return self.id if self.number == 1 else f"{self.id}#{self.number}"

    def named(self, known: str | None) -> bool:
        """Whether a row that names a known finding names this one, by the id that it has or had."""
        return known == self.id or known in self.finding.formerly

    @property
    def on_further_inputs(self) -> bool:
        """Whether the finding shows with further inputs only. These differ between runs, so each may conform."""
        return not FURTHER.isdisjoint(self.kind)

    def excused(self, row: Row) -> frozenset[str]:
        """The checks whose failure the entry explains in a row: without those that have a finding of another kind than it
        states, and any that the row fails if its outcome is undefined."""
        if self.undefined:
            return row.failed
        stated = {*self.kind, *(of.kind for of in INPUTS)}
        excused = self.check - {one.check for one in row.findings if self.kind and one.kind not in stated}
        if self.on_further_inputs:
            excused &= {one.check for one in row.findings if one.kind in FURTHER.intersection(self.kind)}
        return excused

    def matches(self, run_id: str) -> bool:
        """Whether the entry covers a run: the run has one of the checks, and a condition reaches it."""
        return any(where.matches(run_id) for where in self.where) and self.admits(run_id)

    def admits(self, run_id: str) -> bool:
        """Whether the entry covers a run that one of its conditions reaches: the run has one of the checks and is no
        exception."""
        values = values_of(run_id)
        excepted = any(where.holds(values) for where in self.exclude)
        return not excepted and not self.check.isdisjoint(checks_of(run_id))

    def applies(self, host: Host) -> bool:
        """Whether this host fulfils the entry's conditions."""
        return all(host.fulfils(name, condition) for name, condition in self.when.items())


def checks_of(run_id: str) -> frozenset[str]:
    """The checks that a run has or may be asked for, that it does not crash and that its outcome is defined."""
    return _checks_of_profile(run_id.rpartition("@")[0].rpartition("/")[2])


@cache
def _checks_of_profile(name: str) -> frozenset[str]:
    profile = PROFILES.get(name)
    if profile is None:
        return frozenset({*AS_CHECKS, *CHECKS})
    of_some = OF_SOME_RUNS if profile.kind == "case" else ()
    return frozenset({*AS_CHECKS, *profile.checks, *profile.checks_of_quantizers, *of_some})


def _version_in(version: str, condition: str) -> bool:
    """Whether a version fulfils all parts of a condition like `>=2.10,<2.14`; a part without an operator is a glob."""
    numbers = _numbers(version)
    for part in condition.split(","):
        relation = re.match(r"\s*(>=|<=|==|<|>)\s*([\d.]+)\s*$", part)
        if relation is None:
            if not fnmatch.fnmatchcase(version, part.strip()):
                return False
            continue
        bound = _numbers(relation[2])
        if not RELATIONS[relation[1]](numbers[: len(bound)], bound):
            return False
    return True


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version.partition("+")[0]))


class Coverage:
    """Which of many entries cover a run, for many runs: what `Entry.matches` says of each, from conditions that are compiled
    together, with further conditions if they are given."""

    def __init__(self, entries: Iterable[Entry], further: Iterable[Where] = ()) -> None:
        self.entries = tuple(entries)
        by_condition: dict[Where, list[int]] = defaultdict(list)
        for number, entry in enumerate(self.entries):
            for where in dict.fromkeys(entry.where):
                by_condition[where].append(number)
        excluding = (where for entry in self.entries for where in entry.exclude)
        self.conditions = Conditions((*by_condition, *further), excluding)
        self._numbers = [*by_condition.values()]
        self._own = self.conditions.set_of(by_condition, reaching=True)
        self._exceptions = [self.conditions.set_of(entry.exclude, reaching=False) for entry in self.entries]

    def reached(self, found: int) -> set[int]:
        """The numbers of the entries of which a condition reaches a run, of which `found` are all conditions that hold."""
        return {number for place in self.conditions.places(found & self._own) for number in self._numbers[place]}

    def admits(self, number: int, found: int, checks: frozenset[str]) -> bool:
        """Whether an entry covers a run with these checks that one of its conditions reaches."""
        return not found & self._exceptions[number] and not self.entries[number].check.isdisjoint(checks)

    def of(self, run_id: str) -> list[Entry]:
        """The entries that cover a run, in order."""
        found = self.conditions.of(run_id)
        if not (numbers := self.reached(found)):
            return []
        checks = checks_of(run_id)
        return [self.entries[number] for number in sorted(numbers) if self.admits(number, found, checks)]


def entries_by_finding(entries: Iterable[Entry]) -> dict[str, list[Entry]]:
    """The entries of each finding, by every id that rows have or had for it."""
    by_id = defaultdict(list)
    for entry in entries:
        for name in (entry.id, *entry.finding.formerly):
            by_id[name].append(entry)
    return dict(by_id)
