"""Geometries of convolutions, and the sizes of images and volumes that they are applied to."""

from .expressions import Call
from .variant import Shape

SPATIAL: dict[int, Shape] = {1: (12,), 2: (8, 7), 3: (5, 6, 4)}
SIGNALS: dict[int, Shape] = {1: (8, 67, 201), 2: (8, 67, 15, 13), 3: (4, 67, 5, 9, 7)}
"""Shapes of large signals, images and volumes by the number of spatial dimensions. The number of channels is no multiple of a
vector or tile of any engine."""

UNBATCHED: dict[int, Shape] = {rank: (17, *spatial[1:]) for rank, spatial in SPATIAL.items()}
"""Sizes of images without a batch, of which the first one is no multiple of the channels for which it may be taken."""


def _size(length: int, kernel: int, stride: int, padding: int, dilation: int) -> int:
    """Length of a convolution's output (formula of `torch.nn.Conv1d`)."""
    return (length + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1


def _transposed_size(length: int, kernel: int, stride: int, padding: int, dilation: int, extra: int) -> int:
    """Length of a transposed convolution's output (formula of `torch.nn.ConvTranspose1d`)."""
    return (length - 1) * stride - 2 * padding + dilation * (kernel - 1) + extra + 1


class Geometry:
    """Channels, kernel and options of one convolution, as arguments of a module or a functional."""

    def __init__(
        self,
        rank: int,
        channels: tuple[int, int] = (4, 8),
        kernel: int | Shape = 3,
        *,
        transposed: bool = False,
        spatial: Shape = (),
        items: int = 2,
        **options: object,
    ) -> None:
        self.rank, self.channels, self.kernel, self.transposed = rank, channels, kernel, transposed
        self.spatial, self.options = spatial or SPATIAL[rank], options
        self.items = items

    def _each(self, value: object) -> Shape:
        return (value,) * self.rank if isinstance(value, int) else value  # type: ignore[return-value]

    @property
    def output(self) -> Shape:
        kernel, stride = self._each(self.kernel), self._each(self.options.get("stride", 1))
        dilation = self._each(self.options.get("dilation", 1))
        padding = self.options.get("padding", 0)
        if padding == "same":
            return (self.items, self.channels[1], *self.spatial)
        paddings = (0,) * self.rank if padding == "valid" else self._each(padding)
        dims = zip(self.spatial, kernel, stride, paddings, dilation, strict=True)
        if self.transposed:
            extra = self._each(self.options.get("output_padding", 0))
            sizes = tuple(_transposed_size(*dim, e) for dim, e in zip(dims, extra, strict=True))
        else:
            sizes = tuple(_size(*dim) for dim in dims)
        return (self.items, self.channels[1], *sizes)

    @property
    def module(self) -> Call:
        """The module's constructor."""
        name = f"nn.Conv{'Transpose' * self.transposed}{self.rank}d"
        return Call(name, (*self.channels, self.kernel), self.options)

    @property
    def parameters(self) -> dict[str, Shape]:
        groups = self.options.get("groups", 1)
        assert isinstance(groups, int)
        left, right = self.channels if self.transposed else self.channels[::-1]
        weight = {"weight": (left, right // groups, *self._each(self.kernel))}
        return weight if self.options.get("bias") is False else weight | {"bias": (self.channels[1],)}
