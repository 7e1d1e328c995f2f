"""Recurrent layers and cells, step by step, with the matrix product as a parameter.

The equations are those of the documentation of `torch.nn.LSTM`, `GRU`, `LSTMCell`, `GRUCell` and `RNNCell`. As in torch's
dynamic layers (aten/src/ATen/native/RNN.cpp), a layer multiplies its whole input sequence at once and its hidden state at
every step. A dynamic product therefore computes qparams once per sequence for the input and at every step for the state.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

Product = Callable[[Tensor, str, Tensor | None], Tensor]
"""`product(x, name, bias)` returns `x @ weight.T + bias` for x (…, in) and the weight `name` (out, in)."""

State = tuple[Tensor, ...]


def _step(
    kind: str, input_product: Tensor, state: State, recurrent: Callable[[Tensor], Tensor], nonlinearity: Any
) -> State:
    """One step of a cell from the product of its input and its state, (h,) or (h, c)."""
    state_product = recurrent(state[0])
    if kind.startswith("LSTM"):
        i, f, g, o = (input_product + state_product).chunk(4, -1)
        c = torch.sigmoid(f) * state[1] + torch.sigmoid(i) * torch.tanh(g)
        return torch.sigmoid(o) * torch.tanh(c), c
    if kind.startswith("GRU"):
        x_r, x_z, x_n = input_product.chunk(3, -1)
        h_r, h_z, h_n = state_product.chunk(3, -1)
        r, z = torch.sigmoid(x_r + h_r), torch.sigmoid(x_z + h_z)
        n = torch.tanh(x_n + r * h_n)
        return (n + z * (state[0] - n),)
    return (nonlinearity(input_product + state_product),)


def _bias(module: Any, name: str) -> Tensor | None:
    bias = getattr(module, name, None)
    return bias.double() if isinstance(bias, Tensor) else None


def cell(module: nn.RNNCellBase, product: Product, x: Tensor, state: Any = None) -> Any:
    """Call a cell on x (batch, in) or (in).

    `state` is h, or (h, c) for an LSTM cell, each (batch, hidden) or (hidden); None is zeros. Returns the next state.
    """
    kind = type(module).__name__
    lstm = kind.startswith("LSTM")
    if state is None:
        zeros = x.new_zeros(*x.shape[:-1], module.hidden_size)
        state = (zeros, zeros) if lstm else zeros
    nonlinearity = torch.relu if getattr(module, "nonlinearity", "tanh") == "relu" else torch.tanh
    next_state = _step(
        kind,
        product(x, "weight_ih", _bias(module, "bias_ih")),
        tuple(state) if lstm else (state,),
        lambda h: product(h, "weight_hh", _bias(module, "bias_hh")),
        nonlinearity,
    )
    return next_state if lstm else next_state[0]


def layers(module: nn.RNNBase, product: Product, x: Tensor, state: Any = None) -> Any:
    """Call an LSTM or GRU on x (time, batch, in), (batch, time, in) if `batch_first`, or (time, in).

    Takes and returns states in the shapes that the module does.
    """
    kind, lstm = type(module).__name__, isinstance(module, nn.LSTM)
    batched = x.dim() == 3
    if not batched:
        x = x.unsqueeze(1)
    elif module.batch_first:
        x = x.transpose(0, 1)
    directions = 2 if module.bidirectional else 1
    if state is None:
        width = module.proj_size or module.hidden_size
        h = x.new_zeros(module.num_layers * directions, x.shape[1], width)
        state = (h, x.new_zeros(*h.shape[:2], module.hidden_size)) if lstm else (h,)
    else:
        state = tuple(part if batched else part.unsqueeze(1) for part in (state if lstm else (state,)))
    final_states: list[State] = []
    for layer in range(module.num_layers):
        outputs = []
        for direction in range(directions):
            suffix = f"_l{layer}{'_reverse' * direction}"
            initial = tuple(part[layer * directions + direction] for part in state)
            hidden, final = _sequence(module, kind, product, x, initial, suffix, backwards=bool(direction))
            outputs.append(hidden)
            final_states.append(final)
        x = torch.cat(outputs, -1)
    stacked = tuple(torch.stack(parts) for parts in zip(*final_states, strict=True))
    if not batched:
        x, stacked = x.squeeze(1), tuple(part.squeeze(1) for part in stacked)
    elif module.batch_first:
        x = x.transpose(0, 1)
    return x, (stacked if lstm else stacked[0])


def _sequence(
    module: nn.RNNBase, kind: str, product: Product, x: Tensor, state: State, suffix: str, *, backwards: bool
) -> tuple[Tensor, State]:
    """Run one layer in one direction over a sequence (time, batch, in). Returns its hidden states and its final state."""

    def recurrent(h: Tensor) -> Tensor:
        return product(h, f"weight_hh{suffix}", _bias(module, f"bias_hh{suffix}"))

    input_products = product(x, f"weight_ih{suffix}", _bias(module, f"bias_ih{suffix}"))
    hidden = []
    for step in reversed(input_products) if backwards else input_products:
        state = _step(kind, step, state, recurrent, torch.tanh)
        if module.proj_size:
            state = (product(state[0], f"weight_hr{suffix}", None), *state[1:])
        hidden.append(state[0])
    return torch.stack(hidden[::-1] if backwards else hidden), state
