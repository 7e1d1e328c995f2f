"""Short training of networks with random weights: what it improves, keeps and refuses."""

import pytest
import torch
from torch import Tensor, nn

from conformance.__main__ import main
from conformance.audit import corpus
from conformance.audit.auditing import Fx, Settings
from conformance.networks import zoo
from conformance.networks.network import OWN, Input, Network
from conformance.networks.training import CannotBeTrained, train


class Deep(nn.Module):
    """Convolutions and batch norms, of which each amplifies the errors of those before it."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 1)
        self.blocks = nn.Sequential(
            *(nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU()) for _ in range(8))
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.blocks(self.first(x)).flatten(1)  # type: ignore[no-any-return]


class Detached(Deep):
    """Has no gradient."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).detach()


def own(source: str) -> Network:
    return Network("deep", "classification", OWN, f"{__name__}:{source}", {}, (Input((3, 8, 8), smooth=True),))


def loss_by_noise(model: nn.Module, network: Network) -> float:
    """How much of what tells inputs apart noise changes."""
    (x,) = network.inputs_of("tested", 8)
    output, noisy = model(x), model(x + 0.05 * torch.randn(x.shape, generator=torch.Generator().manual_seed(1)))
    return float((noisy - output).square().sum() / (output - output.mean(0)).square().sum())


def test_noise_changes_less_after_training() -> None:
    network = own("Deep")
    model = network.build()
    before = loss_by_noise(model, network)
    train(model, network, 40)
    assert loss_by_noise(model, network) < 0.5 * before
    assert not any(parameter.requires_grad for parameter in model.parameters())
    assert not any(module.training for module in model.modules())


def test_training_is_the_same_every_time_and_leaves_the_state_of_random_numbers() -> None:
    network = own("Deep")
    state = torch.get_rng_state()
    models = [network.build(), network.build()]
    for model in models:
        train(model, network, 2)
    first, second = (model.state_dict() for model in models)
    assert all(first[name].equal(second[name]) for name in first)
    assert torch.get_rng_state().equal(state)


def test_what_cannot_be_trained_is_a_failure_of_that_network(monkeypatch: pytest.MonkeyPatch) -> None:
    network = own("Detached")
    with pytest.raises(CannotBeTrained, match="deep cannot be trained: element 0 of tensors does not require grad"):
        train(network.build(), network, 1)
    monkeypatch.setitem(zoo.NETWORKS, "deep", network)
    ((audit,),) = corpus.audited(["deep"], [Fx("fbgemm", Settings())], 1, steps=1)
    assert audit.failure.startswith("deep cannot be trained: ")


@pytest.mark.parametrize("steps", ["-1", "many", "1.5"])
def test_a_wrong_number_of_steps_is_refused(steps: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["networks", "run", f"--train={steps}"]) == 2
    assert f"'{steps}' is no number of steps: write one such as 120" in capsys.readouterr().err


def test_networks_with_trained_weights_are_left_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    network = own("Detached")
    monkeypatch.setitem(zoo.NETWORKS, "deep", Network(**{**vars(network), "trained": True}))
    ((audit,),) = corpus.audited(["deep"], [Fx("fbgemm", Settings())], 1, steps=1)
    assert not audit.failure
