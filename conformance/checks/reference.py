"""Checks of the reference model: dtypes, modules, qparams, integers and constraints."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.ao.quantization.backend_config import DTypeWithConstraints, ObservationType
from torch.fx import GraphModule

from conformance.cases.constraints import Quantized, violations
from conformance.cases.recipes import dtype_name
from conformance.engines.trace import Execution, qparams_of
from conformance.goldens.golden import Golden

from .evidence import PASS, Evidence, Outcome, fail, skip
from .numerics import _compared


def reference(evidence: Evidence) -> Outcome:
    """Quantize ops carry the declared dtypes, the root module became its reference module, and the reference model's qparams
    and integers are those of the golden."""
    if "reference" in evidence.failures:
        return fail(f"convert_to_reference raises {evidence.failures['reference']}")
    if "reference execution" in evidence.failures:
        return fail(f"the reference model raises {evidence.failures['reference execution']}")
    if evidence.reference is None:
        return skip("no reference model")
    graph, run, dtypes = evidence.reference, evidence.run, evidence.run.claim.dtypes
    problems = []
    by_root = {
        e.root_module: e.reference_quantized_module for e in run.backend.config.configs if e.reference_quantized_module
    }
    entries = {e.pattern: e for e in run.backend.config.configs if not isinstance(e.pattern, tuple)}
    root = run.claim.entry.root_module
    if root is None and run.claim.entry.fused_module in entries:
        root = entries[run.claim.entry.fused_module].root_module
    declared = by_root.get(root)
    found: list[Any] = [m for m in graph.modules() if declared is not None and type(m) is declared]
    if declared is not None and not found:
        problems.append(f"no {declared.__name__} in the reference model")
    problems += [
        f"weight quantized to {dtype_name(m.weight_dtype)}, not {dtype_name(dtypes.weight_dtype)}"
        for m in found
        if hasattr(m, "weight_dtype") and m.weight_dtype != dtypes.weight_dtype
    ]
    kind = run.recipe.kind
    allowed = {dtypes.input_dtype, dtypes.output_dtype, dtypes.weight_dtype}
    quantizers = [
        n for n in graph.graph.nodes if "quantize_per" in str(n.target) or (n.target == "to" and n.op == "call_method")
    ]
    for node in quantizers:
        used = [a for a in node.args if isinstance(a, torch.dtype)]
        if used and used[0] not in allowed:
            problems.append(f"{node.name} quantizes to {dtype_name(used[0])}")
    unobserved = run.claim.entry.observation_type is ObservationType.INPUT_OUTPUT_NOT_OBSERVED
    if not quantizers and kind != "weight" and not unobserved:
        problems.append("the reference model quantizes nothing")
    if evidence.golden is not None and evidence.reference_execution is not None:
        problems += _wrong_qparams(evidence.golden, evidence.reference_execution)
        if detail := _compared(evidence, evidence.reference_execution).detail:
            problems.append(f"the reference model's {detail}")
    return fail("; ".join(problems)) if problems else PASS


def _wrong_qparams(golden: Golden, execution: Execution) -> Iterator[str]:
    """Which of the golden's qparams an execution has quantized nothing with."""
    found = {tuple(map(tuple, map(Tensor.tolist, qparams_of(made)))) for _, made in execution.quantized}
    for name, qparams in golden.qparams.items():
        if tuple(map(tuple, map(Tensor.tolist, qparams))) not in found:
            scale, zero_point = (", ".join(f"{value!r}" for value in part.tolist()[:4]) for part in qparams)
            yield f"the reference model quantizes nothing with the scale {scale} and zero point {zero_point} of {name}"


def _violations(constrained: DTypeWithConstraints, tensor: Tensor, what: str) -> Iterator[str]:
    """What a quantized tensor breaks of a `DTypeWithConstraints`."""
    if tensor.is_quantized and tensor.dtype == constrained.dtype:
        for broken in violations(constrained, Quantized(*qparams_of(tensor), tensor.int_repr())):
            yield f"{what} {broken.text}"


def _quantized_weights(graph: GraphModule) -> Iterator[Tensor]:
    modules: list[Any] = [module for module in graph.modules() if hasattr(module, "get_quantized_weight")]
    for module in modules:
        yield module.get_quantized_weight()


def constraints(evidence: Evidence) -> Outcome:
    """Every scale, zero point and code in the model satisfies its `DTypeWithConstraints`."""
    if evidence.reference is None or evidence.reference_execution is None:
        return skip("the reference model did not run")
    dtypes = evidence.run.claim.dtypes
    problems: list[str] = []
    for output in evidence.reference_execution.outputs:
        if output.quantized is not None and not evidence.run.variant_has_other_operators:
            problems += _violations(dtypes.output_dtype_with_constraints, output.quantized, "output")
    for weight in _quantized_weights(evidence.reference):
        problems += _violations(dtypes.weight_dtype_with_constraints, weight, "weight")
    if evidence.execution is not None:
        for output in evidence.execution.outputs:
            if output.quantized is not None and not evidence.run.variant_has_other_operators:
                problems += _violations(dtypes.output_dtype_with_constraints, output.quantized, "engine's output")
    return fail("; ".join(dict.fromkeys(problems))) if problems else PASS
