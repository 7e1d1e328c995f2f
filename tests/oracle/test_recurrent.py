"""Recurrent layers and cells compared with torch's own."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from conformance.oracle.recurrent import Product, cell, layers
from tests.oracle.oracle_models import (
    M,
)


def waves(*shape: int, phase: float = 0.0) -> Tensor:
    """Some values of both signs, none like another."""
    return torch.sin(torch.arange(1, 1 + torch.Size(shape).numel()).double() * 1.7 + phase).reshape(shape)


def waving(module: M) -> M:
    with torch.no_grad():
        for number, parameter in enumerate(module.double().parameters()):
            parameter.copy_(waves(*parameter.shape, phase=number))
    return module


def plainly(module: nn.Module) -> Product:
    return lambda x, name, bias: F.linear(x, module.get_parameter(name), bias)


LAYERS: list[tuple[type[nn.RNNBase], dict[str, Any]]] = [
    *(
        (kind, options)
        for kind in (nn.LSTM, nn.GRU)
        for options in (
            {},
            {"num_layers": 2},
            {"bidirectional": True},
            {"num_layers": 2, "bidirectional": True},
            {"num_layers": 2, "bidirectional": True, "batch_first": True},
            {"bias": False},
        )
    ),
    (nn.LSTM, {"proj_size": 2}),
    (nn.LSTM, {"proj_size": 2, "num_layers": 2, "bidirectional": True, "bias": False, "batch_first": True}),
]


@pytest.mark.parametrize("stateful", [False, True])
@pytest.mark.parametrize("batched", [False, True])
@pytest.mark.parametrize(("kind", "options"), LAYERS)
def test_recurrent_layers_agree_with_torch(
    kind: type[nn.RNNBase], options: dict[str, Any], batched: bool, stateful: bool
) -> None:
    build: Any = kind
    module = waving(build(3, 4, **options))
    batch = (5,) if batched else ()
    x = waves(*batch, 6, 3) if options.get("batch_first") else waves(6, *batch, 3)
    state: Any = None
    if stateful:
        count = module.num_layers * (2 if module.bidirectional else 1)
        h, c = waves(count, *batch, module.proj_size or 4, phase=0.5), waves(count, *batch, 4, phase=0.9)
        state = (h, c) if kind is nn.LSTM else h
    torch.testing.assert_close(layers(module, plainly(module), x, state), module(x, state), rtol=0, atol=1e-12)


@pytest.mark.parametrize("stateful", [False, True])
@pytest.mark.parametrize("batch", [(), (5,)])
@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (nn.LSTMCell, {}),
        (nn.LSTMCell, {"bias": False}),
        (nn.GRUCell, {}),
        (nn.GRUCell, {"bias": False}),
        (nn.RNNCell, {}),
        (nn.RNNCell, {"nonlinearity": "relu"}),
        (nn.RNNCell, {"nonlinearity": "relu", "bias": False}),
    ],
)
def test_recurrent_cells_agree_with_torch(
    kind: type[nn.RNNCellBase], options: dict[str, Any], batch: tuple[int, ...], stateful: bool
) -> None:
    build: Any = kind
    module = waving(build(3, 4, **options))
    x = waves(*batch, 3)
    state: Any = None
    if stateful:
        h, c = waves(*batch, 4, phase=0.5), waves(*batch, 4, phase=0.9)
        state = (h, c) if kind is nn.LSTMCell else h
    torch.testing.assert_close(cell(module, plainly(module), x, state), module(x, state), rtol=0, atol=1e-12)


def test_a_layer_multiplies_its_sequence_at_once_and_its_state_at_every_step() -> None:
    module, multiplied = waving(nn.LSTM(3, 4, num_layers=2, proj_size=2)), []

    def product(x: Tensor, name: str, bias: Tensor | None) -> Tensor:
        multiplied.append((name, tuple(x.shape)))
        return plainly(module)(x, name, bias)

    layers(module, product, waves(2, 5, 3))
    each = [("weight_hh_l0", (5, 2)), ("weight_hr_l0", (5, 4))]
    after = [("weight_hh_l1", (5, 2)), ("weight_hr_l1", (5, 4))]
    assert multiplied == [("weight_ih_l0", (2, 5, 3)), *each, *each, ("weight_ih_l1", (2, 5, 2)), *after, *after]
