"""Checks of the observed model: whether the claim has an effect, and where its observers and fused modules are."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.ao.quantization.backend_config import ObservationType
from torch.fx import GraphModule, Node

from conformance.cases.quantizers import QUANTIZED_OF
from conformance.cases.recipes import QUANTIZED, dtype_name
from conformance.cases.runs import Run
from conformance.configs.quantizer import Declaration
from conformance.configs.spelling import is_batch_norm
from conformance.models.observers import is_observer
from conformance.results.findings import Finding
from conformance.results.findings.structure import (
    ActivationObserved,
    DynamicOutputObserved,
    FakeQuantizeDisabled,
    InnerObservers,
    MissingModule,
    NoEffect,
    NotObserved,
    ObservedDtype,
    ObserverNotDynamic,
    ObserverRange,
    SharedObserver,
)
from conformance.results.profiles import PROFILES

from .evidence import PASS, Evidence, Outcome, outcome, skip

CHECK = "observed"


def _module(graph: GraphModule, node: Node) -> nn.Module | None:
    return graph.get_submodule(str(node.target)) if node.op == "call_module" else None


def _observer(graph: GraphModule, node: object) -> Any:
    """The observer that a node calls, or None."""
    module = _module(graph, node) if isinstance(node, Node) else None
    return module if is_observer(module) else None


def _dtype(observer: Any) -> torch.dtype:
    """The dtype that an observer observes. PT2E has integers where FX has quantized dtypes."""
    dtype: torch.dtype = observer.dtype
    return QUANTIZED_OF.get(dtype, dtype)


def _describe(module: nn.Module) -> str:
    inner = ",".join(_describe(child) for child in module.children() if not is_observer(child))
    observed = ""
    if is_observer(module):
        observed = f"[{module.dtype},{module.quant_min},{module.quant_max}]"
    return f"{type(module).__module__}.{type(module).__name__}{observed}({inner})"


def signature(graph: GraphModule) -> list[str]:
    """The structure of a graph: each node with its target and arguments; observers by kind, range and identity."""
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


def changed_by_prepare(model: nn.Module, prepared: GraphModule) -> bool:
    """Whether a prepared model has observers, or modules of classes that its float model does not have."""
    modules = [module for module in prepared.modules() if module is not prepared]
    return any(map(is_observer, modules)) or not {*map(type, modules)} <= {*map(type, model.modules())}


PLAIN = (bool, int, str, tuple, torch.dtype, torch.qscheme, type(None))


def stored_structure(lowered: GraphModule, source: str) -> tuple[str, ...]:
    """What decides how the state of a lowered model is saved and loaded: its operators, and the classes and plain attributes
    of its modules, such as sizes and strides, but neither scales nor weights.

    Weights that belong to no module are packed with the options of their operator; `source`, the model's, stands for them.
    """
    lines = [f"{node.op} {node.target}" for node in lowered.graph.nodes if node.op != "placeholder"]
    for name, module in lowered.named_modules():
        plain = {key: value for key, value in vars(module).items() if isinstance(value, PLAIN)}
        for unstored in ("zero_point", "_code"):
            plain.pop(unstored, None)
        lines.append(f"{name} {type(module).__module__}.{type(module).__name__} {plain if name else ''}")
    if any(isinstance(value, torch.ScriptObject) for value in vars(lowered).values()):
        lines.append(source)
    return tuple(lines)


def matched(evidence: Evidence) -> Outcome:
    """The claim's own entry takes effect: without the entry, or its dtype config, the outcome changes."""
    if findings := evidence.raises("matched", "float"):
        return outcome(findings)
    if evidence.front.prepared is None:
        return skip("prepare failed")
    if evidence.changes:
        return PASS
    if evidence.back.lowered is None:
        return skip("prepare shows no difference and lowering failed")
    return outcome([NoEffect("matched")])


def _declared_class(run: Run) -> type[nn.Module] | None:
    """The module class that the config declares for the fused pattern in this flow, or None if it declares none.

    For ptq, batch norm is folded into the layer, so the class is the one declared for the pattern without batch norm.
    """
    entries, entry = run.backend.entries, run.claim.entry
    if run.flow == "qat":
        fused = entries.get(entry.fused_module, entry) if entry.fused_module else entry
        return fused.qat_module
    if entry.fused_module is None:
        return None
    if isinstance(entry.pattern, tuple) and any(map(_is_norm, entry.pattern[1:])):
        folded = tuple(op for op in entry.pattern if not _is_norm(op))
        if len(folded) == 1:
            return folded[0]  # type: ignore[no-any-return]
        return entries[folded].fused_module if folded in entries else entry.fused_module
    return entry.fused_module


def _is_norm(operator: object) -> bool:
    return is_batch_norm(getattr(operator, "__name__", ""))


def class_name(declared: type) -> str:
    """The name of a class, with its module if it is not torch's: QAT modules of third parties are named as the fused ones."""
    return (
        declared.__name__ if declared.__module__.startswith("torch.") else f"{declared.__module__}.{declared.__name__}"
    )


def _observation_type(run: Run, tensors: int) -> ObservationType:
    """The observation type that the claim's entry declares for an operator with that number of tensor arguments."""
    entry = run.claim.entry
    by_count = entry._num_tensor_args_to_observation_type
    return by_count.get(tensors, entry.observation_type) if by_count else entry.observation_type


def observed(evidence: Evidence) -> Outcome:
    """Observers are where `observation_type` and the dtype config say, with the recipe's quant_min and quant_max; each
    fake-quantize is enabled; the fused or QAT module is the declared one."""
    for stage in ("prepare", "calibrate"):
        if findings := evidence.raises(CHECK, stage):
            return outcome(findings)
    graph, run = evidence.front.prepared, evidence.run
    if graph is None:
        return skip("not prepared")
    problems = [*_misplaced_observers(run, graph), *_wrong_ranges(run, graph), *_disabled(graph)]
    declared = _declared_class(run)
    if declared is not None and declared not in {type(module) for module in graph.modules()}:
        problems.append(MissingModule(CHECK, class_name(declared), run.flow))
    return outcome(problems)


def _computes(graph: GraphModule, node: object) -> bool:
    """Whether a node calls an operator of the model, not an observer."""
    return isinstance(node, Node) and node.op.startswith("call_") and _observer(graph, node) is None


def _tensor_arguments(graph: GraphModule) -> int:
    """The number of tensor arguments of the first operator, or 0; a tensor that is passed twice counts twice."""
    first = next((node for node in graph.graph.nodes if _computes(graph, node)), None)
    if first is None:
        return 0
    return sum(isinstance(argument, Node) for argument in (*first.args, *first.kwargs.values()))


def _misplaced_observers(run: Run, graph: GraphModule) -> Iterator[Finding]:
    """Yield findings about the places and dtypes of observers."""
    output = next(n for n in graph.graph.nodes if n.op == "output").args[0]
    while isinstance(output, tuple | list):
        output = output[0]
    declared = _observation_type(run, _tensor_arguments(graph))
    if run.recipe.kind == "weight":
        yield from _observed_activations(graph)
        return
    if declared is ObservationType.INPUT_OUTPUT_NOT_OBSERVED:
        return
    observers: list[Any] = []
    for node in _observed_inputs(run, graph):
        on_input, finding = _input_observers(run, graph, node)
        observers += on_input
        if finding is not None:
            yield finding
    yield from _output_observer(run, _observer(graph, output), observers, declared)
    if len(run.claim.operators) > 1 and not run.variant_has_other_operators:
        inner = [
            n
            for n in graph.graph.nodes
            if n is not output
            and _observer(graph, n) is not None
            and _computes(graph, n.args[0])
            and not _observes_weight(n)
        ]
        if inner:
            yield InnerObservers(CHECK, len(inner))


def _observed_activations(graph: GraphModule) -> Iterator[Finding]:
    """Yield findings about observers of activations with quantized dtypes, of which a weight-only claim has none."""
    for node in graph.graph.nodes:
        observer = _observer(graph, node)
        if observer is not None and observer.dtype in QUANTIZED and not _observes_weight(node):
            yield ActivationObserved(CHECK, node.name, dtype_name(observer.dtype))


def _observes_weight(node: Node) -> bool:
    """Whether the argument of an observer's node is a parameter, or computed from nothing else, as the weight of a layer
    before a norm is in QAT."""
    return bool(node.args) and isinstance(node.args[0], Node) and _constant(node.args[0])


def _constant(node: Node) -> bool:
    """Whether a node's value depends on no input of the graph."""
    return node.op == "get_attr" or (bool(node.all_input_nodes) and all(map(_constant, node.all_input_nodes)))


def _observed_inputs(run: Run, graph: GraphModule) -> list[Node]:
    """The graph's inputs that have to be observed: those for activations; of a dynamic claim only the first."""
    placeholders = (node for node in graph.graph.nodes if node.op == "placeholder")
    floats = run.recipe.scheme.floats
    inputs = [
        node
        for node, (name, spec) in zip(placeholders, run.model.operands, strict=True)
        if spec.kind == "activation" and name not in floats
    ]
    return inputs[:1] if run.recipe.kind == "dynamic" else inputs


def _input_observers(run: Run, graph: GraphModule, node: Node) -> tuple[list[Any], Finding | None]:
    """The observers of an input, and the finding about them, if any."""
    users = [user for user in node.users if user.op != "output" and user.target is not getattr]
    observers = [observer for user in users if (observer := _observer(graph, user)) is not None]
    declared = run.claim.dtypes.input_dtype
    if len(observers) < len(users) or not observers:
        return observers, NotObserved(CHECK, node.name)
    if any(_dtype(observer) != declared for observer in observers):
        return observers, ObservedDtype(CHECK, node.name, dtype_name(observers[0].dtype), dtype_name(declared))
    if run.recipe.kind == "dynamic" and not all(getattr(observer, "is_dynamic", False) for observer in observers):
        return observers, ObserverNotDynamic(CHECK, node.name)
    return observers, None


def _stays_in_float(run: Run) -> bool:
    """Whether the output of a static model stays in float: what a quantizer declares, or the module that has to follow it."""
    entry = run.claim.entry
    return isinstance(entry, Declaration) and (run.claim.dtypes.output_dtype not in QUANTIZED or bool(entry.before))


def _output_observer(run: Run, observer: Any, on_inputs: list[Any], declared: ObservationType) -> Iterator[Finding]:
    """Yield the finding about the observer of the output (None if there is none); `on_inputs` are those of the inputs."""
    output_dtype = run.claim.dtypes.output_dtype
    if run.recipe.kind == "dynamic":
        if observer is not None:
            yield DynamicOutputObserved(CHECK)
    elif _stays_in_float(run):
        if observer is not None:
            yield ObservedDtype(CHECK, None, dtype_name(observer.dtype), dtype_name(output_dtype))
    elif observer is None:
        yield NotObserved(CHECK, None)
    elif _dtype(observer) != output_dtype:
        yield ObservedDtype(CHECK, None, dtype_name(observer.dtype), dtype_name(output_dtype))
    elif on_inputs and not run.variant_has_other_operators:
        shared = any(observer is on_input for on_input in on_inputs)
        if shared is not (declared is ObservationType.OUTPUT_SHARE_OBSERVER_WITH_INPUT):
            yield SharedObserver(CHECK, shared, declared.name)


def _wrong_ranges(run: Run, graph: GraphModule) -> Iterator[Finding]:
    """Yield findings about observers of static activations and of weights without the recipe's quant_min and quant_max.

    Ranges of the observers in the backend's default mapping are not part of the claim.
    """
    scheme = run.recipe.scheme
    if PROFILES[run.profile].mapping == "default":
        return
    activations = [scheme.activation, scheme.others] if scheme.kind == "static" else []
    for name, module in _observers_by_name(graph):
        if _dtype(module) == run.claim.dtypes.bias_dtype:  # its scale is derived, and so is its range
            continue
        of_weight = not isinstance(name, Node) or _observes_weight(name)
        allowed = [scheme.weight] if of_weight else activations
        expected = {(grid.low, grid.high) for grid in allowed if grid is not None}
        ranges = _ranges(module)
        if expected and not ranges <= expected:
            low, high = next(iter(ranges - expected))
            yield ObserverRange(CHECK, str(name), low, high, tuple(sorted(expected)))


def _observers_by_name(graph: GraphModule) -> Iterator[tuple[Node | str, Any]]:
    """Yield observers with the nodes that call them, and those of modules' weights with their names."""
    for node in graph.graph.nodes:
        if (observer := _observer(graph, node)) is not None:
            yield node, observer
    for name, module in graph.named_modules():
        if name.endswith("weight_fake_quant"):
            yield name, module


def _ranges(observer: Any) -> set[tuple[int, int]]:
    """quant_min and quant_max of an observer, or of a fake-quantize and of the observer inside."""
    parts = [observer, *([observer.activation_post_process] if hasattr(observer, "activation_post_process") else [])]
    return {(part.quant_min, part.quant_max) for part in parts}


def _disabled(graph: GraphModule) -> Iterator[Finding]:
    """Yield findings about each fake-quantize whose quantization or observer is switched off."""
    for name, module in graph.named_modules():
        if is_observer(module) and hasattr(module, "fake_quant_enabled"):
            if not bool(module.fake_quant_enabled.all()):
                yield FakeQuantizeDisabled(CHECK, name, observer_disabled=False)
            if not bool(module.observer_enabled.all()):
                yield FakeQuantizeDisabled(CHECK, name, observer_disabled=True)
