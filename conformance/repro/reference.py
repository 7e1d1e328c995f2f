"""Renderers of findings about reference models: their dtypes and qparams, and constraints on the tensors of a run."""

from collections.abc import Callable, Iterator
from typing import Any

from conformance.results.findings import Finding
from conformance.results.findings.constraints import ConstraintViolated
from conformance.results.findings.structure import MissingQparams, QuantizesNothing, UndeclaredDtype, WeightDtype

from .case import Case, Once, Renderer, condition_block, violates

QUANTIZES = "any('quantize_per' in str(n.target) or n.target == 'to' for n in reference.graph.nodes)"
WEIGHT_DTYPE = "any(getattr(module, 'weight_dtype', None) == torch.{} for module in reference.modules())"
NODE_DTYPE = "any(node.name == '{}' and torch.{} in node.args for node in reference.graph.nodes)"

CONDITIONS: dict[type[Finding], Callable[[Any], str]] = {
    WeightDtype: lambda finding: WEIGHT_DTYPE.format(finding.got),
    UndeclaredDtype: lambda finding: NODE_DTYPE.format(finding.node, finding.dtype),
    QuantizesNothing: lambda finding: f"not {QUANTIZES}",
}
"""The expression that holds if the reference model is as a finding says."""


def _of_model(case: Case, finding: Finding) -> Iterator[str]:
    yield Once("print(reference)\n")
    yield condition_block(finding.check, CONDITIONS[type(finding)](finding), finding.text)


def _missing_qparams(case: Case, finding: MissingQparams) -> Iterator[str]:
    scale, zero_point = (", ".join(map(repr, values)) for values in (finding.scales, finding.zero_points))
    yield Once('made = [given for name, _, given in reference_trace.calls if name.startswith("aten.quantize_per")]\n')
    yield (
        f"if not any(scales(t)[:4] == [{scale}] and zero_points(t)[:4] == [{zero_point}] for t in made):\n"
        f'    deviates("{finding.check}", {finding.text!r})\n'
    )


def _violated(case: Case, finding: ConstraintViolated) -> Iterator[str]:
    """The check `constraints` of a run: `constrained` has the tensors that the dtype config constrains, by name."""
    weights = "[m.get_quantized_weight() for m in reference.modules() if hasattr(m, 'get_quantized_weight')]"
    tensors = {"output": "[reference_trace.source(y) for y in expected]", "weight": weights}
    if any(isinstance(one, ConstraintViolated) and one.what == "engine's output" for one in case.findings):
        tensors["engine output"] = "[trace.source(y) for y in outputs]"
    lines = "".join(f'    "{name}": {expression},\n' for name, expression in tensors.items())
    yield Once(f"constrained = {{\n{lines}}}\n")
    condition = violates(finding.field, finding.bound, finding.what.replace("engine's output", "engine output"))
    yield condition_block(finding.check, condition, finding.text)


RENDERERS: dict[type[Finding], Renderer] = {
    **dict.fromkeys(CONDITIONS, _of_model),
    MissingQparams: _missing_qparams,
    ConstraintViolated: _violated,
}
"""Renderers of findings about reference models."""
