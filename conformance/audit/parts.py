"""Parts of a network as models of their own: cut out of its graph, with modules as source and data by shape."""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor, nn
from torch.fx import Graph, GraphModule, Node

from .options import CHANNELS, NotSource, arguments_of

IMPORTED = frozenset({"torch", "device", "inf", "nan", "NoneType", "fx_pytree", "pytree"})
"""Names that generated code of a graph may refer to: those that a script imports, and those that FX defines for every
graph."""


@dataclass(frozen=True)
class Part:
    """A part of a network: a graph whose modules are called by simple names, and the arguments of each one's class.

    `shapes` are those of its inputs, with `channels_last` for each. Constants are parameters of the network that the graph
    reads, by name and shape.
    """

    graph: Graph
    modules: Mapping[str, tuple[type[nn.Module], Mapping[str, Any]]]
    constants: Mapping[str, tuple[int, ...]]
    shapes: tuple[tuple[int, ...], ...]
    channels_last: tuple[bool, ...]

    def source(self) -> str:
        """The part as a class `Model`."""
        lines = ["class Model(nn.Module):", "    def __init__(self):", "        super().__init__()"]
        lines += [f"        self.{name} = {_call(kind, arguments)}" for name, (kind, arguments) in self.modules.items()]
        lines += [f"        self.{name} = nn.Parameter(torch.rand({shape}))" for name, shape in self.constants.items()]
        return "\n".join([*lines, "", *_forward(self.graph)])


def _forward(graph: Graph) -> Iterator[str]:
    code = graph.python_code("self")
    if unknown := [name for name in code.globals if name not in IMPORTED]:
        raise NotSource(f"it calls {', '.join(unknown)}, which is not torch's")
    for line in code.src.splitlines():
        if line.strip():
            yield "    " + re.sub(r";  .* = None$", "", line)


def _call(kind: type[nn.Module], arguments: Mapping[str, Any]) -> str:
    return f"nn.{kind.__name__}({', '.join(f'{name}={value!r}' for name, value in arguments.items())})"


class Cutter:
    """Cuts parts out of the graph of a float network. `members` has the names of the nodes that are fused with a node, itself
    included, by its name, and `values` the value of each node."""

    def __init__(self, traced: GraphModule, members: Mapping[str, Collection[str]], values: Mapping[Node, Any]) -> None:
        self.traced, self.members, self.values = traced, members, values
        self.nodes = {node.name: node for node in self.traced.graph.nodes}

    def group(self, names: Sequence[str]) -> list[Node]:
        """The nodes of these names, with those that are fused with them, in order."""
        wanted = {other for name in names for other in self.members.get(name, {name})}
        return [node for name, node in self.nodes.items() if name in wanted and _computes(node)]

    def producers(self, nodes: Sequence[Node]) -> list[Node]:
        """The nodes, and those that compute their inputs."""
        inputs = [one.name for node in nodes for one in node.all_input_nodes if _computes(one)]
        return self.group([*(node.name for node in nodes), *inputs])

    def consumers(self, nodes: Sequence[Node]) -> list[Node]:
        """The nodes, those that use their results, and those that use the same inputs."""
        near = {node for one in nodes for node in (one, *one.all_input_nodes) if _computes(node) or node in nodes}
        users = [user.name for node in near for user in node.users if _computes(user)]
        return self.group([*(node.name for node in nodes), *users])

    def part(self, nodes: Sequence[Node], channels_last: bool = False) -> Part:
        """The nodes as a model. Raises NotSource if it cannot be written down."""
        graph, env = Graph(), dict[Node, Any]()
        shapes: list[tuple[int, ...]] = []
        modules: dict[str, tuple[type[nn.Module], Mapping[str, Any]]] = {}
        constants: dict[str, tuple[int, ...]] = {}
        inside = set(nodes)
        outside = [one for node in nodes for one in node.all_input_nodes if one not in inside]
        for node in dict.fromkeys(outside):
            value = self.values.get(node)
            if isinstance(value, Tensor) and not value.is_floating_point():
                raise NotSource(f"it takes {node.name}, which is a tensor of integers")
            if not isinstance(value, Tensor):
                env[node] = value  # such as a size: it is written down
            elif node.op == "get_attr":
                env[node] = graph.get_attr(_simple(node.name))
                constants[_simple(node.name)] = tuple(value.shape)
            else:
                env[node] = graph.placeholder(f"x{len(shapes)}" if len(shapes) else "x")
                shapes.append(tuple(value.shape))
        for node in nodes:
            env[node] = copy = graph.node_copy(node, env.__getitem__)
            if node.op == "call_module":
                copy.target = _simple(str(node.target))
                module = self.traced.get_submodule(str(node.target))
                modules[copy.target] = type(module), arguments_of(module)
        ends = [node for node in nodes if not any(user in inside for user in node.users)]
        graph.output(env[ends[0]] if len(ends) == 1 else tuple(env[node] for node in ends))
        last = tuple(channels_last and len(shape) in (4, 5) for shape in shapes)
        return Part(graph, modules, constants, tuple(shapes), last)


def _computes(node: Node) -> bool:
    return node.op in ("call_module", "call_function", "call_method")


def _simple(path: str) -> str:
    """An attribute's name for a path."""
    return "m_" + re.sub(r"\W", "_", path)


def smallest_first(part: Part) -> Iterator[Part]:
    """Yield a part with little data, with less, and as it is."""
    for size, halvings in ((4, 4), (16, 1)):
        little = _batch_of_one(part)
        little = replace(
            little, shapes=tuple((*shape[:2], *(min(size, one) for one in shape[2:])) for shape in little.shapes)
        )
        for _ in range(halvings):
            little = _half_of_the_channels(little)
        if little.shapes != part.shapes:
            yield little
    yield part


def smaller(part: Part) -> Iterator[Part]:
    """Yield parts that are simpler in one respect: one item, half of the height and width, half of the channels."""
    if any(shape and shape[0] > 1 for shape in part.shapes):
        yield _batch_of_one(part)
    if any(len(shape) > 2 and max(shape[2:]) > 1 for shape in part.shapes):
        yield replace(
            part, shapes=tuple((*shape[:2], *(max(1, size // 2) for size in shape[2:])) for shape in part.shapes)
        )
    if any(len(shape) > 1 and shape[1] > 1 for shape in part.shapes):
        yield _half_of_the_channels(part)


def _batch_of_one(part: Part) -> Part:
    return replace(part, shapes=tuple((1, *shape[1:]) for shape in part.shapes))


def _half_of_the_channels(part: Part) -> Part:
    modules = {name: (kind, _halved(arguments)) for name, (kind, arguments) in part.modules.items()}
    shapes = tuple(
        (*shape[:1], max(1, shape[1] // 2), *shape[2:]) if len(shape) > 1 else shape for shape in part.shapes
    )
    constants = {
        name: (max(1, shape[0] // 2), *shape[1:]) if len(shape) == 1 else shape
        for name, shape in part.constants.items()
    }
    return replace(part, modules=modules, shapes=shapes, constants=constants)


def _halved(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of a module with half of the channels; a depthwise layer stays one."""
    halved = dict(arguments)
    for name in CHANNELS:
        if name in halved:
            halved[name] = max(1, halved[name] // 2)
    if halved.get("groups", 1) > 1 and halved["groups"] == arguments.get("in_channels"):
        halved["groups"] = halved["in_channels"]
    return halved
