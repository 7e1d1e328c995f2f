"""What the API of a run does to its model: torch.ao's FX for a config, torchao's PT2E for what a quantizer declares."""

import copy

from torch.ao.quantization.backend_config import BackendConfig
from torch.fx import GraphModule

from conformance.cases.apis import api
from conformance.cases.claims import BackendClaims
from conformance.cases.runs import Run
from conformance.configs.workflows import WorkflowConfig

from . import fx, pt2e, workflows
from .build import Subject
from .data import fill
from .templates import Template
from .torchs import derive_tables


class Fx:
    """FX by a config. No method changes the model that it takes, unless it says so."""

    def unavailable(self, claims: BackendClaims, run: Run | None = None) -> str | None:
        """Why the API cannot be used here for a backend, or for one of its runs, or None."""
        return None

    def warm_up(self, claims: BackendClaims) -> None:
        """Do once what all models of a backend need, before any fork."""
        derive_tables(claims.config)

    def prepare(self, subject: Subject) -> GraphModule:
        """A copy of the model of a subject with observers."""
        return fx.prepare(subject, subject.run.backend.config)

    def calibrate(self, prepared: GraphModule, subject: Subject) -> None:
        """Run the calibration data through the observers of a prepared model."""
        fx.calibrate(prepared, subject)

    def settle(self, calibrated: GraphModule, run: Run) -> None:
        """Declare that a calibrated model changes no more, and will be lowered once for each engine of its backend."""
        fx.settle(calibrated, len(run.backend.engines))

    def reference(self, calibrated: GraphModule, config: BackendConfig) -> GraphModule:
        """The reference model of a calibrated one. That of PT2E is decomposed."""
        return fx.reference(calibrated, config)

    def blank(self, template: Template, run: Run) -> GraphModule:
        """An uncalibrated model in eval mode, which a state can be loaded into: in FX, of other weights."""
        model = copy.deepcopy(template.prepared)
        fill(model, "other", run.recipe.weight_levels)
        self.settle(model.eval(), run)
        return model


class Pt2e(Fx):
    """PT2E by a quantizer."""

    def unavailable(self, claims: BackendClaims, run: Run | None = None) -> str | None:
        reason = pt2e.unavailable(pt2e.spec_of(claims))
        return reason and f"quantizer {claims.name}: {reason}"

    def warm_up(self, claims: BackendClaims) -> None:
        pt2e.warm_up(pt2e.spec_of(claims))

    def prepare(self, subject: Subject) -> GraphModule:
        return pt2e.prepare(subject)

    def calibrate(self, prepared: GraphModule, subject: Subject) -> None:
        pt2e.calibrate(prepared, subject)

    def settle(self, calibrated: GraphModule, run: Run) -> None:
        """Do nothing: a converted model is a copy."""

    def reference(self, calibrated: GraphModule, config: BackendConfig) -> GraphModule:
        return pt2e.converted(calibrated)

    def blank(self, template: Template, run: Run) -> GraphModule:
        return copy.deepcopy(template.prepared)  # an exported graph has no modules that could be given other weights


class InPlace(Fx):
    """Libraries that quantize modules in place."""

    def unavailable(self, claims: BackendClaims, run: Run | None = None) -> str | None:
        return workflows.unavailable(claims, run)

    def warm_up(self, claims: BackendClaims) -> None:
        workflows.library(claims).namespace()


def of(claims: BackendClaims) -> Fx:
    """The API that a backend's claims are about."""
    if isinstance(claims.config, WorkflowConfig):
        return InPlace()
    return Pt2e() if api(claims).exports else Fx()
