"""Networks that a quantizer of PT2E refuses in part, and parts of networks that are no programs as they stand."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from conformance.audit import audit
from conformance.audit.exported import export
from conformance.audit.network import network
from conformance.audit.preparation import prepared
from conformance.audit.quantizers import quantization
from conformance.errors import Failure
from conformance.results.audits import Arithmetic, Audit, Layer
from tests.audit.causes import Call, activated_twice, padded_to_the_same_size, results_summed
from tests.audit.exported_networks import on_executorch, on_x86

ROUNDS = 3


def audited(model: nn.Module, quantizer: str) -> Audit:
    torch.manual_seed(0)
    last = torch.channels_last if quantizer == "x86inductor" else torch.contiguous_format
    batches = [torch.randn(1, 4, 8, 8).to(memory_format=last) for _ in range(ROUNDS)]
    return audit(model.eval(), batches, quantizer=quantizer)


def layer_of(found: Audit, name: str) -> Layer:
    return next(layer for layer in found.layers if layer.name == name)


@on_x86
def test_calls_of_one_module_are_taken_for_modules_of_their_own_if_preparing_raises() -> None:
    found = audited(activated_twice(), "x86inductor")
    (refusal,) = found.refusals
    assert (refusal.operator, refusal.stage, refusal.layers) == ("nn.ReLU", "prepare", ("relu",))
    assert refusal.instead == "each call taken for a module of its own"
    assert (found.failure, found.holds, found.blamed) == ("", False, ())
    assert [layer.pattern for layer in found.layers] == ["nn.Conv2d+nn.ReLU", "nn.ReLU(operator.add(*,nn.Conv2d))"]
    assert {layer.arithmetic for layer in found.layers} == {Arithmetic.INTEGER}


@on_x86
@pytest.mark.parametrize(
    ("model", "operator"), [(results_summed, "operator.add"), (padded_to_the_same_size, "nn.Conv2d")]
)
def test_operators_that_preparing_raises_for_are_left_in_float_and_the_rest_is_audited(
    model: Any, operator: str
) -> None:
    behind = nn.Sequential(model(), nn.Conv2d(4, 4, 1))
    found = audited(behind, "x86inductor")
    (refusal,) = found.refusals
    assert (refusal.operator, refusal.instead) == (operator, "left in float")
    left = layer_of(found, refusal.layers[0])
    assert left.arithmetic is Arithmetic.FLOAT
    assert left.reason == f"left out because prepare raises {refusal.error}"
    assert layer_of(found, "1").arithmetic is Arithmetic.INTEGER


@on_x86
def test_what_is_no_operators_fault_stops_the_audit() -> None:
    def broken() -> Any:
        raise ValueError("no configuration")

    subject = network("small", nn.Conv2d(3, 4, 1).eval(), [(torch.randn(1, 3, 4, 4),) for _ in range(ROUNDS)])
    graph = export(subject, quantization("x86inductor").make, lambda _: None).in_float
    with pytest.raises(ValueError, match="no configuration"):
        prepared(graph, broken, qat=False)


def test_an_assertion_without_a_message_is_told_by_its_line() -> None:
    with pytest.raises(AssertionError) as raised:
        raise AssertionError
    assert Failure.of(raised.value) == Failure("AssertionError", "raise AssertionError")


def activated_in_place() -> nn.Module:
    """A norm that no layer takes in, and an activation that writes to its result."""

    def forward(self: Any, x: Tensor) -> Any:
        y = self.first(x)
        return self.second(self.relu(self.norm(torch.cat([y, y], 1))))

    parts = {"first": nn.Conv2d(4, 4, 1), "norm": nn.BatchNorm2d(8), "relu": nn.ReLU(inplace=True)}
    return Call(forward, **parts, second=nn.Conv2d(8, 4, 1))


@on_executorch
def test_an_operator_that_writes_to_what_another_one_returns_is_a_program_that_returns_it() -> None:
    found = audited(activated_in_place(), "xnnpack")
    assert (found.failure, found.blamed) == ("", ())
    assert not any("copy_" in kernel for kernel in layer_of(found, "relu").kernels)


def placed() -> nn.Module:
    """The sum of an image and a convolution of constants."""

    def forward(self: Any, x: Tensor) -> Any:
        return x + self.layer(torch.arange(256.0).sin().view(1, 4, 8, 8))

    return Call(forward, layer=nn.Conv2d(4, 4, 1))


@on_executorch
def test_a_layer_of_constants_is_a_layer_of_its_own() -> None:
    found = audited(placed(), "xnnpack")
    assert (found.failure, found.blamed) == ("", ())
    assert [layer.pattern for layer in found.layers if layer.claim] == ["nn.Conv2d", "operator.add"]
    assert layer_of(found, "layer").shape == (1, 4, 8, 8)
