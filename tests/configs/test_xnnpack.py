"""What XNNPACKQuantizer declares, as claims: enumerated without torchao and ExecuTorch."""

from collections import Counter

import pytest

from conformance.cases.claims import backend
from conformance.cases.runs import Run, runs
from conformance.configs.quantizer import Declaration
from conformance.configs.registry import BACKENDS, QUANTIZERS
from conformance.goldens.golden import compute
from conformance.models import build
from conformance.selection import Selection

XNNPACK = backend("xnnpack")


def run(run_id: str) -> Run:
    return next(run for run in runs(XNNPACK) if run.id == f"xnnpack/{run_id}@executorch")


def test_a_quantizer_is_asked_for_by_name() -> None:
    assert [*QUANTIZERS] == ["xnnpack", "x86inductor", "arminductor", "cortexm", "tosa"]
    assert [claims.name for claims in Selection().claims] == [*BACKENDS]
    assert [claims.name for claims in Selection(backends=["xnnpack"]).claims] == ["xnnpack"]


def test_every_declared_pattern_has_claims() -> None:
    names = Counter(claim.entry.name for claim in XNNPACK.claims if isinstance(claim.entry, Declaration))
    assert names == {
        "conv_bn_relu": 4,
        "conv_bn": 2,
        "conv_transpose_bn_relu": 4,
        "conv_transpose_bn": 2,
        "linear_relu": 4,
        "linear": 4,
        "conv": 12,
        "conv_transpose": 12,
        "conv_relu": 12,
        "conv_transpose_relu": 12,
        "adaptive_avg_pool2d": 2,
        "add_relu": 4,
        "add": 2,
        "mul_relu": 4,
        "mul": 2,
        "cat": 1,
        "shares_qparams": 19,
    }
    assert len({claim.id for claim in XNNPACK.claims}) == len(XNNPACK.claims) == 102


def test_norms_are_declared_for_training_alone() -> None:
    flows = {(run.claim.entry.name, run.flow) for run in runs(XNNPACK) if isinstance(run.claim.entry, Declaration)}
    assert {name for name, flow in flows if flow == "ptq"} == {name for name, _ in flows if "bn" not in name}
    assert {name for name, flow in flows if flow == "qat"} == {name for name, _ in flows}


def test_what_torch_enforces_of_configs_is_not_run_for_a_quantizer() -> None:
    profiles = {run.profile for run in runs(XNNPACK)}
    assert {"exact", "typical", "pairs", "contexts", "in_use", "codes"} <= profiles
    assert not {"constraints", "laws"} & profiles


@pytest.mark.parametrize(
    ("case", "axis"),
    [
        ("nn.Conv2d/static-qint8/ptq/default/exact", None),
        ("nn.Conv2d/static-qint8/ptq/per_channel/exact", 0),
        ("nn.ConvTranspose2d/static-qint8/ptq/default/exact", None),
        ("nn.ConvTranspose2d/static-qint8/ptq/per_channel/exact", 1),
        ("F.conv_transpose1d+F.relu/static-qint8/qat/per_channel/exact", 1),
    ],
)
def test_output_channels_of_a_transposed_convolution_are_in_dimension_1(case: str, axis: int | None) -> None:
    weight = run(case).recipe.scheme.weight
    assert weight is not None
    assert weight.axis == axis
    assert ("ch_axis" in run(case).recipe.qconfig) == (axis is not None)


def test_recipes_are_text_over_the_names_of_torchao() -> None:
    activation = "QuantizationSpec(torch.int8, {}, -128, 127, torch.per_tensor_affine{})"
    exact, dynamic = (
        "PowerOfTwoObserver.with_args(eps=0.000244140625)",
        "PlaceholderObserver.with_args(eps=0.000244140625)",
    )
    weight = f"QuantizationSpec(torch.int8, {exact}, -127, 127, torch.per_tensor_symmetric)"
    static = run("nn.Linear/static-qint8/ptq/default/exact").recipe
    observed = activation.format(exact, "")
    assert static.qconfig == f"QuantizationConfig({observed}, {observed}, {weight}, None, False)"
    assert static.mapping == "XNNPACKQuantizer().set_global(qconfig)"
    chosen = activation.format(dynamic, ", is_dynamic=True")
    assert run("nn.Linear/dynamic-qint8/ptq/default/exact").recipe.qconfig == (
        f"QuantizationConfig({chosen}, None, {weight}, None, False)"
    )
    added = run("torch.add/static-qint8/qat/default/exact").recipe.qconfig
    assert added.startswith("QuantizationConfig(QuantizationSpec(torch.int8, FakeQuantize.with_args(observer=PowerOf")
    assert added.endswith(", None, None, True)")
    assert run("nn.Linear/static-qint8/qat/default/typical").recipe.qconfig == (
        "get_symmetric_quantization_config(is_per_channel=False, is_qat=True, is_dynamic=False)"
    )
    in_use = next(run for run in runs(XNNPACK) if run.profile == "trained")
    assert "MinMaxObserver, " in in_use.recipe.qconfig
    assert "PowerOfTwo" not in in_use.recipe.qconfig


def test_expected_codes_are_computed_without_torchao() -> None:
    subject = build.subject(run("nn.Conv2d+nn.BatchNorm2d/static-qint8/qat/default/exact"))
    assert (subject.qconfig, subject.mapping) == (None, None)
    assert compute(subject).qparams.keys() == {"x", "weight", "output"}
