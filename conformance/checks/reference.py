"""Checks of the reference model: dtypes, modules, qparams, integers and constraints."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.ao.quantization.backend_config import DTypeWithConstraints, ObservationType
from torch.fx import GraphModule

from conformance.cases.constraints import Quantized, violations
from conformance.cases.quantizers import QUANTIZED_OF
from conformance.cases.recipes import dtype_name
from conformance.cases.runs import Run
from conformance.goldens.golden import Golden
from conformance.models.trace import Execution, Output, qparams_of
from conformance.results.findings import Finding
from conformance.results.findings.constraints import ConstraintViolated
from conformance.results.findings.structure import (
    MissingModule,
    MissingQparams,
    QuantizesNothing,
    UndeclaredDtype,
    WeightDtype,
)

from .evidence import Evidence, Outcome, outcome, skip
from .numerics import compare_execution
from .structure import class_name

CHECK = "reference"
QUANTIZES = ("quantize_per", "quantized_decomposed.convert_element_type")
"""Parts of the names of operators that quantize: to integers, and to float16."""


def reference(evidence: Evidence) -> Outcome:
    """Quantize operators carry the declared dtypes, the root module became its reference module, and the reference model's
    qparams and integers are those of the golden."""
    for stage in ("reference", "reference execution"):
        if findings := evidence.raises(CHECK, stage):
            return outcome(findings)
    graph, execution, golden = evidence.reference.model, evidence.reference.execution, evidence.expectation.golden
    if graph is None:
        return skip("no reference model")
    problems = [*_root_module(evidence.run, graph), *_quantize_operators(evidence.run, graph)]
    if golden is not None and execution is not None:
        problems += _missing_qparams(golden, execution)
        problems += compare_execution(evidence, execution, CHECK).findings
    return outcome(problems)


def _reference_class(run: Run) -> type[nn.Module] | None:
    """The reference module class that the config declares for the claim's root module, or None if it declares none."""
    entry, entries = run.claim.entry, run.backend.entries
    root = entry.root_module
    if root is None and entry.fused_module in entries:
        root = entries[entry.fused_module].root_module
    return None if root is None else run.backend.reference_modules.get(root)


def _root_module(run: Run, graph: GraphModule) -> Iterator[Finding]:
    """Yield findings about the class of the root module and the dtypes of weights."""
    declared, weight_dtype = _reference_class(run), run.claim.dtypes.weight_dtype
    if declared is None:
        return
    modules: list[Any] = [module for module in graph.modules() if type(module) is declared]
    if not modules:
        yield MissingModule(CHECK, class_name(declared), "reference")
    for module in modules:
        if hasattr(module, "weight_dtype") and module.weight_dtype != weight_dtype:
            yield WeightDtype(CHECK, dtype_name(module.weight_dtype), dtype_name(weight_dtype))


def _quantize_operators(run: Run, graph: GraphModule) -> Iterator[Finding]:
    """Yield findings about the dtypes of quantize operators, and about a model without the ones that the claim requires."""
    dtypes = run.claim.dtypes
    declared = {dtypes.input_dtype, dtypes.output_dtype, dtypes.weight_dtype, dtypes.bias_dtype}
    quantizers = [
        n
        for n in graph.graph.nodes
        if any(name in str(n.target) for name in QUANTIZES) or (n.target == "to" and n.op == "call_method")
    ]
    for node in quantizers:
        dtype = next((argument for argument in node.args if isinstance(argument, torch.dtype)), None)
        if dtype is not None and QUANTIZED_OF.get(dtype, dtype) not in declared:
            yield UndeclaredDtype(CHECK, node.name, dtype_name(dtype))
    unobserved = run.claim.entry.observation_type is ObservationType.INPUT_OUTPUT_NOT_OBSERVED
    if not quantizers and run.recipe.kind != "weight" and not unobserved:
        yield QuantizesNothing(CHECK)


def _missing_qparams(golden: Golden, execution: Execution) -> Iterator[Finding]:
    """Yield findings about the golden's qparams with which an execution quantizes nothing."""
    used = {tuple(map(tuple, map(Tensor.tolist, qparams_of(quantized)))) for _, quantized in execution.quantized}
    for name, qparams in golden.qparams.items():
        scales, zero_points = map(Tensor.tolist, qparams)
        if (tuple(scales), tuple(zero_points)) not in used:
            yield MissingQparams(CHECK, name, tuple(scales[:4]), tuple(zero_points[:4]))


def constraints(evidence: Evidence) -> Outcome:
    """Every scale, zero point and code in the model satisfies its `DTypeWithConstraints`."""
    back, reference, dtypes = evidence.back, evidence.reference, evidence.run.claim.dtypes
    if reference.model is None or reference.execution is None:
        return skip("the reference model did not run")
    output = dtypes.output_dtype_with_constraints
    findings = [
        *_violating_outputs(evidence.run, output, reference.execution.outputs, "output"),
        *_violating_weights(dtypes.weight_dtype_with_constraints, reference.model),
    ]
    if back.execution is not None:
        findings += _violating_outputs(evidence.run, output, back.execution.outputs, "engine's output")
    # several outputs or weights may violate a field with the same number
    return outcome({finding.text: finding for finding in findings}.values())


def _violating_outputs(
    run: Run, constrained: DTypeWithConstraints, outputs: tuple[Output, ...], place: str
) -> Iterator[Finding]:
    """Yield violations by quantized outputs. Where a model has other operators, the output may not be the claim's."""
    for output in outputs:
        if output.quantized is not None and not run.variant_has_other_operators:
            yield from _violations(constrained, output.quantized, place)


def _violating_weights(constrained: DTypeWithConstraints, graph: GraphModule) -> Iterator[Finding]:
    """Yield violations by the weights of reference modules."""
    modules: list[Any] = [module for module in graph.modules() if hasattr(module, "get_quantized_weight")]
    for module in modules:
        yield from _violations(constrained, module.get_quantized_weight(), "weight")


def _violations(constrained: DTypeWithConstraints, tensor: Tensor, place: str) -> Iterator[Finding]:
    """Yield violations of `constrained` by a tensor, if it is quantized to the constrained dtype."""
    if tensor.is_quantized and tensor.dtype == constrained.dtype:
        for violation in violations(constrained, Quantized(*qparams_of(tensor), tensor.int_repr())):
            yield ConstraintViolated("constraints", place, violation.field, violation.got, violation.bound)
