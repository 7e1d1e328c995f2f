"""TorchScript compiles a class anew after it has failed to."""

import pytest
import torch
from torch import Tensor, nn

from conformance.models.scripting import compiles, compiling, scripted


class Unscriptable(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x, None)  # type: ignore[call-arg]


def test_a_class_fails_for_the_same_reason_in_each_compilation() -> None:
    reasons = []
    for _ in range(2):
        with pytest.raises(RuntimeError) as failure, compiling():
            scripted(Unscriptable())
        reasons.append(str(failure.value))
    assert reasons[0] == reasons[1]
    assert "relu" in reasons[0]


def test_a_scripted_model_is_saved_and_loaded() -> None:
    model = nn.Sequential(nn.Linear(3, 2), nn.ReLU()).eval()
    x = torch.arange(6.0).reshape(2, 3)
    assert torch.equal(scripted(model)(x), model(x))


def test_what_torchscript_does_not_compile_is_told() -> None:
    assert compiles(nn.Linear(3, 2))
    assert not compiles(nn.Sequential(Upsampled()))


class Upsampled(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.interpolate(x, scale_factor=2)
