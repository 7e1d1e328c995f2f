"""A network taken through PT2E: exported, prepared, calibrated and converted by a quantizer."""

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule, Node

from conformance.errors import brief
from conformance.models import pt2e
from conformance.models.observers import is_observer

from .conversion import Unconvertible, line_of
from .isolated import Stage
from .network import Network, copied, tensors_of
from .preparation import Refused, prepared
from .regions import Region, Regions, takes_one
from .values import Recorded

EXPORTABLE = (
    "torch.export takes no control flow that depends on values of tensors: rewrite this line with torch.cond or "
    "torch.where, or audit a part of the network"
)
ANNOTATED = "leave the operator out of what the quantizer annotates, or take another quantizer"


@dataclass(frozen=True)
class Exported:
    """A network in each of its forms, which take a flat sequence of tensors and return a tuple of tensors.

    `in_float` is the exported float network, `prepared` the prepared one without its observers, `converted` the one with
    `quantized_decomposed` operators, which is the reference. `refused` is what preparing raises for.
    """

    network: Network
    in_float: GraphModule
    prepared: GraphModule
    converted: GraphModule
    refused: tuple[Refused, ...] = ()

    @cached_property
    def held_out(self) -> tuple[Tensor, ...]:
        return tuple(tensors_of(copied(self.network.held_out)))

    @cached_property
    def regions(self) -> Regions:
        return Regions(self.converted)

    @cached_property
    def float_values(self) -> dict[Node, Any]:
        """The value of each node of the float network for the held-out batch."""
        recorder = Recorded(self.in_float)
        with torch.no_grad():
            recorder.run(*self.held_out)
        return recorder.values

    @cached_property
    def equivalents(self) -> dict[str, Node]:
        """The node of the float network that has the value of each operator, by the name of the latter: that of a folded
        batch norm, if one followed. Norms that are left have other names after training, and their order."""
        left = {node.name for node in self.converted.graph.nodes}
        found = {}
        for node in self.in_float.graph.nodes:
            same = node
            while _takes_norms(node) and len(same.users) == 1 and _of_norm(user := next(iter(same.users))):
                if user.name in left:
                    break
                same = user
            found[node.name] = same
        folded = {same for name, same in found.items() if same.name != name}
        own = [node for node in norms(self.in_float) if node not in folded]
        if len(own) == len(kept := norms(self.converted)):
            found |= {node.name: same for node, same in zip(kept, own, strict=True)}
        return found

    @cached_property
    def members(self) -> dict[str, set[str]]:
        """The names of the float network's nodes that are in one region, by each of them."""
        found: dict[str, set[str]] = {}
        for region in self.regions.all:
            own = {name for node in region.nodes for name in self._with_norm(node.name)}
            found |= dict.fromkeys(own, own)
        return found

    def _with_norm(self, name: str) -> Iterator[str]:
        """Yield the names of the float network's nodes that an operator of the converted one computes."""
        node = self.float_nodes.get(name)
        while node is not None:
            yield node.name
            node = next(iter(node.users)) if node is not self.equivalents[name] else None

    @cached_property
    def float_nodes(self) -> dict[str, Node]:
        """The nodes of the float network by name."""
        return {node.name: node for node in self.in_float.graph.nodes}

    def is_annotated(self, region: Region) -> bool:
        """Whether the quantizer asks for integers in a region."""
        return any(map(pt2e.is_quantized, region.nodes))

    def folded(self, region: Region) -> bool:
        """Whether a batch norm is folded into the first operator of a region."""
        same = self.equivalents.get(region.head.name)
        return same is not None and same.name != region.head.name


def norms(graph: GraphModule) -> list[Node]:
    """The batch norms of a graph, in order."""
    return [node for node in graph.graph.nodes if is_norm(node)]


def is_norm(node: Node) -> bool:
    return "batch_norm" in str(node.target) and not takes_one(node)


def _takes_norms(node: Node) -> bool:
    """Whether a batch norm may be folded into an operator."""
    return any(kind in str(node.target) for kind in ("conv", "linear", "addmm"))


def _of_norm(node: Node) -> bool:
    """Whether a node is a batch norm, or takes one of the values that it returns."""
    return is_norm(node) or (takes_one(node) and _of_norm(node.all_input_nodes[0]))


def export(network: Network, make: Callable[[], Any], stage: Stage, *, qat: bool = False) -> Exported:
    """Take a network through PT2E with the quantizer that `make` returns. In QAT it is prepared for training and calibrated
    in eval mode.

    Raises Unconvertible naming the stage, the line of the network that cannot be exported, and what can be done.
    """
    at = "export"
    try:
        stage(at)
        in_float = pt2e.exported_network(network.model, network.held_out)
        graph = _for_training(network) if qat else copy.deepcopy(in_float)
        stage(at := "prepare")
        observed, refused = prepared(graph, make, qat=qat)
        stage(at := "calibrate")
        pt2e.observe(observed, (tensors_of(copied(batch)) for batch in network.calibration), qat=qat)
        stage(at := "convert")
        converted = pt2e.converted(observed)
    except Exception as error:
        where = line_of(error) if at == "export" else ""
        text = brief(error) + (f" at {where}" if where else "")
        raise Unconvertible(at, text, EXPORTABLE if at == "export" else ANNOTATED) from error
    return Exported(network, in_float, _without_observers(observed), converted, refused)


def _for_training(network: Network) -> GraphModule:
    model = copy.deepcopy(network.model).train()
    return pt2e.exported_network(model, network.held_out)


def _without_observers(prepared: GraphModule) -> GraphModule:
    """A prepared network with what it observes, and fake-quantizes in training, as it is."""
    plain = copy.deepcopy(prepared)
    modules = dict(plain.named_modules(remove_duplicate=False))
    for node in [*plain.graph.nodes]:
        if node.op == "call_module" and is_observer(modules[str(node.target)]):
            node.replace_all_uses_with(node.args[0])
            plain.graph.erase_node(node)
    plain.recompile()
    return plain
