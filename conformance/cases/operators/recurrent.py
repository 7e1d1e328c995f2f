"""Recurrent layers and embeddings."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from conformance.configs.spelling import spelled

from .calls import ALL_BY_NAME, BY_NAME, applied, function, module, style
from .elementwise import DEVICE
from .expressions import WEIGHT, Call, Source, X
from .fused import QCONFIG
from .networks import embeddings, steps
from .record import Operator, fixed
from .space import (
    LEFT_OUT,
    Pick,
    Space,
    Values,
    batches,
    data,
    factor,
)
from .variant import Operand, Variant


def _sizes(pick: Pick) -> tuple[int, int]:
    return pick(range(1, 10)), pick(range(1, 10))


SIZES = factor("sizes", (8, 6), (5, 3), (1, 1), (9, 7), drawn=_sizes, covers=("input_size", "hidden_size"))
BIAS = factor("bias", LEFT_OUT, False)
STATES = Source("h"), (Source("h"), Source("c"))
"""The states of a layer, and of one that has a pair of them."""


def _cell(name: str) -> Operator:
    pair = name == "nn.LSTMCell"

    def write(sizes: Any, rows: Any, state: bool, style: str, bias: Any, **options: Any) -> Variant:
        inputs, hidden = sizes
        leading = () if rows is None else (rows,)
        taken = {"x": Operand((*leading, inputs))}
        if state:
            states = ("h", "c") if pair else ("h",)
            taken |= {one: Operand((*leading, hidden)) for one in states}
        init = module(name, {"input_size": inputs, "hidden_size": hidden, "bias": bias, **options}, style, 2)
        return Variant("", applied(style, STATES[pair] if state else None), taken, init)

    rows = factor("rows", 3, 1, 33, covers=("input",), drawn=(None, 1, 2, 3, 5, 9), unbatched=None)
    state = factor("state", False, covers=("hx",), state=True)
    nonlinearity = [factor("nonlinearity", LEFT_OUT, relu="relu")] if name == "nn.RNNCell" else []
    ranges = data("full", "positive", "negative")
    factors = (SIZES, rows, state, BIAS, *nonlinearity, style(keyword=ALL_BY_NAME), ranges, batches(1, 5))
    space = Space(factors, write, (lambda rows, batch: rows is not None or batch is None,), DEVICE)
    values: dict[str, Values] = {
        # steps of 2**-16 are finer than the least scale with which a dynamic kernel quantizes the state
        "state_tiny": {"state": True, "data": "tiny"},
        "unequal": {"sizes": (5, 3)},
    }
    relu = "relu" if nonlinearity else ""
    names = f"default no_bias state state_tiny {relu} batch1 batch5 unbatched keyword unequal positive negative"
    large = {"sizes": (67, 65), "rows": 33}
    return Operator(name, space, fixed(space, names, values), large=large, layers=steps(rows=1))


BY_ROWS = {"batch_first": True, "rows": 5, "steps": 3}
SEQUENCES: Mapping[str, Values] = {
    "batch_first": BY_ROWS,
    "two_layers_bidirectional": {"num_layers": 2, "bidirectional": True},
    "projection": {"proj_size": 4},
    "projection_state": {"proj_size": 4, "state": True},
    "batch_first_empty": {**BY_ROWS, "batch": 0},
    "one_step": {"batch": 1},
    "unequal": {"sizes": (5, 3), "steps": 4, "rows": 2},
}
"""Fixed variants of layers of steps."""


WIDE = {"nn.LSTM": ((72, 264), (264, 72)), "nn.GRU": ((72, 136), (136, 72))}
"""Input and hidden features beyond vectors and blocks, of which an oracle is certain for one step."""

MANY_ROWS = (20, 22, 24)


def _recurrent(name: str) -> Operator:
    pair = name == "nn.LSTM"

    def write(sizes: Any, steps: int, rows: Any, state: bool, style: str, **options: Any) -> Variant:
        inputs, hidden = sizes
        first = options["batch_first"] is True
        order = (steps,) if rows is None else (rows, steps) if first else (steps, rows)
        taken = {"x": Operand((*order, inputs))}
        if state:
            layers = (1 if options["num_layers"] is LEFT_OUT else 2) * (2 if options["bidirectional"] is True else 1)
            projected = options.get("proj_size", LEFT_OUT)
            shape = (layers, *(() if rows is None else (rows,)))
            taken["h"] = Operand((*shape, hidden if projected is LEFT_OUT else projected))
            taken |= {"c": Operand((*shape, hidden))} if pair else {}
        init = module(name, {"input_size": inputs, "hidden_size": hidden, **options}, BY_NAME, 2)
        return Variant("", applied(style, STATES[pair] if state else None), taken, init)

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
    space = Space(factors, write, tuple(constraints), left_out)
    projected = "projection projection_state" if pair else ""
    names = (
        "default state no_bias two_layers bidirectional batch_first two_layers_bidirectional"
        f" {projected} batch_first_empty one_step unbatched keyword unequal positive negative"
    )
    # a few features: of more steps no oracle would be certain
    counts: dict[str, Values] = {"steps_300": {"steps": 300, "rows": 1}}
    for inputs, hidden in WIDE[name]:
        one_step: Values = {"sizes": (inputs, hidden), "steps": 1, "state": True}
        label = f"{inputs}to{hidden}_rows"
        counts |= {f"{label}_{rows}": {**one_step, "rows": rows} for rows in MANY_ROWS}
        counts[f"{label}_18_batch_first"] = {**one_step, "rows": 18, "batch_first": True}
    large = {"sizes": (67, 65), "steps": 19, "rows": 8}
    points = fixed(space, names, SEQUENCES)
    return Operator(name, space, points, large=large, layers=steps(steps=1, rows=1), counts=counts)


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


ROWS, LOOKUPS, BAGS = 40_000, 600, 150
"""Rows of an embedding table, whose indices need 16 bits, and lookups of its bags, whose offsets need 10."""

LARGE_TABLE = 4001, 68
"""Size of a large embedding table. The width is even, since two 4-bit values share a byte."""


def _embedding(name: str) -> Operator:
    qat = spelled(name).namespace == "nnqat"
    functional = spelled(name).namespace == "F"

    def write(table: Any, form: Any, padding_idx: Any, style: str) -> Variant:
        rows, width = table
        taken = {"x": Operand(form, "indices", rows)}
        if functional:
            options = {"padding_idx": padding_idx}
            call = function(name, {"input": X, "weight": WEIGHT}, options, style)
            return Variant("", call, taken, parameters={"weight": (rows, width)})
        init = module(
            name,
            {"num_embeddings": rows, "embedding_dim": width, "padding_idx": padding_idx},
            style,
            2,
            **(QCONFIG if qat else {}),
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
    space = Space(factors, write, (), {**TRAINING, **NORMED, **MADE})
    values: dict[str, Values] = {
        "padding_index": {"padding_idx": 3},
        "rank3": {"form": (2, 3, 4)},
        "wide": {"table": (64, 64), "form": (9,)},
    }
    further = "" if functional else "matrix padding_index odd_width keyword rank3 wide"
    counts = {f"rows_{ROWS}": {"table": (ROWS, 8), "form": (64,)}} if name == "nn.Embedding" else {}
    layers = embeddings(lambda lookups: {"form": (lookups,)})
    large = {"table": LARGE_TABLE, "form": (1013,)}
    points = fixed(space, f"default {further} batch0 batch1", values)
    return Operator(name, space, points, large=large, layers=layers, counts=counts)


BAGS_OF_SUMS: Mapping[str, Values] = {
    "max": {"mode": "max"},
    "last_offset": {"include_last_offset": True},
    "padding_index": {"table": (2, 12), "padding_idx": 0},
    "matrix": {"lookups": "matrix"},
    "odd_width": {"table": (10, 7)},
    "sample_weights": {"weights": True},
    "keyword_offsets": {"style": "offsets by name"},
}
"""Fixed variants of bags, which are sums unless they say otherwise."""


def _bags(name: str) -> Operator:
    qat = spelled(name).namespace == "nnqat"

    def write(
        table: Any, lookups: Any, mode: Any, include_last_offset: Any, padding_idx: Any, weights: bool, style: str
    ) -> Variant:
        rows, width = table
        matrix = lookups == "matrix"
        count, bags = (12, 0) if matrix else lookups
        taken = {"x": Operand((3, 4) if matrix else (count,), "indices", rows)}
        named = {}
        if not matrix:
            taken["offsets"] = Operand((bags,), "offsets", count)
            named["offsets"] = Source("offsets")
        if weights:
            taken["w"] = Operand(taken["x"].shape, "weights")
            named["per_sample_weights"] = Source("w")
        tensors = [] if matrix or style == "offsets by name" else [*named.values()]
        options = {"mode": mode, "include_last_offset": include_last_offset, "padding_idx": padding_idx}
        stated = {"num_embeddings": rows, "embedding_dim": width, **options}
        init = module(name, stated, BY_NAME, 2, **(QCONFIG if qat else {}))
        return Variant("", Call("self.op", [X, *tensors], {} if tensors else named), taken, init)

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
    space = Space(factors, write, constraints, {**TRAINING, **NORMED, **MADE})
    # torch's default is the mean
    points: dict[str, Values] = {"default": {"mode": LEFT_OUT}, "sum": {"mode": "sum"}}
    points |= {name: {"mode": "sum", **one} for name, one in BAGS_OF_SUMS.items()}
    large = {"table": LARGE_TABLE, "lookups": (1013, 101)}
    layers = embeddings(lambda lookups: {"lookups": (lookups, lookups // 4)})
    counted = {f"offsets_{LOOKUPS}": {"table": (1000, 8), "lookups": (LOOKUPS, BAGS)}}
    counts = counted if name == "nn.EmbeddingBag" else {}
    return Operator(name, space, points, large=large, layers=layers, counts=counts)


def _operators() -> Iterator[Operator]:
    for name in ("nn.GRUCell", "nn.LSTMCell", "nn.RNNCell"):
        yield _cell(name)
    for name in ("nn.LSTM", "nn.GRU"):
        yield _recurrent(name)
    for name in ("nn.Embedding", "nnqat.Embedding", "F.embedding"):
        yield _embedding(name)
    for name in ("nn.EmbeddingBag", "nnqat.EmbeddingBag"):
        yield _bags(name)


RECURRENT = [*_operators()]
