"""Normalization."""

import math
from collections.abc import Iterator
from typing import Any

from .calls import ALL_BY_NAME, BY_NAME, BY_POSITION, applied, function, module, style
from .elementwise import DEVICE, LENGTHS
from .expressions import Source, X
from .geometry import SPATIAL
from .networks import sequences
from .pooling import in_sizes
from .record import BATCHED, CHANNELS, SWEPT_SIGNALS, Operator, SweepKind, fixed
from .space import (
    BATCH,
    DATA,
    LAYOUT,
    LEFT_OUT,
    RESULT,
    STRIDED,
    TWICE,
    Factor,
    Pick,
    Space,
    Values,
    batches,
    factor,
)
from .variant import Operand, Shape, Variant

EPS = factor("eps", LEFT_OUT, 0.5, 0.125)
MOMENTUM = {"momentum": "used while training only"}
VERSION = {"bias": "torch has it since 2.12 only"}


def _channels(rank: int) -> Factor:
    """Shapes of signals, images or volumes of few and many channels."""
    spatial = SPATIAL[rank]

    def drawn(pick: Pick) -> Shape:
        lengths = tuple(pick(range(1, 10)) for _ in range(rank))
        return pick((1, 2, 3)), pick([n for n in LENGTHS if n < 70]), *lengths

    return factor(
        "form",
        (2, 4, *spatial),
        covers=("num_features", "input"),
        drawn=drawn,
        single_channel=(2, 1, *spatial),
        many_channels=(2, 67, *spatial[:-1], 3),
        many_items=(9, 4, *(2,) * rank),
        spread=(3, 5, *(1,) * (rank - 1), 2),
    )


RANGES = "positive negative tiny huge"


def _channel_norms() -> Iterator[Operator]:
    affine = factor("affine", LEFT_OUT, False, covers=("affine",))
    untracked = {"track_running_stats": "without statistics the layer cannot be folded: it computes those of the batch"}
    for rank in (2, 3):
        space = _norm(f"nn.BatchNorm{rank}d", rank, (affine,), {**untracked, **MOMENTUM})
        values: dict[str, Values] = {
            "no_affine": {"affine": False},
            "eps": {"eps": 0.5},
            "wide": {"form": (2, 67, *SPATIAL[rank])},
            "tall": {"form": (1, 3, 34, *SPATIAL[rank][1:])},
            "called_twice": {"style": TWICE},
            "called_twice_unit": {"style": TWICE, "data": "unit"},
        }
        further = "wide called_twice called_twice_unit channels_last keyword"
        names = f"default tall no_affine eps batch0 batch1 batch5 {RANGES} {further}"
        yield Operator(
            f"nn.BatchNorm{rank}d",
            space,
            fixed(space, names, values),
            frozenset({"default", "batch0", "tall"}),
            counts=BATCHED if rank == 2 else {},
            sweep=SweepKind.CHANNELS,
            sweeps={"every_code": {"form": (1, CHANNELS, *SWEPT_SIGNALS[rank])}},
            **in_sizes(rank),
        )
    affine = factor("affine", LEFT_OUT, True)
    tracked = factor("track_running_stats", LEFT_OUT, True)
    for rank, few in ((1, (8,)), (2, (4, 2)), (3, (2, 2, 2))):
        space = _norm(f"nn.InstanceNorm{rank}d", rank, (affine, tracked), MOMENTUM)
        values = {
            "eps": {"eps": 0.5},
            "unbatched": {"form": (4, *SPATIAL[rank]), "num_features": 4},
            # more items than elements in a channel, in channels-last format and with one channel, which looks like it
            "many_items_channels_last": {"form": (9, 4, *few), "layout": "channels_last"},
            "many_items_one_channel": {"form": (9, 1, *few)},
            "running_stats": {"track_running_stats": True},
        }
        laid = ("many_items_channels_last", "channels_last") if rank > 1 else ("", "")
        further = f"unbatched {laid[0]} many_items_one_channel {laid[1]} running_stats"
        points = fixed(space, f"default affine eps batch0 batch1 batch5 {RANGES} {further}", values)
        counts = BATCHED if rank == 2 else {}
        yield Operator(f"nn.InstanceNorm{rank}d", space, points, counts=counts, **in_sizes(rank))


def _norm(operator: str, rank: int, options: tuple[Factor, ...], left_out: dict[str, str]) -> Space:
    def write(form: Any, style: str, num_features: int | None = None, **values: Any) -> Variant:
        stated = {"num_features": num_features or form[1], **values}
        init = module(operator, stated, style, 1)
        return Variant("", applied(style), {"x": Operand(form)}, init, output=form)

    layouts = LAYOUT if rank > 1 else STRIDED
    factors = (_channels(rank), EPS, *options, style(keyword=ALL_BY_NAME), DATA, BATCH, layouts, RESULT)
    return Space(factors, write, (), {**DEVICE, **VERSION, **left_out})


def _rows(pick: Pick) -> Shape:
    leading = (pick((1, 2, 3, 5, 8)) for _ in range(pick((1, 2))))
    return (*leading, pick([length for length in LENGTHS if 1 < length < 140]))


def _layer_norms() -> Iterator[Operator]:
    form = factor(
        "form",
        (3, 5, 16),
        covers=("input",),
        drawn=_rows,
        matrix=(3, 131),
        single_row=(1, 33),
        rank4=(2, 3, 4, 6),
        long=(2, 3, 257),
    )
    dimensions = factor("dimensions", 1, 2, covers=("normalized_shape",))
    fits = lambda form, dimensions: len(form) > dimensions  # noqa: E731
    images = lambda form, layout: layout != "channels_last" or len(form) == 4  # noqa: E731

    def write_module(form: Any, dimensions: int, style: str, **options: Any) -> Variant:
        shape = form[-dimensions:]
        init = module("nn.LayerNorm", {"normalized_shape": shape[0] if dimensions == 1 else shape, **options}, style, 1)
        return Variant("", applied(style), {"x": Operand(form)}, init, output=form)

    options = factor("elementwise_affine", LEFT_OUT, False), factor("bias", LEFT_OUT, False)
    around = (DATA, BATCH, LAYOUT, RESULT)
    factors = (form, dimensions, EPS, *options, style(keyword=ALL_BY_NAME), *around)
    space = Space(factors, write_module, (fits, images), DEVICE)
    values: dict[str, Values] = {
        "two_dimensions": {"dimensions": 2},
        "no_affine": {"elementwise_affine": False},
        "eps": {"eps": 0.5},
        "wide": {"form": (3, 131)},
    }
    names = f"default two_dimensions no_affine no_bias eps wide batch0 batch1 batch5 {RANGES} keyword"
    sizes: dict[str, Any] = {"large": {"form": (8, 37, 131)}, "layers": sequences("rows")}
    counts: dict[str, Values] = {"rank5_9x2": {"form": (2, 3, 9, 2, 8)}}
    yield Operator("nn.LayerNorm", space, fixed(space, names, values), counts=counts, **sizes)

    def write_layer(form: Any, dimensions: int, affine: str, style: str, eps: Any) -> Variant:
        return _functional("F.layer_norm", form, form[-dimensions:], "normalized_shape", affine, style, eps)

    affine = factor("affine", "both", covers=("weight", "bias"), no_affine="none", weight_only="weight")
    styles = style(BY_POSITION, keyword_affine=BY_NAME, keyword=ALL_BY_NAME)
    space = Space((form, dimensions, affine, EPS, styles, *around), write_layer, (fits, images))
    values = {"optionals_left_out": {"affine": "none"}, "eps": {"eps": 0.5}}
    names = f"default optionals_left_out keyword_affine eps batch0 batch1 batch5 {RANGES}"
    yield Operator("F.layer_norm", space, fixed(space, names, values), **sizes)
    yield _group_norm(affine, styles)


def _group_norm(affine: Factor, styles: Factor) -> Operator:
    def write(form: Any, num_groups: int, affine: str, style: str, eps: Any) -> Variant:
        return _functional("F.group_norm", form, num_groups, "num_groups", affine, style, eps, (form[1],))

    images = factor(
        "form",
        (2, 16, 6, 5),
        covers=("input",),
        many_channels=(1, 64, 3, 3),
        rank3=(2, 8, 9),
        matrix=(3, 8),
        volume=(2, 8, 3, 2, 3),
    )
    groups = factor("num_groups", 4, 1, 2, 8)

    def has_format(form: Any, layout: str) -> bool:
        return layout != "channels_last" or len(form) in (4, 5)

    def has_variance(form: Any, num_groups: int) -> bool:
        return bool(form[1] % num_groups == 0 and math.prod(form[1:]) > num_groups)

    factors = (images, groups, affine, EPS, styles, DATA, BATCH, LAYOUT, RESULT)
    space = Space(factors, write, (has_format, has_variance))
    values: dict[str, Values] = {"optionals_left_out": {"num_groups": 2, "affine": "none"}, "eps": {"eps": 0.5}}
    points = fixed(space, f"default optionals_left_out keyword_affine eps batch0 batch1 {RANGES}", values)
    sizes = {**in_sizes(2), "large": {"form": (6, 68, 13, 11)}}
    return Operator("F.group_norm", space, points, **sizes)


def _functional(
    operator: str, form: Shape, size: Any, named: str, affine: str, style: str, eps: Any, parameter: Shape | None = None
) -> Variant:
    """A call of a functional normalization; `size` is what it states between the input and the parameters."""
    names = {"both": ("weight", "bias"), "weight": ("weight",), "none": ()}[affine]
    shape = size if parameter is None else parameter
    given: dict[str, Any] = {name: Source(f"self.{name}") if name in names else LEFT_OUT for name in ("weight", "bias")}
    if style == BY_POSITION and eps is not LEFT_OUT:
        given = {name: None if value is LEFT_OUT else value for name, value in given.items()}
    call = function(operator, {"input": X}, {named: size, **given, "eps": eps}, style, 1)
    return Variant("", call, {"x": Operand(form)}, parameters=dict.fromkeys(names, shape), output=form)


def _functional_instance_norm() -> Operator:
    def write(form: Any, affine: bool, style: str, eps: Any) -> Variant:
        given: dict[str, Any] = dict.fromkeys(
            ("running_mean", "running_var"), None if style == BY_POSITION else LEFT_OUT
        )
        parameters = {"weight": (form[1],), "bias": (form[1],)} if affine else {}
        missing = LEFT_OUT if style != BY_POSITION else None
        given |= {name: Source(f"self.{name}") if affine else missing for name in ("weight", "bias")}
        if style == BY_POSITION and eps is not LEFT_OUT:
            given |= {"use_input_stats": True, "momentum": 0.1}
        call = function("F.instance_norm", {"input": X}, {**given, "eps": eps}, style)
        return Variant("", call, {"x": Operand(form)}, parameters=parameters, output=form)

    affine = factor("affine", True, False, covers=("weight", "bias"))
    styles = style(positional=BY_POSITION, keyword=ALL_BY_NAME)
    left_out = {
        **MOMENTUM,
        **dict.fromkeys(("running_mean", "running_var", "use_input_stats"), "updated while training only"),
    }
    space = Space((_channels(2), affine, EPS, styles, DATA, batches(1, 5), LAYOUT, RESULT), write, (), left_out)
    values: dict[str, Values] = {
        "optionals_left_out": {"affine": False},
        "eps": {"eps": 0.5},
        "many_items_channels_last": {"form": (9, 4, 4, 2), "layout": "channels_last"},
    }
    names = f"default optionals_left_out positional eps batch1 {RANGES} many_items_channels_last"
    return Operator("F.instance_norm", space, fixed(space, names, values), **in_sizes(2))


NORMS = [*_channel_norms(), *_layer_norms(), _functional_instance_norm()]
