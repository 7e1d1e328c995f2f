"""Calls of torch.export and of torchao's PT2E API: export, prepare, calibrate, convert. No other module calls them.

torchao and the quantizers are imported inside of functions only, because the suite runs without them.
"""

import copy
import io
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from types import FunctionType
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch.fx import GraphModule, Node
from torch.fx.graph import CodeGen
from torch.utils._pytree import tree_leaves

from conformance.cases.claims import BackendClaims
from conformance.cases.runs import Run
from conformance.configs.quantizer import QuantizerConfig, QuantizerSpec
from conformance.shortcuts import enabled

from .build import Subject

NAMES = (
    "FakeQuantize",
    "FusedMovingAvgObsFakeQuantize",
    "HistogramObserver",
    "MinMaxObserver",
    "MovingAverageMinMaxObserver",
    "MovingAveragePerChannelMinMaxObserver",
    "PerChannelMinMaxObserver",
    "PlaceholderObserver",
)
"""Names of `torchao.quantization.pt2e` that recipes refer to."""
QUANTIZER_NAMES = ("QuantizationConfig", "QuantizationSpec")
"""Names of `torchao.quantization.pt2e.quantizer` that recipes refer to."""


def unavailable(quantizer: QuantizerSpec) -> str | None:
    """Return why a quantizer cannot be made here, or None."""
    missing = [name for name in _packages(quantizer) if find_spec(name) is None]
    environment = f", or use `tox -e {quantizer.environment}`" if quantizer.environment else ""
    return f"{' and '.join(missing)} cannot be imported: install it{environment}" if missing else None


def _packages(quantizer: QuantizerSpec) -> list[str]:
    return list(dict.fromkeys(["torchao", *(module.partition(".")[0] for module in quantizer.names.values())]))


@cache
def warm_up(quantizer: QuantizerSpec) -> None:
    """Import what the recipes for a quantizer need, and export the patterns that it searches for, before any fork."""
    if unavailable(quantizer) is not None:
        return
    small(quantizer)


SMALL_INPUT = (1, 1, 2, 2)
"""Shape of the input of a small model."""


def small(quantizer: QuantizerSpec) -> GraphModule:
    """A small converted model, trained with what users of the quantizer begin with. Raises ImportError if it is not
    installed."""
    from torchao.quantization.pt2e import move_exported_model_to_eval
    from torchao.quantization.pt2e.quantize_pt2e import prepare_qat_pt2e

    inputs = [torch.ones(SMALL_INPUT)]
    model = nn.Sequential(nn.Conv2d(1, 1, 1), nn.BatchNorm2d(1), nn.ReLU())
    made = default_quantizer(quantizer, per_channel=False, qat=True)
    with _patterns_exported_once():
        prepared: GraphModule = prepare_qat_pt2e(exported(model, inputs), made)
    move_exported_model_to_eval(prepared)
    with torch.no_grad():
        prepared(*inputs)
    return converted(prepared)


def default_quantizer(quantizer: QuantizerSpec, *, per_channel: bool = True, qat: bool = False) -> Any:
    """Return a quantizer that is configured for all operators as its users begin. Raises ImportError if it is not
    installed."""
    scope = _names(quantizer)
    qconfig = eval(quantizer.default.format(per_channel=per_channel, qat=qat, dynamic=False), dict(scope))
    return eval(quantizer.configured, dict(scope, qconfig=qconfig))


def _names(quantizer: QuantizerSpec) -> dict[str, Any]:
    names: dict[str, Any] = import_module(".pt2e_names", __package__).names(quantizer, NAMES, QUANTIZER_NAMES)
    return names


def prepare(subject: Subject) -> GraphModule:
    """Export a copy of the model and return it with the observers that the quantizer asks for."""
    graph = exported(subject.model, subject.calibration)
    return prepared_graph(graph, quantizer_of(subject.run), qat=subject.run.flow == "qat")


def prepared_graph(graph: GraphModule, quantizer: Any, *, qat: bool) -> GraphModule:
    """Return an exported graph, which is changed, with the observers that a quantizer asks for, and its annotations in
    `meta`."""
    from torchao.quantization.pt2e.quantize_pt2e import prepare_pt2e, prepare_qat_pt2e

    watched = _Watched(quantizer)
    with _patterns_exported_once():
        prepared: GraphModule = (prepare_qat_pt2e if qat else prepare_pt2e)(graph, watched)
    prepared.meta[ANNOTATIONS] = watched.annotations
    return prepared


def spec_of(claims: BackendClaims) -> QuantizerSpec:
    """The quantizer that a backend's claims are about."""
    assert isinstance(claims.config, QuantizerConfig)
    return claims.config.quantizer


def quantizer_of(run: Run) -> Any:
    """Return a new quantizer, configured by the recipe of a run. Raises ImportError if it is not installed."""
    scope = dict(_names(spec_of(run.backend)), torch=torch)
    scope["qconfig"] = eval(run.recipe.qconfig, scope)
    return eval(run.recipe.mapping, scope)


ANNOTATION = "quantization_annotation"
"""The field of `meta` that has a node's annotation."""
ANNOTATIONS = "conformance_annotations"
"""The field of a prepared model's `meta` that has all of its `Annotated`."""


@dataclass(frozen=True)
class Annotated:
    """An operator of an exported graph with its annotations.

    `inputs` has the integers that each node it reads is quantized to, by name, as `described` writes them; empty for a
    node without an annotation. `output` has those of its result. `parameters` are the names of the parameters among the
    nodes, with the names that they have in the model.
    """

    name: str
    inputs: Mapping[str, str]
    output: str
    parameters: Mapping[str, str]


class _Watched:
    """A quantizer, and what it has annotated: `prepare` rewrites the graph afterwards."""

    def __init__(self, quantizer: Any) -> None:
        self.quantizer, self.annotations = quantizer, tuple[Annotated, ...]()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.quantizer, name)

    def annotate(self, model: GraphModule) -> GraphModule:
        annotated: GraphModule = self.quantizer.annotate(model)
        operators = [node for node in annotated.graph.nodes if node.op == "call_function"]
        self.annotations = tuple(map(_annotated, operators))
        return annotated


def is_annotated(node: Node) -> bool:
    """Whether a quantizer has annotated an operator of a graph, by itself or as part of a fusion, also after conversion."""
    own = node.meta.get(ANNOTATION)
    return own is not None and bool(own._annotated)


def is_quantized(node: Node) -> bool:
    """Whether an annotation asks for integers: some only say that an operator stays in float."""
    own = node.meta.get(ANNOTATION)
    specs = [] if own is None else [own.output_qspec, *own.input_qspec_map.values()]
    return any(spec is not None for spec in specs)


def _annotated(node: Node) -> Annotated:
    own = node.meta.get(ANNOTATION)
    specs = {} if own is None else {source.name: spec for source, spec in own.input_qspec_map.items()}
    sources = node.all_input_nodes
    return Annotated(
        node.name,
        {source.name: _spec(specs.get(source.name)) for source in sources},
        "" if own is None else _spec(own.output_qspec),
        {source.name: str(source.target) for source in sources if source.op == "get_attr"},
    )


SHARED = "shared"
"""The description of the qparams of another edge."""


def _spec(spec: Any) -> str:
    if spec is None:
        return ""
    if not hasattr(spec, "dtype"):
        return SHARED
    per_channel = "per_channel" in str(getattr(spec, "qscheme", ""))
    dtype = str(spec.dtype).removeprefix("torch.")
    axis = spec.ch_axis if per_channel else None
    if spec.dtype.is_floating_point:
        return dtype
    whole = torch.iinfo(spec.dtype)  # without a range of its own
    low = whole.min if spec.quant_min is None else spec.quant_min
    high = whole.max if spec.quant_max is None else spec.quant_max
    return described(dtype, low, high, axis, dynamic=spec.is_dynamic)


def described(dtype: str, low: int, high: int, axis: int | None, *, dynamic: bool = False) -> str:
    """Describe the integers that a tensor is quantized to; `axis` is the dimension with a scale for each index, if any."""
    where = "per tensor" if axis is None else f"per channel of dimension {axis}"
    return f"{'dynamic ' if dynamic else ''}{dtype} from {low} to {high} {where}"


def exported(model: nn.Module, inputs: Sequence[Tensor]) -> GraphModule:
    """Return the exported graph of a copy of a model. The inputs decide which shapes it takes."""
    program = torch.export.export(copy.deepcopy(model), tuple(x.clone() for x in inputs))
    graph: GraphModule = program.module(check_guards=False)
    return graph


def exported_network(model: nn.Module, batch: Sequence[Any]) -> GraphModule:
    """Return the exported graph of a copy of a network, which takes the tensors of a batch, in any nesting of containers, and
    returns a tuple of tensors. Raises the exceptions of torch.export, and ValueError naming an argument without a tensor
    that the graph computes with."""
    graph = flat(EXPORT(copy.deepcopy(model), tuple(batch)).module(check_guards=False))
    taken = [node for node in graph.graph.nodes if node.op == "placeholder"]
    for node, value in zip(taken, tree_leaves(tuple(batch)), strict=True):
        if isinstance(value, Tensor):
            continue
        if node.users:
            raise ValueError(f"the graph computes with its argument {node.name}, which is no tensor")
        graph.graph.erase_node(node)
    graph.recompile()
    return graph


def flat(graph: GraphModule) -> GraphModule:
    """An exported graph that takes and returns its tensors in a flat sequence, in place of the network's containers."""
    graph.graph.set_codegen(CodeGen())
    return GraphModule(graph, graph.graph)


def calibrate(prepared: GraphModule, subject: Subject) -> None:
    """Run the calibration data through the observers.

    A model for training is in eval mode by then: batch norm statistics that are updated would not be dyadic.
    """
    observe(prepared, [subject.calibration], qat=subject.run.flow == "qat")


def observe(prepared: GraphModule, batches: Iterable[Sequence[Tensor]], *, qat: bool) -> None:
    """Run batches through the observers of a prepared graph, in eval mode."""
    if qat:
        from torchao.quantization.pt2e import move_exported_model_to_eval

        move_exported_model_to_eval(prepared)
    with torch.no_grad():
        for batch in batches:
            prepared(*(x.clone() for x in batch))


def converted(prepared: GraphModule) -> GraphModule:
    """Return the model with `quantized_decomposed` operators and integer weights. `prepared` is not changed."""
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e

    copied = copy.deepcopy(prepared)
    nodes = {node.name: node for node in copied.graph.nodes}
    for node in copied.graph.nodes:  # their annotations still name nodes of the original, which `convert_pt2e` looks up
        if (own := node.meta.get(ANNOTATION)) is not None:
            specs = {nodes[source.name]: spec for source, spec in own.input_qspec_map.items() if source.name in nodes}
            node.meta[ANNOTATION] = replace(own, input_qspec_map=specs)
    with _patterns_exported_once():
        model: GraphModule = convert_pt2e(copied)
    return model


def lowered_to_x86(model: GraphModule, inputs: Sequence[Tensor]) -> GraphModule:
    """Return a converted model as oneDNN's quantized kernels. `model` is not changed."""
    from torchao.quantization.pt2e.lowering import lower_pt2e_quantized_to_x86

    with torch.no_grad():
        lowered: GraphModule = lower_pt2e_quantized_to_x86(copy.deepcopy(model), tuple(inputs))
    return lowered


def saved_and_loaded(model: GraphModule, inputs: Sequence[Tensor]) -> GraphModule:
    """Return a converted model after torch.export has saved and loaded it. Raises the exceptions of torch.export."""
    with torch.no_grad():
        torch.export.save(EXPORT(model, tuple(inputs)), saved := io.BytesIO())
    saved.seek(0)
    loaded: GraphModule = torch.export.load(saved).module(check_guards=False)
    return loaded


EXPORT = torch.export.export
PATTERN = "_get_aten_graph_module_for_pattern"
"""The function with which torchao and quantizers export a pattern that they search for."""
_graphs: dict[Any, GraphModule] = {}


@contextmanager
def _patterns_exported_once() -> Iterator[None]:
    """Have torchao and quantizers export each pattern that they search for once, without tracing its Python code, and copy it
    from then on: a model with a norm is compared with a hundred patterns in QAT."""
    if not enabled("exported patterns"):
        yield
        return
    utils = import_module("torchao.quantization.pt2e.utils")
    export = getattr(utils, PATTERN)

    def exported_once(pattern: Any, example_inputs: Any, is_cuda: bool = False, **options: Any) -> GraphModule:
        key = _key((pattern, example_inputs, is_cuda, options))
        if key not in _graphs:
            with patch.object(torch.export, "export", untraced_export):
                _graphs[key] = export(pattern, example_inputs, is_cuda, **options)
        return copy.deepcopy(_graphs[key])

    with ExitStack() as stack:
        for module in users_of_patterns(export):
            stack.enter_context(patch.object(module, PATTERN, exported_once))
        yield


def users_of_patterns(export: Any) -> list[Any]:
    """The loaded modules that have the function with which patterns are exported under its name."""
    return [module for module in [*sys.modules.values()] if getattr(module, "__dict__", {}).get(PATTERN) is export]


def untraced_export(*arguments: Any, **options: Any) -> Any:
    """`torch.export.export`, which interprets the code of a module where it is not strict: a tenth of the time, and the same
    graph for a pattern, whose code is a few calls, and for a graph module."""
    return EXPORT(*arguments, **{**options, "strict": False})


def _key(value: Any) -> Any:
    """What decides the graph of a pattern: the code of functions and what that closes over, and the shapes of tensors."""
    value = getattr(value, "fn", value) if isinstance(value, nn.Module) else value  # a function as a module
    if isinstance(value, FunctionType):
        closure = [cell.cell_contents for cell in value.__closure__ or ()]
        return value.__code__, _key(value.__defaults__), _key(closure)
    if isinstance(value, Tensor):
        return tuple(value.shape), value.dtype
    if isinstance(value, dict):
        return tuple((name, _key(one)) for name, one in sorted(value.items()))
    return tuple(map(_key, value)) if isinstance(value, tuple | list) else value
