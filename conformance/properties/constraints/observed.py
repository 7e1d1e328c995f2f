"""The model of one run, prepared and converted with any QConfig: which observers prepare inserts, which tensors result."""

import copy
from contextlib import suppress
from dataclasses import dataclass, field, replace

from torch import Tensor
from torch.fx import GraphModule

from conformance.cases.constraints import Quantized
from conformance.cases.runs import Run
from conformance.cases.sources import is_qat_module, root_of
from conformance.engines.registry import engine
from conformance.engines.trace import qparams_of
from conformance.errors import brief
from conformance.models import build, fx
from conformance.models.observers import observes, quantized_by, rewrite, show, unpacked
from conformance.results.constraints import SIDES

from .strategies import Calibration


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
    """Prepares and converts the model of one run with any QConfig, and caches the results.

    `preparations` are by QConfig, `blanks` (prepared models before calibration) by QConfig and weights, and `tensors` by
    calibration: the quantized tensors of the converted model by side, each with its name.
    """

    run: Run
    preparations: dict[str, Preparation] = field(default_factory=dict)
    blanks: dict[tuple[str, str], tuple[build.Subject, GraphModule]] = field(default_factory=dict)
    tensors: dict[Calibration, dict[str, list[tuple[str, Quantized]]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.subject = build.subject(self.run)
        self.names = build.names()
        backend_engine = engine(self.run.engine)
        self.packs = not backend_engine.fixed_shapes and backend_engine.unavailable() is None

    @property
    def size(self) -> int:
        """Number of cached results."""
        return len(self.preparations) + len(self.tensors)

    @property
    def _is_qat_module(self) -> bool:
        return is_qat_module(root_of(self.run.claim.tree))

    def subject_with(self, qconfig: str) -> build.Subject:
        """The run's model with another QConfig in place of the recipe's."""
        if self._is_qat_module:  # the model itself holds the QConfig
            return build.subject(self.run, replace(self.run.recipe, qconfig=qconfig))
        value = eval(qconfig, dict(self.names))
        mapping = eval(self.run.recipe.mapping, {**self.names, "qconfig": value})
        return replace(self.subject, qconfig=value, mapping=mapping)

    def prepare(self, qconfig: str) -> Preparation:
        """Prepare the model with a QConfig."""
        if qconfig not in self.preparations:
            self.preparations[qconfig] = self._prepare(qconfig)
        return self.preparations[qconfig]

    def _prepare(self, qconfig: str) -> Preparation:
        with fx.quiet() as caught:
            try:
                prepared = fx.prepare(self.subject_with(qconfig), self.run.backend.config)
            except Exception as error:  # a QConfig that torch refuses is not used
                return Preparation(raised=brief(error))
        messages = [str(warning.message) for warning in caught]
        warned = any("ignoring" in message and "QConfig" in message for message in messages)
        swapped = any(hasattr(module, "weight_fake_quant") for module in prepared.modules())
        return Preparation(self._is_observed(prepared), warned, swapped and not self._is_qat_module)

    def _is_observed(self, prepared: GraphModule) -> bool:
        """Whether the pattern is observed: its output if another operator precedes it, else any of its tensors."""
        nodes = [*prepared.graph.nodes]
        assert self.run.variant is not None
        if self.run.variant.prelude:
            return any(observes(prepared, node) for node in nodes[-1].all_input_nodes)
        return any(observes(prepared, node) for node in nodes)

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
        subject, blank = self._blank(calibration.qconfig, calibration.weights)
        if not self._is_observed(blank):
            return {}
        prepared = copy.deepcopy(blank)
        data = eval(calibration.data or "torch.tensor([-1.0, 1.0])", self.names)
        if calibration.weights:
            fx.calibrate(prepared, subject)
        else:
            show(prepared, data)
        rewrite(prepared, calibration.trained)
        prepared.eval()
        tensors: dict[str, list[tuple[str, Quantized]]] = {side: [] for side in SIDES}
        for side, tensor in quantized_by(fx.reference(prepared, self.run.backend.config), 2 * data):
            tensors[side].append((side, _read(tensor)))
        if calibration.weights and self.packs:
            with suppress(Exception):  # an engine that cannot pack the weight fails the checks of the cases
                lowered = fx.lower(prepared, self.run.backend.config)
                tensors["weight"] += [("packed weight", _read(tensor)) for tensor in unpacked(lowered)]
        return tensors

    def _blank(self, qconfig: str, weights: str) -> tuple[build.Subject, GraphModule]:
        """The run's model with these weights, and the prepared model before calibration."""
        if (qconfig, weights) not in self.blanks:
            subject = self.subject_with(qconfig)
            subject = replace(subject, model=copy.deepcopy(subject.model))
            rewrite(subject.model, weights)
            self.blanks[qconfig, weights] = subject, fx.prepare(subject, self.run.backend.config)
        return self.blanks[qconfig, weights]


def _read(tensor: Tensor) -> Quantized:
    return Quantized(*qparams_of(tensor), tensor.int_repr())
