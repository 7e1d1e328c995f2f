"""The model of one run, prepared and converted with any QConfig: which observers prepare inserts, which tensors result."""

import copy
from contextlib import suppress
from dataclasses import dataclass, field, replace

from torch import Tensor
from torch.fx import GraphModule

from conformance.cases.constraints import Assessment, Quantized
from conformance.cases.operators.fused import is_qat_module
from conformance.cases.runs import Run
from conformance.engines.registry import engine
from conformance.errors import brief
from conformance.models import build, fx
from conformance.models.observers import is_observer, observes, quantized_by, rewrite, show, unpacked
from conformance.models.torchs import lowered
from conformance.models.trace import qparams_of
from conformance.results.constraints import SIDES
from conformance.shortcuts import enabled

from .examples import Calibration

Tensors = dict[str, list[tuple[str, Quantized]]]
"""The quantized tensors of a model by side, each with its name."""


@dataclass(frozen=True)
class Preparation:
    """The outcome of prepare with a QConfig: whether prepare uses it, and whether prepare warns that it ignores it.

    `swapped` says that prepare_qat fake-quantizes the weight of a module by it. `raised` is the error of building the QConfig
    or of prepare, empty without one.
    """

    used: bool = False
    warned: bool = False
    swapped: bool = False
    raised: str = ""


@dataclass
class Harness:
    """Prepares and converts the model of one run with any QConfig, and keeps the results.

    By QConfig: `preparations`, of those in `tried` for a property, `assessments`, `models` (before calibration) and `working`
    (copies whose observers are replaced). `tensors` are by calibration: the quantized tensors of the converted model by side,
    each with its name.
    """

    run: Run
    preparations: dict[str, Preparation] = field(default_factory=dict)
    tried: set[str] = field(default_factory=set)
    assessments: dict[str, dict[str, Assessment]] = field(default_factory=dict)
    models: dict[str, GraphModule] = field(default_factory=dict)
    working: dict[str, GraphModule] = field(default_factory=dict)
    tensors: dict[Calibration, Tensors] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.subject, self.names = build.subject(self.run), build.names()
        backend_engine = engine(self.run.engine)
        self.packs = not backend_engine.fixed_shapes and backend_engine.unavailable() is None

    @property
    def size(self) -> int:
        """Number of cached results."""
        return len(self.preparations) + len(self.tensors)

    @property
    def has_prepared(self) -> bool:
        """Whether torch accepts any of the QConfigs tried."""
        return not all(self.preparations[qconfig].raised for qconfig in self.tried)

    def has_quantized(self, side: str) -> bool:
        """Whether any converted model has a quantized tensor on a side; without one, no property was tested."""
        return any(tensors.get(side) for tensors in self.tensors.values())

    @property
    def _is_qat_module(self) -> bool:
        return is_qat_module(self.run.claim.root)

    def subject_with(self, qconfig: str) -> build.Subject:
        """The run's model with another QConfig in place of the recipe's."""
        if self._is_qat_module:  # the model itself holds the QConfig
            return build.subject(self.run, replace(self.run.recipe, qconfig=qconfig))
        value = build.evaluated(qconfig, self.names)
        mapping = eval(self.run.recipe.mapping, {**self.names, "qconfig": value})
        return replace(self.subject, qconfig=value, mapping=mapping)

    def prepare(self, qconfig: str) -> Preparation:
        """Prepare the model with a QConfig that a property is tried on."""
        self.tried.add(qconfig)
        return self._prepare(qconfig)

    def _prepare(self, qconfig: str) -> Preparation:
        if qconfig not in self.preparations:
            self.preparations[qconfig] = self._prepared_anew(qconfig)
        return self.preparations[qconfig]

    def _prepared_anew(self, qconfig: str) -> Preparation:
        with fx.quiet() as caught:
            try:
                prepared = self.models[qconfig] = fx.prepare(self.subject_with(qconfig), self.run.backend.config)
            except Exception as error:  # a QConfig that torch refuses is not used
                return Preparation(raised=brief(error))
        messages = [str(warning.message) for warning in caught]
        warned = any("ignoring" in message and "QConfig" in message for message in messages)
        swapped = any(hasattr(module, "weight_fake_quant") for module in prepared.modules())
        return Preparation(self.is_observed(prepared), warned, swapped and not self._is_qat_module)

    def is_observed(self, prepared: GraphModule) -> bool:
        """Whether the pattern is observed: its output if another operator precedes it, else any of its tensors."""
        nodes = [*prepared.graph.nodes]
        assert self.run.variant is not None
        if self.run.variant.prelude:
            return any(observes(prepared, node) for node in nodes[-1].all_input_nodes)
        return any(observes(prepared, node) for node in nodes)

    def convert(self, calibration: Calibration) -> Tensors:
        """The quantized tensors of the converted model by side, each with its name; empty if prepare ignores the QConfig."""
        if calibration not in self.tensors:
            with fx.quiet():
                try:
                    self.tensors[calibration] = self._convert(calibration)
                except Exception:  # without a converted model nothing violates a constraint
                    self.tensors[calibration] = {}
        return self.tensors[calibration]

    def _convert(self, calibration: Calibration) -> Tensors:
        """Calibrate the model, convert it to its reference model and, with weights, lower it to the engine."""
        preparation, config = self._prepare(calibration.qconfig), self.run.backend.config
        if preparation.raised or not self.is_observed(self.models[calibration.qconfig]):
            return {}
        data = eval(calibration.data or "torch.tensor([-1.0, 1.0])", self.names)
        prepared = self._with_weights(calibration) if calibration.weights else self._shown(calibration.qconfig, data)
        rewrite(prepared, calibration.trained)
        prepared.eval()
        consumed = bool(calibration.weights) and enabled("conversion")  # of a model that nothing else has
        reference = fx.reference(prepared, config, consumed=consumed)
        tensors: Tensors = {side: [] for side in SIDES}
        for side, tensor in quantized_by(reference, 2 * data):
            tensors[side].append((side, _read(tensor)))
        if calibration.weights and self.packs:
            with suppress(Exception):  # an engine that cannot pack the weight fails the checks of the cases
                model = lowered(prepared, reference) if consumed else fx.lower(prepared, config)
                tensors["weight"] += [("packed weight", _read(tensor)) for tensor in unpacked(model)]
        return tensors

    def _with_weights(self, calibration: Calibration) -> GraphModule:
        """The model prepared and calibrated with these weights."""
        subject = self.subject_with(calibration.qconfig)
        subject = replace(subject, model=copy.deepcopy(subject.model))
        rewrite(subject.model, calibration.weights)
        prepared = fx.prepare(subject, self.run.backend.config)
        fx.calibrate(prepared, self.subject)
        return prepared

    def _shown(self, qconfig: str, data: Tensor) -> GraphModule:
        """The prepared model after its observers observed this data; it is the same model at the next call."""
        model = self.models[qconfig]
        if qconfig not in self.working:
            self.working[qconfig] = copy.deepcopy(model).eval()
        working = self.working[qconfig]
        # copied together, because the observers of several tensors may be one
        unseen = {name: module for name, module in model.named_modules(remove_duplicate=False) if is_observer(module)}
        for name, observer in copy.deepcopy(unseen).items():
            working.set_submodule(name, observer)
        show(working, data)
        return working


def _read(tensor: Tensor) -> Quantized:
    return Quantized(*qparams_of(tensor), tensor.int_repr())
