"""Rewritings of networks: they compute the same in float, and say so where they do not apply."""

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.ao.quantization import get_default_qconfig_mapping
from torch.fx import symbolic_trace

from conformance.repair.rewrites import (
    REWRITES,
    InFloat,
    NotApplicable,
    copy_module,
    narrow_weight,
    narrowed,
    rewritten,
)
from conformance.results.remedies import REMEDIES


class Shared(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.layer(self.layer(x))
        return y


class Functional(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 4, 3, 3))

    def forward(self, x: Tensor) -> Tensor:
        return F.conv2d(x, weight=self.weight, padding=1, stride=(2, 1))


class Numbers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(4, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.conv(x)
        return 3.0 * y + (y + 1)


class Reading(nn.Module):
    """Makes a tensor of the dtype of a parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(4, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.conv(x) + torch.arange(8).to(dtype=self.conv.weight.dtype)
        return y


class Viewed(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.view(2, -1)


def convolutions(*, transposed: bool = False) -> nn.Module:
    if transposed:
        return nn.Sequential(nn.ConvTranspose2d(4, 3, 2, 2), nn.ReLU())
    return nn.Sequential(nn.Conv2d(4, 4, 3, padding="same", dilation=2), nn.BatchNorm2d(4), nn.PReLU(4))


IMAGES, ROWS = (2, 4, 8, 8), (3, 6)
APPLIED = [
    ("copies", Shared, "layer_1", ROWS),
    ("contiguous", convolutions, "_1", IMAGES),
    ("reshape", Viewed, "view", ROWS[:1] * 1 + (4,)),
    ("positional", Functional, "conv2d", IMAGES),
    ("padding", convolutions, "_0", IMAGES),
    ("tensor", Numbers, "conv", IMAGES),
    ("equal", lambda: convolutions(transposed=True), "_0", IMAGES),
    ("apart", convolutions, "_0", IMAGES),
    ("narrow", convolutions, "_0", IMAGES),
    ("split", convolutions, "_2", IMAGES),
    ("constant", Reading, "getattr_1", IMAGES),
    ("computed", Functional, "conv2d", IMAGES),
    ("source", convolutions, "_2", IMAGES),
    ("float", convolutions, "_2", IMAGES),
]


@pytest.mark.parametrize(("kind", "make", "node", "shape"), APPLIED, ids=[kind for kind, *_ in APPLIED])
def test_a_rewriting_computes_the_same(kind: str, make: type[nn.Module], node: str, shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    model = make().eval()
    x = torch.randn((2, *shape[1:]))
    before, state = str(symbolic_trace(model).graph), copy.deepcopy(model.state_dict())
    graph = rewritten(model, [(REWRITES[kind], node)])
    torch.testing.assert_close(graph(x), model(x))
    assert str(graph.graph) != before
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())


def test_every_remedy_of_the_ledger_is_a_rewriting() -> None:
    assert [*REMEDIES] == [*REWRITES]
    assert {kind for kind, *_ in APPLIED} == {*REWRITES}


NOT_APPLIED = [
    ("copies", Numbers, "add", "add calls no module"),
    ("reshape", Numbers, "conv", "conv is no view"),
    ("positional", Numbers, "conv", "conv is no functional convolution"),
    ("padding", Numbers, "conv", "conv has no padding that is a word"),
    (
        "padding",
        lambda: nn.Sequential(nn.Conv2d(4, 4, 2, padding="same")),
        "_0",
        "_0 pads one side more than the other",
    ),
    ("tensor", convolutions, "_0", "no number is added to _0 or multiplied by it"),
    (
        "equal",
        lambda: nn.Sequential(nn.ConvTranspose2d(3, 4, 2)),
        "_0",
        "_0 is no transposed convolution to fewer channels",
    ),
    ("narrow", convolutions, "_2", "_2 is no Conv2d with a weight of 8 bits"),
    ("split", Numbers, "conv", "conv is no PReLU"),
    ("split", lambda: nn.Sequential(nn.PReLU(4)), "_0", "the dimensions of input_1 are unknown"),
    ("constant", Numbers, "conv", "conv reads no property of a parameter"),
    ("computed", Numbers, "conv", "conv is no functional layer with a weight of parameters"),
    ("source", Viewed, "view", "x computes nothing"),
    ("float", Numbers, "nowhere", "the network has no node nowhere"),
]


@pytest.mark.parametrize(("kind", "make", "node", "message"), NOT_APPLIED)
def test_what_does_not_apply_says_why(kind: str, make: type[nn.Module], node: str, message: str) -> None:
    with pytest.raises(NotApplicable, match=message):
        rewritten(make().eval(), [(REWRITES[kind], node)])


def test_a_narrow_weight_has_7_bits_by_the_mapping() -> None:
    graph = rewritten(convolutions().eval(), [(narrow_weight, "_0")])
    mapping = narrowed(get_default_qconfig_mapping("x86"), graph)
    qconfigs: dict[str, Any] = {**mapping.module_name_qconfigs}
    usual: Any = mapping.global_qconfig
    ((name, qconfig),) = qconfigs.items()
    observer = qconfig.weight()
    assert type(graph.get_submodule(name)) is nn.Conv2d
    assert (observer.quant_min, observer.quant_max) == (-64, 63)
    assert qconfig.activation is usual.activation


def test_copies_have_parameters_of_their_own() -> None:
    graph = rewritten(Shared().eval(), [(copy_module, "layer_1")])
    layers = [module for module in graph.modules() if isinstance(module, nn.Linear)]
    assert len(layers) == 2
    assert layers[0].weight is not layers[1].weight


@pytest.mark.parametrize(
    ("call", "x"),
    [(nn.ReLU(), torch.tensor([-1.0, 1.0])), (torch.relu, torch.tensor([-1.0, 1.0])), ("relu", torch.ones(1))],
)
def test_a_module_a_function_and_a_method_are_called_in_float(call: object, x: Tensor) -> None:
    assert torch.equal(InFloat(call)(x), torch.relu(x))
