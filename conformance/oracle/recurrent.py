"""Recurrent layers and cells, step by step, with an inner product that is given.

The equations are those of the documentation of `torch.nn.LSTM`, `GRU`, `LSTMCell`, `GRUCell` and `RNNCell`. Like torch's
dynamic layers (aten/src/ATen/native/RNN.cpp) a layer multiplies its whole input sequence at once and the hidden state at
every step, so that a dynamic product chooses qparams once for the one and anew for each of the other.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

Product = Callable[[Tensor, str, Tensor | None], Tensor]
"""`product(x, name, bias)` multiplies x (…, in) by the weight of that name (out, in), transposed, and adds a bias."""

State = tuple[Tensor, ...]


def _step(kind: str, given: Tensor, state: State, recurrent: Callable[[Tensor], Tensor], squash: Any) -> State:
    """One step of a cell: `given` is the input's product, `state` h, or h and c."""
    kept = recurrent(state[0])
    if kind.startswith("LSTM"):
        enters, forgets, cell, leaves = (given + kept).chunk(4, -1)
        c = torch.sigmoid(forgets) * state[1] + torch.sigmoid(enters) * torch.tanh(cell)
        return torch.sigmoid(leaves) * torch.tanh(c), c
    if kind.startswith("GRU"):
        (given_r, given_z, given_n), (kept_r, kept_z, kept_n) = given.chunk(3, -1), kept.chunk(3, -1)
        r, z = torch.sigmoid(given_r + kept_r), torch.sigmoid(given_z + kept_z)
        n = torch.tanh(given_n + r * kept_n)
        return (n + z * (state[0] - n),)
    return (squash(given + kept),)


def _bias(module: Any, name: str) -> Tensor | None:
    bias = getattr(module, name, None)
    return bias.double() if isinstance(bias, Tensor) else None


def cell(module: nn.RNNCellBase, product: Product, x: Tensor, state: Any = None) -> Any:
    """Call a cell: x (batch, in) or (in), state h or (h, c) of (batch, hidden) or (hidden), zeros if None."""
    kind = type(module).__name__
    pair = kind.startswith("LSTM")
    if state is None:
        zeros = x.new_zeros(*x.shape[:-1], module.hidden_size)
        state = (zeros, zeros) if pair else zeros
    squash = torch.relu if getattr(module, "nonlinearity", "tanh") == "relu" else torch.tanh
    given = product(x, "weight_ih", _bias(module, "bias_ih"))
    after = _step(
        kind,
        given,
        tuple(state) if pair else (state,),
        lambda h: product(h, "weight_hh", _bias(module, "bias_hh")),
        squash,
    )
    return after if pair else after[0]


def layers(module: nn.RNNBase, product: Product, x: Tensor, state: Any = None) -> Any:
    """Call an LSTM or GRU: x (time, batch, in), (batch, time, in) if batch_first, or (time, in); returns as it does."""
    kind, pair = type(module).__name__, isinstance(module, nn.LSTM)
    batched = x.dim() == 3
    if not batched:
        x = x.unsqueeze(1)
    elif module.batch_first:
        x = x.transpose(0, 1)
    ways = 2 if module.bidirectional else 1
    if state is None:
        width = module.proj_size or module.hidden_size
        h = x.new_zeros(module.num_layers * ways, x.shape[1], width)
        state = (h, x.new_zeros(*h.shape[:2], module.hidden_size)) if pair else (h,)
    else:
        state = tuple(part if batched else part.unsqueeze(1) for part in (state if pair else (state,)))
    last: list[State] = []
    for layer in range(module.num_layers):
        outputs = []
        for way in range(ways):
            suffix = f"_l{layer}{'_reverse' * way}"
            begins = tuple(part[layer * ways + way] for part in state)
            hidden, ends = _sequence(module, kind, product, x, begins, suffix, backwards=bool(way))
            outputs.append(hidden)
            last.append(ends)
        x = torch.cat(outputs, -1)
    ends = tuple(torch.stack(parts) for parts in zip(*last, strict=True))
    if not batched:
        x, ends = x.squeeze(1), tuple(part.squeeze(1) for part in ends)
    elif module.batch_first:
        x = x.transpose(0, 1)
    return x, (ends if pair else ends[0])


def _sequence(
    module: nn.RNNBase, kind: str, product: Product, x: Tensor, state: State, suffix: str, *, backwards: bool
) -> tuple[Tensor, State]:
    """One layer in one direction over a sequence (time, batch, in): its hidden states and the last state."""

    def recurrent(h: Tensor) -> Tensor:
        return product(h, f"weight_hh{suffix}", _bias(module, f"bias_hh{suffix}"))

    given = product(x, f"weight_ih{suffix}", _bias(module, f"bias_ih{suffix}"))
    hidden = []
    for step in reversed(given) if backwards else given:
        state = _step(kind, step, state, recurrent, torch.tanh)
        if module.proj_size:
            state = (product(state[0], f"weight_hr{suffix}", None), *state[1:])
        hidden.append(state[0])
    return torch.stack(hidden[::-1] if backwards else hidden), state
