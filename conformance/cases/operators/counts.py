"""Sizes whose counts need more bits than those of small models: batches, rows, steps, features, indices and offsets."""

from collections.abc import Iterator, Mapping

from .sizes import Size, each, resized
from .variant import Shape, Variant

BATCH = 257
"""Items of a batch. An image of the default size has 35,980 elements then: torch divides element-wise work from 32,768 on."""

ROWS, LOOKUPS, BAGS = 40_000, 600, 150
"""Rows of an embedding table, whose indices need 16 bits, and lookups of its bags, whose offsets need 10."""

STEPS = 300
"""Steps of a sequence, of few features: of more of them no oracle would be certain."""

WIDE = 25_088
"""Input features of VGG's first linear layer, the most of any public network: 512 channels of 7 by 7."""


def _batches() -> Iterator[tuple[str, dict[str, Size]]]:
    image: Shape = (BATCH, 4, 7, 5)
    one, two = Size((image,)), Size((image, image))
    yield (
        f"batch_{BATCH}",
        {
            **each("operator.add operator.mul torch.cat", two),
            **each("nn.ReLU nn.ELU nn.Hardswish nn.LeakyReLU torch.sigmoid torch.tanh nn.PReLU", one),
            **each("nn.BatchNorm2d nn.InstanceNorm2d nn.MaxPool2d nn.AvgPool2d nn.AdaptiveAvgPool2d", one),
            **each("F.interpolate torch.mean", one),
        },
    )
    for batch in (33, 129, BATCH):
        pixels: Shape = (batch, 19, 3, 5)
        pointwise: dict[int | str, object] = {0: 19, 1: 21, 2: 1, "padding": 0}
        yield (
            f"batch_{batch}",
            {
                "nn.Linear": Size(((batch, 35),), {0: 35, 1: 67}, output=(batch, 67)),
                "nn.Conv2d": Size((pixels,), pointwise, output=(batch, 21, *pixels[2:])),
            },
        )


def _counts() -> Iterator[tuple[str, dict[str, Size]]]:
    yield from _batches()
    yield f"features_{WIDE}", {"nn.Linear": Size(((2, WIDE),), {0: WIDE, 1: 8}, output=(2, 8))}
    yield f"steps_{STEPS}", each("nn.LSTM nn.GRU", Size(((STEPS, 1, 8),)))
    table: dict[int | str, object] = {0: ROWS, 1: 8}
    yield f"rows_{ROWS}", {"nn.Embedding": Size(((64,),), table, limit=ROWS)}
    yield f"offsets_{LOOKUPS}", {"nn.EmbeddingBag": Size(((LOOKUPS,), (BAGS,)), {0: 1000, 1: 8}, limit=LOOKUPS)}


def _by_operator() -> Mapping[str, dict[str, Size]]:
    found: dict[str, dict[str, Size]] = {}
    for name, sizes in _counts():
        for operator, size in sizes.items():
            found.setdefault(operator, {})[name] = size
    return found


COUNTS = _by_operator()
"""Sizes by operator and name of the variant."""


def counts(operator: str, default: Variant) -> Iterator[Variant]:
    """The default variant of an operator in each of its sizes; none for most operators."""
    for name, size in COUNTS.get(operator, {}).items():
        yield resized(operator, default, size).named(name)
