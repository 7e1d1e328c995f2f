"""Networks and inputs that no engine can be blamed for: the error says what is wrong with them."""

import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.ao.quantization import get_default_qconfig_mapping, quantize_dynamic
from torch.ao.quantization.quantize_fx import prepare_fx

from conformance.audit.network import network
from conformance.errors import UsageError

X = torch.ones(2, 4)
WORTHLESS = "has infinite values or NaN in its parameter weight, for which integers have no codes"


def linear(value: float = 0.5, **options: object) -> nn.Module:
    layer = nn.Linear(4, 3, **options).eval()  # type: ignore[arg-type]
    layer.weight.data[0, 0] = value
    return layer


def quantized() -> nn.Module:
    lowered: nn.Module = quantize_dynamic(nn.Sequential(linear()))  # type: ignore[no-untyped-call]
    return lowered


def compiled_inside() -> nn.Module:
    layer: Any = torch.compile(linear())
    return nn.Sequential(layer).eval()


def exported() -> nn.Module:
    return torch.export.export(linear(), (X,)).module()


def prepared() -> nn.Module:
    return prepare_fx(linear(), get_default_qconfig_mapping("x86"), (X,))


class Varying(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + torch.rand_like(x)


class Growing(nn.Module):
    """Returns one output more in each call."""

    calls = 0

    def forward(self, x: Tensor) -> list[Tensor]:
        self.calls += 1
        return [x] * self.calls


class Exiting(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        sys.exit(7)


class Sparse(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.to_sparse()


class Keyword(nn.Module):
    def forward(self, x: Tensor, *, factor: Tensor) -> Tensor:
        return x * factor


@pytest.mark.parametrize(
    ("model", "x", "message"),
    [
        (lambda: linear(float("nan")), X, WORTHLESS),
        (lambda: linear(float("inf")), X, WORTHLESS),
        (lambda: linear(device="meta"), X, "has its parameter weight on the meta device, which keeps no values"),
        (lambda: nn.LazyLinear(3).eval(), X, "has no values in its parameter weight yet: call the lazy module"),
        (lambda: torch.compile(linear()), X, "is compiled, and FX does not trace what torch.compile returns"),
        (lambda: torch.jit.script(linear()), X, "is a ScriptModule, which FX does not trace"),
        (linear, X * float("nan"), "batch 1 of the inputs has NaN, for which integers have no code"),
        (quantized, X, "is quantized already, as its Linear is"),
        (lambda: Keyword().eval(), {"x": X, "factor": X}, "'factor' is taken by keyword alone"),
        (linear, {"y": X}, "linear(): argument 'input' (position 1) must be Tensor, not dict for batch 1"),
        (linear, (2.0,), "batch 1 of the inputs is a tuple of 1: give a tensor, a tuple of arguments, or a dict"),
        (linear, torch.tensor([[1.0, torch.inf, 1.0, 1.0]]), "returns infinite values alone for batch 1"),
        (linear, X.to_sparse(), "batch 1 of the inputs has a sparse tensor: give it dense and in float"),
        (linear, torch.quantize_per_tensor(X, 1.0, 0, torch.quint8), "batch 1 of the inputs has a quantized tensor"),
        (lambda: nn.Dropout().train(), X, "is in training mode (1 modules, such as the network itself)"),
        (lambda: Varying().eval(), X, "returns something else in a second call, because it draws random numbers or"),
        (exported, X, "is an exported graph, in whose operators no config has patterns: return the module"),
        (prepared, X, "is prepared already, as its observer activation_post_process_0 shows: return the float model"),
        (lambda: torch.jit.freeze(torch.jit.script(linear())), X, "is a ScriptModule, which FX does not trace"),
        (linear, X[:0], "returns empty tensors for batch 1"),
        (compiled_inside, X, "has the compiled module 0, and FX does not trace"),
        (lambda: nn.DataParallel(linear()), X, "is a DataParallel, which FX does not trace: return its module"),
        (lambda: Growing().eval(), X, "returns something else in a second call"),
        (
            lambda: Exiting().eval(),
            X,
            "raises SystemExit: 7 for batch 1, inputs of shape (2, 4): give inputs that it accepts",
        ),
        (linear, X.to("meta"), "batch 1 of the inputs has a meta tensor: give it dense and in float"),
        (linear, X.to(torch.float8_e4m3fn), "batch 1 of the inputs has a 8-bit float tensor"),
        (
            lambda: nn.Sequential(Sparse()).eval(),
            X,
            "returns a sparse tensor for batch 1, so there is nothing to compare",
        ),
    ],
)
def test_what_cannot_be_compared_is_refused_before_it_is_quantized(
    model: Callable[[], nn.Module], x: object, message: str
) -> None:
    with pytest.raises(UsageError) as raised:
        network("mine", model(), [x] * 2)
    assert message in str(raised.value)


def test_some_infinite_values_can_be_compared() -> None:
    class Masked(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.where(x > 0.5, x, -torch.inf)

    assert network("mine", Masked().eval(), [torch.arange(4.0)] * 2).held_out
