"""The checks of one run: one small function each, over the evidence that the run left."""

from collections.abc import Iterator
from typing import Any

from torch import nn
from torch.ao.quantization import FakeQuantizeBase
from torch.ao.quantization.backend_config import ObservationType
from torch.fx import GraphModule, Node

from conformance.cases.recipes import QUANTIZED, dtype_name
from conformance.cases.sources import operators_of
from conformance.models.observers import is_observer
from conformance.results.profiles import PROFILES

from .evidence import PASS, Evidence, Outcome, fail, skip


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
    if PROFILES[run.profile].mapping == "default":
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
