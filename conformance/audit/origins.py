"""Where a deviation of a layer arises: the float network, the prepared one and the reference model, each from the inputs that
the engine has given the layer.

The float network is the judge, the reference model a witness: what preparing changes beside observing, and what the
reference model computes otherwise than the same float operators with the declared weights, is neither quantization's own nor
the engine's.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeGuard

import torch
from torch import Tensor, nn
from torch.ao.quantization.observer import _is_activation_post_process
from torch.func import functional_call
from torch.fx import GraphModule, Node
from torch.utils._pytree import tree_map

from .agreement import as_tensor, decibels, values_of
from .conversion import Converted
from .values import ListsAsLists, frozen

QUANTIZING = (torch.quantize_per_tensor, torch.quantize_per_channel, torch.quantize_per_tensor_dynamic)

SAME_DB = 60.0
"""SQNR from which two float computations are the same: other orders of sums and folded batch norms leave over 100 dB."""


class Part(ListsAsLists):
    """Evaluates single nodes of a graph from known values."""

    def __init__(self, model: GraphModule) -> None:
        super().__init__(model)
        self.extra_traceback = False
        self.order = {node: number for number, node in enumerate(self.graph.nodes)}
        self.nodes = {node.name: node for node in self.order}

    def evaluate(self, target: Node, known: Mapping[Node, Any]) -> tuple[dict[Node, Any], tuple[Node, ...]]:
        """The value of a node and of those between it and known ones, and these nodes in order. Inputs, and what is
        dequantized, have the values that they had before a node computed in place."""
        needed, seen, stack = [], set[Node](), [target]
        while stack:
            node = stack.pop()
            if node in seen:
                continue
            seen.add(node)
            if node in known and node is not target:
                continue
            needed.append(node)
            stack += node.all_input_nodes
        needed.sort(key=self.order.__getitem__)
        kept = {node: known[node] for node in seen if node in known and node is not target}
        # copies, because the nodes may compute in place
        self.env = {node: frozen(value) for node, value in kept.items()}
        for node in needed:
            self.env[node] = self.run_node(node)
            if node.target == "dequantize":
                kept[node] = frozen(self.env[node])
        return {**self.env, **kept}, tuple(needed)


class _Prepared(Part):
    """The prepared network without its observers, with its own weights or those that the reference model declares."""

    def __init__(self, prepared: GraphModule, reference: GraphModule) -> None:
        super().__init__(prepared)
        self.modules = dict(prepared.named_modules(remove_duplicate=False))
        self.references = dict(reference.named_modules(remove_duplicate=False))
        self.declared = False

    def comparable(self, path: str) -> bool:
        """Whether a module of the prepared network computes in float but for its weight, as its reference does."""
        if any(_is_activation_post_process(inner) for inner in self.modules[path].modules()):  # type: ignore[no-untyped-call]
            return False
        if not self._weighted(path).keys() <= dict(self.modules[path].named_parameters()).keys():
            return False  # a hook computes the weight
        pairs = zip(self.modules[path].modules(), self.references[path].modules(), strict=False)
        return all(type(own) is type(other) or hasattr(other, "get_weight") for own, other in pairs)

    def _weighted(self, path: str) -> dict[str, nn.Module]:
        """The modules inside of a reference module that declare weights, by the names of these."""
        inner = self.references[path].named_modules()
        return {f"{name}.weight".lstrip("."): one for name, one in inner if hasattr(one, "get_weight")}

    def call_module(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        module = self.modules[target]
        if _is_activation_post_process(module):  # type: ignore[no-untyped-call]
            return args[0]
        if not self.declared:
            return module(*args, **kwargs)
        weights = {name: one.get_weight() for name, one in self._weighted(target).items()}  # type: ignore[operator]
        return functional_call(module, weights, args, kwargs)


@dataclass(frozen=True)
class Origin:
    """A layer computed in float from the inputs that the engine has given it.

    `truth` is the float network's value, `declared` the one with the weights that the reference model declares, which the
    reference should quantize: None where there is no such computation. `prepare_db` is the SQNR of the prepared network's
    value beside the float network's, `reference_db` that of the reference's beside `declared`; None where they are the same.
    """

    truth: Tensor
    declared: Tensor | None = None
    prepare_db: float | None = None
    reference_db: float | None = None

    @property
    def holds(self) -> bool:
        return self.prepare_db is None and self.reference_db is None


class Origins:
    """The float and the prepared network, evaluated layer by layer from the values of an engine."""

    def __init__(self, converted: Converted) -> None:
        self.members = converted.matches.members
        self.float = Part(converted.traced)
        self.prepared = _Prepared(converted.prepared, converted.reference)
        self.fused = {self.prepared.nodes[name].target for name in self.members if name in self.prepared.nodes}
        self._float_nodes = converted.float_nodes
        self._own = converted.in_float.values
        self._taken: dict[str, Any] = {}

    def take(self, same: Node, value: Any) -> None:
        """Keep the engine's value of a node of the reference model."""
        self._taken[source(same).name] = _in_float(value)

    def own(self, same: Node) -> Any:
        """The float network's own value of a node of the reference model, None if it has none."""
        node = self.node(same)
        return None if node is None else self._own.get(node)

    def node(self, same: Node) -> Node | None:
        """The float network's node with the value of a node of the reference model, None if it has none."""
        return self._float_nodes.get(source(same).name)

    def origin(self, same: Node, values: Mapping[Node, Any], body: tuple[Node, ...]) -> Origin | None:
        """What a layer has in float whose value is that of a reference node, computed by `body` with these `values`. None if
        the float network has no such tensor."""
        core = source(same)
        node = self._float_nodes.get(core.name)
        if node is None:
            return None
        outside = {one for inner in body for one in inner.all_input_nodes if one not in body and one in values}
        # of a value that is there in float and quantized, the one that the layer takes
        known = {**self._taken, **{source(one).name: _in_float(values[one]) for one in outside}}
        if core not in body or core.name not in self.prepared.nodes or core.op == "placeholder":
            value = known.get(core.name)  # the layer quantizes or dequantizes it
            return Origin(value) if _floating(value) else None
        float_known = {of: value for name, value in known.items() if (of := self._float_nodes.get(name))}
        truth, reference = as_tensor(self.float.evaluate(node, float_known)[0][node]), as_tensor(values.get(core))
        if not _floating(truth) or not _floating(reference) or truth.shape != reference.shape:
            return None
        if _same(reference, truth) is None:
            return Origin(truth, reference)
        called = [str(one.target) for one in body if one.op == "call_module" and one.name in self.prepared.nodes]
        if not all(map(self.prepared.comparable, called)):
            return Origin(truth)
        return self._compared(core, truth, values, body, known)

    def _compared(
        self, core: Node, truth: Tensor, values: Mapping[Node, Any], body: tuple[Node, ...], known: Mapping[str, Any]
    ) -> Origin:
        """The origin of a layer whose reference has not the float network's value, for example because it has quantized
        weights."""
        target = self.prepared.nodes[core.name]
        given = {source(one).name: values[one] for one in body if one.target == "dequantize"}
        self.prepared.declared = True
        declared = self._prepared_value(target, {**known, **given})
        self.prepared.declared = False
        # only a fusion changes what is computed, that of a module in each of its calls
        fused = any(one.name in self.members or one.target in self.fused for one in body)
        prepare_db = _same(self._prepared_value(target, known), truth) if fused else None
        return Origin(truth, declared, prepare_db, _same(as_tensor(values[core]), declared))

    def _prepared_value(self, target: Node, known: Mapping[str, Any]) -> Tensor:
        nodes = {self.prepared.nodes[name]: value for name, value in known.items() if name in self.prepared.nodes}
        value: Tensor = as_tensor(self.prepared.evaluate(target, nodes)[0][target])
        return value


def _in_float(value: Any) -> Any:
    """A value with its tensors dequantized."""
    return tree_map(lambda x: values_of(x) if isinstance(x, Tensor) else x, value)


def converts(node: Node) -> bool:
    """Whether a node quantizes or dequantizes."""
    return node.target in QUANTIZING or (node.op == "call_method" and node.target == "dequantize")


def source(node: Node) -> Node:
    """The node whose value a node quantizes or dequantizes; any other node itself."""
    while converts(node):
        first = node.args[0]
        assert isinstance(first, Node)
        node = first
    return node


def _floating(value: Any) -> TypeGuard[Tensor]:
    return isinstance(value, Tensor) and value.is_floating_point() and bool(value.numel())


def _same(got: Tensor, expected: Tensor) -> float | None:
    """None if two float tensors are the same but for the order of sums, else their SQNR in dB."""
    found = decibels(got, expected)
    return found if found is not None and found < SAME_DB else None
