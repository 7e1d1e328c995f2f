"""What cannot be prepared or lowered is left in float; and the correspondence of lowered and reference models."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from audited_networks import images, residual
from torch import Tensor, nn
from torch.ao.quantization import get_default_qconfig_mapping

from conformance.audit import audit
from conformance.audit.auditing import claims_for
from conformance.audit.conversion import convert
from conformance.audit.network import network
from conformance.engines.registry import engine
from conformance.results.audits import Arithmetic


class Functional(nn.Module):
    """A functional convolution without a bias argument, which lowering refuses, and a module that it takes."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4, 3, 1, 1))
        self.module = nn.Conv2d(4, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.module(F.conv2d(x, self.weight))  # type: ignore[no-any-return]


def padded_same() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, padding="same"), nn.Conv2d(4, 4, 3, padding="same"), nn.Conv2d(4, 4, 3)
    ).eval()


def test_modules_that_are_alike_are_left_out_together_and_the_others_are_not() -> None:
    audited = audit(padded_same(), images(), "x86")
    (refusal,) = audited.refusals
    assert (refusal.operator, refusal.stage, refusal.layers) == ("nn.Conv2d", "convert", ("0", "1"))
    kinds = {layer.name: layer.arithmetic for layer in audited.computing}
    assert kinds == {"0": Arithmetic.FLOAT, "1": Arithmetic.FLOAT, "2": Arithmetic.INTEGER}
    assert refusal.error in audited.computing[0].reason
    assert not audited.holds


def test_a_module_is_left_out_for_how_it_is_fused_and_those_fused_otherwise_are_not() -> None:
    class Mixed(nn.Module):
        def __init__(self, tanh: Callable[[Tensor], Tensor]) -> None:
            super().__init__()
            self.first, self.second, self.third = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8)
            self.tanh = tanh

        def forward(self, x: Tensor) -> Any:
            return self.third(torch.relu(self.second(self.tanh(self.first(x)))))

    inputs = [torch.randn(4, 8, generator=torch.Generator().manual_seed(seed)) for seed in range(2)]
    for tanh, cause in ((torch.tanh, "linear-functional-activation"), (nn.Tanh(), "onednn-default-mapping-tanh")):
        audited = audit(Mixed(tanh).eval(), inputs, "onednn", reduce=False)
        assert [(one.layers, one.cause) for one in audited.refusals] == [(("first",), cause)]
        kinds = {layer.name: layer.arithmetic for layer in audited.computing}
        assert (kinds["first"], kinds["second"], kinds["third"]) == (
            Arithmetic.FLOAT,
            Arithmetic.INTEGER,
            Arithmetic.INTEGER,
        )


def test_a_function_is_left_out_by_its_claims() -> None:
    audited = audit(Functional().eval(), images(), "x86")
    assert [(one.operator, one.stage) for one in audited.refusals] == [("F.conv2d", "convert")]
    assert {layer.name: layer.arithmetic for layer in audited.computing}["module"] is Arithmetic.INTEGER


def test_a_function_that_raises_while_calibrating_is_left_out_and_named() -> None:
    class Masked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(8, 8)

        def forward(self, x: Tensor) -> Tensor:
            y: Tensor = self.linear(x)
            return y * (x > 0)

    torch.manual_seed(0)
    audited = audit(Masked().eval(), [torch.randn(4, 8) for _ in range(2)], "qnnpack", reduce=False)
    (refusal,) = [one for one in audited.refusals if one.operator == "operator.mul"]
    assert (refusal.stage, refusal.cause) == ("calibrate", "boolean-observed")
    assert not audited.failure
    assert audited.engine_db is not None
    assert audited.engine_db > 20


def test_what_cannot_be_copied_is_not_taken_for_control_flow() -> None:
    model = residual()
    model.lock = threading.Lock()  # type: ignore[assignment]
    audited = audit(model, images(), "x86")
    assert audited.failure == "prepare raises TypeError: cannot pickle '_thread.lock' object"
    assert audited.advice.startswith("torch copies a network before it quantizes it: leave out the attributes")


@pytest.mark.skipif(engine("onednn").unavailable() is not None, reason="needs oneDNN")
def test_a_class_of_modules_that_prepare_rejects_is_left_out() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ConvTranspose2d(4, 3, 3), nn.ReLU()).eval()
    audited = audit(model, images(), "onednn")
    assert [(one.operator, one.stage, one.layers) for one in audited.refusals] == [
        ("nn.ConvTranspose2d", "prepare", ("1",))
    ]


def test_a_module_that_observers_cannot_take_is_left_out() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), Unpooling()).eval()
    audited = audit(model, images(), "x86")
    assert {one.stage for one in audited.refusals} == {"calibrate"}
    assert {layer.name: layer.arithmetic for layer in audited.computing}["0"] is Arithmetic.INTEGER
    assert not audited.failure


def test_a_module_is_left_out_for_the_tuple_that_it_returns_and_not_what_takes_its_elements() -> None:
    audited = audit(Unpooling().eval(), images(), "x86", reduce=False)
    assert [(one.operator, one.layers, one.cause) for one in audited.refusals] == [
        ("nn.MaxPool2d", ("pool",), "tuple-observed")
    ]


class Unpooling(nn.Module):
    """A pooling that returns a tuple."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = nn.MaxPool2d(2, return_indices=True)
        self.unpool = nn.MaxUnpool2d(2)

    def forward(self, x: Tensor) -> Tensor:
        values, indices = self.pool(x)
        return self.unpool(values, indices)  # type: ignore[no-any-return]


def test_every_computing_node_of_the_lowered_model_has_its_reference() -> None:
    subject = network("residual", residual(), images())
    with engine("x86").scope():
        converted = convert(subject, claims_for("x86"), get_default_qconfig_mapping("x86"), lambda _: None)
    same = {node.name: other for node, other in converted.equivalents.items() if node.op.startswith("call_")}
    computing = [node for node in converted.lowered.graph.nodes if node.op in ("call_module", "call_function")]
    assert [node.name for node in computing if node.name not in same] == []
    # a lowered layer has the value of the quantize call that lowering removes
    assert same["stem_0"].target is torch.quantize_per_tensor
    with torch.no_grad():
        assert torch.equal(converted.expected, converted.reference(*subject.held_out))


class AsksForTensors(nn.Module):
    """A network that does something to tensors only, and so not to what FX passes through it."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(12, 4)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.linear(x)
        return result * 2 if isinstance(x, Tensor) else result


def test_a_network_that_tracing_changes_is_told() -> None:
    audited = audit(AsksForTensors().eval(), images(), "x86")
    assert audited.failure == "tracing raises no error, but the traced network computes something else"
    assert "compare torch.fx.symbolic_trace(model) with the model" in audited.advice
