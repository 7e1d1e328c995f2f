"""The schedule of benchmarks: passes over cases until each is settled, and the worker processes that time them."""

import math
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import accumulate, chain
from tempfile import TemporaryDirectory
from typing import Any

from conformance.results.codec import decode_fields

from .plan import Plan
from .results import Writer, timing_of
from .timer import PLACEMENTS, ROUNDS
from .timings import THREADS, WITH_FLOAT, Machine, NotTimed, Timing, case_name, is_network
from .verdicts import Observed, judge, needed, precise
from .workers import Died, Worker

Clock = Callable[[], float]
"""Returns seconds."""
EXTENTS_OF = {"quick": ("small",), "full": ("small", "medium", "large")}
THREADS_OF = {"quick": ("1",), "full": THREADS}
SPARE = 12
"""Disturbed passes that may be dropped before any other pass was timed."""
MOST_DROPPED = 1.0
"""Disturbed passes that are dropped at most, as a share of the others. The pace drops them, and not what was timed, so the
others are as they would be without a disturbance."""
MOST_DROPPED_OF_CASE = 2
"""Disturbed passes of a layer that are dropped before one is kept, so that each case has a pass. None of a network is dropped
before it has one: it takes seconds, in which most machines are disturbed."""
PART = 60
"""Cases that are judged before they are timed. An interrupted invocation loses what was measured of no more."""
LEAST_SWEEP = 10
"""Cases that get a pass although the budget will probably settle none."""
REPORT_SECONDS = 30.0


@dataclass(frozen=True)
class Case:
    """What is timed, pass by pass: a run, or a network in one form, with a number of threads."""

    id: str
    extent: str
    threads: str
    group: str
    """What reports of pytest-benchmark group cases by."""

    @property
    def name(self) -> str:
        return case_name(self.id, self.threads)


@dataclass
class Bench:
    """Times cases with one interpreter, or with two in turns, and writes the timings."""

    writer: Writer
    plan: Plan = field(default_factory=Plan)
    against: str | None = None
    declared: Sequence[str] = ()
    python: str = sys.executable
    clock: Clock = time.monotonic
    report: Callable[[str], None] = lambda line: None
    _workers: dict[str, list[Worker]] = field(default_factory=dict)
    _cache: str = ""
    _start: float = 0.0
    _told: float = 0.0
    _sweeps: int = 0
    _timing: float = 0.0
    _timed_passes: int = 0
    _probes: dict[str, float] = field(default_factory=dict)
    dropped_of: Counter[str] = field(default_factory=Counter)
    """Passes that were dropped because the machine was disturbed, by case."""
    _judged: dict[str, dict[str, Any]] = field(default_factory=dict)

    def passes(self, case: Case) -> list[Timing]:
        """The passes over a case, in order."""
        return self.writer.passes[case.name]

    def reason(self, case: Case) -> str | None:
        """Why a case is not timed, None if it is."""
        not_timed = self.writer.not_timed.get(case.name)
        return not_timed.reason if not_timed else None

    def run(self, cases: Sequence[Case]) -> None:
        """Time all cases until each is settled or the budget is spent, and write the file.

        An exception, such as an interrupt, leaves the file for a later invocation that goes on.
        """
        self._start = self._told = self.clock()
        try:
            with TemporaryDirectory(prefix="conformance-bench-") as self._cache:
                self._timing = self.clock()
                for start in range(0, len(cases), PART):
                    self._begin(cases[start : start + PART])
                while chosen := self._chosen(cases):
                    self._tell(cases, chosen)
                    self._sweep(chosen)
                self.end()
        except BaseException:
            self.end()
            self.writer.interrupt()
            raise
        self.writer.finish()

    def _begin(self, cases: Sequence[Case]) -> None:
        """Judge cases and time their first pass, which goes to the file with what judging has measured."""
        start = self.clock()
        self._judge(cases)
        self._timing += self.clock() - start
        if first := [case for case in cases if self.reason(case) is None and not self.passes(case)]:
            self._sweep(first)

    def _judge(self, cases: Sequence[Case]) -> None:
        """Judge the cases that were not timed before, in processes that time nothing: judging leaves memory and modules."""
        answered: dict[str, list[dict[str, Any]]] = {}
        for case in cases:
            if self.passes(case) or self.reason(case) is not None:
                continue
            if self._left() <= 0:
                break
            try:
                # what is judged does not depend on the number of threads; memory and layers are measured with one
                answers = [_without_measurements(answer) for answer in answered.get(case.id, [])] or [
                    worker.ask(do="judge", id=case.id) for worker in self._workers_for(case)
                ]
            except Died as death:
                self.writer.add(self._not_timed(case, death))
                continue
            answered[case.id] = answers
            if reason := next((answer["reason"] for answer in answers if "reason" in answer), None):
                self.writer.add(NotTimed(case.id, case.threads, case.extent, reason))
            else:
                self._judged[case.name] = answers[0]
        self.end()

    def _not_timed(self, case: Case, death: Died) -> NotTimed:
        """End all workers after the death of one, which is the reason why a case is not timed."""
        self.end()
        return NotTimed(case.id, case.threads, case.extent, f"crashes: {death}")

    def _left(self) -> float:
        """The seconds that are left of the budget."""
        return math.inf if self.plan.budget is None else self._start + self.plan.budget - self.clock()

    def _chosen(self, cases: Sequence[Case]) -> list[Case]:
        """The cases of the next sweep: those with too few passes for the first look; later the unsettled ones that need the
        fewest further passes, as many as the rest of the budget will probably settle. Empty when nothing is left to do."""
        left = self._left()
        if left <= 0:
            return []
        waiting = [case for case in self.unsettled(cases) if len(self.passes(case)) < self.plan.looks[-1]]
        if few := [case for case in waiting if len(self.passes(case)) < self.plan.looks[0]]:
            return few
        rate = self._timed_passes / max(self.clock() - self._timing, 1e-9)
        affordable = left * rate if self._timed_passes else math.inf
        paired = self.against is not None
        further = {
            case: max(1.0, needed(self._observed(case).new, self.plan.aim, paired=paired) - len(self.passes(case)))
            for case in waiting
        }
        waiting.sort(key=further.__getitem__)
        settling = sum(passes <= affordable for passes in accumulate(further[case] for case in waiting))
        return waiting[: settling or LEAST_SWEEP]

    def _tell(self, cases: Sequence[Case], chosen: Sequence[Case]) -> None:
        """Report the progress, not more often than every `REPORT_SECONDS`."""
        now = self.clock()
        if now - self._told < REPORT_SECONDS:
            return
        self._told = now
        timed = [case for case in cases if self.reason(case) is None]
        settled = len(timed) - len(self.unsettled(timed))
        self.report(f"{settled} of {len(timed)} cases are settled; {len(chosen)} get a pass")

    def _observed(self, case: Case) -> Observed:
        return Observed([timing.log_builds if self.against else timing.log_paced for timing in self.passes(case)])

    def unsettled(self, cases: Sequence[Case]) -> list[Case]:
        """The timed cases whose passes, up to the last look, are not yet enough."""
        timed = [case for case in cases if self.reason(case) is None]
        few = [case for case in timed if len(self.passes(case)) < self.plan.looks[0]]
        if len(self.plan.looks) == 1:
            return few
        enough = [case for case in timed if len(self.passes(case)) >= self.plan.looks[0]]
        observed = [self._observed(case) for case in enough]
        if self.against is None:
            settled = [precise(each.new, self.plan.aim) for each in observed]
        else:
            verdicts = judge(observed, self.plan.looks, self.plan.aim)
            settled = [judged.verdict != "inconclusive" for judged in verdicts]
        return few + [case for case, done in zip(enough, settled, strict=True) if not done]

    def _sweep(self, cases: Sequence[Case]) -> None:
        """One pass over each case, in random order and in new processes. What a disturbed machine drops gets another try."""
        self.end()
        self._sweeps += 1
        for case in random.Random(self._sweeps).sample(cases, len(cases)):
            if self._left() <= 0:
                return
            try:
                line = self._timed(case, len(self.passes(case)))
            except Died as death:
                line = self._not_timed(case, death)
            if line is None:
                self.dropped_of[case.name] += 1
                continue
            self.writer.add(line)
            if isinstance(line, Timing):
                self._timed_passes += 1

    @property
    def dropped(self) -> int:
        return self.dropped_of.total()

    def _may_drop(self, case: Case) -> bool:
        """Whether a disturbed pass is dropped: a machine that is always disturbed gets every other pass all the same."""
        enough = is_network(case.id) or self.dropped_of[case.name] >= MOST_DROPPED_OF_CASE
        return bool(self.passes(case) or not enough) and self.dropped < MOST_DROPPED * (self._timed_passes + SPARE)

    def _timed(self, case: Case, number: int) -> Timing | NotTimed | None:
        """A pass over a case that was judged. None if the machine was disturbed all the time and the pass is dropped."""
        workers = self._workers_for(case)
        for worker in workers:
            probe = {"probe": self._probes[worker.python]} if worker.python in self._probes else {}
            if reason := worker.ask(do="open", id=case.id, **probe).get("reason"):
                return NotTimed(case.id, case.threads, case.extent, reason)
        repeatable = self._may_drop(case)
        how = {"floating": len(workers) == 1 or number < WITH_FLOAT, "repeatable": repeatable}
        disturbed, pace = 0, math.inf
        builds: list[dict[str, list[list[float]]]] = [{"quantized": [], "floating": []} for _ in workers]
        for placement in range(PLACEMENTS):
            for worker, build in [*zip(workers, builds, strict=True)][:: -1 if placement % 2 else 1]:
                answer = worker.ask(do="time", rounds=ROUNDS, **how)
                if "reason" in answer:
                    return NotTimed(case.id, case.threads, case.extent, answer["reason"])
                self._probes[worker.python] = answer["probe"]
                if repeatable and not answer["quiet"]:
                    return None
                disturbed += answer["disturbed"]
                pace = min(pace, answer["pace"])
                for model in answer.keys() & build.keys():
                    build[model].append(answer[model])
        if f"machine #{case.threads}" not in self.writer.beside:
            limits = workers[0].ask(do="limits")
            self.writer.add(decode_fields(Machine, {"threads": case.threads, **limits}))
        judged = self._judged[case.name] if number == 0 else {"counts": asdict(self.passes(case)[0].counts)}
        of_case = {"id": case.id, "threads": case.threads, "number": number, "extent": case.extent}
        timed = {"new": builds[0], "base": builds[1] if len(builds) > 1 else None, "disturbed": disturbed, "pace": pace}
        return timing_of({"memory": None, "layers": [], **of_case, **timed, **judged})

    def _workers_for(self, case: Case) -> list[Worker]:
        """Return the workers for the threads of a case, this interpreter's first. Each sweep starts new ones."""
        if case.threads not in self._workers:
            pythons = [self.python, *([self.against] if self.against else [])]
            self._workers[case.threads] = [
                Worker(python, case.threads, self.declared, self._cache) for python in pythons
            ]
        return self._workers[case.threads]

    def summary(self, cases: Sequence[Case]) -> Iterator[str]:
        """Yield lines with the number of timed and of settled cases, the reasons of the others, and the file."""
        timed = [case for case in cases if self.reason(case) is None and self.passes(case)]
        yield f"{len(timed)} cases timed, {len(self.writer.not_timed)} not:"
        reasons = Counter(": ".join(case.reason.split(": ")[:2]) for case in self.writer.not_timed.values())
        for reason, count in reasons.most_common():
            yield f"{count:6} {reason[:100]}"
        if self.writer.partial.exists():
            yield f"interrupted: the same command goes on with {self.writer.partial}"
            return
        passes = sum(len(self.passes(case)) for case in timed)
        settled = len(timed) - len(self.unsettled(timed))
        dropped = f" ({self.dropped} disturbed ones dropped)" if self.dropped else ""
        left = len(timed) - settled
        yield f"{passes} passes{dropped}; {settled} cases are settled for changes of {self.plan.aim:.0%}, {left} not"
        yield f"timings: {self.writer.path}"

    def end(self) -> None:
        """End all workers."""
        for worker in chain.from_iterable(self._workers.values()):
            worker.end()
        self._workers = {}


def _without_measurements(answer: Mapping[str, Any]) -> dict[str, Any]:
    """A judgement without what was measured with one number of threads."""
    return {name: value for name, value in answer.items() if name not in ("memory", "layers")}


def header(circumstances: Mapping[str, Any], form: str, plan: Plan, base: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the header of a file of timings. `base` has the versions of the interpreter of `--against`, if any."""
    environment = {name: value for name, value in circumstances.items() if name != "cpu_flags"}
    planned = {"passes": plan.looks[-1], "looks": [*plan.looks], "budget": plan.budget, "aim": plan.aim}
    return {**environment, "cores": os.cpu_count(), "form": form, **planned, "against": base}
