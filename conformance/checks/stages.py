"""Stages of a run, from its float model to repeated executions; each returns a frozen product."""

import copy
from collections.abc import Callable
from dataclasses import replace
from functools import cache

import torch
from torch import Tensor
from torch.fx import GraphModule

from conformance.cases.apis import api
from conformance.cases.claims import Claim
from conformance.cases.runs import Run, default_form
from conformance.configs.registry import REGISTERED
from conformance.engines import decomposed
from conformance.engines.protocol import Program
from conformance.engines.registry import engine
from conformance.errors import Failure
from conformance.goldens.golden import Golden, compute, golden_of, qparams_by_name
from conformance.goldens.store import GoldenError, Store
from conformance.host.poison import fresh_memory_holds
from conformance.models import apis, build, fx
from conformance.models.build import Subject
from conformance.models.data import channels_last, reversed_data
from conformance.models.scripting import compiles, compiling, scripted
from conformance.models.templates import Template
from conformance.models.trace import Execution, Kernel, execute
from conformance.oracle import Answer, NoCodes, NoQparams, NotCovered
from conformance.results.profiles import PROFILES
from conformance.shortcuts import enabled
from conformance.stopwatch import Stopwatch

from . import further, guarded
from .comparison import differ
from .evidence import Ablation, Back, Evidence, Expectation, Front, Reference, Shared, exact_positions
from .recorder import Recorder
from .structure import changed_by_prepare, signature, stored_structure


class Pipeline:
    """Takes runs through their stages. Consecutive runs of one case share what does not depend on the engine.

    `_takes_effect` has, by claim and flow, whether the default form is prepared differently without the claim; `_whole` the
    structures of lowered models whose state has come back whole from a state_dict; `_templates` the prepared models of one
    claim. `subject` makes the float model of a run, with its data.
    """

    def __init__(self, watch: Stopwatch, store: Store) -> None:
        self.watch, self.store = watch, store
        self.subject: Callable[[Run], Subject] = build.subject
        self._last: tuple[tuple[object, ...], Shared] | None = None
        self._takes_effect: dict[tuple[Claim, str], bool] = {}
        self._whole: set[tuple[object, ...]] = set()
        self._claim: Claim | None = None
        self._templates: dict[tuple[object, ...], Template] = {}

    def evidence(self, run: Run) -> Evidence:
        """Take a run through every stage that it reaches. Its engine has to be available and in scope."""
        shared = self._shared(run)
        front, reference, back = shared.front, Reference(), Back()
        if front.subject is not None and front.prepared is not None:
            reference = self._reference(run, shared, front.subject, front.prepared)
            back = _Conversion(self.watch, run, front, front.subject, self._whole).back(front.prepared)
        if front.subject is None or "float" in front.failures:
            return Evidence(run, front, back, reference=reference)
        if shared.expectation is None or not enabled("reference"):
            shared.expectation = self._expectation(run, front.subject, reference)
        executed = further.executed(self.watch, run, shared, back)
        within = guarded.executed(self.watch, run, front, back)
        return Evidence(run, front, back, shared.expectation, executed, within, reference)

    def _shared(self, run: Run) -> Shared:
        key = (run.backend, run.key, run.recipe, run.variant)  # drawn variants may share a name
        if self._last is None or self._last[0] != key:
            self._last = key, Shared(self._front(run))
        return self._last[1]

    def _front(self, run: Run) -> Front:
        """Build the float model of a run, prepare it with and without the claim, and calibrate it."""
        recorder = Recorder(self.watch)
        float_outputs: tuple[Tensor, ...] = ()
        try:
            subject = self.subject(run)
        except build.CannotBeBuilt as error:
            return Front(failures={"float": Failure.of(error.args[0])})
        with recorder.stage("float"):
            float_outputs = tuple(build.float_outputs(subject))
        prepared = template = ablation = None
        if "float" not in recorder.failures:
            with recorder.stage("prepare"):
                prepared, template = self._prepared(subject)
        if prepared is not None:
            if "matched" in run.checks:
                ablation = self._ablation(recorder, subject, prepared)
            with recorder.stage("calibrate"):
                apis.of(run.backend).calibrate(prepared, subject)
            apis.of(run.backend).settle(prepared, run)
        return Front(subject, float_outputs, prepared, template, ablation, recorder.failures)

    def _prepared(self, subject: Subject) -> tuple[GraphModule, Template]:
        """The prepared model of a run with its template: that of an earlier run of the claim with other data, or its own."""
        run = subject.run
        if run.claim is not self._claim:
            self._claim = run.claim
            self._templates.clear()
        key = (run.backend, run.flow, run.recipe, *api(run.backend).graph(run.model))
        template = self._templates.get(key)
        if template is not None and (copied := template.of(subject.model)) is not None:
            return copied, template
        prepared = apis.of(run.backend).prepare(subject)
        self._templates[key] = template = Template(subject.model, copy.deepcopy(prepared))
        return prepared, template

    def _ablation(self, recorder: Recorder, subject: Subject, prepared: GraphModule) -> Ablation:
        """Ablate the claim on the default form first; a claim without effect there is ablated on the run's own form."""
        run = subject.run
        if not enabled("ablation"):
            return ablated(recorder, subject, prepared)
        key = run.claim, run.flow
        if key not in self._takes_effect:
            default = default_form(run)
            if run.id == default.id and run.variant == default.variant:
                ablation = ablated(recorder, subject, prepared)
                self._takes_effect[key] = ablation.changes
                return ablation
            self._takes_effect[key] = _takes_effect(self.watch, default)
        if self._takes_effect[key] and changed_by_prepare(subject.model, prepared):
            return Ablation(changes=True)
        return ablated(recorder, subject, prepared)

    def _reference(self, run: Run, shared: Shared, subject: Subject, prepared: GraphModule) -> Reference:
        if "reference" not in run.checks:
            return Reference()
        if shared.reference is None or not enabled("reference"):
            shared.reference = referenced(self.watch, run, subject, prepared)
        return shared.reference

    def _expectation(self, run: Run, subject: Subject, reference: Reference) -> Expectation:
        """Take the golden from the store, or the oracle's answer where none is stored.

        With torch's own observers, the oracle is given the qparams of the reference model, because the qparams that they
        choose are not part of the claim.
        """
        qparams = None
        if PROFILES[run.profile].mapping != "exact":
            if reference.model is None or reference.execution is None:
                return Expectation()
            qparams = qparams_by_name(reference.model, reference.execution, subject)

        @cache
        def answer() -> Answer:
            return compute(subject, qparams)

        def exact(number: int) -> Tensor | None:
            return exact_positions(answer(), number)

        golden, unusable = None, ""
        try:
            if PROFILES[run.profile].certain_only and not answer().certain:
                unusable = f"{run.id}: the oracle's answer is not certain"
            else:
                golden = self._stored(subject) or golden_of(answer())
        except GoldenError as error:
            unusable = str(error)
        except NoQparams as error:
            # of a model that quantizes nothing there are none, as the check `reference` says
            unusable = f"{run.id}: {error}" if qparams else ""
        except NoCodes:
            unusable = ""  # the checks before the model is lowered say that nothing is quantized
        except NotCovered as error:
            unusable = f"{run.id}: the oracle does not cover it: {error}"
        return Expectation(golden, exact, unusable, lambda: answer().qparams)

    def _stored(self, subject: Subject) -> Golden | None:
        """The stored golden of a run, or None where it is computed instead: for profiles without stored goldens, and for
        configs that are not registered if none is stored or it is stale."""
        if PROFILES[subject.run.profile].golden != "stored":
            return None
        try:
            return self.store.find(subject)
        except GoldenError:
            if subject.run.backend.name in REGISTERED:
                raise
        return None


def _takes_effect(watch: Stopwatch, run: Run) -> bool:
    """Whether a run is prepared differently without its claim; False if it is not prepared at all."""
    recorder = Recorder(watch)
    with recorder.stage("default form"):
        subject = build.subject(run)
        build.float_outputs(subject)
        return ablated(recorder, subject, fx.prepare(subject, run.backend.config)).changes
    return False


def ablated(recorder: Recorder, subject: Subject, prepared: GraphModule) -> Ablation:
    """Take the claim out of the config, first its dtype config and then its entry, until the prepared model changes."""
    before = signature(prepared)
    without = None
    for config in fx.without(subject.run.backend.config, subject.run):
        with recorder.stage("prepare without"):
            without = fx.prepare(subject, config)
        if "prepare without" in recorder.failures or (without is not None and signature(without) != before):
            return Ablation(changes=True)
    return Ablation(changes=False, config=config, prepared=without)


def referenced(watch: Stopwatch, run: Run, subject: Subject, prepared: GraphModule) -> Reference:
    """Convert to the reference model and execute it."""
    recorder = Recorder(watch)
    model = execution = None
    with recorder.stage("reference"):
        model = apis.of(run.backend).reference(prepared, run.backend.config)
    if model is not None:
        with recorder.stage("reference execution"):
            executed = decomposed.execute if api(run.backend).exports else execute
            execution = executed(model, subject.fresh_inputs())
    return Reference(model, execution, recorder.failures)


class _Conversion:
    """The stages of one run that depend on the engine. `repetitions` has the outputs of each repeated execution by name."""

    def __init__(
        self, watch: Stopwatch, run: Run, front: Front, subject: Subject, whole: set[tuple[object, ...]]
    ) -> None:
        self.recorder = Recorder(watch)
        self.run, self.front, self.subject, self.whole = run, front, subject, whole
        self.config, self.engine = run.backend.config, engine(run.engine)
        self.repetitions: dict[str, tuple[Tensor, ...]] = {}

    def back(self, prepared: GraphModule) -> Back:
        """Lower to the engine and execute."""
        lowered = program = None
        with self.recorder.stage("lower"):
            lowered = self.engine.convert(prepared, self.config)
            program = self.engine.compile(lowered, self.subject.fresh_inputs())
            if program is None:
                raise TypeError("compile() of the engine returns None")
        changes = lowered is not None and self._lowered_changes(lowered)
        execution = None if program is None else self._execute(program)
        if lowered is not None and program is not None and execution is not None:
            execution = self._repeat(lowered, program, execution)
        return Back(lowered, program, changes, execution, self.repetitions, self.recorder.failures)

    def _lowered_changes(self, lowered: GraphModule) -> bool:
        """Whether the lowered model changes, or lowering raises, without the claim; False if the observed model changes."""
        ablation = self.front.ablation
        if ablation is None or ablation.changes:
            return False
        assert ablation.prepared is not None
        assert ablation.config is not None
        without_claim: GraphModule | None = None
        with self.recorder.stage("lower without"):
            fx.calibrate(ablation.prepared, self.subject)
            without_claim = self.engine.convert(ablation.prepared, ablation.config)
        return without_claim is None or signature(lowered) != signature(without_claim)

    def _execute(self, program: Program) -> Execution | None:
        with self.recorder.stage("execute"), fresh_memory_holds(0x55):
            execution = self.engine.execute(program, self.subject.fresh_inputs())
            if not isinstance(execution, Execution):
                raise TypeError(f"execute() of the engine returns {type(execution).__name__}, which is no Execution")
            if others := {type(kernel).__name__ for kernel in execution.kernels if not isinstance(kernel, Kernel)}:
                raise TypeError(f"execute() of the engine lists {', '.join(sorted(others))} as kernels")
            return execution
        return None

    def _repeat(self, lowered: GraphModule, program: Program, execution: Execution) -> Execution:
        """Execute again in every way that must not change the outputs; once if the run lacks the check that they do not.

        Returns the first execution, with copies of its outputs and the conversions inside of kernels.
        """
        stage = self.recorder.stage
        if PROFILES[self.run.profile].by_features:  # such runs are not searched for conversions inside of kernels
            return execution
        raw = [output.raw for output in execution.outputs]
        execution = replace(execution, outputs=tuple(output.copied() for output in execution.outputs))
        with stage("second run"), fresh_memory_holds(0xAA):
            outputs, nested = self.engine.execute_again(program, self.subject.fresh_inputs())
            self.repetitions["second run"] = tuple(outputs)
            execution = replace(execution, nested=nested)
        if "stable" not in self.run.checks:
            return execution
        with stage("another call"), torch.no_grad():
            program(*(reversed_data(x) for x in self.subject.fresh_inputs()))
            self.repetitions["another call"] = tuple(output.clone() for output in raw)
        self._reload(lowered, program, execution)
        self._script(program, execution)
        inputs = channels_last(self.subject.fresh_inputs())
        if inputs is not None and not self.engine.fixed_shapes:
            self._in_channels_last(program, inputs, execution)
        return execution

    def _reload(self, lowered: GraphModule, program: Program, execution: Execution) -> None:
        """Repeat with a model of other weights and uncalibrated observers that has loaded the lowered model's state.

        A structure whose state has come back whole is not repeated.
        """
        # an uncalibrated model has fixed qparams of the recipe in place of its state, which may equal those that are lost
        source = self.run.engine, self.run.recipe, *api(self.run.backend).graph(self.run.model)
        structure = (*source[:2], *stored_structure(lowered, self.run.model.source))
        if enabled("state_dict") and {source, structure} & self.whole:
            return
        with self.recorder.stage("state_dict"), torch.no_grad():
            reloaded = self.engine.reload(program, self.front.blank, self.config)
            self.repetitions["state_dict"] = tuple(build.tensors(reloaded(*self.subject.fresh_inputs())))
        # an output of one value alone, or of none, does not show that the state is there
        varied = any(bool((x.values.flatten() != x.values.flatten()[:1]).any()) for x in execution.outputs)
        if varied and self._same("state_dict", execution):
            self.whole |= {source, structure}

    def _script(self, program: Program, execution: Execution) -> None:
        """Repeat with the program as TorchScript, saved and loaded, unless it does not compile the float model either, which
        that of QAT need not. A model that has come back the same, or need not, is not compiled again."""
        source = ("torch.jit", self.run.engine, self.run.claim, *api(self.run.backend).graph(self.run.model))
        known = not self.run.scripted or (enabled("torch.jit") and source in self.whole)
        if known or self.engine.fixed_shapes or not isinstance(program, GraphModule):
            return
        with self.recorder.stage("torch.jit"), torch.no_grad(), compiling():
            outputs = scripted(program)(*self.subject.fresh_inputs())
            self.repetitions["torch.jit"] = tuple(build.tensors(outputs))
        if "torch.jit" not in self.repetitions and self.run.flow != "qat" and not compiles(self.subject.model):
            del self.recorder.failures["torch.jit"]
            self.whole.add(source)
        elif self._same("torch.jit", execution):
            self.whole.add(source)

    def _in_channels_last(self, program: Program, inputs: list[Tensor], execution: Execution) -> None:
        """Repeat with inputs in channels-last format. What changes does not count if the float model itself does not keep to
        the format."""
        with self.recorder.stage("channels_last"), torch.no_grad(), fresh_memory_holds(0xAA):
            self.repetitions["channels_last"] = tuple(build.tensors(program(*(x.clone() for x in inputs))))
        if not self._same("channels_last", execution) and not build.by_value(self.subject, inputs):
            self.repetitions.pop("channels_last", None)
            self.recorder.failures.pop("channels_last", None)

    def _same(self, name: str, execution: Execution) -> bool:
        """Whether a repetition has been executed and has the outputs of an execution, bit for bit."""
        values = [output.values for output in execution.outputs]
        again = [x.dequantize() if x.is_quantized else x for x in self.repetitions.get(name, ())]
        return len(values) == len(again) and all(
            a.shape == b.shape and not bool(differ(a, b).any()) for a, b in zip(values, again, strict=True)
        )
