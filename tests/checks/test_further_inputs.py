"""A model that is wrong for inputs of another size alone fails, with the shapes of those inputs in its finding."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy
import pytest
import torch
from torch import Tensor

from conformance.cases.combined import further_inputs
from conformance.cases.runs import Run
from conformance.checks import evidence
from conformance.checks.further import quantizing
from conformance.checks.judge import Judge
from conformance.execution import batch
from conformance.host.isolation import Done, run_isolated
from conformance.models import fx
from conformance.models.qparams import get_qparams
from conformance.repro.script import script
from conformance.results.findings.stages import (
    BEYOND,
    DEGENERATE,
    INDICES,
    VIEWS,
    FurtherBeyond,
    FurtherData,
    FurtherInputs,
    FurtherRange,
    FurtherThreads,
    Raises,
)
from conformance.results.findings.values import CodesDiffer
from conformance.results.rows import Row
from tests.lies import Lie, after, applied, by_input, with_codes
from tests.runs_by_id import run

CONV = "fbgemm/nn.Conv2d/static-quint8/ptq/kernel_size_uneven/pairs@fbgemm"
DEFAULT = "fbgemm/nn.Conv2d/static-quint8/ptq/default/exact@fbgemm"
HARDSWISH = "fbgemm/nn.Hardswish/static-quint8/ptq/default/exact@fbgemm"
PADDING_INDEX = "fbgemm/nn.EmbeddingBag/weight-quint8/ptq/padding_idx_0/pairs@fbgemm"
"""A run whose own few indices are none of those that the kernel should leave out."""

WIDTH = 12


def row_of(subject: Run, *lies: Lie) -> tuple[Row, int]:
    """The row of a run, and the number of its further inputs."""
    batch.warm_up()

    def work(one: Run) -> tuple[Row, int]:
        for stage, lie in lies:
            setattr(fx, stage, lie(getattr(fx, stage)))
        found, row = Judge().judged(one)
        return row, len(found.further)

    (outcome,) = run_isolated([subject], work)
    assert isinstance(outcome, Done), outcome
    return outcome.value


def only_where(large: bool, change: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    return lambda x: change(x) if (x.numel() > 2000) is large else x


def one_up(codes: Tensor) -> Tensor:
    codes[(-1,) * codes.dim()] ^= 1
    return codes


def test_an_honest_model_conforms_for_further_inputs_and_degenerate_data() -> None:
    row, further = row_of(run(CONV))
    assert (row.failed, further) == (frozenset(), further_inputs("nn.Conv2d") + 1)


def test_a_code_that_is_wrong_in_a_larger_output_alone_is_found() -> None:
    row, _ = row_of(run(CONV), with_codes(only_where(True, one_up)))
    assert row.failed == {"numerics"}
    differ, inputs, ranged = row.findings
    assert isinstance(differ, CodesDiffer)
    assert isinstance(inputs, FurtherInputs)
    assert isinstance(ranged, FurtherRange)
    assert differ.mismatched == row.mismatched == 1
    steps = f"in steps of 2**{ranged.exponent} with {ranged.below} codes below zero"
    assert row.detail.endswith(f", where x is of shape {dict(inputs.operands)['x']}, {steps}")


def test_models_are_executed_with_the_qparams_of_other_ranges_and_get_their_own_back() -> None:
    batch.warm_up()
    judge, subject = Judge(), run(CONV)
    found = judge.evidence(subject)
    lowered = found.back.lowered
    assert lowered is not None
    own = found.expectation.qparams()
    for name, node in (quantizing(lowered, own) or {}).items():
        assert get_qparams(lowered, node) == (float(own[name].scale), int(own[name].zero_point))
    given = []
    for further in found.further:
        assert further.execution is not None
        assert further.expectation.golden is not None
        (got,), (expected,) = further.execution.outputs, further.expectation.golden.outputs
        assert got.quantized is not None
        assert (got.quantized.q_scale(), got.quantized.q_zero_point()) == (expected.scale, expected.zero_point)
        x = further.expectation.qparams()["x"]
        given.append((float(x.scale), int(x.zero_point)))
    assert len({*given}) == len(given) == further_inputs("nn.Conv2d") + 1


def test_models_with_qparams_that_nobody_knows_keep_theirs() -> None:
    found = Judge().evidence(run(CONV))
    assert found.back.lowered is not None
    own = dict(found.expectation.qparams())
    assert quantizing(found.back.lowered, own) is not None
    assert quantizing(found.back.lowered, {"x": own["x"]}) is None
    assert quantizing(found.back.lowered, {**own, "output 2": own["output"]}) is None


@pytest.mark.parametrize("threads", [2, 3, 4, 7])
def test_a_kernel_that_is_wrong_on_so_many_threads_alone_is_found(threads: int) -> None:
    def wrong(codes: Tensor) -> Tensor:
        return one_up(codes) if torch.get_num_threads() == threads else codes

    trained = run(DEFAULT.replace("ptq", "qat"))  # TorchScript compiles no lie, and programs of the other flow
    row, _ = row_of(trained, with_codes(wrong))
    assert row.failed == {"numerics"}
    assert FurtherThreads("numerics", threads) in row.findings
    assert f"torch.set_num_threads({threads})" in script(trained, row, None)


def test_a_kernel_that_is_wrong_for_expanded_operands_is_found() -> None:
    row, _ = row_of(run(DEFAULT), by_input(lambda codes, x: one_up(codes) if 0 in x.stride() else codes))
    assert FurtherData("numerics", "expanded") in row.findings


def test_a_model_that_reads_strides_is_not_executed_on_views() -> None:
    found = Judge().evidence(run("fbgemm/Tensor.resize_/static-quint8/ptq/default/exact@fbgemm"))
    assert not {further.degenerate for further in found.further} & {*VIEWS}


def test_indices_are_executed_as_int32_too() -> None:
    found = Judge().evidence(run("fbgemm/nn.EmbeddingBag/weight-quint8/ptq/default/exact@fbgemm"))
    executed = {further.degenerate: further.subject.inputs for further in found.further}
    assert executed.keys() == INDICES.keys()
    assert {x.dtype for x in executed["int32"]} == {torch.int32}


def test_what_no_calibration_saw_is_compared_last() -> None:
    """A run executed on data above the range and in other sizes. A kernel that is wrong for both is wrong for sizes, which
    the saturation of codes that no calibration saw must not hide."""
    above = "fbgemm/nn.Conv2d/static-quint8/ptq/stride_uneven/pairs@fbgemm"

    def constant(codes: Tensor, x: Tensor) -> Tensor:
        return one_up(codes) if len({*numpy.ravel(x.tolist())}) == 1 else codes

    def constant_or_large(codes: Tensor, x: Tensor) -> Tensor:
        return one_up(codes) if len({*numpy.ravel(x.tolist())}) == 1 or x.numel() > 2000 else codes

    assert FurtherBeyond("numerics", "above") in row_of(run(above), by_input(constant))[0].findings
    kinds = {finding.kind for finding in row_of(run(above), by_input(constant_or_large))[0].findings}
    assert FurtherInputs.kind in kinds
    assert FurtherBeyond.kind not in kinds


def test_a_finding_about_the_runs_own_inputs_names_no_others() -> None:
    row, _ = row_of(run(CONV), with_codes(only_where(False, one_up)))
    assert [type(finding) for finding in row.findings] == [CodesDiffer]


def test_a_kernel_that_refuses_a_size_fails_lowered() -> None:
    def refuse(x: Tensor) -> Tensor:
        raise RuntimeError("no such size")

    row, _ = row_of(run(CONV), after("lower", lambda graph: applied(graph, only_where(True, refuse))))
    assert row.failed == {"lowered"}
    raises, inputs, _ = row.findings
    assert raises == Raises("lowered", "execute", "RuntimeError", "no such size")
    assert isinstance(inputs, FurtherInputs)


def test_default_variants_are_executed_on_all_degenerate_data_and_no_other_sizes() -> None:
    found = Judge().evidence(run(DEFAULT))
    assert found.front.subject is not None
    variants = [further.subject.run.variant for further in found.further]
    names = [variant.executed["x"].degenerate for variant in variants if variant is not None]
    assert names == [*DEGENERATE, *VIEWS, *BEYOND]
    assert {further.subject.inputs[0].shape for further in found.further} == {found.front.subject.inputs[0].shape}


def test_other_variants_have_no_further_inputs() -> None:
    _, further = row_of(run(DEFAULT.replace("default", "no_bias")))
    assert further == 0


def test_a_kernel_that_is_wrong_where_all_elements_are_equal_is_found(tmp_path: Path) -> None:
    def wrong(codes: Tensor) -> Tensor:
        return one_up(codes) if codes.min().equal(codes.max()) else codes

    subject = run(HARDSWISH)
    row, _ = row_of(subject, with_codes(wrong))
    assert FurtherData("numerics", "zero") in row.findings
    path = tmp_path / "script.py"
    path.write_text(script(subject, row, None), encoding="utf-8")
    done = subprocess.run([sys.executable, path], capture_output=True, text=True, check=False)
    assert done.stdout == "CONFORMS\n", done.stderr  # torch's kernel is right
    assert "degenerate('zero'" in path.read_text(encoding="utf-8")


def test_the_script_of_a_finding_has_its_inputs(tmp_path: Path) -> None:
    subject = run(PADDING_INDEX)
    row, _ = row_of(subject)
    inputs = row.findings[1]
    assert isinstance(inputs, FurtherInputs)
    path = tmp_path / "script.py"
    path.write_text(script(subject, row, None), encoding="utf-8")
    done = subprocess.run([sys.executable, path], capture_output=True, text=True, check=False)
    assert done.stdout.startswith("DEVIATES numerics"), done.stderr
    assert str(dict(inputs.operands)["x"]) in path.read_text(encoding="utf-8")


def test_the_diagnostics_are_those_of_the_inputs_of_the_finding() -> None:
    batch.warm_up()
    (judged,) = batch.judge_runs([run(PADDING_INDEX)], lambda engine: None)
    assert isinstance(judged, batch.Judged)
    assert judged.details is not None
    inputs = judged.row.findings[1]
    assert isinstance(inputs, FurtherInputs)
    bags = dict(inputs.operands)["offsets"][0]
    assert [offsets.total for offsets in judged.details.outputs] == [bags * WIDTH]


def test_evidence_has_no_further_inputs_by_default() -> None:
    assert evidence.Evidence(run(CONV)).further == ()
