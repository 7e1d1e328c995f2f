"""Linear layers, as modules and as functions."""

from collections.abc import Callable
from typing import Any

from .calls import ALL_BY_NAME, BY_NAME, BY_POSITION, applied, function, module, style
from .convolution import DATA, DEFAULTS, PER_CHANNEL, SATURATES, drawn_channels
from .elementwise import DEVICE
from .expressions import BIAS, WEIGHT, X
from .networks import LINEAR
from .record import BATCH as LARGE_BATCH
from .record import CHANNELS, CODES, TAIL, Operator, SweepKind, fixed
from .space import BATCH, LEFT_OUT, RESULT, STRIDED, TWICE, Space, Values, factor
from .variant import Operand, Variant

WIDE = 25_088
"""Input features of VGG's first linear layer, the most of any public network: 512 channels of 7 by 7."""

FEATURES = factor(
    "features",
    (16, 8),
    (1, 1),
    (3, 5),
    (7, 33),
    (64, 17),
    (128, 96),
    (257, 4),
    (4, 257),
    drawn=drawn_channels,
    covers=("in_features", "out_features", "weight"),
)
LEADING = factor(
    "leading",
    (4,),
    covers=("input",),
    rank3=(2, 5),
    rank4=(2, 3, 2),
    unbatched=(),
    single_row=(1,),
    rows_33=(33,),
    rows_129=(129,),
    drawn=lambda pick: tuple(pick((1, 2, 3, 5, 8, 17)) for _ in range(pick((0, 1, 1, 1, 2, 3)))),
)


def _linear(*, functional: bool) -> Space:
    def write(features: Any, leading: Any, bias: Any, style: str) -> Variant:
        inputs, outputs = features
        shape, output = (*leading, inputs), (*leading, outputs)
        if not functional:
            init = module("nn.Linear", {"in_features": inputs, "out_features": outputs, "bias": bias}, BY_NAME, 2)
            return Variant("", applied(style), {"x": Operand(shape)}, init, output=output)
        parameters = {"weight": (outputs, inputs)} | ({"bias": (outputs,)} if bias is LEFT_OUT else {})
        value = BIAS if bias is LEFT_OUT else LEFT_OUT
        call = function("F.linear", {"input": X, "weight": WEIGHT}, {"bias": value}, style)
        return Variant("", call, {"x": Operand(shape)}, parameters=parameters, output=output)

    styles = style(BY_POSITION, keyword_bias=BY_NAME, keyword=ALL_BY_NAME) if functional else style(keyword=ALL_BY_NAME)
    constraints: tuple[Callable[..., bool], ...] = (
        lambda leading, batch: bool(leading) or batch is None,
        lambda saturates, data: not saturates or data in ("full", "symmetric"),
    )
    factors = (FEATURES, LEADING, factor("bias", LEFT_OUT, False), PER_CHANNEL, SATURATES, DATA, BATCH, STRIDED, RESULT)
    return Space((*factors, styles), write, constraints, {} if functional else DEVICE)


LINEAR_RANKS: dict[str, Values] = {"rank3": {"leading": (2, 5)}, "rank3_square": {"leading": (2, 8)}}
"""Linear layers behind which a batch norm normalizes another dimension than the layer's outputs. In the second, both
dimensions have the same size: a fusion that confuses them raises no error."""


def _linear_operator(name: str, *, functional: bool) -> Operator:
    space = _linear(functional=functional)
    values: dict[str, Values] = {
        "strided_batch0": {"layout": "strided", "batch": 0},
        "rank3_batch0": {"leading": (2, 5), "batch": 0},
        "channels_last": {"leading": (2, 3, 2), "layout": "channels_last"},
        "unequal": {"features": (7, 5), "leading": (3,)},
        "single_feature": {"features": (1, 1), "leading": (3,)},
        "wide": {"features": (128, 96), "leading": (33,)},
        "called_twice": {"features": (8, 8), "style": TWICE},
    }
    names = (
        f"default {'keyword_bias keyword' if functional else ''} no_bias per_channel saturates symmetric batch0 batch1"
        " batch5 strided strided_batch0 rank3 rank3_batch0 rank4 channels_last unbatched unequal single_feature wide"
        f" positive negative tiny huge {'' if functional else 'keyword called_twice'}"
    )
    counts: dict[str, Values] = {
        f"batch_{rows}": {"features": (35, 67), "leading": (rows,)} for rows in (33, 129, LARGE_BATCH)
    }
    counts |= {"rank5_9x2": {"leading": (2, 3, 9, 2)}, "rank5_10x3": {"leading": (2, 2, 10, 3)}}
    counts[f"features_{WIDE}"] = {"features": (WIDE, 8), "leading": (2,)}
    return Operator(
        name,
        space,
        fixed(space, names, values),
        DEFAULTS,
        large={"features": (515, 387), "leading": (61,)},
        layers=LINEAR,
        counts={} if functional else counts,
        sweep=SweepKind.WEIGHTS,
        sweeps={"one_weight": {"features": (1, CHANNELS), "leading": (CODES + TAIL,)}},
    )


LINEAR_LAYERS = [_linear_operator("nn.Linear", functional=False), _linear_operator("F.linear", functional=True)]
