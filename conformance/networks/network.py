"""A network of the corpus: how its float model is built, and its input data."""

import importlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor, nn

from conformance.errors import UsageError
from conformance.models.data import integers, normal

from .operators import define_torchvision_operators

BATCH = 2
"""Items in every batch, so that a check may split it."""
BATCHES = ("calibration_0", "calibration_1", "held_out")
"""The batches of a network, in order."""
Options = Mapping[str, Any]
OWN = "own"
"""The package of networks that are written in this suite."""

_SETTLING_BATCHES = 3
_SETTLING_ITEMS = 4
_OCTAVES = (1, 4, 16)
_PEAK = 30.0
_UNIFORM = 32768


@dataclass(frozen=True)
class Input:
    """An input tensor without its batch dimension.

    Attributes:
        shape: of one item.
        high: the greatest index, for an input of int64 indices from 0; None for float32.
        smooth: whether neighbours along all dimensions but the first (the channels) are similar, as in a picture.
        peaks: one element of how many is far greater than the others, as stars in a picture or tones in a spectrum are; 0 for
            none.
    """

    shape: tuple[int, ...]
    high: int | None = None
    smooth: bool = False
    peaks: int = 0

    def batch(self, key: str, items: int = BATCH) -> Tensor:
        """Return a tensor of (`items`, *`shape`) that depends on the arguments alone."""
        shape = (items, *self.shape)
        if self.high is not None:
            return integers(key, math.prod(shape), 0, self.high).reshape(shape)
        data: Tensor = _smooth(key, shape) if self.smooth else normal(key, shape)
        if self.peaks:
            data += _PEAK * (integers(f"{key}/peaks", data.numel(), 0, self.peaks - 1).reshape(shape) == 0)
        return data


def image(side: int, channels: int = 3) -> tuple[Input, ...]:
    """The inputs of a network for square images of `side` pixels."""
    return (Input((channels, side, side), smooth=True),)


def _smooth(key: str, shape: tuple[int, ...]) -> Tensor:
    """Return a sum of noises, each constant on blocks of a power of four along all but two dimensions.

    Every octave has the same variance, and the sum has mean 0 and variance 1. White noise would average out to almost nothing
    behind the first pooling layers.
    """
    total = torch.zeros(shape)
    for block in _OCTAVES:
        blocks = (*shape[:2], *(-(-size // block) for size in shape[2:]))
        coarse = integers(f"{key}/{block}", math.prod(blocks), -_UNIFORM, _UNIFORM).reshape(blocks) / _UNIFORM
        for dim, size in enumerate(shape[2:], start=2):
            coarse = coarse.repeat_interleave(block, dim).narrow(dim, 0, size)
        total += coarse
    return total * math.sqrt(3 / len(_OCTAVES))  # a uniform variable in [-1, 1] has a variance of 1 / 3


@dataclass(frozen=True)
class Network:
    """A row of the corpus.

    Attributes:
        name: unique in the corpus.
        task: what the network computes, such as `classification`.
        package: the distribution that has the network, or `own`.
        source: `module:callable` that returns the model.
        options: keyword arguments of the callable.
        inputs: the inputs of the model.
        trained: whether the callable loads weights that were trained. All others are random.
    """

    name: str
    task: str
    package: str
    source: str
    options: Options = field(hash=False)
    inputs: tuple[Input, ...]
    trained: bool = False

    def build(self) -> nn.Module:
        """Return the float model in eval mode, with the same weights every time.

        Raises:
            UsageError: if the package is not installed.
        """
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            model = self._unsettled()
        model.requires_grad_(False).eval()
        if self.trained:
            return model
        _fill_constants(model, self.name)
        settle(model, self)
        return model

    def batches(self) -> list[tuple[Tensor, ...]]:
        """Return the inputs of each batch of `BATCHES`: two for calibration, then one that calibration does not see."""
        return [self.inputs_of(label, BATCH) for label in BATCHES]

    def inputs_of(self, label: str, items: int) -> tuple[Tensor, ...]:
        """Return a batch of `items`, others for each label."""
        return tuple(data.batch(f"{self.name}/{label}/{n}", items) for n, data in enumerate(self.inputs))

    def _unsettled(self) -> nn.Module:
        module, _, attribute = self.source.partition(":")
        define_torchvision_operators()
        try:
            model: nn.Module = attrgetter(attribute)(importlib.import_module(module))(**self.options)
        except ModuleNotFoundError as error:
            raise UsageError(
                f"network {self.name} needs the package {self.package}, and {error.name} is not installed: "
                "`tox -e networks` installs them"
            ) from error
        return model


def _fill_constants(model: nn.Module, key: str) -> None:
    """Add small noise to every parameter whose elements are all equal, as training would.

    Initializers leave biases at 0, factors of norms at 1, and the last factor of a residual branch at 0 or 1e-6. A branch
    with a factor of 0 would hide whatever its layers compute.
    """
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.is_floating_point() and bool((parameter == parameter.flatten()[0]).all()):
                parameter.add_(normal(f"{key}/{name}", tuple(parameter.shape), 0.1))


def settle(model: nn.Module, network: Network) -> None:
    """Set the statistics of every batch norm to the mean of those of a few batches. Everything else stays in eval mode."""
    batches = [network.inputs_of(f"settle_{number}", _SETTLING_ITEMS) for number in range(_SETTLING_BATCHES)]
    model.eval()
    norms = [module for module in model.modules() if isinstance(module, nn.modules.batchnorm._BatchNorm)]
    momenta = [norm.momentum for norm in norms]
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # a cumulative average
        norm.train()
    if norms:
        with torch.no_grad():
            for inputs in batches:
                model(*inputs)
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
    model.eval()
