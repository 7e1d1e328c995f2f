"""Normalization, recurrent layers and embeddings."""

from collections.abc import Iterator

from .geometry import SPATIAL
from .variant import Operand, Shape, Variant, batch_variants, called_twice, data_variants, layout_variants, operands
from .weighted import wrapped

CHANNELS = 4


def _batch_norm_table() -> Iterator[tuple[str, list[Variant]]]:
    for rank in (2, 3):
        shape: Shape = (2, CHANNELS, *SPATIAL[rank])
        norm = Variant("default", "self.op(x)", operands(shape), f"nn.BatchNorm{rank}d(4)", core=True, output=shape)
        plain = [
            norm,
            norm.named("no_affine", init=f"nn.BatchNorm{rank}d(4, affine=False)", core=False),
            norm.named("eps", init=f"nn.BatchNorm{rank}d(4, eps=0.5)", core=False),
            *batch_variants(norm),
            *data_variants(norm),
            norm.named("wide", init=f"nn.BatchNorm{rank}d(67)", operands=operands((2, 67, *SPATIAL[rank])), core=False),
            called_twice(norm),
            called_twice(norm, "called_twice_unit", data="unit"),
            *layout_variants(norm),
            norm.named("keyword", call="self.op(input=x)", core=False),
        ]
        yield f"nn.BatchNorm{rank}d", plain
        fused = f"nni.BNReLU{rank}d"
        yield fused, [wrapped(v, fused) for v in plain if v.core]


def _layer_norm_table() -> Iterator[tuple[str, list[Variant]]]:
    layer = Variant("default", "self.op(x)", operands((3, 5, 16)), "nn.LayerNorm(16)", core=True, output=(3, 5, 16))
    yield (
        "nn.LayerNorm",
        [
            layer,
            layer.named("two_dimensions", init="nn.LayerNorm((5, 16))", core=False),
            layer.named("no_affine", init="nn.LayerNorm(16, elementwise_affine=False)", core=False),
            layer.named("no_bias", init="nn.LayerNorm(16, bias=False)", core=False),
            layer.named("eps", init="nn.LayerNorm(16, eps=0.5)", core=False),
            layer.named("wide", init="nn.LayerNorm(131)", operands=operands((3, 131)), core=False),
            *batch_variants(layer),
            *data_variants(layer),
            layer.named("keyword", call="self.op(input=x)", core=False),
        ],
    )
    affine = {"weight": (16,), "bias": (16,)}
    normal = layer.named("default", init="", call="F.layer_norm(x, (16,), self.weight, self.bias)", parameters=affine)
    yield (
        "F.layer_norm",
        [
            normal,
            normal.named("optionals_left_out", call="F.layer_norm(x, (16,))", parameters={}, core=False),
            normal.named(
                "keyword_affine", call="F.layer_norm(x, (16,), weight=self.weight, bias=self.bias)", core=False
            ),
            normal.named("eps", call="F.layer_norm(x, (16,), self.weight, self.bias, 0.5)", core=False),
            *batch_variants(normal),
            *data_variants(normal),
        ],
    )
    group = normal.named("default", operands=operands((2, 16, 6, 5)), call="F.group_norm(x, 4, self.weight, self.bias)")
    yield (
        "F.group_norm",
        [
            group,
            group.named("optionals_left_out", call="F.group_norm(x, 2)", parameters={}, core=False),
            group.named("keyword_affine", call="F.group_norm(x, 4, weight=self.weight, bias=self.bias)", core=False),
            group.named("eps", call="F.group_norm(x, 4, self.weight, self.bias, 0.5)", core=False),
            *batch_variants(group, 0, 1),
            *data_variants(group),
        ],
    )


def _instance_norm_table() -> Iterator[tuple[str, list[Variant]]]:
    for rank, few in ((1, (8,)), (2, (4, 2)), (3, (2, 2, 2))):
        instance = Variant(
            "default", "self.op(x)", operands((2, 4, *SPATIAL[rank])), f"nn.InstanceNorm{rank}d(4)", core=True
        )
        yield (
            f"nn.InstanceNorm{rank}d",
            [
                instance,
                instance.named("affine", init=f"nn.InstanceNorm{rank}d(4, affine=True)", core=False),
                instance.named("eps", init=f"nn.InstanceNorm{rank}d(4, eps=0.5)", core=False),
                *batch_variants(instance),
                *data_variants(instance),
                instance.named("unbatched", operands=operands((4, *SPATIAL[rank])), core=False),
                # more items than elements in a channel, in channels-last format and with one channel, which looks like it
                *layout_variants(
                    instance.named("many_items", operands=operands((9, 4, *few))), "many_items_channels_last"
                ),
                instance.named(
                    "many_items_one_channel",
                    init=f"nn.InstanceNorm{rank}d(1)",
                    operands=operands((9, 1, *few)),
                    core=False,
                ),
                *layout_variants(instance),
                instance.named(
                    "running_stats", init=f"nn.InstanceNorm{rank}d(4, track_running_stats=True)", core=False
                ),
            ],
        )
    image: Shape = (2, 4, *SPATIAL[2])
    functional = Variant(
        "default",
        "F.instance_norm(x, weight=self.weight, bias=self.bias)",
        operands(image),
        core=True,
        output=image,
        parameters={"weight": (4,), "bias": (4,)},
    )
    yield (
        "F.instance_norm",
        [
            functional,
            functional.named("optionals_left_out", call="F.instance_norm(x)", parameters={}, core=False),
            functional.named("positional", call="F.instance_norm(x, None, None, self.weight, self.bias)", core=False),
            functional.named("eps", call="F.instance_norm(x, weight=self.weight, bias=self.bias, eps=0.5)", core=False),
            *batch_variants(functional, 1),
            *data_variants(functional),
            *layout_variants(
                functional.named("many_items", operands=operands((9, 4, 4, 2))), "many_items_channels_last"
            ),
        ],
    )


def _projected_with_a_state(layer: Variant) -> Variant:
    """An LSTM whose hidden state is a projection, which its initial one has the size of."""
    states = {"h": Operand((1, 3, 4)), "c": Operand((1, 3, 6))}
    init, call = "nn.LSTM(8, 6, proj_size=4)", "self.op(x, (h, c))"
    return layer.named("projection_state", init=init, call=call, operands={**layer.operands, **states}, core=False)


def _cell_table() -> Iterator[tuple[str, list[Variant]]]:
    for name in ("nn.GRUCell", "nn.LSTMCell", "nn.RNNCell"):
        cell = Variant("default", "self.op(x)", operands((3, 8)), f"{name}(8, 6)", core=True)
        pair = name == "nn.LSTMCell"
        yield (
            name,
            [
                cell,
                cell.named("no_bias", init=f"{name}(8, 6, bias=False)", core=False),
                *(
                    cell.named(
                        label,
                        call="self.op(x, (h, c))" if pair else "self.op(x, h)",
                        core=False,
                        operands=operands((3, 8), h=(3, 6), **({"c": (3, 6)} if pair else {})),
                        data=data,
                    )
                    # steps of 2**-16 are finer than the least scale with which a dynamic kernel quantizes the state
                    for label, data in (("state", "full"), ("state_tiny", "tiny"))
                ),
                *(
                    [cell.named("relu", init="nn.RNNCell(8, 6, nonlinearity='relu')", core=False)]
                    if name == "nn.RNNCell"
                    else []
                ),
                *batch_variants(cell, 1, 5),
                cell.named("unbatched", operands=operands((8,)), core=False),
                cell.named("keyword", call="self.op(input=x)", core=False),
                cell.named("unequal", init=f"{name}(5, 3)", operands=operands((3, 5)), core=False),
                *data_variants(cell, "positive", "negative"),
            ],
        )


def _recurrent_table() -> Iterator[tuple[str, list[Variant]]]:
    for name in ("nn.LSTM", "nn.GRU"):
        layer = Variant("default", "self.op(x)", operands((5, 3, 8)), f"{name}(8, 6)", core=True)
        state = "(h, c)" if name == "nn.LSTM" else "h"
        states = {"h": Operand((1, 3, 6)), **({"c": Operand((1, 3, 6))} if name == "nn.LSTM" else {})}
        yield (
            name,
            [
                layer,
                layer.named("state", call=f"self.op(x, {state})", operands={**layer.operands, **states}, core=False),
                *(
                    layer.named(label, init=f"{name}(8, 6, {options})", core=False)
                    for label, options in (
                        ("no_bias", "bias=False"),
                        ("two_layers", "num_layers=2"),
                        ("bidirectional", "bidirectional=True"),
                        ("batch_first", "batch_first=True"),
                        ("two_layers_bidirectional", "num_layers=2, bidirectional=True"),
                        *([("projection", "proj_size=4")] if name == "nn.LSTM" else []),
                    )
                ),
                *([_projected_with_a_state(layer)] if name == "nn.LSTM" else []),
                layer.named("batch_first_empty", init=f"{name}(8, 6, batch_first=True)", batch=0, core=False),
                layer.named("one_step", batch=1, core=False),
                layer.named("unbatched", operands=operands((5, 8)), core=False),
                layer.named("keyword", call="self.op(input=x)", core=False),
                layer.named("unequal", init=f"{name}(5, 3)", operands=operands((4, 2, 5)), core=False),
                *data_variants(layer, "positive", "negative"),
            ],
        )


def _embedding_table() -> Iterator[tuple[str, list[Variant]]]:
    rows, width = 10, 12
    indices = {"x": Operand((5,), "indices", rows)}
    for name, extra in (("nn.Embedding", ""), ("nnqat.Embedding", ", qconfig=qconfig")):
        table = Variant("default", "self.op(x)", indices, f"{name}({rows}, {width}{extra})", core=True)
        yield (
            name,
            [
                table,
                table.named("matrix", operands={"x": Operand((3, 4), "indices", rows)}, core=False),
                table.named("padding_index", init=f"{name}({rows}, {width}, padding_idx=3{extra})", core=False),
                table.named("odd_width", init=f"{name}({rows}, 7{extra})", core=False),
                table.named("keyword", call="self.op(input=x)", core=False),
                table.named("rank3", operands={"x": Operand((2, 3, 4), "indices", rows)}, core=False),
                table.named(
                    "wide", init=f"{name}(64, 64{extra})", operands={"x": Operand((9,), "indices", 64)}, core=False
                ),
                *batch_variants(table, 0, 1),
            ],
        )
    bag_operands = {"x": Operand((8,), "indices", rows), "offsets": Operand((3,), "offsets", 8)}
    for name, extra in (("nn.EmbeddingBag", ""), ("nnqat.EmbeddingBag", ", qconfig=qconfig")):

        def init(
            options: str = "mode='sum'", *, rows: int = rows, width: int = width, name: str = name, extra: str = extra
        ) -> str:
            return f"{name}({rows}, {width}, {options}{extra})"

        bag = Variant("sum", "self.op(x, offsets)", bag_operands, init())
        yield (
            name,
            [
                bag.named("default", init=f"{name}({rows}, {width}{extra})", core=True),
                bag,
                bag.named("max", init=init("mode='max'")),
                bag.named("last_offset", init=init("mode='sum', include_last_offset=True")),
                bag.named(
                    "padding_index",
                    init=init("mode='sum', padding_idx=0", rows=2),
                    operands=bag_operands | {"x": Operand((8,), "indices", 2)},
                ),
                bag.named("matrix", call="self.op(x)", operands={"x": Operand((3, 4), "indices", rows)}),
                bag.named("odd_width", init=init(width=7)),
                bag.named(
                    "sample_weights",
                    call="self.op(x, offsets, w)",
                    operands={**bag_operands, "w": Operand((8,), "weights")},
                ),
                bag.named("keyword_offsets", call="self.op(x, offsets=offsets)"),
            ],
        )
    functional = Variant(
        "default", "F.embedding(x, self.weight)", indices, parameters={"weight": (rows, width)}, core=True
    )
    yield "F.embedding", [functional, *batch_variants(functional, 0, 1)]


LAYERS = dict(
    [
        *_batch_norm_table(),
        *_layer_norm_table(),
        *_instance_norm_table(),
        *_cell_table(),
        *_recurrent_table(),
        *_embedding_table(),
    ]
)
