"""The API that a run goes through: torch.ao's FX for a config, torchao's PT2E for what a quantizer declares."""

import copy

from torch.ao.quantization.backend_config import BackendConfig
from torch.fx import GraphModule

from conformance.cases.runs import Run
from conformance.configs.quantizer import QuantizerConfig

from . import fx, pt2e
from .build import Subject
from .data import fill
from .templates import Template


def prepare(subject: Subject) -> GraphModule:
    """Return a copy of the model with observers. The model itself is not changed."""
    if subject.run.backend.quantizer is not None:
        return pt2e.prepare(subject)
    return fx.prepare(subject, subject.run.backend.config)


def calibrate(prepared: GraphModule, subject: Subject) -> None:
    """Run the calibration data through the observers."""
    (fx if subject.run.backend.quantizer is None else pt2e).calibrate(prepared, subject)


def settle(calibrated: GraphModule, run: Run) -> None:
    """Declare that a calibrated model changes no more, and will be lowered once for each engine of its backend."""
    if run.backend.quantizer is None:
        fx.settle(calibrated, len(run.backend.engines))


def reference(calibrated: GraphModule, config: BackendConfig) -> GraphModule:
    """Return the reference model of a calibrated one, which is not changed. That of PT2E is decomposed."""
    return pt2e.converted(calibrated) if isinstance(config, QuantizerConfig) else fx.reference(calibrated, config)


def blank(template: Template, run: Run) -> GraphModule:
    """Return an uncalibrated model of other weights in eval mode, which a state can be loaded into.

    That of PT2E has the weights of the template: an exported graph has no modules that could be given others.
    """
    model = copy.deepcopy(template.prepared)
    if run.backend.quantizer is None:
        fill(model, "other", run.recipe.weight_levels)
        settle(model.eval(), run)
    return model
