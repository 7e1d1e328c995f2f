"""Faults of the lowered model: float kernels in the place of quantized ones, wrong outputs, wrong state."""

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx import GraphModule, Node

from conformance.models import fx

from .engines import doing, kernel, raising
from .fault import Fault, Replacement, case, code_fault
from .kernels import Call

LINEAR, RELU = case("nn.Linear"), case("nn.ReLU")
DYNAMIC = case("nn.Linear", dtypes="dynamic-quint8")


def last(graph: GraphModule, name: str) -> Node:
    """The last node of a graph whose name begins with `name`."""
    return [node for node in graph.graph.nodes if node.name.startswith(name)][-1]  # type: ignore[no-any-return]


def lowered(name: str, caught: str, change: Callable[[GraphModule], object], *runs: str, survives: str = "") -> Fault:
    """A fault in the lowered model."""

    def faulty(original: Any) -> Any:
        def lower(*args: Any) -> GraphModule:
            graph: GraphModule = original(*args)
            change(graph)
            graph.recompile()
            return graph

        return lower

    return code_fault("lowering", name, [Replacement(fx, "lower", faulty)], runs or (LINEAR,), caught, survives)


def ending(function: Callable[[Tensor], Any], *, after_dequantize: bool = False) -> Callable[[GraphModule], None]:
    """Apply a function to the argument of the last dequantize, or to its result."""

    def change(graph: GraphModule) -> None:
        end = last(graph, "dequantize")
        if after_dequantize:
            with graph.graph.inserting_after(end):
                inserted = graph.graph.call_function(function, (end,))
            end.replace_all_uses_with(inserted, delete_user_cb=lambda node: node is not inserted)
            return
        with graph.graph.inserting_before(end):
            end.args = (graph.graph.call_function(function, (end.args[0],)),)

    return change


def through_float(x: Tensor) -> Tensor:
    return torch.quantize_per_tensor(x.dequantize() * 1.0, x.q_scale(), x.q_zero_point(), x.dtype)


def as_other_dtype(x: Tensor) -> Tensor:
    return torch._make_per_tensor_quantized_tensor(
        (x.int_repr().int() - 128).to(torch.int8), x.q_scale(), x.q_zero_point() - 128
    )


def as_per_channel(x: Tensor) -> Tensor:
    scales = torch.full((x.shape[-1],), x.q_scale(), dtype=torch.float64)
    zero_points = torch.full((x.shape[-1],), x.q_zero_point())
    return torch._make_per_channel_quantized_tensor(x.int_repr(), scales, zero_points, x.dim() - 1)


def returning(change: Callable[[Any], Any]) -> Callable[[GraphModule], None]:
    """Change the arguments of the output node."""

    def changed(graph: GraphModule) -> None:
        (output,) = (node for node in graph.graph.nodes if node.op == "output")
        output.args = (change(output.args[0]),)

    return changed


def loading(method: Callable[..., Any]) -> Callable[[GraphModule], None]:
    """Replace the method with which a layer loads its state."""

    def changed(graph: GraphModule) -> None:
        graph.get_submodule("op")._load_from_state_dict = method  # type: ignore[method-assign]

    return changed


def refusing(*_: object, **__: object) -> None:
    raise KeyError("packed_params")


def forgetting_qparams(graph: GraphModule) -> None:
    """Leave the layer's scale out of its state."""
    layer = graph.get_submodule("op")
    original = layer._load_from_state_dict

    def load(state: dict[str, Any], prefix: str, *rest: Any) -> None:
        original({**state, prefix + "scale": torch.tensor(layer.scale)}, prefix, *rest)

    layer._load_from_state_dict = load  # type: ignore[method-assign, assignment]


def unsaved_bias(graph: GraphModule) -> None:
    """Leave the layer's bias out of its state."""
    layer: Any = graph.get_submodule("op._packed_params")
    (_, bias), original = layer._weight_bias(), layer._load_from_state_dict

    def load(*arguments: Any) -> None:
        original(*arguments)
        layer.set_weight_bias(layer._weight_bias()[0], bias)

    layer._load_from_state_dict = load


def without_bias(graph: GraphModule) -> None:
    layer: Any = graph.get_submodule("op")
    layer.set_weight_bias(layer.weight(), None)


def conversions_inside(call: Call) -> Tensor:
    """A kernel that computes in float inside."""
    weight, bias = call["W_prepack"].unpack()
    result = nn.functional.linear(call["X"].dequantize(), weight.dequantize(), bias)
    return torch.quantize_per_tensor(result, call["Y_scale_i"], call["Y_zero_point_i"], torch.quint8)


def without_quantized_kernel(call: Call) -> Tensor:
    """A dynamic layer in float, by the name of a quantized kernel."""
    weight, bias = call["W_prepack"].unpack()
    return nn.functional.linear(call.x, weight.dequantize(), bias)


FAULTS = [
    code_fault(
        "lowering",
        "the reference model is not lowered",
        [Replacement(fx, "lower", lambda original: fx.reference)],
        (LINEAR,),
        "lowered",
    ),
    code_fault(
        "lowering",
        "the observed model is not lowered",
        [Replacement(fx, "lower", lambda original: lambda prepared, config: copy.deepcopy(prepared))],
        (LINEAR,),
        "lowered numerics",
    ),
    code_fault(
        "lowering",
        "lowering raises",
        [
            Replacement(
                fx,
                "lower",
                lambda original: lambda *arguments: doing(raising(NotImplementedError("no kernel")))(arguments[0]),
            )
        ],
        (LINEAR,),
        "lowered",
    ),
    lowered("an operator goes through float and back", "lowered", ending(through_float)),
    # TorchScript does not compile lambdas
    lowered("an operator computes in float inside", "lowered stable", ending(lambda x: torch.cat([x[:2], x[2:]]))),
    kernel("computes in float inside", "lowered", conversions_inside),
    kernel(
        "computes in float by the name of a dynamic kernel",
        "numerics",
        without_quantized_kernel,
        DYNAMIC,
        DYNAMIC.replace("exact", "typical"),
        operators="quantized.linear_dynamic",
    ),
    lowered(
        "a dynamic layer stays in float",
        "accuracy lowered numerics",
        lambda graph: graph.set_submodule("op", nn.Linear(16, 8)),
        DYNAMIC,
    ),
    lowered(
        "an activation is the identity",
        "accuracy numerics",
        lambda graph: graph.set_submodule("op", nn.Identity()),
        RELU,
    ),
    lowered("the output stays in float", "lowered numerics", ending(torch.clone, after_dequantize=True)),
    lowered(
        "the output is a hundredth too large",
        "lowered numerics stable",
        ending(lambda x: torch.mul(x, 1.01), after_dequantize=True),
    ),
    lowered(
        "the output stays quantized",
        "lowered",
        returning(lambda node: node.args[0]),
    ),
    lowered("one output too many", "numerics", returning(lambda node: (node, node))),
    lowered("no output", "numerics", returning(lambda node: ())),
    lowered(
        "outputs in another order",
        "accuracy numerics",
        returning(lambda nodes: tuple(reversed(nodes))),
        case("nn.ReLU", "reused"),
    ),
    lowered("a missing row", "accuracy numerics", ending(lambda x: x[:1])),
    lowered("an extra dimension", "accuracy numerics", ending(lambda x: x.unsqueeze(0))),
    lowered("the output has another dtype", "numerics", ending(as_other_dtype)),
    lowered("the output is quantized per channel", "numerics", ending(as_per_channel)),
    lowered(
        "the output is NaN",
        "accuracy lowered numerics stable",
        ending(lambda x: torch.mul(x, float("nan")), after_dequantize=True),
    ),
    lowered("the bias is not packed", "accuracy numerics", without_bias),
    lowered("a layer does not load its state", "stable", loading(lambda *_, **__: None)),
    lowered("a layer cannot load its state", "stable", loading(refusing)),
    lowered("a layer does not load its scale", "stable", forgetting_qparams),
    lowered("a layer does not load its bias", "stable", unsaved_bias),
]
