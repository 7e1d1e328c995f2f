"""Audits of small networks: what is said of each layer, and what is blamed."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from audited_networks import branching, images, no_claims, relu6, residual
from torch import Tensor, nn
from torch.ao.quantization import QConfigMapping, default_dynamic_qconfig, get_default_qconfig_mapping
from torch.ao.quantization.backend_config import BackendConfig

from conformance.audit import audit
from conformance.configs.fbgemm import get_fbgemm_backend_config
from conformance.engines.registry import engine
from conformance.errors import UsageError
from conformance.models import fx
from conformance.networks.zoo import network
from conformance.results.audits import Arithmetic, Audit, Layer
from tests.saturation import EXACT


def layer(audited: Audit, name: str) -> Layer:
    (found,) = [layer for layer in audited.layers if layer.name == name]
    return found


@pytest.fixture(scope="module")
def clean() -> Audit:
    return audit(residual(), images(), "x86")


def test_layers_come_in_network_order_with_their_claims(clean: Audit) -> None:
    computing = [(layer.name, layer.pattern) for layer in clean.computing]
    assert computing == [
        ("stem.0", "nn.Conv2d+nn.BatchNorm2d+nn.ReLU"),
        ("branch.0", "nn.Conv2d+nn.BatchNorm2d"),
        ("add", "operator.add+torch.relu"),
        ("pool", "nn.AdaptiveAvgPool2d"),
        ("head", "nn.Linear"),
    ]
    assert layer(clean, "head").claim == "fbgemm/nn.Linear/static-quint8"


def test_layers_say_how_they_compute(clean: Audit) -> None:
    assert clean.integer_share == 1.0
    assert layer(clean, "stem.0").kernels == ("quantized.conv2d_relu",)
    conversions = [layer for layer in clean.layers if layer.arithmetic is Arithmetic.CONVERSION]
    assert [layer.pattern for layer in conversions] == ["torch.quantize_per_tensor", "Tensor.dequantize"]


def test_a_clean_network_holds(clean: Audit) -> None:
    assert clean.holds
    assert not clean.blamed
    assert [check.outcome for check in clean.stability] == ["pass", "pass", "pass"]
    assert all(layer.agreement and not layer.agreement.wrong for layer in clean.computing)


def test_layers_have_qparams_and_shapes(clean: Audit) -> None:
    head = layer(clean, "head")
    assert head.output is not None
    assert head.output.dtype == "quint8"
    assert head.weight is not None
    assert (head.weight.dtype, head.weight.channels) == ("qint8", 10)
    assert head.shape == (2, 10)
    assert head.features["in_features"] == "8"


def test_the_time_of_all_nodes_adds_up(clean: Audit) -> None:
    assert 0.5 < sum(layer.latency for layer in clean.layers) <= 1.0


def test_a_few_codes_of_many_are_pointed_out() -> None:
    convolution = nn.Conv2d(3, 4, 1)
    nn.init.constant_(convolution.weight, 0.02)
    nn.init.constant_(convolution.bias, 1.0)  # type: ignore[arg-type]
    model = nn.Sequential(convolution, nn.ReLU()).eval()
    (found,) = audit(model, images(), "x86").computing
    assert found.codes_used < 32
    assert any(note.startswith("uses ") for note in found.notes)


def test_operators_without_a_claim_stay_in_float_and_say_so() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 1), nn.GELU(), nn.Softplus()).eval()
    audited = audit(model, images(), "x86")
    assert [layer.reason for layer in audited.computing] == [
        "",
        "no claim covers nn.GELU",
        "no claim covers nn.Softplus",
    ]
    assert audited.share(Arithmetic.FLOAT) == pytest.approx(2 / 3)
    assert audited.holds


def test_a_network_without_a_single_claim_is_no_network_to_audit() -> None:
    audited = audit(no_claims(), images(), "x86")
    assert "no claim of the fbgemm config covers any operator" in audited.failure
    assert "nn.GELU, nn.Softplus" in audited.failure
    assert "--backend-config" in audited.advice
    assert not audited.holds


def test_a_kernel_that_dequantizes_is_an_integer_kernel_in_name_only() -> None:
    class Joined(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.other = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            return torch.cat([self.one(x), self.other(x)])

    audited = audit(Joined().eval(), [torch.ones(2, 4) * n for n in (1, 2, 3)], "x86")
    assert layer(audited, "cat").arithmetic is Arithmetic.NAME_ONLY
    assert "aten.dequantize" in layer(audited, "cat").reason


def test_the_line_that_fx_cannot_trace_is_named_with_what_can_be_traced() -> None:
    audited = audit(branching(), images(), "x86")
    assert "audited_networks.py" in audited.failure
    assert "if x.sum() > 0:" in audited.failure
    assert "torch.fx.wrap" in audited.advice
    assert audited.advice.endswith("these parts can be traced: body")
    assert not audited.holds


def lied_to(monkeypatch: pytest.MonkeyPatch, path: str, change: Any) -> None:
    """Have the kernels of one module of the lowered network give other codes."""
    lower = fx.lower_network

    def lying(_: nn.Module, inputs: Any, output: Tensor) -> Tensor:
        codes = change(output.int_repr().int()).clamp(0, 255).to(torch.uint8)
        return torch._make_per_tensor_quantized_tensor(codes, output.q_scale(), output.q_zero_point())

    def lowered(*arguments: Any) -> Any:
        reference, model, same = lower(*arguments)
        model.get_submodule(path).register_forward_hook(lying)
        return reference, model, same

    monkeypatch.setattr(fx, "lower_network", lowered)


def first_channel_off(codes: Tensor) -> Tensor:
    return torch.cat([codes[:, :1] + 2, codes[:, 1:]], 1)


def one_element_off(codes: Tensor) -> Tensor:
    flat = codes.flatten().clone()
    flat[7] = (flat[7] + 100) % 256
    return flat.reshape(codes.shape)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("keyword_dscnn", first_channel_off),
        ("m5", one_element_off),
        ("lenet5", lambda codes: codes.flip(-1)),
        ("textcnn", lambda codes: codes + 1),
        ("quartznet", lambda codes: codes.roll(1, 1)),
        ("espcn", lambda codes: codes.clamp(max=60)),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_layer_with_a_planted_fault_is_blamed_first(
    monkeypatch: pytest.MonkeyPatch, name: str, change: Any
) -> None:
    one = network(name)
    model, batches = one.build(), one.batches()
    honest = audit(model, batches, EXACT, reduce=False)
    # in the middle of the network, so that later layers get inputs that are off
    modules = dict(model.named_modules())
    middle = [
        layer.name
        for layer in honest.computing
        if layer.kernels[0].startswith("quantized.conv") and layer.name in modules
    ]
    planted = middle[len(middle) // 2]
    lied_to(monkeypatch, planted, change)
    audited = audit(model, batches, EXACT, reduce=False)
    assert not honest.blamed
    assert audited.blamed[0].name == planted
    assert [layer.name for layer in audited.blamed] == [planted]
    assert audited.blamed[0].faults[0].cause is None


def test_a_dynamic_layer_that_quantizes_its_input_computes_in_integers() -> None:
    torch.manual_seed(0)
    mapping = QConfigMapping().set_global(default_dynamic_qconfig)
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4)).eval()
    audited = audit(model, [torch.randn(4, 8) for _ in range(2)], "qnnpack", mapping=mapping, reduce=False)
    linear = [layer for layer in audited.computing if layer.kernels[0].startswith("quantized.linear")]
    assert linear
    assert {layer.arithmetic for layer in linear} == {Arithmetic.INTEGER}


CLEAN = (
    *("lenet5", "espcn", "m5", "quartznet", "textcnn", "keyword_dscnn", "wav2letter", "tcn"),
    "fasttext",
)


@pytest.mark.parametrize("name", CLEAN)
def test_clean_networks_are_blamed_for_nothing(name: str) -> None:
    one = network(name)
    audited = audit(one.build(), one.batches(), EXACT)
    assert audited.holds, audited.blamed


def test_a_layer_that_raises_gets_the_references_value_and_the_rest_is_audited(monkeypatch: pytest.MonkeyPatch) -> None:
    def refusing(codes: Tensor) -> Tensor:
        raise RuntimeError("no kernel")

    lied_to(monkeypatch, "branch.0", refusing)
    audited = audit(residual(), images(), "x86", reduce=False)
    assert [layer.name for layer in audited.blamed] == ["branch.0"]
    assert audited.blamed[0].faults[0].text == "execute raises RuntimeError: no kernel"
    assert layer(audited, "head").agreement is not None
    assert {check.outcome for check in audited.stability} == {"skip"}


def test_a_crash_costs_one_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    def dying(codes: Tensor) -> Tensor:
        import os
        import signal

        os.kill(os.getpid(), signal.SIGSEGV)
        return codes

    lied_to(monkeypatch, "stem.0", dying)
    audited = audit(residual(), images(), "x86", reduce=False)
    (blamed,) = audited.blamed
    assert (blamed.name, blamed.faults[0].check) == ("stem.0", "crashes")
    assert "SIGSEGV" in blamed.faults[0].text
    assert layer(audited, "head").agreement is not None


def test_the_model_and_the_threads_of_the_caller_stay_as_they_are() -> None:
    model = residual()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    threads, selected = torch.get_num_threads(), torch.backends.quantized.engine
    audit(model, images(), "onednn")
    assert torch.get_num_threads() == threads
    assert torch.backends.quantized.engine == selected
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_audits_of_one_network_agree_but_for_time() -> None:
    def timeless(audited: Audit) -> Audit:
        layers = tuple(replace(one, latency=0.0) for one in audited.layers)
        return replace(audited, seconds=0.0, time_ratio=None, layers=layers)

    assert timeless(audit(relu6(), images(), "x86")) == timeless(audit(relu6(), images(), "x86"))


@pytest.mark.parametrize(
    ("model", "inputs", "message"),
    [
        (
            residual().train(),
            images(),
            "in training mode (10 modules, such as the network itself): return model.eval()",
        ),
        ("a model", images(), "returned a str: it has to return a torch.nn.Module"),
        (residual(), images()[:1], "inputs are a list of 1: give a sequence of at least 2 batches"),
        (residual(), [1, 2], "batch 1 of the inputs is a int: give a tensor, a tuple of arguments, or a dict"),
        (residual(), [x[:, :2] for x in images()], "inputs of shape (2, 2, 12, 12): give inputs that it accepts"),
    ],
)
def test_what_cannot_be_audited_is_refused_with_the_fix(model: Any, inputs: Any, message: str) -> None:
    with pytest.raises(UsageError) as raised:
        audit(model, inputs, "x86")
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


def test_an_unknown_engine_is_refused() -> None:
    with pytest.raises(UsageError, match="unknown engine 'x68'"):
        audit(residual(), images(), "x68")
    with pytest.raises(UsageError, match="audit one of qnnpack, fbgemm, x86, onednn"):
        audit(residual(), images(), "executorch")


@pytest.mark.skipif(engine("qnnpack").unavailable() is not None, reason="needs QNNPACK")
def test_a_known_deviation_is_explained_by_its_cause_and_reduced() -> None:
    audited = audit(relu6(), images(), "qnnpack")
    (blamed,) = audited.blamed
    assert blamed.name == "1"
    (reduction,) = audited.reductions
    assert "nn.ReLU6" in reduction.script
    assert "channels-last inputs" in reduction.company


def test_a_mapping_leaves_layers_in_float() -> None:
    mapping = get_default_qconfig_mapping("x86").set_object_type(nn.Linear, None)
    head = layer(audit(residual(), images(), "x86", mapping=mapping), "head")
    assert head.arithmetic is Arithmetic.FLOAT
    assert head.reason == "the mapping has no qconfig for it"
    assert head.claim is None


def test_a_config_of_ones_own_has_its_own_claims() -> None:
    config = BackendConfig("mine").set_backend_pattern_configs([
        entry for entry in get_fbgemm_backend_config().configs if entry.pattern in (nn.Conv2d, nn.Linear)
    ])  # fmt: skip
    audited = audit(residual(), images(), "x86", backend_config=config)
    assert audited.backend == "mine"
    assert layer(audited, "head").claim == "mine/nn.Linear/static-quint8"
    assert layer(audited, "pool").reason == "no claim covers nn.AdaptiveAvgPool2d"
