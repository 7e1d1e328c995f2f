"""Option spaces of normalization, recurrent layers and embeddings."""

import math
from collections.abc import Callable, Iterator
from typing import Any

from conformance.cases.operators import Operand, Shape, Variant
from conformance.cases.operators.geometry import SPATIAL

from .calls import ALL_BY_NAME, BY_NAME, BY_POSITION, applied, function, module, style
from .elementwise import DEVICE, LENGTHS
from .space import DATA, LAYOUT, LEFT_OUT, RESULT, STRIDED, Factor, Pick, Source, Space, batches, data, factor

BATCH = batches(0, 1, 5)
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


def _channel_norms() -> Iterator[tuple[str, Space]]:
    affine = factor("affine", LEFT_OUT, False, covers=("affine",))
    untracked = {"track_running_stats": "without statistics the layer cannot be folded: it computes those of the batch"}
    for rank in (2, 3):
        yield f"nn.BatchNorm{rank}d", _norm(f"nn.BatchNorm{rank}d", rank, (affine,), {**untracked, **MOMENTUM})
    affine = factor("affine", LEFT_OUT, True)
    tracked = factor("track_running_stats", LEFT_OUT, True)
    for rank in (1, 2, 3):
        yield f"nn.InstanceNorm{rank}d", _norm(f"nn.InstanceNorm{rank}d", rank, (affine, tracked), MOMENTUM)


def _norm(operator: str, rank: int, options: tuple[Factor, ...], left_out: dict[str, str]) -> Space:
    def write(form: Any, style: str, **values: Any) -> Variant:
        stated = {"num_features": form[1], **values}
        init = module(operator, stated, style, 1)
        return Variant("", applied(style), {"x": Operand(form)}, init, output=form)

    layouts = LAYOUT if rank > 1 else STRIDED
    factors = (_channels(rank), EPS, *options, style(keyword=ALL_BY_NAME), DATA, BATCH, layouts, RESULT)
    return Space(factors, write, (), {**DEVICE, **VERSION, **left_out})


def _rows(pick: Pick) -> Shape:
    leading = (pick((1, 2, 3, 5, 8)) for _ in range(pick((1, 2))))
    return (*leading, pick([length for length in LENGTHS if 1 < length < 140]))


def _layer_norms() -> Iterator[tuple[str, Space]]:
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
    yield (
        "nn.LayerNorm",
        Space(
            (form, dimensions, EPS, *options, style(keyword=ALL_BY_NAME), *around), write_module, (fits, images), DEVICE
        ),
    )

    def write_layer(form: Any, dimensions: int, affine: str, style: str, eps: Any) -> Variant:
        return _functional("F.layer_norm", form, form[-dimensions:], "normalized_shape", affine, style, eps)

    affine = factor("affine", "both", covers=("weight", "bias"), no_affine="none", weight_only="weight")
    styles = style(BY_POSITION, keyword_affine=BY_NAME, keyword=ALL_BY_NAME)
    yield "F.layer_norm", Space((form, dimensions, affine, EPS, styles, *around), write_layer, (fits, images))
    yield "F.group_norm", _group_norm(affine, styles)


def _group_norm(affine: Factor, styles: Factor) -> Space:
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
    return Space(factors, write, (has_format, has_variance))


def _functional(
    operator: str, form: Shape, size: Any, named: str, affine: str, style: str, eps: Any, parameter: Shape | None = None
) -> Variant:
    """A call of a functional normalization; `size` is what it states between the input and the parameters."""
    names = {"both": ("weight", "bias"), "weight": ("weight",), "none": ()}[affine]
    shape = size if parameter is None else parameter
    given: dict[str, Any] = {name: Source(f"self.{name}") if name in names else LEFT_OUT for name in ("weight", "bias")}
    if style == BY_POSITION and eps is not LEFT_OUT:
        given = {name: None if value is LEFT_OUT else value for name, value in given.items()}
    call = function(operator, {"input": "x"}, {named: size, **given, "eps": eps}, style, 1)
    return Variant("", call, {"x": Operand(form)}, parameters=dict.fromkeys(names, shape), output=form)


def _functional_instance_norm() -> Space:
    def write(form: Any, affine: bool, style: str, eps: Any) -> Variant:
        given: dict[str, Any] = dict.fromkeys(
            ("running_mean", "running_var"), None if style == BY_POSITION else LEFT_OUT
        )
        parameters = {"weight": (form[1],), "bias": (form[1],)} if affine else {}
        missing = LEFT_OUT if style != BY_POSITION else None
        given |= {name: Source(f"self.{name}") if affine else missing for name in ("weight", "bias")}
        if style == BY_POSITION and eps is not LEFT_OUT:
            given |= {"use_input_stats": True, "momentum": 0.1}
        call = function("F.instance_norm", {"input": "x"}, {**given, "eps": eps}, style)
        return Variant("", call, {"x": Operand(form)}, parameters=parameters, output=form)

    affine = factor("affine", True, False, covers=("weight", "bias"))
    styles = style(positional=BY_POSITION, keyword=ALL_BY_NAME)
    left_out = {
        **MOMENTUM,
        **dict.fromkeys(("running_mean", "running_var", "use_input_stats"), "updated while training only"),
    }
    return Space((_channels(2), affine, EPS, styles, DATA, batches(1, 5), LAYOUT, RESULT), write, (), left_out)


def _sizes(pick: Pick) -> tuple[int, int]:
    return pick(range(1, 10)), pick(range(1, 10))


SIZES = factor("sizes", (8, 6), (5, 3), (1, 1), (9, 7), drawn=_sizes, covers=("input_size", "hidden_size"))
BIAS = factor("bias", LEFT_OUT, False)


def _cell(name: str) -> Space:
    pair = name == "nn.LSTMCell"

    def write(sizes: Any, rows: Any, state: bool, style: str, bias: Any, **options: Any) -> Variant:
        inputs, hidden = sizes
        leading = () if rows is None else (rows,)
        taken = {"x": Operand((*leading, inputs))}
        tensors = ["x"]
        if state:
            states = ("h", "c") if pair else ("h",)
            taken |= {one: Operand((*leading, hidden)) for one in states}
            tensors.append("(h, c)" if pair else "h")
        init = module(name, {"input_size": inputs, "hidden_size": hidden, "bias": bias, **options}, style, 2)
        return Variant("", applied(style, tensors), taken, init)

    rows = factor("rows", 3, 1, 33, covers=("input",), drawn=(None, 1, 2, 3, 5, 9), unbatched=None)
    state = factor("state", False, covers=("hx",), state=True)
    nonlinearity = [factor("nonlinearity", LEFT_OUT, relu="relu")] if name == "nn.RNNCell" else []
    ranges = data("full", "positive", "negative")
    factors = (SIZES, rows, state, BIAS, *nonlinearity, style(keyword=ALL_BY_NAME), ranges, batches(1, 5))
    return Space(factors, write, (lambda rows, batch: rows is not None or batch is None,), DEVICE)


def _recurrent(name: str) -> Space:
    pair = name == "nn.LSTM"

    def write(sizes: Any, steps: int, rows: Any, state: bool, style: str, **options: Any) -> Variant:
        inputs, hidden = sizes
        first = options["batch_first"] is True
        order = (steps,) if rows is None else (rows, steps) if first else (steps, rows)
        taken = {"x": Operand((*order, inputs))}
        tensors = ["x"]
        if state:
            layers = (1 if options["num_layers"] is LEFT_OUT else 2) * (2 if options["bidirectional"] is True else 1)
            projected = options.get("proj_size", LEFT_OUT)
            shape = (layers, *(() if rows is None else (rows,)))
            taken["h"] = Operand((*shape, hidden if projected is LEFT_OUT else projected))
            taken |= {"c": Operand((*shape, hidden))} if pair else {}
            tensors.append("(h, c)" if pair else "h")
        init = module(name, {"input_size": inputs, "hidden_size": hidden, **options}, BY_NAME, 2)
        return Variant("", applied(style, tensors), taken, init)

    projection = [factor("proj_size", LEFT_OUT, projection=2)] if pair else []
    factors = (
        SIZES,
        factor("steps", 5, 1, 3, covers=("input",), drawn=range(1, 10)),
        factor("rows", 3, 1, drawn=(None, 1, 2, 3, 5), covers=(), unbatched=None),
        factor("state", False, covers=("hx",), state=True),
        factor("num_layers", LEFT_OUT, two_layers=2),
        BIAS,
        factor("batch_first", LEFT_OUT, True),
        factor("bidirectional", LEFT_OUT, True),
        *projection,
        style(keyword=ALL_BY_NAME),
        data("full", "positive", "negative"),
    )
    constraints: list[Callable[..., bool]] = []
    if pair:
        constraints.append(lambda sizes, proj_size: proj_size is LEFT_OUT or proj_size < sizes[1])
    left_out = {
        **DEVICE,
        "dropout": "applied while training only",
        "args": "see the other names",
        "kwargs": "see the other names",
    }
    if not pair:
        left_out["proj_size"] = "an LSTM alone has projections"
    return Space(factors, write, tuple(constraints), left_out)


def _rows_width(pick: Pick) -> tuple[int, int]:
    return pick((2, 10, 33, 300)), pick((2, 4, 7, 8, 12, 16, 33, 64, 68))


TABLE = factor(
    "table",
    (10, 12),
    covers=("num_embeddings", "embedding_dim", "weight"),
    drawn=_rows_width,
    odd_width=(10, 7),
    wide=(64, 64),
    single_row=(1, 8),
    many_rows=(300, 12),
    wider_than_a_tile=(10, 260),
)
TRAINING = dict.fromkeys(("scale_grad_by_freq", "sparse"), "decides how gradients are computed")
NORMED = dict.fromkeys(("max_norm", "norm_type"), "renormalizes the weight in place: kernels of packed weights cannot")
MADE = dict.fromkeys(("_weight", "_freeze", "device", "dtype"), "where the weight comes from")


def _embedding(name: str) -> Space:
    qat = name.startswith("nnqat")
    functional = name.startswith("F.")

    def write(table: Any, form: Any, padding_idx: Any, style: str) -> Variant:
        rows, width = table
        taken = {"x": Operand(form, "indices", rows)}
        if functional:
            options = {"padding_idx": padding_idx}
            call = function(name, {"input": "x", "weight": "self.weight"}, options, style)
            return Variant("", call, taken, parameters={"weight": (rows, width)})
        init = module(
            name,
            {"num_embeddings": rows, "embedding_dim": width, "padding_idx": padding_idx},
            style,
            2,
            *(["qconfig=qconfig"] if qat else []),
        )
        return Variant("", applied(style), taken, init)

    form = factor(
        "form",
        (5,),
        covers=("input",),
        matrix=(3, 4),
        single=(1,),
        many=(2, 131),
        drawn=[(1,), (7,), (33,), (2, 9), (1, 1, 5)],
    )
    factors = (TABLE, form, factor("padding_idx", LEFT_OUT, 0, -1), style(keyword=ALL_BY_NAME), batches(0, 1))
    return Space(factors, write, (), {**TRAINING, **NORMED, **MADE})


def _bags(name: str) -> Space:
    qat = name.startswith("nnqat")

    def write(
        table: Any, lookups: Any, mode: Any, include_last_offset: Any, padding_idx: Any, weights: bool, style: str
    ) -> Variant:
        rows, width = table
        matrix = lookups == "matrix"
        count, bags = (12, 0) if matrix else lookups
        taken = {"x": Operand((3, 4) if matrix else (count,), "indices", rows)}
        tensors = ["x"]
        if not matrix:
            taken["offsets"] = Operand((bags,), "offsets", count)
            tensors.append("offsets=offsets" if style == "offsets by name" else "offsets")
        if weights:
            taken["w"] = Operand(taken["x"].shape, "weights")
            tensors.append("w" if tensors[-1] == "offsets" else "per_sample_weights=w")
        options = {"mode": mode, "include_last_offset": include_last_offset, "padding_idx": padding_idx}
        stated = {"num_embeddings": rows, "embedding_dim": width, **options}
        init = module(name, stated, BY_NAME, 2, *(["qconfig=qconfig"] if qat else []))
        return Variant("", applied(BY_NAME, tensors), taken, init)

    factors = (
        TABLE,
        factor(
            "lookups",
            (8, 3),
            covers=("input", "offsets"),
            matrix="matrix",
            single_bag=(5, 1),
            many_bags=(300, 40),
            bags_of_one=(4, 4),
        ),
        factor("mode", "sum", "mean", "max"),
        factor("include_last_offset", LEFT_OUT, True),
        factor("padding_idx", LEFT_OUT, 0, -1),
        factor("weights", False, covers=("per_sample_weights",), sample_weights=True),
        style(keyword_offsets="offsets by name"),
    )
    constraints: tuple[Callable[..., bool], ...] = (
        lambda mode, weights: not weights or mode == "sum",
        # offsets that end with the number of lookups need a beginning too: without a bag the float kernel damages the heap
        lambda lookups, include_last_offset: (
            include_last_offset is LEFT_OUT or (lookups != "matrix" and lookups[1] > 1)
        ),
        lambda lookups, style: lookups != "matrix" or style == BY_NAME,
        # with both, torch's float kernel adds lookups beyond the last offset, too
        lambda include_last_offset, padding_idx: LEFT_OUT in (include_last_offset, padding_idx),
    )
    return Space(factors, write, constraints, {**TRAINING, **NORMED, **MADE})


def _spaces() -> Iterator[tuple[str, Space]]:
    yield from _channel_norms()
    yield from _layer_norms()
    yield "F.instance_norm", _functional_instance_norm()
    for name in ("nn.GRUCell", "nn.LSTMCell", "nn.RNNCell"):
        yield name, _cell(name)
    for name in ("nn.LSTM", "nn.GRU"):
        yield name, _recurrent(name)
    for name in ("nn.Embedding", "nnqat.Embedding", "F.embedding"):
        yield name, _embedding(name)
    for name in ("nn.EmbeddingBag", "nnqat.EmbeddingBag"):
        yield name, _bags(name)


LAYERS = dict(_spaces())
