"""Executions of decomposed models, whose quantized tensors are integers with qparams in the graph.

PT2E converts to such models. torch executes them in float, between a dequantize of each operand and a quantize of the result.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule, Interpreter, Node
from torch.utils._pytree import tree_leaves

from conformance.models import trace
from conformance.models.build import tensors
from conformance.models.trace import Execution, Output

QUANTIZE = "quantized_decomposed.quantize_per_"
DEQUANTIZE = "quantized_decomposed.dequantize_per_"


def is_quantize(node: Node) -> bool:
    return str(node.target).startswith(QUANTIZE)


def is_dequantize(node: Node) -> bool:
    return str(node.target).startswith(DEQUANTIZE)


def quantized(codes: Tensor, target: object, arguments: Sequence[Any]) -> Tensor:
    """The quantized tensor of codes, with the arguments that a quantize or dequantize call has after its tensor."""
    if "per_channel" in str(target):
        scales, zero_points, axis, *_ = arguments
        return torch._make_per_channel_quantized_tensor(codes, scales.double(), zero_points.long(), int(axis))
    scale, zero_point, *_ = arguments
    return torch._make_per_tensor_quantized_tensor(codes, float(scale), int(zero_point))


class _Recorder(Interpreter):
    """Runs a graph and keeps each quantize call, and each constant that is dequantized, as a quantized tensor."""

    def __init__(self, model: GraphModule) -> None:
        super().__init__(model, garbage_collect_values=False)
        self.calls: dict[Node, tuple[Tensor, Tensor]] = {}

    def run_node(self, n: Node) -> Any:
        result = super().run_node(n)
        if is_quantize(n):
            source, *arguments = self.fetch_args_kwargs_from_env(n)[0]
            self.calls[n] = source, quantized(result, n.target, arguments)
        elif is_dequantize(n) and isinstance(constant := n.args[0], Node) and constant.op == "get_attr":
            codes, *arguments = self.fetch_args_kwargs_from_env(n)[0]
            self.calls[n] = codes, quantized(codes, n.target, arguments)
        return result


class _Kernels(trace.Recorder):  # type: ignore[no-untyped-call]
    """Records the kernels of a lowered model, whose quantized tensors are 8-bit integers, and what is dequantized."""

    def is_quantized(self, x: Tensor) -> bool:
        return x.dtype in (torch.int8, torch.uint8)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = super().__torch_dispatch__(func, types, args, kwargs)
        if str(func).startswith("quantized_decomposed.dequantize_per_tensor"):
            self.sources[id(result)] = quantized(args[0], func, args[1:]), result
        return result


def traced(program: Callable[..., Any], inputs: Sequence[Tensor]) -> Execution:
    """Run a program once that has been lowered from a decomposed model, and record its kernels."""
    return replace(trace.execute(program, inputs, _Kernels()), ahead_of_time=True)


def execute(model: GraphModule, inputs: Sequence[Tensor]) -> Execution:
    """Run a decomposed model once without gradients. Its kernels are not recorded, because all of them compute in float."""
    recorder = _Recorder(model)
    with torch.no_grad():
        results = tensors(recorder.run(*inputs))
    outputs = [
        Output(values, None if source is None else recorder.calls[source][1])
        for values, source in zip(results, map(_quantize_before, returned(model)), strict=True)
    ]
    return Execution((), tuple(outputs), tuple(recorder.calls.values()))


def returned(model: GraphModule) -> list[Any]:
    """The nodes that a graph returns, flattened."""
    (output,) = (node for node in model.graph.nodes if node.op == "output")
    return tree_leaves(output.args[0])


def _quantize_before(node: Node) -> Node | None:
    """The quantize call whose codes a node dequantizes, or None."""
    if not is_dequantize(node):
        return None
    source = node.args[0]
    return source if isinstance(source, Node) and is_quantize(source) else None


@dataclass(frozen=True)
class Grid:
    """The qparams with which a model dequantizes an output."""

    scale: float
    zero_point: int
    low: int
    high: int
    dtype: torch.dtype

    def codes(self, values: Tensor) -> Tensor | None:
        """Return the quantized tensor that dequantizes to `values` (float32), or None if there is none."""
        codes = (values.double() / self.scale).round() + self.zero_point
        if not bool(((codes >= self.low) & (codes <= self.high)).all()):
            return None
        if not torch.equal((codes - self.zero_point).float() * self.scale, values):
            return None
        return torch._make_per_tensor_quantized_tensor(codes.to(self.dtype), self.scale, self.zero_point)


def grids(model: GraphModule) -> list[Grid | None]:
    """Return the grid of each output of a decomposed model, or None for an output that no dequantize computes."""
    return [_grid(node) for node in returned(model)]


def on_grids(model: GraphModule, results: Sequence[Tensor]) -> tuple[Output, ...]:
    """The outputs of a program that a decomposed model was lowered to, with the codes that the model dequantizes."""
    pairs = zip(results, grids(model), strict=True)
    return tuple(Output(values, None if grid is None else grid.codes(values)) for values, grid in pairs)


COPIES = tuple(f"aten.{name}." for name in ("index_select", "pad", "constant_pad_nd", "permute"))
"""Operators whose values are those of their input, or zeros."""


def with_copied(model: GraphModule, outputs: Sequence[Output]) -> tuple[Output, ...]:
    """Outputs, of which those that `model` copies from a dequantized value have their codes, too."""
    found = []
    for one, node in zip(outputs, [node for node in returned(model) if isinstance(node, Node)], strict=True):
        grid = _grid(node) if one.quantized is None and _copies(node) else None
        found.append(one if grid is None else Output(one.values, grid.codes(one.values)))
    return tuple(found)


def _copies(node: Any) -> bool:
    return isinstance(node, Node) and str(node.target).startswith(COPIES)


def _grid(node: Any) -> Grid | None:
    while _copies(node):
        node = node.args[0]  # a part of the values is on the grid of all
    if isinstance(node, Node) and node.target is torch.ops.quantized_decomposed.dequantize_per_tensor.default:
        arguments: tuple[Any, ...] = node.args[1:]
        return Grid(*arguments)
    return None
