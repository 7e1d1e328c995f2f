"""The model of one run, prepared and converted with any QConfig: which observers prepare inserts, which tensors result.

QConfigs and observed models that torch cannot tell apart are prepared and converted once.
"""

import copy
from collections.abc import Hashable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn
from torch.ao.quantization import FakeQuantizeBase, FixedQParamsObserver, PlaceholderObserver
from torch.ao.quantization.backend_config import BackendConfig, DTypeWithConstraints
from torch.fx import GraphModule

from conformance.cases.constraints import Assessment, Quantized, of_side
from conformance.cases.runs import Run
from conformance.cases.sources import is_qat_module, root_of
from conformance.engines.registry import engine
from conformance.engines.trace import qparams_of
from conformance.errors import brief
from conformance.models import build, fx
from conformance.models.observers import is_observer, observes, quantized_by, rewrite, show, unpacked
from conformance.models.torchs import lowered
from conformance.results.constraints import FIELDS, SIDES
from conformance.shortcuts import enabled

from .examples import Calibration

PREPARE = import_module("torch.ao.quantization.fx.prepare")
"""The module whose names prepare calls; the package has the function of the same name in its place."""


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


@dataclass(frozen=True)
class Converted:
    """The quantized tensors of a reference model by side, each with its name. With weights, the calibrated model and its
    reference model as well, from which engines pack the weights: each its own copy if they share it."""

    tensors: dict[str, list[tuple[str, Quantized]]]
    prepared: GraphModule | None = None
    reference: GraphModule | None = None
    shared: bool = True

    def lower(self, config: BackendConfig) -> GraphModule:
        """The model with quantized kernels of the selected engine."""
        assert self.prepared is not None
        assert self.reference is not None
        if enabled("conversion"):
            return lowered(self.prepared, copy.deepcopy(self.reference) if self.shared else self.reference)
        return fx.lower(self.prepared, config)


@dataclass
class Front:
    """The model of one run, prepared with any QConfig and converted to reference models, which no engine takes part in.

    By QConfig: `models` (before calibration) and `working` (copies whose observers are replaced). `outcomes` are by what
    prepare can tell of a QConfig, `folded` (parameters of prepared models) by weights, `references` by QConfig and
    the qparams of all observers, and `converted` by calibration.
    """

    run: Run
    models: dict[str, GraphModule] = field(default_factory=dict)
    working: dict[str, GraphModule] = field(default_factory=dict)
    outcomes: dict[Hashable, Preparation] = field(default_factory=dict)
    folded: dict[str, dict[str, nn.Parameter]] = field(default_factory=dict)
    references: dict[tuple[str, Hashable], GraphModule] = field(default_factory=dict)
    converted: dict[Calibration, Converted] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.subject = build.subject(self.run)
        self.names = build.names()
        self.constrained = constrained_dtypes(self.run.backend.config)

    @property
    def _is_qat_module(self) -> bool:
        return is_qat_module(root_of(self.run.claim.tree))

    def subject_with(self, qconfig: str) -> build.Subject:
        """The run's model with another QConfig in place of the recipe's."""
        if self._is_qat_module:  # the model itself holds the QConfig
            return build.subject(self.run, replace(self.run.recipe, qconfig=qconfig))
        value = build.evaluated(qconfig, self.names)
        mapping = eval(self.run.recipe.mapping, {**self.names, "qconfig": value})
        return replace(self.subject, qconfig=value, mapping=mapping)

    def prepare(self, qconfig: str) -> Preparation:
        """Prepare the model with a QConfig, unless one that prepare cannot tell from it was."""
        if (kind := self._kind(qconfig)) not in self.outcomes:
            self.outcomes[kind] = self._prepare(qconfig)
        return self.outcomes[kind]

    def _kind(self, qconfig: str) -> Hashable:
        """What prepare can tell of a QConfig, or the QConfig itself if its outcome is not shared."""
        if not enabled("alike-qconfigs"):
            return qconfig
        return kind_of(build.evaluated(qconfig, self.names), self.constrained) or qconfig

    def _prepare(self, qconfig: str) -> Preparation:
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

    def _model(self, qconfig: str) -> GraphModule:
        """The prepared model before calibration. Raises RuntimeError if torch refuses the QConfig."""
        if qconfig not in self.models:
            outcome = self._prepare(qconfig)
            if outcome.raised:
                raise RuntimeError(outcome.raised)
            self.outcomes.setdefault(self._kind(qconfig), outcome)
        return self.models[qconfig]

    def _rewritten(self, qconfig: str, weights: str) -> GraphModule:
        """A prepared model of its own, before calibration, with these weights."""
        if not enabled("rewritten-weights"):
            return self._prepared_with(qconfig, weights)
        model = copy.deepcopy(self._model(qconfig))
        if keeps_weights(self.subject.model, model):
            rewrite(model, weights)
            return model
        if weights not in self.folded:
            self.folded[weights] = dict(self._prepared_with(qconfig, weights).named_parameters())
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                parameter.copy_(self.folded[weights][name])
        return model

    def _prepared_with(self, qconfig: str, weights: str) -> GraphModule:
        """Prepare the model with these weights."""
        subject = self.subject_with(qconfig)
        subject = replace(subject, model=copy.deepcopy(subject.model))
        rewrite(subject.model, weights)
        return fx.prepare(subject, self.run.backend.config)

    def _shown(self, qconfig: str, data: Tensor) -> GraphModule:
        """The prepared model after its observers observed this data; it is the same model at the next call."""
        model = self._model(qconfig)
        if qconfig not in self.working:
            self.working[qconfig] = copy.deepcopy(model).eval()
        working = self.working[qconfig]
        # copied together, because the observers of several tensors may be one
        unseen = {name: module for name, module in model.named_modules(remove_duplicate=False) if is_observer(module)}
        for name, observer in copy.deepcopy(unseen).items():
            working.set_submodule(name, observer)
        show(working, data)
        return working

    def convert(self, calibration: Calibration) -> Converted:
        """Calibrate the model and convert it to its reference model; no tensors if prepare ignores the QConfig."""
        if calibration not in self.converted:
            self.converted[calibration] = self._convert(calibration)
        return self.converted[calibration]

    def _convert(self, calibration: Calibration) -> Converted:
        if not self.is_observed(self._model(calibration.qconfig)):
            return Converted({})
        data = eval(calibration.data or "torch.tensor([-1.0, 1.0])", self.names)
        if calibration.weights:
            prepared = self._rewritten(calibration.qconfig, calibration.weights)
            fx.calibrate(prepared, self.subject)
        else:
            prepared = self._shown(calibration.qconfig, data)
        rewrite(prepared, calibration.trained)
        prepared.eval()
        reference = self._reference(calibration, prepared)
        tensors: dict[str, list[tuple[str, Quantized]]] = {side: [] for side in SIDES}
        for side, tensor in quantized_by(reference, 2 * data):
            tensors[side].append((side, _read(tensor)))
        if not calibration.weights:
            return Converted(tensors)
        return Converted(tensors, prepared, reference, shared=len(self.run.backend.engines) > 1)

    def _reference(self, calibration: Calibration, prepared: GraphModule) -> GraphModule:
        """The reference model of a calibrated model."""
        if calibration.weights or not enabled("equal-qparams"):
            consumed = bool(calibration.weights) and enabled("conversion")  # which has a model of its own
            return fx.reference(prepared, self.run.backend.config, consumed=consumed)
        key = calibration.qconfig, observed_qparams(prepared)
        if key not in self.references:
            self.references[key] = fx.reference(prepared, self.run.backend.config)
        return self.references[key]


@dataclass
class Harness:
    """Prepares and converts the model of one run with any QConfig, and caches the results.

    `preparations` and `assessments` are by QConfig, `tensors` by calibration: the quantized tensors of the converted model by
    side, each with its name.
    """

    run: Run
    front: Front
    preparations: dict[str, Preparation] = field(default_factory=dict)
    assessments: dict[str, dict[str, Assessment]] = field(default_factory=dict)
    tensors: dict[Calibration, dict[str, list[tuple[str, Quantized]]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        backend_engine = engine(self.run.engine)
        self.packs = not backend_engine.fixed_shapes and backend_engine.unavailable() is None

    @property
    def size(self) -> int:
        """Number of cached results."""
        return len(self.preparations) + len(self.tensors)

    def prepare(self, qconfig: str) -> Preparation:
        """Prepare the model with a QConfig."""
        if qconfig not in self.preparations:
            self.preparations[qconfig] = self.front.prepare(qconfig)
        return self.preparations[qconfig]

    @property
    def has_prepared(self) -> bool:
        """Whether torch accepts any of the QConfigs tried."""
        return not all(preparation.raised for preparation in self.preparations.values())

    def has_quantized(self, side: str) -> bool:
        """Whether any converted model has a quantized tensor on a side; without one, no property was tested."""
        return any(tensors.get(side) for tensors in self.tensors.values())

    def convert(self, calibration: Calibration) -> dict[str, list[tuple[str, Quantized]]]:
        """The quantized tensors of the converted model by side, each with its name; empty if prepare ignores the QConfig."""
        if calibration not in self.tensors:
            with fx.quiet():
                try:
                    self.tensors[calibration] = self._convert(calibration)
                except Exception:  # without a converted model nothing violates a constraint
                    self.tensors[calibration] = {}
        return self.tensors[calibration]

    def _convert(self, calibration: Calibration) -> dict[str, list[tuple[str, Quantized]]]:
        converted = self.front.convert(calibration)
        tensors = {side: [*found] for side, found in converted.tensors.items()}
        if converted.reference is not None and self.packs:
            with suppress(Exception):  # an engine that cannot pack the weight fails the checks of the cases
                lowered = converted.lower(self.run.backend.config)
                tensors["weight"] += [("packed weight", _read(tensor)) for tensor in unpacked(lowered)]
        return tensors


def _read(tensor: Tensor) -> Quantized:
    return Quantized(*qparams_of(tensor), tensor.int_repr())


def constrained_dtypes(config: BackendConfig) -> list[tuple[DTypeWithConstraints, bool]]:
    """The different constraints of a config with any field set, each with whether they are on activations."""
    found: list[tuple[DTypeWithConstraints, bool]] = []
    for entry in config.configs:
        for dtypes in entry.dtype_configs:
            for side in SIDES:
                constraints = of_side(dtypes, side), side != "weight"
                if any(getattr(constraints[0], field) is not None for field in FIELDS) and constraints not in found:
                    found.append(constraints)
    return found


def kind_of(qconfig: Any, constrained: list[tuple[DTypeWithConstraints, bool]]) -> Hashable | None:
    """What prepare can tell of a QConfig: the kinds of its observers, and how they compare with constraints.

    The comparisons are torch's own, with whether it warns. None if an observer cannot be built or compared.
    """
    compared: list[tuple[bool, bool]] = []
    with fx.quiet() as caught:
        try:
            observers = _kind_of(qconfig.activation()), _kind_of(qconfig.weight())
            for constraints, is_activation in constrained:
                before = len(caught)
                satisfied = PREPARE._qconfig_satisfies_dtype_config_constraints(qconfig, constraints, is_activation)
                compared.append((satisfied, len(caught) > before))
        except Exception:
            return None
    return *observers, tuple(compared)


def _kind_of(post_process: Any) -> Hashable:
    """An observer or fake-quantize without its numbers and its way to observe."""
    observer = getattr(post_process, "activation_post_process", post_process)
    return (
        isinstance(post_process, FakeQuantizeBase),
        isinstance(observer, FixedQParamsObserver),
        isinstance(observer, PlaceholderObserver),
        observer.dtype,
        getattr(observer, "is_dynamic", None),
        getattr(post_process, "is_dynamic", None),
    )


def observed_qparams(prepared: nn.Module) -> tuple[Hashable, ...]:
    """The qparams of every observer of a prepared model, in order, with their bits; None for an observer without."""
    return tuple(_qparams(module) for module in prepared.modules() if is_observer(module))


def _qparams(observer: Any) -> Hashable:
    try:
        qparams = observer.calculate_qparams()
    except Exception:  # an observer that observes nothing, such as a placeholder
        return None
    return tuple((tuple(x.shape), x.dtype, x.numpy().tobytes()) for x in map(torch.as_tensor, qparams))


def weights_of(model: nn.Module) -> Iterator[Tensor]:
    """The weights of a model: its parameters of two or more dimensions."""
    return (parameter.detach() for parameter in model.parameters() if parameter.dim() > 1)


def keeps_weights(model: nn.Module, prepared: nn.Module) -> bool:
    """Whether a prepared model has the weights of its float model: prepare folds a batch norm into them, or splits them."""
    ours, theirs = [*weights_of(model)], [*weights_of(prepared)]
    return len(ours) == len(theirs) and all(map(torch.equal, ours, theirs))
