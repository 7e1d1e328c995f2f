"""YOLO detectors as their configurations have them, with fewer channels, without the selection of boxes."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class _Convolution(nn.Sequential):
    """Convolution, batch norm and an activation."""

    def __init__(
        self, before: int, after: int, kernel: int = 1, stride: int = 1, activation: Callable[[], nn.Module] = nn.SiLU
    ) -> None:
        super().__init__(
            nn.Conv2d(before, after, kernel, stride, kernel // 2, bias=False),
            nn.BatchNorm2d(after, eps=1e-3, momentum=0.03),
            activation(),
        )


def _leaky(before: int, after: int, kernel: int = 1) -> nn.Module:
    return _Convolution(before, after, kernel, activation=lambda: nn.LeakyReLU(0.1, inplace=True))


class YoloV3Tiny(nn.Module):
    """Redmon and Farhadi, "YOLOv3", 2018: `yolov3-tiny.cfg`.

    (N, 3, H, W) -> (N, 255, H / 32, W / 32) and (N, 255, H / 16, W / 16).
    """

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        channels = 3
        for n in range(5):
            layers += [_leaky(channels, width * 2**n, 3), nn.MaxPool2d(2)]
            channels = width * 2**n
        self.early = nn.Sequential(*layers[:-1])
        self.late = nn.Sequential(
            nn.MaxPool2d(2),
            _leaky(channels, 2 * channels, 3),
            nn.ZeroPad2d((0, 1, 0, 1)),
            nn.MaxPool2d(2, 1),
            _leaky(2 * channels, 4 * channels, 3),
            _leaky(4 * channels, channels, 1),
        )
        self.coarse = nn.Sequential(_leaky(channels, 2 * channels, 3), nn.Conv2d(2 * channels, 255, 1))
        self.up = nn.Sequential(_leaky(channels, channels // 2, 1), nn.Upsample(scale_factor=2, mode="nearest"))
        self.fine = nn.Sequential(_leaky(channels + channels // 2, channels, 3), nn.Conv2d(channels, 255, 1))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        early = self.early(x)
        late = self.late(early)
        return self.coarse(late), self.fine(torch.cat([self.up(late), early], 1))


class _C2f(nn.Module):
    """A split of channels, of which one half passes through bottlenecks; all results are concatenated."""

    def __init__(self, before: int, after: int, blocks: int, *, shortcut: bool) -> None:
        super().__init__()
        half = after // 2
        self.first = _Convolution(before, after)
        self.blocks = nn.ModuleList(
            nn.Sequential(_Convolution(half, half, 3), _Convolution(half, half, 3)) for _ in range(blocks)
        )
        self.last = _Convolution((2 + blocks) * half, after)
        self.shortcut = shortcut

    def forward(self, x: Tensor) -> Tensor:
        halves = torch.chunk(self.first(x), 2, 1)
        parts = [halves[0], halves[1]]
        for block in self.blocks:
            hidden = block(parts[-1])
            parts.append(parts[-1] + hidden if self.shortcut else hidden)
        result: Tensor = self.last(torch.cat(parts, 1))
        return result


class _PooledPyramid(nn.Module):
    """SPPF: three max pools in a row, concatenated."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = _Convolution(channels, channels // 2)
        self.pool = nn.MaxPool2d(5, 1, 2)
        self.last = _Convolution(2 * channels, channels)

    def forward(self, x: Tensor) -> Tensor:
        parts = [self.first(x)]
        for _ in range(3):
            parts.append(self.pool(parts[-1]))
        result: Tensor = self.last(torch.cat(parts, 1))
        return result


class YoloV8(nn.Module):
    """Ultralytics, `yolov8n.yaml`, 2023, at `width` channels in its first layer: maps of 64 box and 80 class channels.

    (N, 3, H, W) -> three of (N, 144, H / s, W / s) for the strides s of 8, 16 and 32.
    """

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        w = width
        self.stride8 = nn.Sequential(
            _Convolution(3, w, 3, 2),
            _Convolution(w, 2 * w, 3, 2),
            _C2f(2 * w, 2 * w, 1, shortcut=True),
            _Convolution(2 * w, 4 * w, 3, 2),
            _C2f(4 * w, 4 * w, 2, shortcut=True),
        )
        self.stride16 = nn.Sequential(_Convolution(4 * w, 8 * w, 3, 2), _C2f(8 * w, 8 * w, 2, shortcut=True))
        self.stride32 = nn.Sequential(
            _Convolution(8 * w, 16 * w, 3, 2), _C2f(16 * w, 16 * w, 1, shortcut=True), _PooledPyramid(16 * w)
        )
        self.up16 = _C2f(24 * w, 8 * w, 1, shortcut=False)
        self.up8 = _C2f(12 * w, 4 * w, 1, shortcut=False)
        self.shrink16, self.down16 = _Convolution(4 * w, 4 * w, 3, 2), _C2f(12 * w, 8 * w, 1, shortcut=False)
        self.shrink32, self.down32 = _Convolution(8 * w, 8 * w, 3, 2), _C2f(24 * w, 16 * w, 1, shortcut=False)
        self.boxes = nn.ModuleList(self._branch(channels, 64) for channels in (4 * w, 8 * w, 16 * w))
        self.classes = nn.ModuleList(self._branch(channels, 80) for channels in (4 * w, 8 * w, 16 * w))

    @staticmethod
    def _branch(before: int, after: int) -> nn.Module:
        return nn.Sequential(_Convolution(before, 64, 3), _Convolution(64, 64, 3), nn.Conv2d(64, after, 1))

    def forward(self, x: Tensor) -> list[Tensor]:
        stride8 = self.stride8(x)
        stride16 = self.stride16(stride8)
        stride32 = self.stride32(stride16)
        up16 = self.up16(torch.cat([F.interpolate(stride32, scale_factor=2.0), stride16], 1))
        map8 = self.up8(torch.cat([F.interpolate(up16, scale_factor=2.0), stride8], 1))
        map16 = self.down16(torch.cat([self.shrink16(map8), up16], 1))
        map32 = self.down32(torch.cat([self.shrink32(map16), stride32], 1))
        return [
            torch.cat([boxes(features), classes(features)], 1)
            for boxes, classes, features in zip(self.boxes, self.classes, (map8, map16, map32), strict=True)
        ]
