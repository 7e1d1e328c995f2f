"""The case that a script reproduces, and the source of its data."""

from dataclasses import dataclass
from functools import lru_cache
from textwrap import indent

import torch

from conformance.cases.apis import api
from conformance.cases.operators import Operand
from conformance.cases.runs import Run
from conformance.errors import UsageError
from conformance.models.build import changed, clipped, names, range_in_use
from conformance.models.build import label as named
from conformance.models.fx import quiet
from conformance.results.findings import Finding
from conformance.results.findings.constraints import ConstraintViolated
from conformance.results.findings.stages import Raises
from conformance.results.profiles import LAWS, PROFILES


class NothingToCheck(UsageError):
    """Raised for a failed check that no block of a script could show to deviate."""


@dataclass(frozen=True)
class Case:
    """A run with the findings of its failed checks."""

    run: Run
    findings: tuple[Finding, ...]

    @property
    def failed(self) -> frozenset[str]:
        """Names of the checks that have findings."""
        return frozenset(finding.check for finding in self.findings)

    def has(self, kind: type[Finding]) -> bool:
        """Whether a finding of a kind is among the case's."""
        return any(isinstance(finding, kind) for finding in self.findings)

    @property
    def constrains_output(self) -> bool:
        """Whether a finding is about a constraint on the output of the engine."""
        return any(isinstance(one, ConstraintViolated) and one.what == "engine's output" for one in self.findings)

    def repeats(self, repetition: str) -> bool:
        """Whether a finding is about a repetition of the execution, or a metamorphic relation, of that name."""
        return any(
            repetition in (getattr(finding, name, None) for name in ("stage", "repetition", "relation"))
            for finding in self.findings
        )

    def raised(self, stage: str) -> Raises | None:
        """The finding that a stage raises, None if it does not."""
        return next((one for one in self.findings if isinstance(one, Raises) and one.stage == stage), None)

    def raises(self, *stages: str) -> bool:
        """Whether one of these stages raises."""
        return any(self.raised(stage) is not None for stage in stages)


def guarded(check: str, stage: str, lines: str) -> str:
    """Lines in a `try` statement that reports an exception as a deviation; `stage` names in words what raises."""
    inner = indent(lines.strip("\n"), "    ")
    return f'try:\n{inner}\nexcept Exception as error:\n    deviates("{check}", f"{stage} raises {{error!r:.400}}")\n'


VIOLATIONS = {
    "scale_min_lower_bound": "any(min(scales(t)) < {bound} for t in {tensors})",
    "scale_max_upper_bound": "any(max(scales(t)) > {bound} for t in {tensors})",
    "scale_exact_match": "any(set(scales(t)) != {{{bound}}} for t in {tensors})",
    "zero_point_exact_match": "any(set(zero_points(t)) != {{{bound}}} for t in {tensors})",
    "quant_min_lower_bound": "any(t.int_repr().min() < {bound} for t in {tensors})",
    "quant_max_upper_bound": "any(t.int_repr().max() > {bound} for t in {tensors})",
}
"""By field of a DTypeWithConstraints: the expression that holds if quantized tensors violate the field's bound."""


def violates(field: str, bound: float, tensor: str) -> str:
    """The expression that holds if one of `constrained[tensor]` violates the bound of a field."""
    return VIOLATIONS[field].format(bound=repr(bound), tensors=f"constrained[{tensor!r}]")


def operand_source(run: Run, name: str, spec: Operand, *, executed: bool) -> str:
    """The expression of one operand's data, which equals that of `models.build.operand`."""
    assert run.variant is not None
    spec = run.variant.executed_operand(name) if executed else spec
    values = _values_source(run, name, spec, executed=executed)
    if (change := changed(run, spec, executed=executed)) is not None:
        values = f"{change.__name__}({values})"
    return values if spec.layout == "contiguous" else f"laid_out({values}, {spec.layout!r})"


def _values_source(run: Run, name: str, spec: Operand, *, executed: bool) -> str:
    assert run.variant is not None
    shape, label = spec.shape, f'key + "/{named(run, name, executed=executed)}"'
    if spec.kind == "indices":
        drawn = f"integers({label}, {torch.Size(shape).numel()}, 0, {spec.limit - 1}).reshape({shape})"
        return f"degenerate_indices({spec.degenerate!r}, {drawn}, {spec.limit})" if spec.degenerate else drawn
    if spec.kind == "offsets":
        drawn = f"integers({label}, {shape[0] - 1}, 0, {spec.limit}).sort().values"
        values = f"torch.cat([torch.zeros(1, dtype=torch.int64), {drawn}])"
        return f"{values}.to(torch.int32)" if spec.degenerate else values
    if spec.kind == "weights":
        return f"grid({label}, {shape}, 1, 4, -1)"
    data = PROFILES[run.profile].data
    if spec.degenerate:
        low, high, exponent = run.bounds(spec)
        return f"degenerate({spec.degenerate!r}, {label}, {shape}, {low}, {high}, {exponent})"
    if data == "normal":
        return f"normal({label}, {shape})"
    if data == "dyadic":
        low, high, exponent = run.bounds(spec)
        return f"grid({label}, {shape}, {low}, {high}, {exponent})"
    low, high, step = range_in_use(run, name, spec)
    options = f"tails={data == 'trained'}, clipped={clipped(run, executed)}"
    return f"activations({label}, {shape}, {low}, {high}, {step!r}, {options})"


def data_source(run: Run, *, executed: bool) -> str:
    """The expression of a model's inputs as a tuple: those of the execution, or those of the calibration."""
    parts = [operand_source(run, name, spec, executed=executed) for name, spec in run.model.operands]
    if run.profile == LAWS.name:
        return f"with_ends(({', '.join(parts)},))"
    return f"({parts[0]},)" if len(parts) == 1 else ", ".join(parts)


def has_state(run: Run) -> bool:
    """Whether the model has parameters or buffers; True for a model that cannot be built."""
    return _has_state(run.model.source, api(run.backend).constructor_qconfig(run.recipe))


@lru_cache(1024)
def _has_state(source: str, qconfig: str) -> bool:
    """Whether the model of a source has state. Its constructor alone says so, without data."""
    scope = names()
    scope["qconfig"] = eval(qconfig, scope)
    exec(source, scope)
    with quiet():
        try:
            return bool(scope["Model"]().state_dict())
        except Exception:
            return True
