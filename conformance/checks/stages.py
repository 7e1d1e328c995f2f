"""Stages of a run, from its float model to repeated executions; each returns a frozen product."""

import copy
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache

import torch
from torch import Tensor
from torch.fx import GraphModule

from conformance.cases.runs import Run
from conformance.configs.registry import BACKENDS
from conformance.engines.protocol import Program
from conformance.engines.registry import engine
from conformance.engines.trace import Execution, execute
from conformance.errors import Failure
from conformance.goldens.golden import Golden, compute, golden_of, qparams_by_name
from conformance.goldens.store import GoldenError, Store
from conformance.host.poison import fresh_memory_holds
from conformance.models import build, fx
from conformance.models.build import Subject
from conformance.models.data import channels_last, fill
from conformance.oracle import Answer, Codes, NotCovered
from conformance.results.profiles import PROFILES
from conformance.stopwatch import Stopwatch

from .evidence import Ablation, Back, Evidence, Expectation, Front
from .structure import signature


@contextmanager
def guarded(watch: Stopwatch, failed: Callable[[BaseException], object]) -> Iterator[None]:
    """Time a block of calls of torch, and pass the exception that it raises to `failed`."""
    try:
        with watch():
            yield
    except MemoryError:
        # models this small never run out of memory: the heap is damaged, and the process would end unpredictably
        os.abort()
    except (Exception, SystemExit) as error:  # any exception of torch is a finding
        failed(error)


class Recorder:
    """Runs stages: times them, and records the exception of each stage that fails by the stage's name."""

    def __init__(self, watch: Stopwatch) -> None:
        self.watch = watch
        self.failures: dict[str, Failure] = {}

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """A stage. If it raises, the stages after it go on without its product."""

        def failed(error: BaseException) -> None:
            self.failures[name] = Failure.of(error)

        with guarded(self.watch, failed):
            yield


class Pipeline:
    """Takes runs through their stages. Consecutive runs of one case share the front, which does not depend on the engine."""

    def __init__(self, watch: Stopwatch, store: Store) -> None:
        self.watch, self.store = watch, store
        self._last: tuple[tuple[object, ...], Front] | None = None

    def evidence(self, run: Run) -> Evidence:
        """Take a run through every stage that it reaches. Its engine has to be available and in scope."""
        front, back, expectation = self._front(run), Back(), Expectation()
        if front.subject is not None and front.prepared is not None and front.blank is not None:
            back = _Conversion(self.watch, run, front, front.subject, front.prepared, front.blank).back()
        if front.subject is not None and "float" not in front.failures:
            expectation = self._expectation(run, front.subject, back)
        return Evidence(run, front, back, expectation)

    def _front(self, run: Run) -> Front:
        key = (run.backend, run.key, run.recipe)
        if self._last is None or self._last[0] != key:
            self._last = key, front(self.watch, run)
        return self._last[1]

    def _expectation(self, run: Run, subject: Subject, back: Back) -> Expectation:
        """Take the golden from the store, or the oracle's answer where none is stored.

        With the backend's default mapping, the oracle is given the qparams of the reference model, because the qparams that
        torch's observers choose are not part of the claim.
        """
        qparams = None
        if PROFILES[run.profile].mapping == "default":
            if back.reference is None or back.reference_execution is None:
                return Expectation()
            qparams = qparams_by_name(back.reference, back.reference_execution, subject)

        @cache
        def answer() -> Answer:
            return compute(subject, qparams)

        def exact(number: int) -> Tensor | None:
            output = answer().outputs[number]
            return output.position if isinstance(output, Codes) else None

        golden, unusable = None, ""
        try:
            if PROFILES[run.profile].certain_only and not answer().certain:
                unusable = f"{run.id}: the oracle's answer is not certain"
            else:
                golden = self._stored(subject) or golden_of(answer())
        except GoldenError as error:
            unusable = str(error)
        except NotCovered as error:
            unusable = f"{run.id}: the oracle does not cover it: {error}"
        return Expectation(golden, exact, unusable)

    def _stored(self, subject: Subject) -> Golden | None:
        """The stored golden of a run, or None where it is computed instead: for profiles without stored goldens, and for
        configs that are not registered if none is stored or it is stale."""
        if PROFILES[subject.run.profile].golden != "stored":
            return None
        try:
            return self.store.find(subject)
        except GoldenError:
            if subject.run.backend.name in BACKENDS:
                raise
        return None


def front(watch: Stopwatch, run: Run) -> Front:
    """Build the float model of a run, prepare it with and without the claim, and calibrate it."""
    recorder = Recorder(watch)
    float_outputs: tuple[Tensor, ...] = ()
    try:
        subject = build.subject(run)
    except build.CannotBeBuilt as error:
        return Front(failures={"float": Failure.of(error.args[0])})
    with recorder.stage("float"):
        float_outputs = tuple(build.float_outputs(subject))
    prepared = blank = ablation = None
    if "float" not in recorder.failures:
        with recorder.stage("prepare"):
            prepared = fx.prepare(subject, run.backend.config)
    if prepared is not None:
        ablation = _ablate(recorder, subject, prepared)
        with recorder.stage("calibrate"):
            blank = copy.deepcopy(prepared)
            fx.calibrate(prepared, subject)
    return Front(subject, float_outputs, prepared, blank, ablation, recorder.failures)


def _ablate(recorder: Recorder, subject: Subject, prepared: GraphModule) -> Ablation:
    """Take the claim out of the config, first its dtype config and then its entry, until the prepared model changes."""
    before = signature(prepared)
    without = None
    for config in fx.without(subject.run.backend.config, subject.run):
        with recorder.stage("prepare without"):
            without = fx.prepare(subject, config)
        if "prepare without" in recorder.failures or (without is not None and signature(without) != before):
            return Ablation(changes=True)
    return Ablation(changes=False, config=config, prepared=without)


class _Conversion:
    """The stages of one run that depend on the engine."""

    def __init__(
        self, watch: Stopwatch, run: Run, front: Front, subject: Subject, prepared: GraphModule, blank: GraphModule
    ) -> None:
        self.recorder = Recorder(watch)
        self.front, self.subject, self.prepared, self.blank = front, subject, prepared, blank
        self.config, self.engine = run.backend.config, engine(run.engine)

    def back(self) -> Back:
        """Convert to the reference model, lower to the engine, and execute both."""
        stage, config, subject = self.recorder.stage, self.config, self.subject
        reference = reference_execution = lowered = program = None
        with stage("reference"):
            reference = fx.reference(self.prepared, config)
        if reference is not None:
            with stage("reference execution"):
                reference_execution = execute(reference, subject.fresh_inputs())
        with stage("lower"):
            lowered = self.engine.convert(self.prepared, config)
            program = self.engine.compile(lowered, subject.fresh_inputs())
        changes = lowered is not None and self._lowered_changes(lowered)
        execution: Execution | None = None
        if program is not None:
            with stage("execute"), fresh_memory_holds(0x55):
                execution = self.engine.execute(program, subject.fresh_inputs())
        repetitions: dict[str, tuple[Tensor, ...]] = {}
        if execution is not None:
            execution, repetitions = self._repeat(program, execution)
        return Back(
            reference, reference_execution, lowered, program, changes, execution, repetitions, self.recorder.failures
        )

    def _lowered_changes(self, lowered: GraphModule) -> bool:
        """Whether the lowered model changes, or lowering raises, without the claim; False if the observed model changes."""
        ablation = self.front.ablation
        assert ablation is not None
        if ablation.changes:
            return False
        assert ablation.prepared is not None
        assert ablation.config is not None
        without_claim: GraphModule | None = None
        with self.recorder.stage("lower without"):
            fx.calibrate(ablation.prepared, self.subject)
            without_claim = self.engine.convert(ablation.prepared, ablation.config)
        return without_claim is None or signature(lowered) != signature(without_claim)

    def _repeat(self, program: Program, execution: Execution) -> tuple[Execution, dict[str, tuple[Tensor, ...]]]:
        """Execute again in every way that must not change the outputs.

        Returns the first execution, with copies of its outputs and the conversions inside of kernels, and the outputs of each
        repetition by name.
        """
        stage, used, subject = self.recorder.stage, self.engine, self.subject
        repetitions: dict[str, tuple[Tensor, ...]] = {}
        written = [output.raw for output in execution.outputs]
        execution = replace(execution, outputs=tuple(output.copied() for output in execution.outputs))
        with stage("second run"), fresh_memory_holds(0xAA):
            outputs, nested = used.execute_again(program, subject.fresh_inputs())
            repetitions["second run"] = tuple(outputs)
            execution = replace(execution, nested=nested)
        with stage("another call"), torch.no_grad():
            program(*(_other_data(x) for x in subject.fresh_inputs()))
            repetitions["another call"] = tuple(output.clone() for output in written)
        with stage("state_dict"):
            repetitions["state_dict"] = self._reloaded(program)
        inputs = channels_last(subject.fresh_inputs())
        if inputs is not None and not used.fixed_shapes and self._float_model_keeps_to_memory_format():
            with stage("channels_last"), torch.no_grad(), fresh_memory_holds(0xAA):
                repetitions["channels_last"] = tuple(build.tensors(program(*inputs)))
        return execution, repetitions

    def _reloaded(self, program: Program) -> tuple[Tensor, ...]:
        """Outputs of a model with other weights and uncalibrated observers, after loading the lowered model's state."""
        fill(self.blank, "other", self.subject.run.recipe.weight_levels)
        reloaded = self.engine.reload(program, self.blank.eval(), self.config)
        with torch.no_grad():
            return tuple(build.tensors(reloaded(*self.subject.fresh_inputs())))

    def _float_model_keeps_to_memory_format(self) -> bool:
        """Whether the float model has the same outputs for channels_last inputs; with `view` or `resize_` it does not."""
        try:
            outputs = build.float_outputs(self.subject, channels_last(self.subject.fresh_inputs()))
        except RuntimeError:
            return False
        return all(torch.allclose(a, b) for a, b in zip(outputs, self.front.float_outputs, strict=True))


def _other_data(x: Tensor) -> Tensor:
    """Other data of the same shape and range. Indices and offsets of bags stay, because offsets have to be ascending."""
    return x.flip(tuple(range(x.dim()))) if x.is_floating_point() else x
