"""The case that a script reproduces, the interface of renderers, and source fragments that several of them use.

A renderer is a function `(case, finding)` that yields blocks of source text. At least one of them has to call
`deviates(check, text)` under the condition that the finding states; `script.script` raises NothingToCheck otherwise. Every
module with renderers lists them in a dict `RENDERERS: dict[type[Finding], Renderer]`. The blocks run after those of
`setup.blocks`, in the order of the row's findings. A block that several renderers need and that must run once is a `Once`.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch

from conformance.cases.apis import api
from conformance.cases.operators import Operand
from conformance.cases.runs import Run
from conformance.cases.sources import untraced
from conformance.configs.registry import BACKENDS
from conformance.errors import UsageError
from conformance.models.build import changed, clipped, names, range_in_use
from conformance.models.build import label as named
from conformance.models.fx import quiet
from conformance.results.findings import Finding
from conformance.results.findings.stages import Raises
from conformance.results.profiles import LAWS, PROFILES


class NothingToCheck(UsageError):
    """Raised for a failed check that no block of a script could show to deviate."""


class Once(str):
    """A block of which a script has one copy, the first, no matter how many renderers yield it."""

    __slots__ = ()


@dataclass(frozen=True)
class Case:
    """A run with the findings of its failed checks."""

    run: Run
    findings: tuple[Finding, ...]

    @property
    def failed(self) -> frozenset[str]:
        """Names of the checks that have findings."""
        return frozenset(finding.check for finding in self.findings)

    def has(self, kind: type[Finding], check: str | None = None) -> bool:
        """Whether a finding of a kind (of any check, or of `check`) is among the case's."""
        return any(isinstance(finding, kind) and check in (None, finding.check) for finding in self.findings)

    def raised(self, stage: str) -> Raises | None:
        """The finding that a stage raises, None if it does not."""
        return next((one for one in self.findings if isinstance(one, Raises) and one.stage == stage), None)

    def raises(self, *stages: str) -> bool:
        """Whether one of these stages raises."""
        return any(self.raised(stage) is not None for stage in stages)


Renderer = Callable[[Case, Any], Iterator[str]]
"""Yields the blocks of source text that check one finding of a case."""


def guarded(check: str, stage: str, lines: str) -> str:
    """Lines in a `try` statement that reports an exception as a deviation; `stage` names in words what raises."""
    inner = "".join(f"    {line}\n" if line else "\n" for line in lines.splitlines())
    return f'try:\n{inner}except Exception as error:\n    deviates("{check}", f"{stage} raises {{error!r:.400}}")\n'


def condition_block(check: str, condition: str, text: str) -> str:
    """A block that reports `text` as a deviation if a condition holds, both known when the script is written."""
    return f'if {condition}:\n    deviates("{check}", {text!r})\n'


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
    values = _values_source(run, name, spec, executed=executed)
    if (change := changed(run, spec, executed=executed)) is not None:
        values = f"{change.__name__}({values})"
    return values if spec.layout == "contiguous" else f"laid_out({values}, {spec.layout!r})"


def _values_source(run: Run, name: str, spec: Operand, *, executed: bool) -> str:
    assert run.variant is not None
    spec = run.variant.executed_operand(name) if executed else spec
    shape, label = spec.shape, f'key + "/{named(run, name, executed=executed)}"'
    if spec.kind == "indices":
        return f"integers({label}, {torch.Size(shape).numel()}, 0, {spec.limit - 1}).reshape({shape})"
    if spec.kind == "offsets":
        drawn = f"integers({label}, {shape[0] - 1}, 0, {spec.limit}).sort().values"
        return f"torch.cat([torch.zeros(1, dtype=torch.int64), {drawn}])"
    if spec.kind == "weights":
        return f"grid({label}, {shape}, 1, 4, -1)"
    data = PROFILES[run.profile].data
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


def backend_config_source(run: Run) -> str:
    """The lines that bind `backend_config`."""
    if run.backend.name in BACKENDS:
        return f"backend_config = get_{run.backend.name}_backend_config()\n"
    return f"{run.backend.source}\n"


def custom_source(run: Run) -> str:
    """The line that binds `untraced`, if modules of the pattern must not be traced through."""
    names = [name for name, _ in untraced(run.claim)]
    if not names:
        return ""
    return f"untraced = PrepareCustomConfig().set_non_traceable_module_classes([{', '.join(names)}])\n"


def custom_argument(run: Run) -> str:
    """The argument of `prepare_fx` about these modules, with a comma, if there are any."""
    return "prepare_custom_config=untraced, " if untraced(run.claim) else ""


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
