"""The checks of one run: one small function each, over the evidence that the run left."""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.ao.quantization import FakeQuantizeBase, ObserverBase
from torch.ao.quantization.backend_config import BackendConfig, DTypeWithConstraints, ObservationType
from torch.fx import GraphModule, Node

from .cases import Run
from .comparison import Comparison, compare_outputs, differ
from .constraints import Quantized, violations
from .engines import Program
from .golden import Golden
from .models import operators_of
from .pipeline import Subject
from .quantization import QUANTIZED, dtype_name
from .tolerances import tolerance
from .trace import Execution, qparams_of

SQNR_FLOOR_DB = {"exact": {16: 40.0, 8: 20.0, 4: 8.0}, "typical": {16: 60.0, 8: 24.0, 4: 16.0}}
"""Least SQNR by profile and bit width. An ideal b-bit quantizer of uniform data gives 6.02 b dB, of normal data that it clips
at four sigmas 6.02 b - 7.3 dB (Gersho and Gray, "Vector Quantization and Signal Compression", 1992, section 5.5). Input,
weight and output are each quantized, which costs 5 dB; some engines have 7 bits for activations, another 6; in `exact` a
scale rounded up to a power of two costs up to 6; and in `typical` an average on its input's grid has lost up to 9."""


@dataclass
class Evidence:
    """Everything a run left behind. What a failed stage did not produce is None; `failures` has its error by stage.

    `blank` is the prepared model before calibration. `prepared_without` is prepared with `rest`, the config without the
    claim; `changes` says whether that changes anything. `program` is what the engine made of `lowered`. `exact` gives the
    exact positions of an output on its grid; `unusable` says what keeps the suite from having a golden."""

    run: Run
    subject: Subject | None = None
    expected: list[Tensor] = field(default_factory=list)
    prepared: GraphModule | None = None
    blank: GraphModule | None = None
    prepared_without: GraphModule | None = None
    rest: BackendConfig | None = None
    changes: bool = False
    reference: GraphModule | None = None
    lowered: GraphModule | None = None
    program: Program | None = None
    execution: Execution | None = None
    reference_execution: Execution | None = None
    golden: Golden | None = None
    exact: Callable[[int], Tensor | None] = lambda number: None
    unusable: str = ""
    repetitions: dict[str, list[Tensor]] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    comparison: Comparison | None = None
    sqnr_db: float | None = None


@dataclass(frozen=True)
class Outcome:
    result: str
    detail: str = ""


PASS = Outcome("pass")


def skip(reason: str) -> Outcome:
    return Outcome("skip", reason)


def fail(reason: str) -> Outcome:
    return Outcome("fail", reason)


def is_observer(module: object) -> bool:
    return isinstance(module, ObserverBase | FakeQuantizeBase)


def _module(graph: GraphModule, node: Node) -> nn.Module | None:
    return graph.get_submodule(str(node.target)) if node.op == "call_module" else None


def _observer(graph: GraphModule, node: object) -> Any:
    """The observer that a node calls, or None."""
    module = _module(graph, node) if isinstance(node, Node) else None
    return module if is_observer(module) else None


def _describe(module: nn.Module) -> str:
    inner = ",".join(_describe(child) for child in module.children() if not is_observer(child))
    observed = ""
    if is_observer(module):
        observed = f"[{module.dtype},{module.quant_min},{module.quant_max}]"
    return f"{type(module).__module__}.{type(module).__name__}{observed}({inner})"


def signature(graph: GraphModule) -> list[str]:
    """The structure of a graph: every node with what it calls and takes; observers by kind, range and identity."""
    observers: dict[int, int] = {}
    lines = []
    for node in graph.graph.nodes:
        module = _module(graph, node)
        called = _describe(module) if module is not None else str(node.target)
        if is_observer(module):
            called += f"#{observers.setdefault(id(module), len(observers))}"
        arguments = [str(argument) for argument in (*node.args, *node.kwargs.items())]
        lines.append(
            f"{node.op} {called} {arguments}" if module is not None else f"{node.op} {called} {arguments} {node.name}"
        )
    return lines


def matched(evidence: Evidence) -> Outcome:
    """The claim's own entry did it: with the entry, or its dtype config, taken out, the outcome changes."""
    if "float" in evidence.failures:
        return fail(f"the pattern cannot occur: the float model raises {evidence.failures['float']}")
    if evidence.prepared is None:
        return skip("prepare failed")
    if evidence.changes:
        return PASS
    if evidence.lowered is None:
        return skip("prepare shows no difference and lowering failed")
    return fail("without this claim in the config the observed and the lowered model are the same")


def _fused_class(evidence: Evidence) -> type[nn.Module] | None:
    """The module class that the config declares for the fused pattern in this flow, or None if it declares none.

    For ptq, batch norm is folded into the layer, so that the class is the one declared for the pattern without it.
    """
    run = evidence.run
    entries, entry = run.backend.entries, run.claim.entry
    if run.flow == "qat":
        fused = entries.get(entry.fused_module, entry) if entry.fused_module else entry
        return fused.qat_module
    if entry.fused_module is None:
        return None
    if isinstance(entry.pattern, tuple) and any("BatchNorm" in getattr(op, "__name__", "") for op in entry.pattern[1:]):
        rest = tuple(op for op in entry.pattern if "BatchNorm" not in getattr(op, "__name__", ""))
        if len(rest) == 1:
            return rest[0]  # type: ignore[no-any-return]
        return entries[rest].fused_module if rest in entries else entry.fused_module
    return entry.fused_module


def _observation_type(evidence: Evidence, tensors: int) -> ObservationType:
    entry = evidence.run.claim.entry
    by_count = entry._num_tensor_args_to_observation_type
    return by_count.get(tensors, entry.observation_type) if by_count else entry.observation_type


def observed(evidence: Evidence) -> Outcome:
    """Observers are where `observation_type` and the dtype config say, with the range of codes that the recipe gives them; a
    fake-quantize does both; the fused or QAT module is the declared one."""
    if "prepare" in evidence.failures:
        return fail(f"prepare raises {evidence.failures['prepare']}")
    if "calibrate" in evidence.failures:
        return fail(f"the observed model raises {evidence.failures['calibrate']}")
    if evidence.prepared is None:
        return skip("not prepared")
    graph, run = evidence.prepared, evidence.run
    problems = [*_misplaced_observers(evidence, graph), *_wrong_ranges(evidence, graph), *_disabled(graph)]
    declared = _fused_class(evidence)
    types = {type(module) for module in graph.modules()}
    if declared is not None and declared not in types:
        problems.append(f"no {declared.__name__} in the {run.flow} model, which the config declares")
    return fail("; ".join(problems)) if problems else PASS


def _computes(graph: GraphModule, node: object) -> bool:
    """Whether a node is an operator of the model, and no input, parameter or observer."""
    return isinstance(node, Node) and node.op.startswith("call_") and _observer(graph, node) is None


def _tensor_arguments(graph: GraphModule) -> int:
    """How many tensors the first operator takes, one given twice counted twice."""
    first = next(node for node in graph.graph.nodes if _computes(graph, node))
    return sum(isinstance(argument, Node) for argument in (*first.args, *first.kwargs.values()))


def _misplaced_observers(evidence: Evidence, graph: GraphModule) -> Iterator[str]:
    run, dtypes = evidence.run, evidence.run.claim.dtypes
    kind = run.recipe.kind
    inputs = [
        node
        for node, (_, spec) in zip(
            (n for n in graph.graph.nodes if n.op == "placeholder"), run.model.operands, strict=True
        )
        if spec.kind == "activation"
    ]
    output = next(n for n in graph.graph.nodes if n.op == "output").args[0]
    while isinstance(output, tuple | list):
        output = output[0]
    result = _observer(graph, output)
    expected = _observation_type(evidence, _tensor_arguments(graph))
    if kind == "weight":
        for node in graph.graph.nodes:
            observer = _observer(graph, node)
            of_weight = isinstance(node.args[0], Node) and node.args[0].op == "get_attr" if node.args else False
            if observer is not None and observer.dtype in QUANTIZED and not of_weight:
                yield f"{node.name} observes an activation as {dtype_name(observer.dtype)}; only weights are quantized"
        return
    if expected is ObservationType.INPUT_OUTPUT_NOT_OBSERVED:
        return
    observers = []
    for node in inputs[:1] if kind == "dynamic" else inputs:
        users = [user for user in node.users if user.op != "output" and user.target is not getattr]
        found = [o for user in users if (o := _observer(graph, user)) is not None]
        observers += found
        if len(found) < len(users) or not found:
            yield f"input {node.name} is not observed"
        elif any(o.dtype != dtypes.input_dtype for o in found):
            yield f"input {node.name} is observed as {dtype_name(found[0].dtype)}, not {dtype_name(dtypes.input_dtype)}"
        elif kind == "dynamic" and not all(getattr(o, "is_dynamic", False) for o in found):
            yield f"the observer of input {node.name} is not dynamic"
    if kind == "dynamic":
        if result is not None:
            yield "the output of a dynamic claim is observed"
    elif result is None:
        yield "the output is not observed"
    elif result.dtype != dtypes.output_dtype:
        yield f"the output is observed as {dtype_name(result.dtype)}, not {dtype_name(dtypes.output_dtype)}"
    elif observers and not run.variant_has_other_operators:
        shared = any(result is observer for observer in observers)
        if shared is not (expected is ObservationType.OUTPUT_SHARE_OBSERVER_WITH_INPUT):
            yield f"input and output {'share' if shared else 'do not share'} an observer, against {expected.name}"
    several = len(list(operators_of(run.claim.tree))) > 1 and not run.variant_has_other_operators
    if several:
        between = [
            n
            for n in graph.graph.nodes
            if n is not output and _observer(graph, n) is not None and _computes(graph, n.args[0])
        ]
        if between:
            yield f"{len(between)} observers inside of the pattern"


def _wrong_ranges(evidence: Evidence, graph: GraphModule) -> Iterator[str]:
    """Observers of static activations and of weights whose codes are not those of the recipe; `typical` ones are torch's."""
    run = evidence.run
    scheme = run.recipe.scheme
    if run.profile == "typical":
        return
    activations = [scheme.activation, scheme.others] if scheme.kind == "static" else []
    for name, module in _observers_by_name(graph):
        of_weight = isinstance(name, Node) and isinstance(name.args[0], Node) and name.args[0].op == "get_attr"
        allowed = [scheme.weight] if of_weight or not isinstance(name, Node) else activations
        ranges = {(grid.low, grid.high) for grid in allowed if grid is not None}
        found = _ranges(module)
        if ranges and not found <= ranges:
            low, high = next(iter(found - ranges))
            wanted = " or ".join(f"{low} to {high}" for low, high in sorted(ranges))
            yield f"{name} observes the codes {low} to {high}, not {wanted}"


def _observers_by_name(graph: GraphModule) -> Iterator[tuple[Node | str, Any]]:
    """Observers by the nodes that call them, and those of modules' weights by name."""
    for node in graph.graph.nodes:
        if (observer := _observer(graph, node)) is not None:
            yield node, observer
    for name, module in graph.named_modules():
        if name.endswith("weight_fake_quant"):
            yield name, module


def _ranges(observer: Any) -> set[tuple[int, int]]:
    """The range of codes of an observer, or of a fake-quantize and the observer inside."""
    parts = [observer, *([observer.activation_post_process] if hasattr(observer, "activation_post_process") else [])]
    return {(part.quant_min, part.quant_max) for part in parts}


def _disabled(graph: GraphModule) -> Iterator[str]:
    for name, module in graph.named_modules():
        if isinstance(module, FakeQuantizeBase):
            if not bool(module.fake_quant_enabled.all()):
                yield f"{name} does not fake-quantize"
            if not bool(module.observer_enabled.all()):
                yield f"{name} does not observe"


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
            yield f"{what} {broken}"


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


def lowered(evidence: Evidence) -> Outcome:
    """The engine ran quantized kernels for the whole pattern, and no float compute op."""
    for stage in ("lower", "execute"):
        if stage in evidence.failures:
            return fail(f"{stage} raises {evidence.failures[stage]}")
    if evidence.execution is None:
        return skip("not executed")
    execution, static = evidence.execution, evidence.run.recipe.kind == "static"
    computed = [k.name for k in execution.kernels if (k.in_float if static else k.computes_in_float)]
    problems = []
    if computed:
        problems.append(f"ran in float: {', '.join(dict.fromkeys(computed))}")
    if not static and not execution.names():
        problems.append("no quantized kernel ran")
    left = [number for number, output in enumerate(execution.outputs) if output.left_quantized]
    if left:
        problems.append(f"output {', '.join(map(str, left))} is left quantized, the float model gives float")
    if execution.nested and static:
        problems.append(f"converts to float inside of the kernel: {', '.join(dict.fromkeys(execution.nested))}")
    return fail("; ".join(problems)) if problems else PASS


def _wrong_shape(evidence: Evidence) -> str:
    """Say which shape is not the float model's; values of such an output are not worth a comparison, or even chance."""
    assert evidence.execution is not None
    for got, expected in zip(evidence.execution.outputs, evidence.expected, strict=False):
        if got.values.shape != expected.shape:
            return f"shape {tuple(got.values.shape)}, the float model gives {tuple(expected.shape)}"
    return ""


def _compared(evidence: Evidence, execution: Execution) -> Comparison:
    """What an execution gave, compared with the golden."""
    assert evidence.golden is not None
    got, expected = execution.outputs, evidence.golden.outputs
    if len(got) != len(expected):
        return Comparison(detail=f"{len(got)} outputs, golden {len(expected)}")
    allowed = tolerance(evidence.run)
    total = Comparison()
    for number, (one, other) in enumerate(zip(got, expected, strict=True)):
        found = compare_outputs(one, other, allowed, partial(evidence.exact, number))
        total = total.plus(
            replace(found, detail=f"output {number}: {found.detail}") if number and found.detail else found
        )
    return total


def numerics(evidence: Evidence) -> Outcome:
    """The engine's integers are those of the golden, ties aside; scale and zero point are equal."""
    if evidence.execution is None:
        return skip("not executed")
    if evidence.golden is None:
        return skip("there is no golden")
    evidence.comparison = _compared(evidence, evidence.execution)
    return fail(evidence.comparison.detail) if evidence.comparison.detail else PASS


def _best_sqnr_db(evidence: Evidence) -> float:
    """SQNR that an ideal quantizer would have on the outputs' grids: its noise is scale**2 / 12 for each element.

    W. R. Bennett, "Spectra of quantized signals", Bell System Technical Journal 27, 1948.
    """
    assert evidence.execution is not None
    signal = noise = 0.0
    for got, expected in zip(evidence.execution.outputs, evidence.expected, strict=False):
        signal += float(expected.double().pow(2).sum())
        if got.quantized is not None:
            noise += expected.numel() * float(qparams_of(got.quantized)[0].max()) ** 2 / 12
    return 10 * math.log10(signal / noise) if noise and signal else math.inf


def sqnr_db(values: Iterable[Tensor], expected: Iterable[Tensor]) -> float:
    """Signal-to-quantization-noise ratio of outputs against those of the float64 model, in dB.

    200 without noise; nan where the noise is not finite; minus infinity for noise where there is no signal.
    """
    noise = signal = 0.0
    for got, wanted in zip(values, expected, strict=False):
        noise += float((got.double() - wanted.double()).pow(2).sum())
        signal += float(wanted.double().pow(2).sum())
    if not math.isfinite(noise):
        return math.nan
    if not noise:
        return 200.0
    return 10 * math.log10(signal / noise) if signal else -math.inf


def accuracy(evidence: Evidence) -> Outcome:
    """SQNR of the engine's output against the unfused float64 model is above the floor of profile and bit width."""
    if evidence.execution is None:
        return skip("not executed")
    if wrong := _wrong_shape(evidence):
        return fail(wrong)
    ratio = sqnr_db((output.values for output in evidence.execution.outputs), evidence.expected)
    if math.isnan(ratio):
        return fail("the output is not finite")
    if not any(bool(expected.any()) for expected in evidence.expected):
        return skip("no signal") if ratio == 200.0 else fail("noise where zero is due")
    evidence.sqnr_db = round(ratio, 2)
    bits = {torch.quint4x2: 4, torch.float16: 16}.get(evidence.run.claim.dtypes.weight_dtype or torch.quint8, 8)
    floor = SQNR_FLOOR_DB["typical" if evidence.run.profile == "typical" else "exact"][bits]
    if _best_sqnr_db(evidence) < floor + 6:
        return skip("the output's grid is too coarse for this signal")
    if evidence.sqnr_db >= floor:
        return PASS
    variant = evidence.run.variant
    beyond = variant is not None and (variant.batch is not None or variant.saturates)
    if evidence.golden is not None and beyond:
        exactly = [output.values for output in evidence.golden.outputs]
        if sqnr_db(exactly, evidence.expected) < floor:
            return skip("the output goes beyond what calibration has seen, and exact arithmetic saturates too")
    return fail(f"SQNR {evidence.sqnr_db:.1f} dB is below {floor:.0f} dB")


def _tied(evidence: Evidence, number: int, again: Tensor) -> Tensor:
    """Where an output is one step off at a tie: another memory order moves elements between the vector loop of a kernel and
    its scalar tail, and there the two may round differently."""
    expected = evidence.golden.outputs[number] if evidence.golden is not None else None
    assert evidence.execution is not None
    got = evidence.execution.outputs[number]
    if expected is None or not expected.quantized or expected.low.shape != got.values.shape:
        return torch.tensor(False)
    return (expected.low != expected.high) & ((again - got.values).abs() <= 1.001 * expected.scale)


REPETITIONS = ("second run", "another call", "state_dict", "channels_last")
"""What must not make a difference. After another call the first outputs are looked at again."""


def stable(evidence: Evidence) -> Outcome:
    """Two runs agree bit for bit; a state_dict round trip and the memory format change nothing. No kernel writes to what it
    is given unless it declares so, and another call leaves earlier outputs as they are."""
    if evidence.execution is None:
        return skip("not executed")
    if _wrong_shape(evidence):
        return skip("the output has the wrong shape")
    problems = [*dict.fromkeys(evidence.execution.writes)]
    problems += [f"{name} raises {evidence.failures[name]}" for name in REPETITIONS if name in evidence.failures]
    for name, outputs in evidence.repetitions.items():
        for number, (output, again) in enumerate(zip(evidence.execution.outputs, outputs, strict=True)):
            first, again = output.values, again.dequantize() if again.is_quantized else again
            if first.shape != again.shape:
                problems.append(f"{name} changes the shape to {tuple(again.shape)}")
                break
            changed = differ(first, again)
            if name == "channels_last" and bool(changed.any()):
                changed &= ~_tied(evidence, number, again)
            if bool(changed.any()):
                problems.append(f"{name} changes {int(changed.sum())} of {first.numel()} values")
                break
    return fail("; ".join(problems)) if problems else PASS


CHECKS: dict[str, Callable[[Evidence], Outcome]] = {
    check.__name__: check for check in (matched, observed, reference, constraints, lowered, numerics, accuracy, stable)
}
