"""The stages of an analysis: which mutants change the result of some witness, and which of those a witness notices."""

import json
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from conformance.checks.judge import Judge
from conformance.errors import UsageError
from conformance.execution.batch import crashed_row
from conformance.host.isolation import Death, Done, Raised
from conformance.results.profiles import PROFILES
from conformance.results.rows import Row
from conformance.selection import Selection

from .cover import Classes, Counts, recording
from .drawing import group_of
from .injection import Sighting, Sightings, injecting, observing
from .mutant import Condition, Mutant
from .parallel import in_batches
from .population import executed
from .records import Result
from .witnesses import Witness, row_of

UNIT = 40
"""Subjects that one child observes."""

TOGETHER = 6
"""Mutants that one child is occupied with."""


class Unnoticed(StrEnum):
    """Why a witness whose result a mutant changes does not notice it. Of several witnesses the first in this order counts."""

    LISTED = "hidden by a deviation that the ledger lists for the run"
    SIMILAR = "hidden by deviations that the ledger lists for runs like the drawn sample"
    UNCOMPARED = "the output is not compared with exact arithmetic"
    EXCUSED = "at ties, within a tolerance, or in a call only whose result is not compared"
    RELATIONS = "met in relations only, which compare the kernel with itself"

    @classmethod
    def of(cls, witness: Witness, row: Row) -> "Unnoticed":
        if PROFILES[witness.run.profile].kind != "case":
            return cls.RELATIONS
        if "numerics" in row.failed:
            return cls.LISTED if witness.sample is None else cls.SIMILAR
        return cls.EXCUSED if row.checks.get("numerics") == "pass" else cls.UNCOMPARED


@dataclass
class Stage:
    """One stage of an analysis: witnesses, and where each mutant is met and shows among them."""

    name: str
    witnesses: Sequence[Witness]
    selection: Selection
    say: Callable[[str], None]
    sighted: dict[str, Sighting] = field(default_factory=dict)
    met: dict[str, int] = field(default_factory=Counter)
    shown: dict[str, list[tuple[int, int]]] = field(default_factory=lambda: defaultdict(list))

    def observe(self, mutants: Sequence[Mutant], *, judged: bool = True, counts: Counts | None = None) -> None:
        """Judge every witness once, without a mutant, and record where mutants would show; if not `judged`, only execute it.
        With `counts`, add the classes of its calls to them.

        Raises UsageError if a witness contradicts the ledger without a mutant.
        """
        of_engine = {name: [m for m in mutants if m.engine == name] for name in {m.engine for m in mutants}}

        def work(numbers: Sequence[int]) -> list[tuple[Sightings, frozenset[str], Classes]]:
            judge, seen = Judge(self.selection.store), []
            for number in numbers:
                sightings: Sightings = {}
                witness = self.witnesses[number]
                handler, alarms = observing(of_engine.get(witness.run.engine, ()), sightings), frozenset[str]()
                classes = set[tuple[str, str]]()
                if counts is not None:
                    handler = recording(classes, handler)
                if judged:
                    alarms = witness.alarms(row_of(judge, witness.run, handler), self.selection)
                else:
                    executed(witness.run, handler)
                seen.append((sightings, alarms, frozenset(classes)))
            return seen

        contradictions = list[str]()
        for number, outcome in in_batches(work, range(len(self.witnesses)), UNIT, f"{self.name}: observing"):
            name = self.witnesses[number].id
            if isinstance(outcome, Raised):
                raise UsageError(f"the suite itself fails on {name}:\n{outcome.traceback}")
            if isinstance(outcome, Done):
                sightings, alarms, classes = outcome.value
                self._add(number, sightings)
                if counts is not None and self.witnesses[number].sample is None:
                    counts.add(self.witnesses[number].run, classes)
            else:
                # the ledger may say that samples like this one crash
                row = crashed_row(self.witnesses[number].run, outcome)
                alarms = self.witnesses[number].alarms(row, self.selection) if judged else frozenset()
            if alarms:
                contradictions.append(f"{name} ({', '.join(sorted(alarms))})")
        if contradictions:
            raise UsageError(
                f"{len(contradictions)} witnesses contradict the ledger without a mutant, the first: {contradictions[0]}"
            )

    def _add(self, number: int, sightings: Sightings) -> None:
        for mutant, sighting in sightings.items():
            self.sighted.setdefault(mutant, Sighting()).add(sighting)
            self.met[mutant] += bool(sighting.met)
            if sighting.elements:
                self.shown[mutant].append((number, sighting.elements))

    def promising(self, mutant: Mutant) -> list[int]:
        """The witnesses in which a mutant shows, those that are likely to notice it first."""

        def rank(found: tuple[int, int]) -> tuple[object, ...]:
            number, elements = found
            witness = self.witnesses[number]
            blind = "numerics" in witness.listed or PROFILES[witness.run.profile].kind != "case"
            return blind, witness.run.profile == "typical", -elements, number

        return [number for number, _ in sorted(self.shown[mutant.id], key=rank)]

    def sets(self) -> str:
        """The ids of the runs of cases in which each mutant shows and the ledger expects no deviation, as JSON."""
        shown = {name: [self.witnesses[n] for n, _ in found] for name, found in self.shown.items()}
        sets = {
            name: [one.id for one in runs if "numerics" not in one.listed and PROFILES[one.run.profile].kind == "case"]
            for name, runs in shown.items()
        }
        return json.dumps(sets, indent=0)

    def hunt(self, mutants: Sequence[Mutant]) -> dict[str, Result]:
        """Judge the witnesses in which each mutant shows, until one contradicts the ledger."""
        started = time.monotonic()
        results = {mutant.id: self._unmet(mutant) for mutant in mutants if not self.shown[mutant.id]}
        hunted = [mutant for mutant in mutants if self.shown[mutant.id]]
        for mutant, outcome in in_batches(self._judge_all, hunted, TOGETHER, f"{self.name}: hunting"):
            if isinstance(outcome, Done):
                results[mutant.id] = outcome.value
            else:
                alarm = "crashes" if isinstance(outcome, Death) else "suite"
                results[mutant.id] = self._result(mutant, 0, "one of the runs in which it shows", (alarm,))
        caught = sum(result.caught for result in results.values())
        seconds = time.monotonic() - started
        self.say(f"{self.name}: {caught} of {len(mutants)} are caught, {len(hunted)} show ({seconds:.0f} s)")
        return results

    def _judge_all(self, mutants: Sequence[Mutant]) -> list[Result]:
        return [self._judge(mutant) for mutant in mutants]

    def _judge(self, mutant: Mutant) -> Result:
        judge, handler = Judge(self.selection.store), injecting(mutant)
        numbers, unnoticed = self.promising(mutant), list[Unnoticed]()
        for judged, number in enumerate(numbers, 1):
            witness = self.witnesses[number]
            row = row_of(judge, witness.run, handler)
            if alarms := witness.alarms(row, self.selection):
                return self._result(mutant, judged, witness.id, tuple(sorted(alarms)))
            unnoticed.append(Unnoticed.of(witness, row))
        cause = str(min(unnoticed, key=[*Unnoticed].index))
        return replace(self._result(mutant, len(numbers)), cause=cause, reason=cause)

    def _result(self, mutant: Mutant, judged: int, caught_by: str = "", alarms: tuple[str, ...] = ()) -> Result:
        return Result(self.met[mutant.id], len(self.shown[mutant.id]), judged, caught_by, alarms)

    def _unmet(self, mutant: Mutant) -> Result:
        """Why no witness makes a call that a mutant changes."""
        sighting, lacking = self.sighted.get(mutant.id), list[Condition]()
        if sighting is None:
            cause = "the kernel is not called"
        elif sighting.met:
            cause = "no call that has the conditions has the region, or the effect changes nothing there"
        elif lacking := [c for bit, c in enumerate(mutant.conditions) if not sighting.fulfilled >> bit & 1]:
            groups = sorted({f"such {GROUP_TEXTS[group_of(condition.fact)]}" for condition in lacking})
            cause = f"no call has {' and '.join(groups)}"
        else:
            cause = "no call has both conditions"
        reason = f"no call where {' nor where '.join(condition.text for condition in lacking)}" if lacking else cause
        facts = tuple(condition.fact for condition in lacking)
        return replace(self._result(mutant, 0), cause=cause, reason=reason, lacking=facts)


GROUP_TEXTS = {
    "option": "an option",
    "size": "a size",
    "qparams": "qparams",
    "format": "a memory format",
    "process": "a count of calls or threads",
}
