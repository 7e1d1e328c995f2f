"""Predictions: what the ledger says of networks before any quantized kernel runs."""

import fnmatch
import gc
import weakref
from typing import Any

import pytest
import torch
from audited_networks import branching, images, relu6, residual
from torch import Tensor, nn
from torch.ao.quantization import get_default_qconfig_mapping

from conformance.audit import Fx, audit
from conformance.audit.auditing import Settings, host
from conformance.audit.causes import explained
from conformance.audit.network import Network, network
from conformance.errors import UsageError
from conformance.models import fx
from conformance.models.trace import Recorder
from conformance.prediction import Predicting, predict
from conformance.prediction.platforms import host_of
from conformance.prediction.predicting import Shared
from conformance.results.audits import Arithmetic
from conformance.results.ledger_file import load
from conformance.results.predictions import Prediction, from_json, to_json
from conformance.results.severity import Severity
from tests.audit.causes import CAUSES, Cause

HOST, ENTRIES = host(), load()

UNFORESEEN = {
    "codes-add-scalar-rounded": "which roundings differ is a matter of the codes",
    "conv-add-other-weight": "prepare_fx makes the wrong module, which executing the network in float does not show",
    "conv-transpose-bn-groups": "fusing raises a batch norm later than the audit finds",
    "linear-norm-relu-dropped": "lowering drops a ReLU that the prepared network still has",
    "weight-read-after-lowering": "of a weight that is an operand, and not asked for a property",
}
"""Findings of which a least model does not show beforehand what happens, and why."""

OF_FX = [
    cause
    for cause in CAUSES
    if not cause.quantizer and fnmatch.fnmatchcase(HOST.arch, cause.arch) and fnmatch.fnmatchcase(HOST.isa, cause.isa)
]


def foretold(prediction: Prediction) -> dict[str | None, tuple[str, ...]]:
    """The conditions of everything that is foretold, by the id of the finding."""
    found: dict[str | None, tuple[str, ...]] = {one.cause: () for one in prediction.refusals}
    for layer in prediction.layers:
        for one in layer.foretold:
            if one.cause not in found or not one.conditions:
                found[one.cause] = one.conditions
    return found


def of_cause(cause: Cause) -> Prediction:
    torch.manual_seed(0)
    subject = network(cause.id, nn.Sequential(cause.model()).eval(), cause.batches())
    return Predicting(cause.engine, HOST, ENTRIES, cause.mapping() if cause.mapping else None).predict(subject)


@pytest.mark.parametrize("cause", OF_FX, ids=[f"{number}-{cause.name}" for number, cause in enumerate(OF_FX)])
def test_the_cause_of_a_minimal_model_is_foretold(cause: Cause) -> None:
    found = of_cause(cause)
    assert cause.id in foretold(found) or cause.id in UNFORESEEN, (foretold(found), found.failure)


def test_what_is_unforeseen_is_so() -> None:
    for cause in OF_FX:
        if cause.id in UNFORESEEN and cause.id != "weight-read-after-lowering":
            assert cause.id not in foretold(of_cause(cause)), cause.id


def test_no_quantized_kernel_runs() -> None:
    subject = network("residual", residual(), images())
    with Recorder() as recorder:
        found = Predicting("x86", HOST, ENTRIES).predict(subject)
    assert found.integer_share == 1
    assert [
        kernel.name for kernel in recorder.kernels if kernel.quantized or kernel.name.startswith("quantized.")
    ] == []


@pytest.mark.parametrize("engine", ["x86", "fbgemm", "onednn", "qnnpack"])
@pytest.mark.parametrize("model", [residual, branching, relu6])
def test_layers_are_those_of_an_audit(engine: str, model: type[nn.Module]) -> None:
    audited = audit(model(), images(), engine, reduce=False)
    found = predict(model(), images(), engine)
    expected = [(one.name, one.pattern, one.claim, one.arithmetic, one.reason) for one in audited.computing]
    assert [(one.name, one.pattern, one.claim, one.arithmetic, one.reason) for one in found.computing] == expected


def test_a_layer_in_another_memory_format_is_foretold_for_the_engine_that_it_hits() -> None:
    assert "qnnpack-clamp-channels-last" in foretold(predict(relu6(), images(), "qnnpack"))
    assert "qnnpack-clamp-channels-last" not in foretold(predict(relu6(), images(), "x86"))


class Twice(nn.Module):
    """Calls a layer twice, with ranges that differ."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.linear(self.linear(x) * 0.01)
        return y


def batches() -> list[tuple[Tensor, ...]]:
    return [(torch.linspace(-1, 1, 32).reshape(8, 4) + number / 100,) for number in range(3)]


def test_what_data_decide_is_a_condition_unless_inputs_are_given() -> None:
    torch.manual_seed(0)
    subject = network("twice", Twice().eval(), batches())
    known = Predicting("x86", HOST, ENTRIES).predict(subject)
    unknown = Predicting("x86", HOST, ENTRIES, data=False).predict(subject)
    assert foretold(known)["called-twice"] == ()
    assert foretold(unknown)["called-twice"] == ("values are beyond the range that it gets",)
    assert not known.holds
    assert unknown.holds


def test_another_instruction_set_has_its_own_findings() -> None:
    model = nn.Sequential(nn.Conv2d(4, 4, 3)).eval()
    inputs = [(torch.rand(2, 4, 8, 8),)] * 3
    assert "fbgemm-saturation" in foretold(predict(model, inputs, "x86", platform="x86_64", isa="avx2"))
    assert "fbgemm-saturation" not in foretold(predict(model, inputs, "x86", platform="x86_64", isa="avx512_vnni"))


def test_a_platform_need_not_be_this_one() -> None:
    found = predict(residual(), images(), "qnnpack", platform="aarch64")
    assert (found.platform, found.integer_share) == ("aarch64 aarch64", 1)


def test_what_is_refused_is_left_in_float() -> None:
    model = nn.Sequential(nn.Conv2d(4, 4, 3, padding="same"), nn.Conv2d(4, 4, 3)).eval()
    found = predict(model, [(torch.rand(2, 4, 8, 8),)] * 2, "qnnpack")
    (refusal,) = found.refusals
    assert (refusal.cause, refusal.stage, refusal.layers) == ("conv-padding-same", "convert", ("0",))
    assert [(one.name, one.arithmetic) for one in found.computing] == [
        ("0", Arithmetic.FLOAT),
        ("1", Arithmetic.INTEGER),
    ]
    assert not found.holds


def test_a_finding_has_the_severity_that_the_ledger_states() -> None:
    found = predict(nn.Sequential(nn.MaxPool3d(2)).eval(), [(torch.rand(2, 4, 8, 8, 8),)] * 2, "qnnpack")
    assert [(one.cause, one.severity) for layer in found.layers for one in layer.foretold] == [
        ("qnnpack-max-pool3d", Severity.REFUSES)
    ]


class Branch(nn.Module):
    """Takes a branch by a value of its input, which FX cannot trace."""

    def forward(self, x: Tensor) -> Tensor:
        return x if x.sum() > 0 else -x


def test_a_network_that_cannot_be_traced_has_the_reason_and_the_way_out() -> None:
    found = predict(Branch().eval(), [(torch.rand(2, 4),)] * 2)
    assert found.failure.startswith("prepare raises TraceError: symbolically traced variables cannot be used")
    assert "rewrite this line" in found.advice
    assert not found.holds


def test_a_prediction_is_what_its_json_says() -> None:
    found = predict(relu6(), images(), "qnnpack")
    assert from_json(to_json(found)) == found
    with pytest.raises(TypeError, match="schema 'other'"):
        from_json({**to_json(found), "schema": "other"})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"platform": "riscv64"}, r"--platform 'riscv64': the ledger knows aarch64, x86_64"),
        ({"platform": "aarch64", "isa": "avx2"}, r"--isa avx2: aarch64 has none that is told apart; leave it out"),
        ({"platform": "x86_64", "isa": "sse2"}, r"--isa 'sse2': choose from avx512_vnni, .*avx2, or avx512_vnni\+amx"),
        ({"engine": "fbgemm", "platform": "aarch64"}, r"engine fbgemm: torch has none of that name on aarch64"),
        ({"engine": "executorch"}, r"engine 'executorch' runs what a quantizer of PT2E converts"),
    ],
)
def test_what_cannot_be_predicted_is_an_error_with_the_fix(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        predict(residual(), images(), **options)


def test_a_processor_that_is_named_has_that_instruction_set_and_no_more() -> None:
    assert host_of(ENTRIES, "2.13.0", "x86_64", "avx2").vnni == "False"
    assert host_of(ENTRIES, "2.13.0", "x86_64", None).vnni == "True"
    assert host_of(ENTRIES, "2.13.0", "x86_64", "avx512_vnni+amx").platform == "x86_64 avx512_vnni+amx"


def test_a_mapping_leaves_a_layer_in_float() -> None:
    mapping = get_default_qconfig_mapping("x86").set_module_name("head", None)
    found = predict(residual(), images(), "x86", mapping=mapping)
    head = next(layer for layer in found.layers if layer.name == "head")
    assert (head.arithmetic, head.reason) == (Arithmetic.FLOAT, "the mapping has no qconfig for it")


def _convolutions() -> list[nn.Module]:
    gc.collect()
    return [one for one in gc.get_objects() if isinstance(one, nn.Conv2d)]


def test_no_network_is_kept() -> None:
    """What other tests hold may go at any time, so the convolutions that are new are counted and not all."""
    others = weakref.WeakSet(_convolutions())

    def new() -> int:
        return sum(one not in others for one in _convolutions())

    predict(residual(), images(), "x86")  # torch keeps something of the last network that was prepared
    kept = new()
    for _ in range(3):
        predict(residual(), images(), "x86")
    assert new() == kept


def test_the_network_is_not_changed() -> None:
    model = residual()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    predict(model, images(), "x86")
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_an_audit_of_the_same_network_has_what_was_foretold() -> None:
    torch.manual_seed(0)
    subject = Network("twice", Twice().eval(), tuple(batches()))
    audited = explained(Fx("x86", Settings(stable=False, reduce=False)).audit(subject), ENTRIES, HOST)
    blamed = {fault.cause for layer in audited.blamed for fault in layer.faults}
    assert blamed == {"called-twice"} == {*foretold(Predicting("x86", HOST, ENTRIES).predict(subject))}


def test_engines_with_one_config_and_mapping_share_an_annotation(monkeypatch: pytest.MonkeyPatch) -> None:
    subject, prepared, prepare = network("residual", residual(), images()), list[Any](), fx.prepare_network

    def counted(*given: Any) -> Any:
        prepared.append(given)
        return prepare(*given)

    monkeypatch.setattr(fx, "prepare_network", counted)
    shared: Shared = {}
    engines = ("x86", "fbgemm", "onednn", "qnnpack")
    found = [Predicting(engine, HOST, ENTRIES).predict(subject, shared) for engine in engines]
    assert len(prepared) == 3
    assert found == [Predicting(engine, HOST, ENTRIES).predict(subject) for engine in engines]
