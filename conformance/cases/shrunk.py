"""Every layer in use, shrunk to sizes for which kernels take the same paths."""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import repeat
from typing import Any

from conformance.configs.spelling import computation, is_batch_norm
from conformance.results.in_use import LayerInUse

from .in_use import BINARY, Unwritable, as_produced, text_of, value_of, variant_of
from .representative import UNCERTAIN, elements, multiplications, nearest, root, shape_of, treats_alike, weights
from .representative import selected as representatives

MOST_MULTIPLICATIONS, MOST_WEIGHTS, MOST_ELEMENTS = 20_000_000, 2**18, 2**16
"""What a shrunk layer should not exceed: what the oracle, and the generators of parameters and of inputs take 20 ms for."""

COUNTS = frozenset(
    {
        *("in_channels", "out_channels", "groups", "in_features", "out_features", "num_features", "num_groups"),
        *("num_embeddings", "embedding_dim"),
    }
)
"""Options that are numbers of channels or features."""

WIDEST = 64
"""Codes of the widest vector, and a multiple of the tiles of all kernels."""

BLOCK = 256
"""Products that kernels sum up in one block that fits the cache."""

GROUPS = 8
"""Groups of which kernels take several at a time."""


@dataclass(frozen=True)
class Moduli:
    """The numbers modulo which channels and other sizes keep their remainders."""

    channels: int
    others: int


LEVELS = (
    *(Moduli(WIDEST, others) for others in (WIDEST, 32, 16, 8, 4)),
    *(Moduli(channels, 4) for channels in (32, 16, 8, 4)),
)
"""Moduli in the order in which they are tried, until a layer is within the bounds."""


def selected(layers: Iterable[LayerInUse]) -> list[LayerInUse]:
    """Every layer: those that can be written shrunk, with the variant that is run and the representative that is nearest to
    them, then the others; equal ones of a pattern as one, with the networks of all.

    What computes the same in the same kernel is run once, whatever pattern it was matched as: as the first of its kind, where
    the most frequent layers are first in `layers`. Of each pattern some layer is run.
    """
    layers = [*layers]
    chosen = representatives(layers)
    first: dict[tuple[object, ...], LayerInUse] = {}
    found: dict[tuple[object, ...], LayerInUse] = {}
    unwritable: dict[str, LayerInUse] = {}
    patterns = set[str]()
    for layer in layers:
        try:
            small = shrunk(layer)
        except Unwritable:
            unwritable[layer.pattern] = _joined(unwritable.get(layer.pattern), layer)
            continue
        kind: tuple[object, ...] = identity(small)
        if small.pattern not in patterns:
            patterns.add(small.pattern)
            kind = (*kind, small.pattern) if kind in first else kind
        run = first.setdefault(kind, small)
        if (*kind, small.pattern) not in found:
            run_as = "" if run.pattern == small.pattern else run.pattern
            small = replace(
                small, variant=as_produced(run).name, run_as=run_as, representative=_in_place(layer, chosen)
            )
        found[*kind, small.pattern] = _joined(found.get((*kind, small.pattern)), small)
    return sorted([*found.values(), *unwritable.values()], key=lambda one: (bool(one.run_as), not one.variant))


def _in_place(layer: LayerInUse, chosen: Sequence[LayerInUse]) -> tuple[str, ...]:
    """The pattern and the variant of the representative of a layer."""
    one = nearest(layer, chosen)
    return () if one is None else (one.pattern, variant_of(one).name)


def _joined(one: LayerInUse | None, other: LayerInUse) -> LayerInUse:
    """A layer with the networks of another as well."""
    if one is None:
        return other
    return replace(one, networks=dict(sorted((Counter(one.networks) + Counter(other.networks)).items())))


def _kind(layer: LayerInUse) -> tuple[str, ...]:
    """What a layer computes, without a batch norm behind it, which is folded."""
    first, *rest = layer.pattern.split("+")
    return (computation(first), *(computation(name) for name in rest if not is_batch_norm(name)))


def identity(layer: LayerInUse) -> tuple[object, ...]:
    """What a kernel may depend on in a shrunk layer: of operators that treat all elements alike, the number of elements."""
    variant = as_produced(layer)
    own = _kind(layer)
    if not treats_alike(layer):
        return (*own, variant.name)
    count = math.prod(variant.operands["x"].shape)
    layouts = tuple(spec.layout for spec in variant.operands.values())
    size = count % WIDEST, count > WIDEST, len(variant.operands["x"].shape)
    return (*own, *size, layouts, *sorted(layer.options.items()), variant.prelude)


def shrunk(layer: LayerInUse) -> LayerInUse:
    """The layer in the least sizes that keep what kernels branch on, by the first of `LEVELS` that is within the bounds.

    Raises Unwritable for a layer that cannot be written as a variant, or of whose result no oracle is certain.
    """
    as_produced(layer)
    if root(layer) in UNCERTAIN:
        raise Unwritable("no oracle is certain of it")
    for moduli in LEVELS:
        small = _shrunk(layer, moduli)
        if affordable(small):
            break
    return small


def least(size: int, modulus: int, *bounds: int) -> int:
    """The least size with the same remainder that is beyond the same ones of the modulus and of further bounds."""
    floor = max((bound for bound in (modulus, *bounds) if size > bound), default=size - 1)
    return floor + 1 + (size - floor - 1) % modulus


def _shrunk(layer: LayerInUse, moduli: Moduli) -> LayerInUse:
    values: dict[str, Any] = {name: value_of(text) for name, text in layer.options.items()}
    changed: dict[str, object]
    shapes = [shape_of(text) for text in layer.inputs]
    if "in_channels" in values:
        changed, shapes = _convolution(values, shapes, moduli)
    elif "in_features" in values:
        features = least(values["in_features"], moduli.channels, BLOCK)
        changed = {"in_features": features, "out_features": least(values["out_features"], moduli.channels)}
        shapes = [(*(least(size, moduli.others) for size in shape[:-1]), features) for shape in shapes[:1]]
    elif "num_embeddings" in values:
        changed = {
            "num_embeddings": least(values["num_embeddings"], WIDEST, BLOCK),
            "embedding_dim": least(values["embedding_dim"], WIDEST),
        }
        shapes = [tuple(least(size, WIDEST) for size in shape) for shape in shapes]
    else:
        if root(layer) in BINARY:  # an axis of one operand is another one of the other
            moduli = Moduli(moduli.others, moduli.others)
        changed = {"num_features": least(values["num_features"], moduli.channels)} if "num_features" in values else {}
        normalized = root(layer).endswith(("LayerNorm", "layer_norm"))
        if normalized:
            name = "normalized_shape" if "normalized_shape" in values else "arg1"
            changed[name] = _of_rows(_tuple(values[name]), moduli)
        shapes = [
            _of_rows(shape, moduli) if normalized or len(shape) < 4 else _of_image(shape, moduli) for shape in shapes
        ]
    options = {name: text_of(changed[name]) if name in changed else text for name, text in layer.options.items()}
    return replace(layer, options=options, inputs=tuple(map(text_of, shapes)))


def _convolution(
    values: Mapping[str, Any], shapes: list[tuple[int, ...]], moduli: Moduli
) -> tuple[dict[str, object], list[tuple[int, ...]]]:
    """The channels and groups of a convolution, and its shape. A depthwise one has as many groups as channels."""
    groups = values["groups"]
    inner, outer = values["in_channels"] // groups, values["out_channels"] // groups
    if inner == 1 < groups:
        groups = least(groups, moduli.channels)
    else:
        block = BLOCK // math.prod(_tuple(values["kernel_size"]))
        inner, outer = least(inner, moduli.channels, block), least(outer, moduli.channels)
        groups = least(groups, GROUPS)
    batch, _, *spatial = shapes[0]
    reach = [_tuple(values[name]) for name in ("kernel_size", "dilation")]
    covered = [dilation * (kernel - 1) for kernel, dilation in zip(*reach, strict=True)]
    image = (least(size, moduli.others, bound) for size, bound in zip(spatial, covered, strict=True))
    changed: dict[str, object] = {"in_channels": inner * groups, "out_channels": outer * groups, "groups": groups}
    return changed, [(least(batch, moduli.others), inner * groups, *image)]


def _of_rows(shape: tuple[int, ...], moduli: Moduli) -> tuple[int, ...]:
    """A shape whose last axis has the channels."""
    return (*(least(size, moduli.others) for size in shape[:-1]), least(shape[-1], moduli.channels))


def _of_image(shape: tuple[int, ...], moduli: Moduli) -> tuple[int, ...]:
    """A shape whose second axis has the channels."""
    return tuple(least(size, moduli.channels if axis == 1 else moduli.others) for axis, size in enumerate(shape))


def _tuple(value: Any) -> tuple[int, ...]:
    return value if isinstance(value, tuple) else (value,)


FEW_LAYERS, FEW_PROFILES = 3, 2
"""Layers, and profiles among theirs, that no trait should hang on less of."""

BOUNDS = (4, 8, 16, 32, WIDEST)
"""Sizes of vectors and tiles that a size may be beyond."""


def with_rare_traits(layers: Iterable[LayerInUse], profile_of: Callable[[LayerInUse], str]) -> list[LayerInUse]:
    """The layers that have a trait which fewer than FEW_LAYERS layers have that compute the same, or layers of fewer than
    FEW_PROFILES profiles."""
    having = [(layer, {*zip(repeat(_kind(layer)), _traits(layer))}) for layer in layers]
    profiles = defaultdict[tuple[object, ...], list[str]](list)
    for layer, traits in having:
        profile = profile_of(layer)
        for trait in traits:
            profiles[trait].append(profile)
    rare = {trait for trait, of in profiles.items() if len(of) < FEW_LAYERS or len({*of}) < FEW_PROFILES}
    return [layer for layer, traits in having if not rare.isdisjoint(traits)]


def _traits(layer: LayerInUse) -> Iterator[object]:
    """The options of a layer, and the remainders and bounds of its sizes: of operators that treat all elements alike, of the
    number of elements, unless they broadcast."""
    for name, text in layer.options.items():
        value = value_of(text)
        if name in COUNTS and isinstance(value, int) and (name != "groups" or value > GROUPS):
            yield from _of_size(name, value)
        else:
            yield name, text
    shapes = [shape_of(text) for text in layer.inputs[:2]]
    if treats_alike(layer):
        yield from _of_size("elements", math.prod(shapes[0]))
        return
    for number, shape in enumerate(shapes):
        for axis, size in enumerate(shape):
            yield from _of_size((number, axis if axis < 2 else axis - len(shape), len(shapes)), size)
    if root(layer) == "F.interpolate":
        yield "output", as_produced(layer).output[2:]


def _of_size(name: object, size: int) -> Iterator[object]:
    yield name, size % 8
    yield from ((name, "beyond", bound) for bound in BOUNDS if size > bound)


def affordable(layer: LayerInUse) -> bool:
    """Whether a layer is within the bounds."""
    return (
        multiplications(layer) <= MOST_MULTIPLICATIONS
        and weights(layer) <= MOST_WEIGHTS
        and elements(layer) <= MOST_ELEMENTS
    )
