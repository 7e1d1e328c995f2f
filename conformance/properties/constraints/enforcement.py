"""Whether torch enforces a constraint: two properties of one field of a dtype config, tried on listed examples.

At prepare (check `observed`): prepare uses a QConfig if and only if the QConfig satisfies the field, which the inserted
observers show, and a warning names every QConfig that is ignored. In the converted model (check `constraints`): with a
QConfig that satisfies every constraint, and for any observed data, each scale, zero point and code of the reference model
satisfies the field, and so do those of the packed weights if the engine is available.
"""

import gc
import time
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import torch
from torch.ao.quantization.backend_config import DTypeConfig

from conformance.cases.constraints import Assessment, of_side, unsatisfied, violation
from conformance.cases.runs import Run
from conformance.cases.variants import transposed
from conformance.checks.evidence import row_of
from conformance.engines.registry import engine
from conformance.models import build, fx
from conformance.results.constraints import SIDES, UNENFORCED, Constraint
from conformance.results.findings import Finding
from conformance.results.findings.constraints import (
    ConversionViolates,
    ConvertedViolation,
    IgnoredQConfigTrainsWeight,
    SatisfyingQConfigIgnored,
    SatisfyingQConfigWarned,
    ViolatingQConfigIgnored,
    ViolatingQConfigUsed,
)
from conformance.results.rows import Row
from conformance.stopwatch import Stopwatch

from .examples import Calibration, Target, calibrations, observations, qconfigs_around
from .observed import Harness

MANY_RESULTS = 500
"""Cached results of a claim after which memory is collected; for fewer results, collecting takes longer than it is worth."""

T = TypeVar("T")
V = TypeVar("V")


@dataclass(frozen=True)
class ConstraintProperty:
    """The properties of one constraint, evaluated on the model of one run."""

    run: Run
    harness: Harness
    target: Target
    constraint: Constraint

    def prepare_violation(self, qconfig: str) -> Finding | None:
        """How prepare mishandles a QConfig, without the consequence; None if it does not, or the documentation is silent."""
        preparation = self.harness.prepare(qconfig)
        if preparation.raised:
            return None
        with fx.quiet():
            assessments = self._assess(qconfig)
        violations = [assessment.violation for assessment in assessments.values() if assessment.violation is not None]
        # sides with the same observer violate the same bounds: each violation is reported once
        broken = tuple({violation.text: violation for violation in violations}.values())
        if broken and preparation.used:
            return ViolatingQConfigUsed("observed", broken, preparation.warned, qconfig, None)
        if broken and not preparation.warned:
            return ViolatingQConfigIgnored("observed", broken, qconfig)
        if not assessments and not preparation.used:
            return SatisfyingQConfigIgnored("observed", qconfig)
        if not assessments and preparation.warned:
            return SatisfyingQConfigWarned("observed", qconfig, None)
        return None

    def training_violation(self, qconfig: str) -> IgnoredQConfigTrainsWeight | None:
        """Whether prepare_qat ignores a QConfig and fake-quantizes the weight all the same."""
        preparation = self.harness.prepare(qconfig)
        if preparation.used or not preparation.warned or not preparation.swapped:
            return None
        return IgnoredQConfigTrainsWeight("observed", qconfig)

    def _assess(self, qconfig: str) -> dict[str, Assessment]:
        """The unsatisfied fields of the claim's dtype config by side and field; none if the QConfig satisfies another dtype
        config of the pattern, by which prepare may use it as well."""
        known = self.harness.assessments
        if qconfig not in known:
            value = build.evaluated(qconfig, self.harness.names)
            observers = value.activation(), value.weight()
            satisfies_another = {} in [_against(config, *observers) for config in self.run.claim.entry.dtype_configs]
            known[qconfig] = {} if satisfies_another else _against(self.run.claim.dtypes, *observers) or {}
        return known[qconfig]

    def converted_violation(self, calibration: Calibration) -> ConversionViolates | None:
        """The first tensor of the converted model that violates the field."""
        for name, tensor in self.harness.convert(calibration).get(self.constraint.side, ()):
            if (broken := violation(self.target.constraints, self.constraint.field, tensor)) is not None:
                where = ConvertedViolation(name, broken, calibration.data, calibration.weights, calibration.trained)
                return ConversionViolates("constraints", where, calibration.qconfig)
        return None

    def with_consequence(self, finding: Finding) -> Finding:
        """The finding with the violation that the QConfig causes in the converted model, if prepare uses it."""
        if not isinstance(finding, ViolatingQConfigUsed | SatisfyingQConfigWarned):
            return finding
        conversions = map(self.converted_violation, observations(self.target, finding.qconfig))
        consequences = (conversion.violation for conversion in conversions if conversion is not None)
        return replace(finding, consequence=next(consequences, None))

    def findings(self) -> dict[str, tuple[Finding, ...]]:
        """The findings of both properties by check, each about the simplest counterexample."""
        converted = _first(self.converted_violation, calibrations(self.target))
        qconfigs = qconfigs_around(self.target, self.constraint.field)
        observed: list[Finding] = []
        if (prepared := _first(self.prepare_violation, qconfigs)) is not None:
            observed.append(self.with_consequence(prepared))
        swaps = self.target.qat and self.constraint.side != "weight"
        if swaps and (trained := _first(self.training_violation, qconfigs)) is not None:
            observed.append(trained)
        return {"observed": tuple(observed), "constraints": (converted,) if converted else ()}


def _first(violation: Callable[[T], V | None], examples: Iterable[T]) -> V | None:
    """The first violation among examples."""
    return next((found for one in examples if (found := violation(one)) is not None), None)


class Enforcement:
    """Makes the rows of constraint runs. Runs of the same claim that differ in the constraint share a harness."""

    def __init__(self, watch: Stopwatch) -> None:
        self._watch = watch
        self._harnesses: dict[tuple[Any, ...], Harness] = {}

    def harness(self, run: Run) -> Harness:
        """The harness of a run: a new one, or that of an earlier run of the same backend, claim, flow and engine."""
        key = (run.backend, run.claim, run.flow, run.engine)
        if key not in self._harnesses:
            if {harness_key[:3] for harness_key in self._harnesses} != {key[:3]}:
                many = sum(harness.size for harness in self._harnesses.values()) > MANY_RESULTS
                self._harnesses.clear()
                if many:  # models refer to themselves, and child processes run without automatic collection
                    gc.collect()
            self._harnesses[key] = Harness(run)
        return self._harnesses[key]

    def row(self, run: Run) -> Row:
        """Try both properties of the run's constraint."""
        start = time.perf_counter()
        assert run.constraint is not None
        available = engine(run.engine).unavailable() is None
        with engine(run.engine).scope() if available else nullcontext(), fx.quiet(), self._watch():
            # the output channels of transposed convolutions are elsewhere, and their engines rarely take scales per channel
            axis = None if transposed(run.claim) else 0
            target = Target(run.claim.dtypes, run.constraint.side, run.flow == "qat", axis)
            harness = self.harness(run)
            findings = ConstraintProperty(run, harness, target, run.constraint).findings()
            tested = {"observed": harness.has_prepared, "constraints": harness.has_quantized(run.constraint.side)}
        fails = "skip" if run.constraint.field in UNENFORCED else "fail"
        checks = {
            check: fails if findings[check] else "pass" if tested[check] else "skip"
            for check in ("observed", "constraints")
        }
        return row_of(run, start, checks, (*findings["observed"], *findings["constraints"]))


def _against(config: DTypeConfig, activation: Any, weight: Any) -> dict[str, Assessment] | None:
    """The fields of a dtype config that the observers of a QConfig do not satisfy, by side and field; None if they have other
    dtypes."""
    dynamic = bool(getattr(activation, "is_dynamic", False))
    dtypes = {
        "input": activation.dtype,
        "output": torch.float if dynamic else activation.dtype,
        "weight": weight.dtype,
    }
    if bool(config.is_dynamic) != dynamic:
        return None
    assessments: dict[str, Assessment] = {}
    for side in SIDES:
        constraints = of_side(config, side)
        if constraints.dtype not in (None, dtypes[side]):
            return None
        post_process = weight if side == "weight" else activation
        assessments |= {
            f"{side}.{name}": assessment for name, assessment in unsatisfied(constraints, post_process).items()
        }
    return assessments
