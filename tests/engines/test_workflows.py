"""Runs of modules that torchao quantizes in place: what is right conforms, and every planted fault is noticed."""

import importlib.util
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch import Tensor, nn

from conformance.cases.claims import backend
from conformance.cases.runs import Run, runs
from conformance.checks import workflows
from conformance.checks.judge import Judge
from conformance.engines import workflows as engines
from conformance.errors import UsageError
from conformance.execution.batch import judge_runs
from conformance.models.compiled import Compiled, compiled
from conformance.models.workflows import quantized
from conformance.repro import execution
from conformance.repro.script import script
from conformance.results.rows import Row
from tests import runs_by_id

installed = pytest.mark.skipif(importlib.util.find_spec("torchao") is None, reason="torchao is not installed")
ROW = "int8_weight_only-row-bfloat16/ptq/default/exact"


def run(case: str) -> Run:
    """The run of a case, of a linear layer as it is unless another pattern or engine is named."""
    whole = case if case.startswith("nn.") else f"nn.Linear/{case}"
    return runs_by_id.run(f"torchao/{whole}" if "@" in whole else f"torchao/{whole}@torch-eager")


def judged(case: str, fault: Callable[[Any], None] | None = None) -> Row:
    def faulty(of: Any) -> nn.Module:
        model = quantized(of)
        if fault is not None:
            fault(model.op)
        return model

    with patch.object(workflows, "quantized", faulty):
        return Judge().row(run(case))[0]


@installed
@pytest.mark.parametrize(
    "case",
    [
        ROW,
        "int8_weight_only-32-float32/ptq/long/typical",
        "int8_dynamic-tensor-symmetric-float32/ptq/rank4/exact",
        "intx4_weight_only-32-asymmetric-float32/ptq/strided/exact",
        "float8_e5m2_weight_only-row-float32/ptq/odd/typical",
        "int8_weight_only-32-float32/ptq/indivisible/exact",
        "int4_weight_only-opaque-64-bfloat16/ptq/wide/exact",
        "nn.Conv2d/intx4_weight_only-32-asymmetric-bfloat16/ptq/groups/exact",
        "nn.Conv2d/intx8_weight_only-row-symmetric-float32/ptq/one_by_one/typical",
        "nn.Conv2d/intx8_weight_only-32-symmetric-float32/ptq/reflect/typical",
        "nn.Embedding/intx4_weight_only-row-no_clipping-float16/ptq/rank2/typical",
        "nn.Embedding/intx4_weight_only-32-hqq-bfloat16/ptq/rank2/typical",
        "intx2_weight_only-32-hqq-float32/ptq/long/typical",
        "intx4_weight_only-asymmetric-scale-bfloat16-float32/ptq/wide/typical",
        "intx4_weight_only-symmetric-scale-float16-float32/ptq/zero_row/exact",
        "mx-float4_e2m1-even-bfloat16/ptq/rank4/typical",
        "mx-float8_e5m2-floor-bfloat16/ptq/beyond_tiles/typical",
        "nvfp4_weight_only-tensor-float32/ptq/wide/typical",
        "nvfp4_weight_only-block-bfloat16/ptq/default/exact@torch-compiled",
    ],
)
def test_what_torchao_keeps_conforms(case: str) -> None:
    row = judged(case)
    assert (row.verdict, row.detail) == ("conforms", "")
    assert "numerics" in row.checks


def code(layer: Any) -> None:
    stored = layer.weight.qdata[3, 5]
    stored += 1 - 2 * (stored > 0).to(stored.dtype)


def scale(layer: Any) -> None:
    layer.weight.scale[2] *= 1 + 2.0**-23


def zero_point(layer: Any) -> None:
    layer.weight.zero_point[2] += 1


def packed_code(layer: Any) -> None:
    layer.weight.qdata[3, 5] ^= 1


def power(layer: Any) -> None:
    layer.weight.scale.view(torch.uint8).view(-1)[16] += 1  # of the second row


def packed_scale(layer: Any) -> None:
    layer.weight.scale_and_zero[1, 2, 0] *= 2


def in_float(layer: Any) -> None:
    layer.weight = nn.Parameter(layer.weight.dequantize())


def vanishes(layer: Any) -> None:
    layer.weight.qdata.zero_()


def hooked(change: Callable[[Tensor], Tensor]) -> Callable[[Any], None]:
    def fault(layer: Any) -> None:
        layer.register_forward_hook(lambda module, taken, given: change(given))

    return fault


def differs_exported(y: Tensor) -> Tensor:
    return y + 1 if torch.compiler.is_exporting() else y


def off_by_a_rounding(y: Tensor) -> Tensor:
    y = y.clone()
    y[1, 2] = torch.nextafter(y[1, 2], torch.tensor(torch.inf, dtype=y.dtype))
    return torch.where(y == 0, y, torch.nextafter(y, torch.full_like(y, torch.inf)))


@installed
@pytest.mark.parametrize(
    ("fault", "failed"),
    [
        (code, {"annotated"}),
        (scale, {"annotated"}),
        (zero_point, {"annotated"}),
        (in_float, {"annotated"}),
        (vanishes, {"annotated"}),
        (hooked(off_by_a_rounding), {"numerics"}),
        (hooked(differs_exported), {"stable"}),
        (hooked(lambda y: y.float()), {"numerics"}),
        (hooked(lambda y: y[:1]), {"numerics"}),
        (hooked(lambda y: y * torch.nan), {"numerics"}),
    ],
)
def test_a_planted_fault_is_noticed(fault: Callable[[Any], None], failed: set[str]) -> None:
    assert judged(ROW, fault).failed >= failed


@installed
@pytest.mark.parametrize(
    ("case", "fault", "failed"),
    [
        ("nn.Conv2d/intx4_weight_only-32-asymmetric-float32/ptq/options/exact", code, "annotated"),
        ("nn.Conv2d/intx4_weight_only-32-asymmetric-float32/ptq/options/exact", zero_point, "annotated"),
        ("nn.Conv2d/intx4_weight_only-32-asymmetric-float32/ptq/options/typical", hooked(torch.relu), "numerics"),
        ("nn.Embedding/intx4_weight_only-row-symmetric-bfloat16/ptq/rank2/typical", code, "annotated"),
        (
            "nn.Embedding/intx4_weight_only-row-symmetric-bfloat16/ptq/rank2/exact",
            hooked(off_by_a_rounding),
            "numerics",
        ),
        ("intx4_weight_only-32-hqq-float32/ptq/default/typical", code, "annotated"),
        ("mx-float8_e4m3fn-rceil-bfloat16/ptq/default/typical", power, "annotated"),
        ("mx-float4_e2m1-floor-bfloat16/ptq/default/typical", packed_code, "annotated"),
        ("nvfp4_weight_only-tensor-bfloat16/ptq/default/typical", hooked(torch.relu), "numerics"),
        ("int4_weight_only-opaque-32-bfloat16/ptq/default/exact", packed_code, "numerics"),
        ("int4_weight_only-opaque-32-bfloat16/ptq/default/exact", packed_scale, "annotated"),
    ],
)
def test_a_planted_fault_of_other_modules_is_noticed(case: str, fault: Callable[[Any], None], failed: str) -> None:
    assert not judged(case).failed
    assert failed in judged(case, fault).failed


@installed
def test_what_changes_from_call_to_call_is_unstable() -> None:
    calls: list[None] = []

    def counted(y: Tensor) -> Tensor:
        calls.append(None)
        return y if len(calls) == 1 else y + 8

    assert "stable" in judged(ROW, hooked(counted)).failed


@installed
@pytest.mark.parametrize(
    ("case", "shown"),
    [
        (ROW, ""),
        (
            "int8_weight_only-row-bfloat16/ptq/default/typical",
            "DEVIATES annotated: the scales are not those of the blocks",
        ),
        ("float8_e4m3fn_weight_only-row-float32/ptq/zero_row/exact", "DEVIATES numerics"),
        ("int4_weight_only-plain-bfloat16/ptq/indivisible/exact", "DEVIATES annotated: the weight is not annotated"),
        ("int8_static-symmetric-float32/ptq/odd_rank3/exact", "DEVIATES lowered: AssertionError"),
        ("int4_weight_only-opaque-32-bfloat16/ptq/keyword/exact", "DEVIATES numerics"),
        ("int8_weight_only-tensor-bfloat16/ptq/default/exact@torch-packaged", "DEVIATES lowered: InductorError"),
        ("mx-float8_e4m3fn-rceil-bfloat16/ptq/default/exact@torch-compiled", "DEVIATES lowered: InductorError"),
        ("mx-float4_e2m1-rceil-bfloat16/ptq/default/typical", ""),
        ("int8_dynamic-intx4-hqq-bfloat16/ptq/default/typical", ""),
        ("nn.Conv2d/intx4_weight_only-32-symmetric-float32/ptq/keyword/exact", "DEVIATES numerics"),
        ("nn.Conv2d/intx8_weight_only-row-symmetric-float16/ptq/default/typical", "DEVIATES annotated: the blocks"),
        ("nn.Embedding/intx8_weight_only-32-asymmetric-float32/ptq/padding_idx/typical", ""),
    ],
)
def test_a_script_needs_torch_and_torchao_alone(case: str, shown: str) -> None:
    one = run(case)
    text = script(one, Judge().row(one)[0], None)
    assert "conformance" not in text.replace(f'"""{one.id}', "")
    process = execution.run(text)
    assert (process.returncode, shown in process.stdout) == (int(bool(shown)), True)


@installed
def test_what_differs_on_several_threads_is_unstable() -> None:
    def faulty(of: Any) -> nn.Module:
        model = quantized(of)
        hooked(lambda y: y + 8 * (torch.get_num_threads() > 1))(model.op)
        return model

    with patch.object(workflows, "quantized", faulty):
        (outcome,) = judge_runs([run(ROW)], lambda _: None)
    assert outcome.row.detail.startswith("stable: 2 threads")  # type: ignore[union-attr]


@installed
def test_the_first_call_of_a_program_is_compared() -> None:
    def faulty(*args: Any, **options: Any) -> Compiled:
        program = compiled(*args, **options)
        return Compiled(program.function, program.first + 8)

    with patch.object(engines, "compiled", faulty):
        (outcome,) = judge_runs([run("intx4_weight_only-32-symmetric-float32/ptq/default/exact@torch-compiled")], print)
    assert outcome.row.detail.startswith("stable: first call")  # type: ignore[union-attr]


def test_what_another_device_is_needed_for_is_unavailable_and_says_so() -> None:
    (outcome,) = judge_runs([run("int4_weight_only-plain-bfloat16/ptq/default/exact")], lambda _: None)
    assert outcome.row.verdict == "unavailable"  # type: ignore[union-attr]
    assert outcome.row.detail == "needs the package mslk, whose kernels are for accelerators"  # type: ignore[union-attr]


def test_an_engine_of_converted_models_is_refused() -> None:
    with pytest.raises(UsageError, match=r"unknown engine 'qnnpack': choose from torch-eager, .*what torchao declares"):
        [*runs(backend("torchao"), ["qnnpack"])]
