"""Executions of a graph node by node: values that are kept, or moved, times, and conversions inside of kernels."""

import time
from typing import Any

import torch
from torch import Tensor
from torch.autograd.profiler import record_function
from torch.fx import GraphModule, Interpreter, Node
from torch.fx.immutable_collections import immutable_dict, immutable_list

from conformance.models import mutation
from conformance.models.trace import conversions_inside, inner_conversion

from .network import Batch, copied

IN_EXPORTED = "quantized_decomposed.quantize_per_tensor.default"
"""How exported graphs quantize a tensor with one scale."""
PER_TENSOR = (torch.per_tensor_affine, torch.per_tensor_symmetric)


def frozen(value: Any) -> Any:
    """A copy of a tensor, or of those in a tuple or list, in its own contiguous memory; other values as they are."""
    if isinstance(value, Tensor):
        if value.is_quantized and value.qscheme() in PER_TENSOR:
            codes = value.int_repr().contiguous()
            return torch._make_per_tensor_quantized_tensor(codes, value.q_scale(), value.q_zero_point())
        return value.detach().clone()
    if type(value) in (tuple, list):
        return type(value)(map(frozen, value))
    return value


def unchanged(value: Any, before: Any) -> bool:
    """Whether a tensor still has the values of its copy; true for everything else."""
    if not isinstance(value, Tensor) or not isinstance(before, Tensor) or value.shape != before.shape:
        return True
    if value.is_quantized and value.qscheme() not in PER_TENSOR:
        return True
    return mutation.unchanged(value, mutation.content(before))


def memory_format(value: Any) -> str:
    """The memory format of a tensor: `contiguous`, `channels_last`, or `strided` for any other; empty for other values."""
    if not isinstance(value, Tensor):
        return ""
    if value.is_contiguous():
        return "contiguous"
    last = {4: torch.channels_last, 5: torch.channels_last_3d}.get(value.dim())
    return "channels_last" if last is not None and value.is_contiguous(memory_format=last) else "strided"


def memory(value: Any) -> int | None:
    """The address of a tensor's storage, None for other values."""
    return value.untyped_storage().data_ptr() if isinstance(value, Tensor) else None


class NodeRaises(Exception):
    """A node of a graph raises `error`."""

    def __init__(self, node: Node, error: Exception) -> None:
        super().__init__(f"{node.name} raises {type(error).__name__}")
        self.node, self.error = node, error


class ListsAsLists(Interpreter):
    """An interpreter that passes the lists and dicts of a graph's arguments as generated code does: they can be changed."""

    def fetch_args_kwargs_from_env(self, n: Node) -> tuple[Any, dict[str, Any]]:
        args, kwargs = super().fetch_args_kwargs_from_env(n)
        return mutable(args), mutable(kwargs)


def mutable(value: Any) -> Any:
    """A copy of arguments with ordinary lists and dicts."""
    if isinstance(value, immutable_list):
        return [mutable(item) for item in value]
    if isinstance(value, dict) and type(value) in (dict, immutable_dict):
        return {name: mutable(item) for name, item in value.items()}
    return tuple(map(mutable, value)) if type(value) is tuple else value


class Moved(ListsAsLists):
    """Runs a reference model with values moved by `by` steps of their grid before they are rounded, up and down in turns of
    `period` elements: where that decides between two codes, both are right."""

    def __init__(self, model: GraphModule, by: float, period: int) -> None:
        super().__init__(model)
        self.extra_traceback = False
        self.by, self.period = by, period

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        rounds = target is torch.quantize_per_tensor or str(target) == IN_EXPORTED
        if rounds and isinstance(args[0], Tensor) and not args[0].is_quantized:
            x, scale = args[0], float(args[1])
            signs = 1 - 2 * (torch.arange(x.numel()) // self.period % 2).reshape(x.shape)
            args = (x + signs * scale * self.by, *args[1:])
        return super().call_function(target, args, kwargs)


class Recorded(ListsAsLists):
    """Runs a graph and keeps a copy of every value, and of each node the operands that it writes to although they are used
    again, themselves or as another view of their memory. Raises NodeRaises."""

    def __init__(self, model: GraphModule) -> None:
        super().__init__(model, garbage_collect_values=True)
        self.extra_traceback = False
        self.values: dict[Node, Any] = {}
        self.writes: dict[Node, tuple[Node, ...]] = {}
        self.last = {used: node for node in model.graph.nodes for used in node.all_input_nodes}

    def run_node(self, n: Node) -> Any:
        try:
            result = super().run_node(n)
        except Exception as error:
            raise NodeRaises(n, error) from error
        self.values[n] = frozen(result)
        changed = [one for one in n.all_input_nodes if not unchanged(self.env[one], self.values[one])]
        if changed:
            self.writes[n] = tuple(one for one in changed if self._used_again(n, one))
        return result

    def _used_again(self, node: Node, operand: Node) -> bool:
        """Whether the memory of an operand is used after a node; its copies get the new content."""
        own = memory(self.env[operand])
        views = [other for other, value in self.env.items() if memory(value) == own]
        for view in views:
            self.values[view] = frozen(self.env[view])
        return any(self.last.get(view) is not node for view in views)


PASSES = 2
"""Passes that are timed; the fastest counts."""

MARK = "audit node "
"""Beginning of the names by which the profiler's events of a node are found."""


class NodeTimer(ListsAsLists):
    """Notes in `seconds` the fastest time of each node by its name: that of what it calls, without the interpreter's own work
    around the call."""

    def __init__(self, model: GraphModule) -> None:
        super().__init__(model)
        self.seconds: dict[str, float] = {}
        self._node = ""

    def run_node(self, n: Node) -> Any:
        self._node = n.name
        return super().run_node(n) if n.op.startswith("call") else self._timed(super().run_node, (n,), {})

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return self._timed(target, args, kwargs)

    def call_method(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        own, *rest = args
        return self._timed(getattr(own, target), tuple(rest), kwargs)

    def call_module(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return self._timed(self.fetch_attr(target), args, kwargs)

    def _timed(self, called: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        started = time.perf_counter()
        result = called(*args, **kwargs)
        elapsed = time.perf_counter() - started
        self.seconds[self._node] = min(elapsed, self.seconds.get(self._node, float("inf")))
        return result


class _Marked(ListsAsLists):
    def run_node(self, n: Node) -> Any:
        with record_function(MARK + n.name):
            return super().run_node(n)


def shares(model: GraphModule, batch: Batch) -> dict[str, float]:
    """The share of each node in the time of an execution, by name."""
    timer = NodeTimer(model)
    with torch.no_grad():
        for _ in range(PASSES):
            timer.run(*copied(batch))
    total = sum(timer.seconds.values()) or 1.0
    return {name: seconds / total for name, seconds in timer.seconds.items()}


def inner_conversions(model: GraphModule, batch: Batch) -> dict[str, tuple[str, ...]]:
    """For each node by name, the conversions to or from float that its kernels make inside of themselves, as `outer >
    inner`."""
    with torch.no_grad(), conversions_inside() as inside:
        _Marked(model).run(*copied(batch))
    found: dict[str, list[str]] = {}
    for (node, *kernels), name in inside:
        if kernels and node.startswith(MARK):
            found.setdefault(node.removeprefix(MARK), []).append(inner_conversion(kernels[0], name))
    return {node: tuple(conversions) for node, conversions in found.items()}
