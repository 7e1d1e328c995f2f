"""Networks and inputs that no engine can be blamed for: the error says what is wrong with them."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from conformance.audit.network import network
from conformance.errors import UsageError

X = torch.ones(2, 4)
WORTHLESS = "has infinite values or NaN in its parameter weight, for which integers have no codes"


def linear(value: float = 0.5, **options: object) -> nn.Module:
    layer = nn.Linear(4, 3, **options).eval()  # type: ignore[arg-type]
    layer.weight.data[0, 0] = value
    return layer


@pytest.mark.parametrize(
    ("model", "x", "message"),
    [
        (lambda: linear(float("nan")), X, WORTHLESS),
        (lambda: linear(float("inf")), X, WORTHLESS),
        (lambda: linear(device="meta"), X, "has its parameter weight on the meta device, which keeps no values"),
        (lambda: nn.LazyLinear(3).eval(), X, "has no values in its parameter weight yet: call the lazy module"),
        (lambda: torch.compile(linear()), X, "is compiled, and FX does not trace what torch.compile returns"),
        (lambda: torch.jit.script(linear()), X, "is a ScriptModule, which FX does not trace"),
        (linear, X * float("nan"), "returns NaN for batch 1, so there is nothing to compare"),
        (linear, torch.tensor([[1.0, torch.inf, 1.0, 1.0]]), "returns infinite values alone for batch 1"),
        (linear, X[:0], "returns empty tensors for batch 1"),
    ],
)
def test_what_cannot_be_compared_is_refused_before_it_is_quantized(
    model: Callable[[], nn.Module], x: Tensor, message: str
) -> None:
    with pytest.raises(UsageError) as raised:
        network("mine", model(), [x] * 2)
    assert message in str(raised.value)


def test_some_infinite_values_can_be_compared() -> None:
    class Masked(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.where(x > 0.5, x, -torch.inf)

    assert network("mine", Masked().eval(), [torch.arange(4.0)] * 2).held_out
