"""Whether torch enforces a constraint: the property of one field of a dtype config, searched for a counterexample.

Two things are asked, each of what torch makes and not of the code that is to decide it. *At prepare*: a QConfig is used,
which shows in the observers that are inserted, if and only if it satisfies the field, and who is ignored is told so. *In the
converted model*: with a QConfig that satisfies every constraint and whatever is observed, every scale, zero point and code
of the reference model, and of the packed weights where the engine packs them, satisfies the field.
"""

import copy
import gc
import time
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor
from torch.ao.quantization.backend_config import DTypeConfig
from torch.fx import GraphModule

from conformance.cases.claims import Claim
from conformance.cases.constraints import Quantized, Standing, of_side, standings, violation
from conformance.cases.runs import Run, describe
from conformance.cases.sources import is_qat_module, root_of
from conformance.checks.judge import Judge
from conformance.engines.registry import engine
from conformance.engines.trace import qparams_of
from conformance.errors import brief
from conformance.models import build, fx
from conformance.models.observers import observes, quantized_by, rewrite, show, unpacked
from conformance.properties.search import search
from conformance.results.constraints import SIDES, UNENFORCED
from conformance.results.rows import Row
from conformance.results.verdicts import Verdict

from .strategies import Target, Trial, around, observations, trials

SHARE = 0.3
"""Part of the examples of the hypothesis profile for either question: enough for all that a small search draws from. A
prepare costs 8 ms, a conversion twice that."""


MANY = 500
"""Models of one bench after which their memory is given back: that of a small search costs less than to look for it."""


@dataclass(frozen=True)
class Gate:
    """What prepare did with a QConfig: whether it used it, and said that it did not; `swapped` if weights of a module are
    fake-quantized by it all the same. `raised` is what building the QConfig or preparing raises."""

    used: bool = False
    warned: bool = False
    swapped: bool = False
    raised: str = ""


@dataclass
class Bench:
    """The model of one run, prepared with any QConfig, and what came of those tried so far."""

    run: Run
    gates: dict[str, Gate] = field(default_factory=dict)
    blanks: dict[tuple[str, str], tuple[build.Subject, GraphModule]] = field(default_factory=dict)
    made: dict[Trial, dict[str, list[tuple[str, Quantized]]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.subject = build.subject(self.run)
        self.names = build.names()
        used = engine(self.run.engine)
        self.packs = not used.fixed_shapes and used.unavailable() is None

    def given(self, qconfig: str) -> build.Subject:
        """The run's model with another QConfig where the recipe has its own."""
        if is_qat_module(root_of(self.run.claim.tree)):  # whose model holds the QConfig itself
            other = replace(self.run)
            vars(other)["recipe"] = replace(self.run.recipe, qconfig=qconfig)
            return build.subject(other)
        scope = {**self.names, "qconfig": (made := eval(qconfig, dict(self.names)))}
        return replace(self.subject, qconfig=made, mapping=eval(self.run.recipe.mapping, scope))

    def gate(self, qconfig: str) -> Gate:
        if qconfig not in self.gates:
            self.gates[qconfig] = self._gate(qconfig)
        return self.gates[qconfig]

    def _gate(self, qconfig: str) -> Gate:
        with fx.quiet() as caught:
            try:
                prepared = fx.prepare(self.given(qconfig), self.run.backend.config)
            except Exception as error:  # a QConfig that torch refuses is not used
                return Gate(raised=brief(error))
        warned = any("ignoring" in str(one.message) and "QConfig" in str(one.message) for one in caught)
        swapped = any(hasattr(module, "weight_fake_quant") for module in prepared.modules())
        return Gate(self._uses(prepared), warned, swapped and not is_qat_module(root_of(self.run.claim.tree)))

    def _uses(self, prepared: GraphModule) -> bool:
        """Whether the pattern is observed: its result where another operator stands before it, or else anything."""
        nodes = [*prepared.graph.nodes]
        assert self.run.variant is not None
        if self.run.variant.prelude:
            return any(observes(prepared, node) for node in nodes[-1].all_input_nodes)
        return any(observes(prepared, node) for node in nodes)

    @property
    def prepares(self) -> bool:
        """Whether torch takes any QConfig of those tried."""
        return not all(gate.raised for gate in self.gates.values())

    def quantizes(self, side: str) -> bool:
        """Whether any converted model has a quantized tensor on a side: a property of none holds of nothing."""
        return any(made.get(side) for made in self.made.values())

    def converted(self, trial: Trial) -> dict[str, list[tuple[str, Quantized]]]:
        """The quantized tensors of the converted model by side, each with its name, of a QConfig that is used."""
        if trial not in self.made:
            with fx.quiet():
                try:
                    self.made[trial] = self._converted(trial)
                except Exception:  # nothing was converted, so nothing breaks a constraint
                    self.made[trial] = {}
        return self.made[trial]

    def _converted(self, trial: Trial) -> dict[str, list[tuple[str, Quantized]]]:
        given, blank = self._blank(trial.qconfig, trial.weights)
        if not self._uses(blank):
            return {}
        prepared = copy.deepcopy(blank)
        data = eval(trial.data or "torch.tensor([-1.0, 1.0])", self.names)
        if trial.weights:
            fx.calibrate(prepared, given)
        else:
            show(prepared, data)
        rewrite(prepared, trial.after)
        prepared.eval()
        found: dict[str, list[tuple[str, Quantized]]] = {side: [] for side in SIDES}
        for side, name, tensor in quantized_by(fx.reference(prepared, self.run.backend.config), 2 * data):
            found[side].append((name, _read(tensor)))
        if trial.weights and self.packs:
            with suppress(Exception):  # that an engine cannot pack this is told by the cases
                lowered = fx.lower(prepared, self.run.backend.config)
                found["weight"] += [("packed weight", _read(tensor)) for tensor in unpacked(lowered)]
        return found

    def _blank(self, qconfig: str, weights: str) -> tuple[build.Subject, GraphModule]:
        """The run's model with these weights, prepared; its observers have seen nothing."""
        if (qconfig, weights) not in self.blanks:
            given = self.given(qconfig)
            given = replace(given, model=copy.deepcopy(given.model))
            rewrite(given.model, weights)
            self.blanks[qconfig, weights] = given, fx.prepare(given, self.run.backend.config)
        return self.blanks[qconfig, weights]


def _read(tensor: Tensor) -> Quantized:
    return Quantized(*qparams_of(tensor), tensor.int_repr())


_benches: dict[tuple[Any, ...], Bench] = {}


def bench(run: Run) -> Bench:
    """The bench of a run, or of the one before it that differs in its field alone."""
    key = (run.backend, run.claim, run.flow, run.engine)
    if key not in _benches:
        if {one[:3] for one in _benches} != {key[:3]}:
            many = sum(len(one.gates) + len(one.made) for one in _benches.values()) > MANY
            _benches.clear()
            if many:  # children do not collect by themselves, and every model holds itself
                gc.collect()
        _benches[key] = Bench(run)
    return _benches[key]


@dataclass(frozen=True)
class Question:
    """One field of one side of a run's dtype config."""

    run: Run
    bench: Bench
    target: Target
    side: str
    field: str

    @property
    def constraint(self) -> Any:
        return self.target.constraints

    def breaks_gate(self, qconfig: str) -> str:
        """What is wrong with what prepare does with a QConfig; empty if nothing, or if the documentation leaves it open."""
        gate = self.bench.gate(qconfig)
        if gate.raised:
            return ""
        with fx.quiet():
            found = self._standings(qconfig)
        broken = [*dict.fromkeys(one.broken for one in found.values() if one.broken)]
        if broken and gate.used:
            return f"{', '.join(broken)}, and it is used{'' if gate.warned else ' without a warning'}: {qconfig}"
        if broken and not gate.warned:
            return f"{', '.join(broken)}, and it is ignored without a warning: {qconfig}"
        if not found and not gate.used:
            return f"satisfies every constraint and is ignored: {qconfig}"
        if not found and gate.warned:
            return f"satisfies every constraint and is used, with a warning that it is ignored: {qconfig}"
        return ""

    def breaks_swap(self, qconfig: str) -> str:
        """Whether an ignored QConfig fake-quantizes weights in training."""
        gate = self.bench.gate(qconfig)
        if gate.used or not gate.warned or not gate.swapped:
            return ""
        return f"it is ignored, and its weight is fake-quantized in training all the same: {qconfig}"

    def _standings(self, qconfig: str) -> dict[str, Standing]:
        """How a QConfig stands with what it breaks of the claim's dtype config; nothing if it satisfies another of the
        pattern's, with which it may be used as well."""
        made = eval(qconfig, dict(self.bench.names))
        found = [_against(config, made) for config in self.run.claim.entry.dtype_configs]
        if {} in found:
            return {}
        return _against(self.run.claim.dtypes, made) or {}

    def breaks_converted(self, trial: Trial) -> str:
        """What of the converted model breaks the field."""
        for name, made in self.bench.converted(trial).get(self.side, ()):
            if (broken := violation(self.constraint, self.field, made)) is not None:
                shown = trial.data and f" when {trial.data} is observed"
                shown += " and twice that is quantized" if trial.data and self.field.startswith("quant_") else ""
                shown += f" when {trial.weights} is the weight" if trial.weights not in ("", "w") else ""
                shown += f" when training then makes {trial.after} of it" if trial.after else ""
                return f"{name} {broken.text}{shown}: {trial.qconfig}"
        return ""

    def consequence(self, qconfig: str) -> str:
        """What a QConfig that should have been ignored brings into the converted model."""
        said = (self.breaks_converted(trial) for trial in observations(self.target, qconfig))
        found = next(filter(None, said), "")
        return f"; then {found.rpartition(': ')[0]}" if found else ""


def _gated(question: Question) -> str:
    drawn = around(question.target, question.field)
    detail = ""
    if found := search(drawn, question.breaks_gate, SHARE):
        used = question.bench.gate(found.example).used
        detail = found.detail + (question.consequence(found.example) if used else "")
    if question.target.qat and question.side != "weight" and (found := search(drawn, question.breaks_swap, SHARE)):
        detail += (" | " if detail else "") + found.detail
    return detail


def row(judge: Judge, run: Run) -> Row:
    """Ask both questions of the field that the run is about, whose side and name its variant tells."""
    start = time.perf_counter()
    assert run.variant is not None
    side, _, name = run.variant.name.partition(".")
    available = engine(run.engine).unavailable() is None
    with engine(run.engine).scope() if available else nullcontext(), fx.quiet(), judge.watch():
        target = Target(run.claim.dtypes, side, run.flow == "qat", _axis(run.claim))
        question = Question(run, bench(run), target, side, name)
        found = search(trials(target), question.breaks_converted, SHARE)
        details = {"observed": _gated(question), "constraints": found.detail if found else ""}
        tried = {"observed": question.bench.prepares, "constraints": question.bench.quantizes(side)}
    fails = "skip" if name in UNENFORCED else "fail"
    checks = {c: fails if detail else "pass" if tried[c] else "skip" for c, detail in details.items()}
    return Row(
        **describe(run),
        verdict=Verdict.of("fail" in checks.values()),
        checks=checks,
        detail="; ".join(f"{check}: {detail}" for check, detail in details.items() if detail),
        seconds=round(time.perf_counter() - start, 4),
    )


def _against(config: DTypeConfig, qconfig: Any) -> dict[str, Standing] | None:
    """How a QConfig stands with what it breaks of a dtype config; None if it is for other dtypes."""
    activation, weight = qconfig.activation(), qconfig.weight()
    dynamic = bool(getattr(activation, "is_dynamic", False))
    dtypes = {
        "input": activation.dtype,
        "output": torch.float if dynamic else activation.dtype,
        "weight": weight.dtype,
    }
    if bool(config.is_dynamic) != dynamic:
        return None
    found: dict[str, Standing] = {}
    for side in SIDES:
        constraints = of_side(config, side)
        if constraints.dtype not in (None, dtypes[side]):
            return None
        made = weight if side == "weight" else activation
        found |= {f"{side}.{name}": one for name, one in standings(constraints, made).items()}
    return found


def _axis(claim: Claim) -> int | None:
    """The axis of a weight's output channels; transposed convolutions have another, and few take scales for it."""
    return None if "ranspose" in claim.pattern else 0
