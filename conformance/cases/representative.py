"""A selection of the layers in use for engines that lower ahead of time, of which a run takes a fifth of a second: the most
frequent ones, and all values of options and classes of sizes."""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator

from conformance.configs.spelling import TRANSPOSED, computation, spelled
from conformance.results.in_use import LayerInUse

from .in_use import Unwritable, value_of, variant_of
from .operators import has_weights
from .operators.arithmetic import ARITHMETIC
from .operators.elementwise import ELEMENTWISE

COUNTS = frozenset(
    {
        *("in_channels", "out_channels", "groups", "in_features", "out_features", "num_features", "num_channels"),
        *("num_groups", "normalized_shape", "num_embeddings", "embedding_dim"),
    }
)
"""Options that are numbers of channels or features, of which classes are covered instead of values."""

MOST_MULTIPLICATIONS, MOST_WEIGHTS, MOST_ELEMENTS = 2**25, 2**18, 2**16
"""Bounds of a selected layer: what the oracle, the generator of parameters, and that of inputs take some 50 ms for."""

FLAT = frozenset(record.name for record in (*ELEMENTWISE, *ARITHMETIC)) - {"nn.PReLU", "nn.Softmax", "torch.matmul"}
"""Operators that treat all elements alike, whatever the shape, unless they broadcast one."""

UNCERTAIN = frozenset({"nn.LSTM", "nn.GRU"})
"""Operators whose layers in use no oracle is certain of: in so many steps of so many features some value lies so close to the
middle between two codes that the last bits of float32 decide every later step."""

VECTORS = (32, 16, 8, 4)
"""Widths of vectors and tiles of kernels, in elements."""

Feature = tuple[str, object]


def selected(layers: Iterable[LayerInUse]) -> list[LayerInUse]:
    """The most frequent layer of each pattern, and further ones until those of each computation have every feature.

    Layers beyond the bounds are left out, and of layers that differ in their neighbours alone all but the most frequent one.
    The most frequent layers are first in `layers`; the result is in their order.
    """
    distinct: dict[tuple[str, str], LayerInUse] = {}
    for layer in layers:
        try:
            name = variant_of(layer).name
        except Unwritable:
            continue
        if affordable(layer) and root(layer) not in UNCERTAIN:
            distinct.setdefault((layer.pattern, name), layer)
    families: dict[str, list[LayerInUse]] = defaultdict(list)
    for layer in distinct.values():
        families[computation(root(layer))].append(layer)
    chosen = {id(layer) for family in families.values() for layer in _covering(family)}
    return [layer for layer in distinct.values() if id(layer) in chosen]


def nearest(layer: LayerInUse, chosen: Iterable[LayerInUse]) -> LayerInUse | None:
    """The layer of a selection that computes the same and has most features in common, of those of its pattern if there is
    one; None if none computes the same."""
    own, kind = features(layer), computation(root(layer))
    alike = [one for one in chosen if computation(root(one)) == kind]
    return max(alike, key=lambda one: _likeness(own, one, layer.pattern), default=None)


def _likeness(own: frozenset[Feature], one: LayerInUse, pattern: str) -> tuple[bool, float]:
    other = features(one)
    return one.pattern == pattern, len(own & other) / len(own | other)


def root(layer: LayerInUse) -> str:
    """The root operator of a layer's pattern."""
    return layer.pattern.partition("+")[0]


def _covering(family: list[LayerInUse]) -> list[LayerInUse]:
    """Layers of one computation: the first of each pattern, then the one with most further features for its cost."""
    first = {layer.pattern: layer for layer in reversed(family)}
    chosen = [layer for layer in family if first[layer.pattern] is layer]
    having = {id(layer): features(layer) for layer in family}
    costs = {id(layer): 1 + multiplications(layer) / 2**24 + elements(layer) / 2**17 for layer in family}
    lacking = frozenset().union(*having.values()).difference(*(having[id(layer)] for layer in chosen))
    while lacking:
        best = max(family, key=lambda layer: len(having[id(layer)] & lacking) / costs[id(layer)])
        chosen.append(best)
        lacking -= having[id(best)]
    for layer in [layer for layer in chosen if first[layer.pattern] is not layer]:
        rest = [other for other in chosen if other is not layer]
        if having[id(layer)] <= frozenset().union(*(having[id(other)] for other in rest)):
            chosen = rest
    return chosen


def features(layer: LayerInUse) -> frozenset[Feature]:
    """What a kernel may depend on: the value of each option, the class of each size, and which dimensions are broadcast."""
    return frozenset(_features(layer))


def _features(layer: LayerInUse) -> Iterator[Feature]:
    shapes = [shape_of(text) for text in layer.inputs]
    values = {name: value_of(text) for name, text in layer.options.items()}
    for name, value in values.items():
        if name in COUNTS and isinstance(value, int):
            yield from _classes(name, value)
        elif not isinstance(value, float):
            yield name, value
    if "groups" in values:
        channels, outputs = int(str(values["in_channels"])), int(str(values["out_channels"]))
        yield "channels of a group", min(channels // int(str(values["groups"])), 8)
        yield "equal channels", channels == outputs
    yield "dimensions", len(shapes[0])
    if treats_alike(layer):
        yield from _classes("elements", math.prod(shapes[0]))
    else:
        yield "octave of elements", math.prod(shapes[0]).bit_length()
        yield from _classes("channels", shapes[0][1] if len(shapes[0]) > 1 else 1)
        for length in {length for shape in shapes for length in shape[2:]}:
            yield from _classes("length", length)
    yield "inputs", min(len(shapes), 8)
    if len({*shapes}) > 1:
        yield "of one", tuple(tuple(length == 1 for length in shape) for shape in shapes[:2])


def treats_alike(layer: LayerInUse) -> bool:
    """Whether a layer treats all elements alike, whatever the shape: it broadcasts no operand."""
    return root(layer) in FLAT and len({*layer.inputs}) == 1


def _classes(name: str, size: int) -> Iterator[Feature]:
    """The class of a size: its octave, and the widest vector that it is a multiple of."""
    yield f"octave of {name}", size.bit_length()
    yield f"vector of {name}", next((width for width in VECTORS if size % width == 0), 1)


def shape_of(text: str) -> tuple[int, ...]:
    """The shape that the table has as text."""
    return tuple(map(int, text.split("x")))


def weights(layer: LayerInUse) -> int:
    """Number of weights of a convolution, linear layer or embedding; 0 for another operator."""
    values = {name: value_of(text) for name, text in layer.options.items()}
    if "kernel_size" in values and "in_channels" in values:
        kernel = values["kernel_size"] if isinstance(values["kernel_size"], tuple) else (values["kernel_size"],)
        pairs = int(str(values["in_channels"])) * int(str(values["out_channels"])) // int(str(values["groups"]))
        return pairs * math.prod(map(int, map(str, kernel)))
    for left, right in (("in_features", "out_features"), ("num_embeddings", "embedding_dim")):
        if left in values:
            return int(str(values[left])) * int(str(values[right]))
    return 0


def multiplications(layer: LayerInUse) -> int:
    """Number of multiplications of a convolution or linear layer; of another operator, of elements."""
    if has_weights(root(layer)) and spelled(root(layer)).namespace == "nn":
        variant = variant_of(layer)
        positions = variant.operands["x"].shape if spelled(root(layer)).computes == TRANSPOSED else variant.output
        return weights(layer) * math.prod(positions) // positions[-1 if root(layer) == "nn.Linear" else 1]
    return elements(layer)


def elements(layer: LayerInUse) -> int:
    """Number of elements of the inputs."""
    return sum(math.prod(shape_of(text)) for text in layer.inputs)


def affordable(layer: LayerInUse) -> bool:
    """Whether a layer is within the bounds."""
    return (
        multiplications(layer) <= MOST_MULTIPLICATIONS
        and weights(layer) <= MOST_WEIGHTS
        and elements(layer) <= MOST_ELEMENTS
    )
