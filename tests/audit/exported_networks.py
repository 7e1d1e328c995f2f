"""Networks without deviations for audits through PT2E, and faults that are planted in delegates and lowered programs."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.fx import GraphModule
from torch.nn import functional as F

from conformance.audit.network import Network, network
from conformance.engines.inductor import LOWERED

on_x86 = pytest.mark.skipif(find_spec("torchao") is None, reason="torchao is not installed")
on_executorch = pytest.mark.skipif(find_spec("executorch") is None, reason="executorch is not installed")


class Small(nn.Module):
    """A convolution, a depthwise one, a sum, pooling and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU())
        self.depthwise = nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.clip = nn.ReLU6()
        self.pool = nn.MaxPool2d(3, 2, 1)
        self.head = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        x = self.pool(x + self.clip(self.depthwise(x)))
        result: Tensor = self.head(x.mean((2, 3)))
        return result


class Attention(nn.Module):
    """Attention between norms, in one head."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.qkv, self.out = nn.LayerNorm(16), nn.Linear(16, 48), nn.Linear(16, 16)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(self.norm(x)).chunk(3, -1)
        result: Tensor = x + self.out(F.softmax(q @ k.transpose(1, 2) / 4, -1) @ v)
        return result


class Recurrent(nn.Module):
    """A convolution of a signal and an LSTM."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.lstm, self.head = nn.Conv1d(4, 8, 3), nn.LSTM(8, 8, batch_first=True), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        y, _ = self.lstm(F.relu(self.conv(x)).transpose(1, 2))
        last: Tensor = self.head(y[:, -1])
        return last


IMAGE, ROWS, SIGNAL = (2, 3, 12, 12), (2, 5, 16), (2, 4, 9)
CLEAN: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "small": (Small, IMAGE),
    "attention": (Attention, ROWS),
    "recurrent": (Recurrent, SIGNAL),
    "residual": (lambda: nn.Sequential(nn.Conv2d(3, 4, 1), Added(nn.Conv2d(4, 4, 3, padding=1))), IMAGE),
    "joined": (lambda: Joined(nn.Conv2d(3, 4, 1), nn.Conv2d(3, 4, 1)), IMAGE),
    "encoder": (lambda: nn.Sequential(nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 16)), (2, 16)),
    "signal": (lambda: nn.Sequential(nn.Conv1d(4, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool1d(1)), SIGNAL),
    "upsampling": (lambda: nn.Sequential(nn.ConvTranspose2d(3, 4, 2, 2), nn.ReLU(), nn.Conv2d(4, 2, 1)), IMAGE),
    "activations": (lambda: nn.Sequential(nn.Conv2d(3, 4, 1), nn.Hardswish(), nn.Conv2d(4, 4, 1), nn.SiLU()), IMAGE),
    "float": (lambda: nn.Sequential(nn.LayerNorm(16), nn.Softmax(-1)), ROWS),
}
"""Networks that show no deviation."""


class Added(nn.Module):
    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(x + self.layer(x))


class Joined(nn.Module):
    def __init__(self, *branches: nn.Module) -> None:
        super().__init__()
        self.branches = nn.ModuleList(branches)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([branch(x) for branch in self.branches], 1)


def subject_of(name: str) -> Network:
    torch.manual_seed(0)
    make, shape = CLEAN[name]
    return network(name, make().eval(), [torch.randn(shape) for _ in range(3)])


def padded(node: Any) -> None:
    node.padding_top, node.padding_bottom = node.padding_top + 1, node.padding_bottom - 1


def unbiased(node: Any) -> None:
    node.bias_id = 2**32 - 1


def doubling(node: Any) -> None:
    node.input2_id = node.input1_id


def clipping(node: Any) -> None:
    node.output_min_max.output_max = 0.05


INSIDE = {
    "XNNConv2d": ("stem.0", padded),
    "XNNDepthwiseConv2d": ("depthwise", padded),
    "XNNClamp": ("clip", clipping),
    "XNNMaxPooling2d": ("pool", padded),
    "XNNAdd": ("add", doubling),
    "XNNFullyConnected": ("head", unbiased),
}
"""Operators of XNNPACK, the layer that each is in, and a fault of theirs."""


@contextmanager
def planted_in_delegates(kind: str, fault: Callable[[Any], None]) -> Iterator[None]:
    """Have every node of a kind in a delegate be changed."""
    from executorch.backends.xnnpack import xnnpack_preprocess as preprocess

    serialize = preprocess.serialize_xnnpack_binary

    def planted(graph: Any, constants: bytearray) -> bytes:
        for node in graph.xnodes:
            if type(node.xnode_union).__name__ == kind:
                fault(node if kind == "XNNClamp" else node.xnode_union)
        changed: bytes = serialize(graph, constants)
        return changed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(preprocess, "serialize_xnnpack_binary", planted)
        yield


@contextmanager
def planted_in_programs(change: Callable[[GraphModule], None]) -> Iterator[None]:
    """Have every lowered program be changed."""
    lower = LOWERED.lower_for

    def planted(model: GraphModule, inputs: Any) -> GraphModule:
        program = lower(model, inputs)
        assert isinstance(program, GraphModule)
        change(program)
        program.recompile()
        return program

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LOWERED, "lower_for", planted)
        yield


def calls(program: GraphModule, name: str) -> list[Any]:
    return [node for node in program.graph.nodes if name in str(node.target)]


def argument(name: str, place: int, value: object) -> Callable[[GraphModule], None]:
    """Change an argument of every call of an operator."""

    def change(program: GraphModule) -> None:
        for node in calls(program, name):
            node.update_arg(place, value)

    return change
