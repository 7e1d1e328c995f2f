"""One run from its model to its row: every stage, every check, and what each raised."""

import copy
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from importlib import import_module

import torch
from torch import Tensor

from conformance.cases.runs import Run, describe
from conformance.configs.registry import BACKENDS
from conformance.engines.registry import engine
from conformance.engines.trace import execute
from conformance.errors import brief
from conformance.goldens.golden import Golden, compute, golden_of, qparams_by_name
from conformance.goldens.store import GoldenError, Store
from conformance.host.poison import fresh_memory_holds
from conformance.models import build, fx
from conformance.models.build import Subject
from conformance.models.data import channels_last, fill
from conformance.oracle import Answer, Codes, NotCovered
from conformance.results.profiles import CHECK_MODULES, ON_THE_SPOT
from conformance.results.rows import Row
from conformance.stopwatch import Stopwatch

from .evidence import Evidence, Outcome
from .stages import guarded, keeps_to_memory_format, others
from .structure import signature

CHECKS: dict[str, Callable[[Evidence], Outcome]] = {
    name: getattr(import_module(f".{module}", __package__), name) for name, module in CHECK_MODULES.items()
}


FROM_RUN_TO_RUN = "the codes differ from run to run"


def without_chance(detail: str) -> str:
    """Take the figures out of the detail of a run whose output differs from run to run: the next run has others."""
    differ = r"\d+ of \d+ codes differ .*?(?=; (?:" + "|".join(CHECKS) + "): |$)"
    detail = re.sub(differ, FROM_RUN_TO_RUN, detail)
    detail = re.sub(r"SQNR -?[\d.]+ dB is", "SQNR is", detail)
    detail = re.sub(r"changes \d+ of \d+ values", "changes values", detail)
    # what differs from itself may or may not differ in another way too
    return re.sub(r"(second run changes values)(; (?!\w+: )[\w ]+ changes values)+", r"\1", detail)


class Judge:
    """Takes a run through the pipeline and the checks."""

    def __init__(self, store: Store | None = None) -> None:
        self.watch, self.store = Stopwatch(), store or Store()
        self._front_failures: dict[str, str] = {}
        self._last: tuple[tuple[object, ...], Evidence] | None = None

    def evidence(self, run: Run) -> Evidence:
        """Take a run through every stage that it reaches. The engine has to be available."""
        evidence = Evidence(run)
        with engine(run.engine).scope(), fx.quiet():
            self._collect(evidence)
        return evidence

    def row(self, run: Run) -> tuple[Row, str]:
        """Judge a run and return its row, `known` still open, and why it could not be held to a golden, if so."""
        evidence, row = self.judged(run)
        return row, evidence.unusable

    def judged(self, run: Run) -> tuple[Evidence, Row]:
        """Judge a run and return its row with the evidence for it."""
        start = time.perf_counter()
        evidence = self.evidence(run)
        outcomes = {name: check(evidence) for name, check in CHECKS.items()}
        failed = [f"{name}: {outcome.detail}" for name, outcome in outcomes.items() if outcome.result == "fail"]
        comparison, sqnr_db, detail = evidence.comparison, evidence.sqnr_db, "; ".join(failed)
        if "second run changes" in outcomes["stable"].detail:
            comparison, sqnr_db, detail = None, None, without_chance(detail)
        row = Row(
            **describe(run),
            verdict="deviates" if failed else "conforms",
            checks={name: outcome.result for name, outcome in outcomes.items()},
            detail=detail,
            kernels=tuple(dict.fromkeys(evidence.execution.listed())) if evidence.execution else (),
            steps_max=comparison.steps_max if comparison else None,
            mismatched=comparison.mismatched if comparison else None,
            ties=comparison.ties if comparison else None,
            tolerated=comparison.tolerated if comparison else None,
            total=comparison.total if comparison else None,
            sqnr_db=sqnr_db,
            seconds=round(time.perf_counter() - start, 4),
        )
        return evidence, row

    @contextmanager
    def _stage(self, evidence: Evidence, name: str) -> Iterator[None]:
        """Time a stage and note what it raises; what comes after goes on without its product."""

        def failed(error: BaseException) -> None:
            evidence.failures[name] = brief(error)

        with guarded(self.watch, failed):
            yield

    def _collect(self, evidence: Evidence) -> None:
        self._front(evidence)
        if evidence.prepared is not None and evidence.subject is not None and evidence.blank is not None:
            self._back(evidence, evidence.subject)
        if evidence.subject is not None and "float" not in evidence.failures:
            self._expect(evidence, evidence.subject)

    def _expect(self, evidence: Evidence, given: Subject) -> None:
        """Take the golden from the store, or the oracle's answer where none is stored.

        Stored are those of registered backends in the `exact` profile. In the `typical` one the oracle is given the qparams
        that the reference model has: which ones torch's observers settle on is no part of the claim.
        """
        run, chosen = evidence.run, None
        if run.profile == "typical":
            if evidence.reference is None or evidence.reference_execution is None:
                return
            chosen = qparams_by_name(evidence.reference, evidence.reference_execution, given)

        @cache
        def answer() -> Answer:
            return compute(given, chosen)

        def exact(number: int) -> Tensor | None:
            output = answer().outputs[number]
            return output.position if isinstance(output, Codes) else None

        evidence.exact = exact
        try:
            if run.profile in ON_THE_SPOT and not answer().certain:
                evidence.unusable = f"{run.id}: the oracle's answer is not certain"
                return
            evidence.golden = self._stored(given) if chosen is None else None
            evidence.golden = evidence.golden or golden_of(answer())
        except GoldenError as error:
            evidence.unusable = str(error)
        except NotCovered as error:
            evidence.unusable = f"{run.id}: the oracle does not cover it: {error}"

    def _stored(self, given: Subject) -> Golden | None:
        """The stored golden of a run, or None where it is computed instead: for drawn and timed cases, and for configs that
        are not registered if none is stored or it is stale."""
        if given.run.profile in ON_THE_SPOT:
            return None
        try:
            return self.store.find(given)
        except GoldenError:
            if given.run.backend.name in BACKENDS:
                raise
        return None

    def _front(self, evidence: Evidence) -> None:
        """Everything before conversion. It does not depend on the engine, so that two engines in a row share it."""
        run = evidence.run
        key = (run.backend, run.key, run.recipe)
        if self._last is not None and self._last[0] == key:
            shared = self._last[1]
            for name in ("subject", "expected", "prepared", "blank", "prepared_without", "rest", "changes"):
                setattr(evidence, name, getattr(shared, name))
            evidence.failures.update(self._front_failures)
            return
        try:
            given = evidence.subject = build.subject(run)
            with self._stage(evidence, "float"):
                evidence.expected = build.float_outputs(given)
        except build.CannotBeBuilt as error:
            evidence.failures["float"] = brief(error.args[0])
        if "float" not in evidence.failures:
            with self._stage(evidence, "prepare"):
                evidence.prepared = fx.prepare(given, run.backend.config)
        if evidence.prepared is not None:
            self._ablate(evidence, given)
            with self._stage(evidence, "calibrate"):
                evidence.blank = copy.deepcopy(evidence.prepared)
                fx.calibrate(evidence.prepared, given)
        # a later run changes `changes` and `failures` of its own evidence only
        self._last, self._front_failures = (key, copy.copy(evidence)), dict(evidence.failures)

    def _back(self, evidence: Evidence, given: Subject) -> None:
        """Convert to the reference model, lower to the engine, and execute both."""
        assert evidence.prepared is not None
        config = evidence.run.backend.config
        with self._stage(evidence, "reference"):
            evidence.reference = fx.reference(evidence.prepared, config)
        if evidence.reference is not None:
            with self._stage(evidence, "reference execution"):
                evidence.reference_execution = execute(evidence.reference, given.fresh_inputs())
        used = engine(evidence.run.engine)
        with self._stage(evidence, "lower"):
            evidence.lowered = used.convert(evidence.prepared, config)
            evidence.program = used.compile(evidence.lowered, given.fresh_inputs())
        if evidence.lowered is not None and not evidence.changes:
            self._ablate_lowered(evidence, given)
        if evidence.program is not None:
            with self._stage(evidence, "execute"), fresh_memory_holds(0x55):
                evidence.execution = used.execute(evidence.program, given.fresh_inputs())
        if evidence.execution is not None:
            self._repeat(evidence, given)

    def _ablate(self, evidence: Evidence, given: Subject) -> None:
        """Take the claim out of the config until something changes: what prepare makes, or else what lowering makes."""
        assert evidence.prepared is not None
        before = signature(evidence.prepared)
        for rest in fx.without(evidence.run.backend.config, evidence.run):
            with self._stage(evidence, "prepare without"):
                evidence.prepared_without = fx.prepare(given, rest)
            if "prepare without" in evidence.failures or signature(evidence.prepared_without) != before:
                evidence.changes = True
                return
        evidence.rest = rest

    def _ablate_lowered(self, evidence: Evidence, given: Subject) -> None:
        """Where prepare shows no difference, look for one in the lowered model."""
        assert evidence.lowered is not None
        assert evidence.prepared_without is not None
        assert evidence.rest is not None
        with self._stage(evidence, "lower without"):
            fx.calibrate(evidence.prepared_without, given)
            other = engine(evidence.run.engine).convert(evidence.prepared_without, evidence.rest)
            evidence.changes = signature(evidence.lowered) != signature(other)
        if "lower without" in evidence.failures:
            evidence.changes = True

    def _repeat(self, evidence: Evidence, given: Subject) -> None:
        """Run again in every way that must not make a difference."""
        used, program, execution = engine(evidence.run.engine), evidence.program, evidence.execution
        assert program is not None
        assert execution is not None
        written = [output.raw for output in execution.outputs]
        execution = replace(execution, outputs=tuple(output.copied() for output in execution.outputs))
        evidence.execution = execution
        with self._stage(evidence, "second run"), fresh_memory_holds(0xAA):
            outputs, nested = used.execute_again(program, given.fresh_inputs())
            evidence.repetitions["second run"] = outputs
            evidence.execution = replace(execution, nested=nested)
        with self._stage(evidence, "another call"), torch.no_grad():
            program(*(others(x) for x in given.fresh_inputs()))
            evidence.repetitions["another call"] = [output.clone() for output in written]
        with self._stage(evidence, "state_dict"):
            evidence.repetitions["state_dict"] = self._reloaded(evidence, given)
        inputs = channels_last(given.fresh_inputs())
        if inputs is not None and not used.fixed_shapes and keeps_to_memory_format(evidence, given):
            with self._stage(evidence, "channels_last"), torch.no_grad(), fresh_memory_holds(0xAA):
                evidence.repetitions["channels_last"] = build.tensors(program(*inputs))

    def _reloaded(self, evidence: Evidence, given: Subject) -> list[Tensor]:
        """Outputs of a model with other weights and uncalibrated observers, after loading the lowered model's state."""
        blank = evidence.blank
        assert evidence.program is not None
        assert blank is not None
        fill(blank, "other", given.run.recipe.weight_levels)
        other = engine(evidence.run.engine).reload(evidence.program, blank.eval(), evidence.run.backend.config)
        with torch.no_grad():
            return build.tensors(other(*given.fresh_inputs()))
