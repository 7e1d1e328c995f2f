"""Small float networks for tests of audits."""

import torch
from torch import Tensor, nn

from conformance.models.data import normal


class Residual(nn.Module):
    """Convolutions with batch norms, a sum, a pooling and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU())
        self.branch = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8))
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.head = nn.Linear(8, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        x = torch.relu(self.branch(x) + x)
        result: Tensor = self.head(torch.flatten(self.pool(x), 1))
        return result


class Branching(nn.Module):
    """Control flow that depends on a value: FX cannot trace it. `body` can be traced."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU())

    def forward(self, x: Tensor) -> Tensor:
        if x.sum() > 0:
            x = self.body(x)
        return x


def seeded(make: type[nn.Module]) -> nn.Module:
    """A network in eval mode, with the same weights every time."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return make().eval()


def residual() -> nn.Module:
    return seeded(Residual)


def branching() -> nn.Module:
    return seeded(Branching)


def images(side: int = 12, items: int = 2) -> list[Tensor]:
    """Three batches of images."""
    return [normal(f"image {number}", (items, 3, side, side)) for number in range(3)]


def relu6() -> nn.Module:
    """A network that QNNPACK gets wrong: it clamps what a convolution gives in channels-last."""
    return seeded(lambda: nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU6(), nn.Conv2d(8, 4, 1)))  # type: ignore[arg-type]


def training() -> nn.Module:
    return Residual().train()


def raising() -> nn.Module:
    raise RuntimeError("no weights")


def no_claims() -> nn.Module:
    """A network without an operator that a config covers."""
    return nn.Sequential(nn.GELU(), nn.Softplus()).eval()


def no_network() -> str:
    return "a network"


def one_batch() -> list[Tensor]:
    return images()[:1]


def numbers() -> list[float]:
    return [1.0, 2.0, 3.0]


def narrow() -> list[Tensor]:
    return [x[:, :2] for x in images()]


not_callable = 3
