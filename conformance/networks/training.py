"""Short training of networks with random weights.

Rounding drowns what a deep network with random weights says: each layer amplifies the errors of those before it. Those of a
network that has learned to tell its inputs apart, in spite of noise, do not.
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, normalize
from torch.utils._pytree import tree_leaves

from .network import Network, settle

ITEMS = 8
NOISE = 0.05
RATE = 3e-3
TEMPERATURE = 0.1


class CannotBeTrained(Exception):
    """A network has no gradient, or training diverges."""


def train(model: nn.Module, network: Network, steps: int) -> None:
    """Train a network on generated batches to return alike outputs for an input and the same with noise, and others for other
    inputs (InfoNCE; van den Oord, Li and Vinyals, "Representation learning with contrastive predictive coding", 2018).

    The statistics of batch norms are settled again. The weights depend on the arguments and the machine's kernels alone.

    Raises CannotBeTrained with the reason.
    """
    with torch.random.fork_rng(devices=[]), torch.enable_grad():
        torch.manual_seed(0)
        model.requires_grad_(True).train()
        optimizer = torch.optim.Adam(model.parameters(), lr=RATE)
        try:
            for step in range(steps):
                optimizer.zero_grad()
                loss = _loss(model, network.inputs_of(f"train_{step}", ITEMS))
                loss.backward()  # type: ignore[no-untyped-call]
                nn.utils.clip_grad_norm_(model.parameters(), 1.0, error_if_nonfinite=True)
                optimizer.step()
        except RuntimeError as error:
            raise CannotBeTrained(f"{network.name} cannot be trained: {error}") from error
    model.requires_grad_(False)
    settle(model, network)


def _loss(model: nn.Module, inputs: tuple[Tensor, ...]) -> Tensor:
    noisy = [x + NOISE * torch.randn_like(x) if x.is_floating_point() else x for x in inputs]
    outputs = model(*(torch.cat(pair) for pair in zip(inputs, noisy, strict=True)))
    flat = torch.cat([x.flatten(1) for x in tree_leaves(outputs) if isinstance(x, Tensor)], 1)
    one, other = normalize(flat - flat.mean(0), dim=1).chunk(2)
    return cross_entropy(one @ other.T / TEMPERATURE, torch.arange(ITEMS)) + (one - other).square().sum(1).mean()
