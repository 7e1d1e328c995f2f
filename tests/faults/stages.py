"""Faults before a kernel runs: in prepare, calibrate and convert, in the data, and in the use of goldens."""

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx import GraphModule

from conformance.goldens import store
from conformance.models import build, data, fx

from .fault import Fault, Replacement, case, code_fault
from .lowering import last

LINEAR, QAT = case("nn.Linear"), case("nn.Linear", flow="qat")
LINEAR_RELU = case("nn.Linear+nn.ReLU")
CHANNELS = case("nn.Conv2d+nn.BatchNorm2d", "per_channel")
RELU, POOLING = case("nn.ReLU"), case("nn.MaxPool2d")
DYNAMIC = case("nn.Linear", dtypes="dynamic-quint8")
SYMMETRIC = case("nn.Linear", dtypes="static-qint8", backend="qnnpack")

Change = Callable[[GraphModule], object]


def stage(name: str, caught: str, stage_name: str, change: Change, *runs: str, survives: str = "") -> Fault:
    """A fault in the graph that a stage of the pipeline returns or changes."""

    def faulty(original: Any) -> Any:
        def stage_with_fault(*args: Any) -> Any:
            result = original(*args)
            graph = args[0] if result is None else result
            change(graph)
            graph.recompile()
            return result

        return stage_with_fault

    return code_fault("stages", name, [Replacement(fx, stage_name, faulty)], runs or (LINEAR,), caught, survives)


def replaced(name: str, caught: str, owner: Any, attribute: str, faulty: Any, *runs: str, survives: str = "") -> Fault:
    return code_fault("stages", name, [Replacement(owner, attribute, faulty)], runs or (LINEAR,), caught, survives)


def module(graph: GraphModule, name: str) -> Any:
    return graph.get_submodule(name)


def erased(name: str) -> Change:
    """Replace a node by its first argument."""

    def change(graph: GraphModule) -> None:
        node = last(graph, name)
        node.replace_all_uses_with(node.args[0])  # type: ignore[arg-type]
        graph.graph.erase_node(node)

    return change


def having(name: str, **fields: Any) -> Change:
    """Replace attributes of a module, by values or by functions of the present values."""

    def change(graph: GraphModule) -> None:
        for field, value in fields.items():
            owner = module(graph, name)
            setattr(owner, field, value(getattr(owner, field)) if callable(value) else value)

    return change


INPUT, OUTPUT = "activation_post_process_0", "activation_post_process_1"


def shared(graph: GraphModule) -> None:
    last(graph, OUTPUT).target = INPUT


def exchanged(graph: GraphModule) -> None:
    on_input, on_output = last(graph, INPUT), last(graph, OUTPUT)
    on_input.target, on_output.target = on_output.target, on_input.target


def apart(graph: GraphModule) -> None:
    end = last(graph, OUTPUT)
    graph.add_submodule("another", copy.deepcopy(graph.get_submodule(str(end.target))))
    end.target = "another"


def unfused(graph: GraphModule) -> None:
    graph.set_submodule("op", nn.Sequential(*graph.get_submodule("op").children()))


def observed_between(graph: GraphModule) -> None:
    """An observer inside of the pattern."""
    graph.set_submodule("between", copy.deepcopy(graph.get_submodule(OUTPUT)))
    end = last(graph, OUTPUT)
    with graph.graph.inserting_before(end):
        end.args = (graph.graph.call_module("between", (end.args[0],)),)


def untrained(graph: GraphModule) -> None:
    trained = module(graph, "op")
    layer = nn.Linear(16, 8)
    layer.load_state_dict({"weight": trained.weight, "bias": trained.bias})
    layer.qconfig = trained.qconfig
    graph.set_submodule("op", layer)


def other_dtype(graph: GraphModule) -> None:
    for node in graph.graph.nodes:
        node.args = tuple(torch.qint32 if argument is torch.quint8 else argument for argument in node.args)


def scaled(factor: float) -> Change:
    """The reference model quantizes its output with another scale."""

    def change(graph: GraphModule) -> None:
        for name, buffer in graph.named_buffers():
            if name.endswith("scale_0") or name == "op_scale_0":
                buffer.mul_(factor)

    return change


def moved_axis(graph: GraphModule) -> None:
    layer = module(graph, "op")
    layer.weight_axis = torch.tensor(1)
    layer.weight_axis_int = 1
    layer.weight_scale = layer.weight_scale[: layer.weight.shape[1]]
    layer.weight_zero_point = layer.weight_zero_point[: layer.weight.shape[1]]


def refusing(*_: object) -> None:
    raise ValueError("bad")


def uncalibrated(original: Any) -> Any:
    return lambda prepared, subject: prepared.eval() and None


def from_other_data(original: Any) -> Any:
    """Execute with the calibration data times two."""

    def operand(run: Any, name: str, spec: Any, *, executed: bool) -> Tensor:
        data: Tensor = original(run, name, spec, executed=executed)
        return data * 2 if executed else data

    return operand


PREPARED = [
    stage("the output is not observed", "lowered numerics observed reference", "prepare", erased(OUTPUT)),
    stage("the input is not observed", "lowered observed reference", "prepare", erased(INPUT)),
    stage("the input's observer has another dtype", "lowered observed", "prepare", having(INPUT, dtype=torch.qint8)),
    stage(
        "the output's observer has another dtype", "observed reference", "prepare", having(OUTPUT, dtype=torch.qint8)
    ),
    stage("observers of input and output are exchanged", "accuracy numerics reference", "calibrate", exchanged),
    stage("input and output share an observer", "numerics observed reference", "prepare", shared),
    stage("input and output do not share an observer", "observed reference", "prepare", apart, POOLING),
    stage("a layer within the pattern is observed", "observed", "prepare", observed_between, LINEAR_RELU),
    stage(
        "a dynamic observer is static",
        "lowered observed reference",
        "prepare",
        having(INPUT, is_dynamic=False),
        DYNAMIC,
    ),
    stage("the pattern is not fused", "lowered observed reference", "prepare", unfused, LINEAR_RELU),
    stage("the layer is not trained", "observed", "prepare", untrained, QAT),
    stage(
        "the observer's scale is too coarse",
        "accuracy numerics reference",
        "prepare",
        having(INPUT, eps=lambda eps: torch.tensor([8.0])),
    ),
    stage(
        "the observer has one code fewer",
        "observed",
        "prepare",
        having(OUTPUT, quant_max=lambda most: most - 1),
    ),
    stage(
        "the observer has half as many codes",
        "numerics observed reference",
        "prepare",
        having(OUTPUT, quant_max=lambda most: most // 2),
    ),
    stage(
        "fake-quantize does nothing in training",
        "observed",
        "prepare",
        lambda graph: module(graph, INPUT).disable_fake_quant(),
        QAT,
    ),
    stage(
        "fake-quantize of weights does nothing in training",
        "observed",
        "prepare",
        lambda graph: module(graph, "op.weight_fake_quant").disable_fake_quant(),
        QAT,
    ),
    stage(
        "a fake-quantize does not observe",
        "accuracy numerics observed reference",
        "prepare",
        lambda graph: module(graph, INPUT).disable_observer(),
        QAT,
    ),
    replaced("preparation raises", "observed", fx, "prepare", lambda original: refusing),
    replaced("calibration raises", "accuracy numerics observed reference", fx, "calibrate", lambda original: refusing),
    replaced("calibration is skipped", "accuracy numerics reference", fx, "calibrate", uncalibrated),
    stage(
        "observers recorded an eighth of the range",
        "accuracy numerics reference",
        "calibrate",
        lambda graph: having(OUTPUT, max_val=lambda most: most / 8, min_val=lambda least: least / 8)(graph),
    ),
    stage(
        "observers recorded half of the maximum",
        "numerics reference",
        "calibrate",
        having(OUTPUT, max_val=lambda most: most / 2),
        LINEAR_RELU,  # between both signs the scale may be rounded up to the same power of two
    ),
    stage(
        "observers recorded a quarter of the minimum",
        "accuracy numerics reference",
        "calibrate",
        having(INPUT, min_val=lambda least: least / 4),
    ),
    stage(
        "observers recorded nine tenths of the minimum",
        "numerics reference",
        "calibrate",
        having(OUTPUT, min_val=lambda least: least * 0.9),
    ),
]

CONVERTED = [
    stage(
        "the root module stays float",
        "reference",
        "reference",
        lambda graph: graph.set_submodule("op", nn.Linear(16, 8)),
    ),
    stage("weights have another dtype", "reference", "reference", having("op", weight_dtype=torch.qint32)),
    stage("activations have another dtype", "reference", "reference", other_dtype),
    stage(
        "the weight's scale is doubled", "reference", "reference", having("op", weight_scale=lambda scale: scale * 2)
    ),
    stage(
        "the weight's scale is an ulp off",
        "reference",
        "reference",
        having("op", weight_scale=lambda scale: scale * (1 + 2.0**-23)),
    ),
    stage(
        "the weight's zero point is one off",
        "reference",
        "reference",
        having("op", weight_zero_point=lambda zero_point: zero_point + 1),
    ),
    stage(
        "a weight has a code beyond its bounds",
        "constraints reference",
        "reference",
        having("op", weight_scale=torch.tensor(2.0**-8)),
        SYMMETRIC,
    ),
    stage(
        "a weight's scale is below its bound",
        "constraints reference",
        "reference",
        having("op", weight_scale=torch.tensor(2.0**-13)),
        SYMMETRIC,
    ),
    stage("channels are on another axis", "reference", "reference", moved_axis, CHANNELS),
    stage(
        "scales of channels are in reverse order",
        "reference",
        "reference",
        having("op", weight_scale=lambda scale: scale.flip(0)),
        CHANNELS,
    ),
    stage("the bias is missing in the reference model", "reference", "reference", having("op", bias=lambda bias: None)),
    stage("the reference model's output has another scale", "reference", "reference", scaled(2.0)),
    stage(
        "the reference model's output is not quantized",
        "reference",
        "reference",
        lambda graph: (erased("dequantize")(graph), erased("quantize_per_tensor")(graph)),
    ),
    stage(
        "the reference model's input is not quantized", "reference", "reference", lambda graph: _without_input(graph)
    ),
    replaced(
        "the reference model is the float model",
        "reference",
        fx,
        "reference",
        lambda original: lambda prepared, config: _float(prepared),
        RELU,
    ),
    replaced("conversion raises", "reference", fx, "reference", lambda original: refusing),
    replaced(
        "the claim's entry changes nothing",
        "matched",
        fx,
        "without",
        lambda original: lambda config, run: iter([config]),
        RELU,
    ),
]


def _without_input(graph: GraphModule) -> None:
    first = next(node for node in graph.graph.nodes if node.op == "placeholder")
    end = next(node for node in graph.graph.nodes if "dequantize" in node.name)
    end.replace_all_uses_with(first)
    graph.graph.eliminate_dead_code()


def _float(prepared: GraphModule) -> GraphModule:
    graph = copy.deepcopy(prepared)
    for name in (OUTPUT, INPUT):
        erased(name)(graph)
    graph.recompile()
    return graph


DATA = [
    replaced("executed data differ from the calibration data", "accuracy golden", build, "operand", from_other_data),
    replaced(
        "all data are zero", "golden", build, "grid", lambda original: lambda *arguments: original(*arguments) * 0
    ),
    replaced(
        "data are drawn with another seed",
        "golden",
        data,
        "integers",
        lambda original: lambda key, *rest: original(key + "!", *rest),
    ),
    replaced("parameters are not filled", "golden", build, "fill", lambda original: lambda *arguments: None),
    replaced(
        "the input digest ignores the data",
        "golden",
        store,
        "input_digest",
        lambda original: lambda subject: "0" * 16,
    ),
]

FAULTS = [*PREPARED, *CONVERTED, *DATA]
