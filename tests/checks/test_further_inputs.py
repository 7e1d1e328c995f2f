"""A model that is wrong for inputs of another size alone fails, with the shapes of those inputs in its finding."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

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
from conformance.results.findings.stages import FurtherInputs, FurtherRange, FurtherThreads, Raises
from conformance.results.findings.values import CodesDiffer
from conformance.results.rows import Row
from tests.lies import Lie, after, applied, with_codes
from tests.runs_by_id import run

CONV = "fbgemm/nn.Conv2d/static-quint8/ptq/kernel_size_uneven/pairs@fbgemm"
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


def test_an_honest_model_conforms_for_further_inputs() -> None:
    row, further = row_of(run(CONV))
    assert (row.failed, further) == (frozenset(), further_inputs("nn.Conv2d"))


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
    assert len({*given}) == len(given) > 2


def test_models_with_qparams_that_nobody_knows_keep_theirs() -> None:
    found = Judge().evidence(run(CONV))
    assert found.back.lowered is not None
    own = dict(found.expectation.qparams())
    assert quantizing(found.back.lowered, own) is not None
    assert quantizing(found.back.lowered, {"x": own["x"]}) is None
    assert quantizing(found.back.lowered, {**own, "output 2": own["output"]}) is None


def test_a_kernel_that_is_wrong_on_two_threads_alone_is_found() -> None:
    def wrong(codes: Tensor) -> Tensor:
        return one_up(codes) if torch.get_num_threads() > 1 else codes

    row, _ = row_of(run(CONV), with_codes(wrong))
    assert row.failed == {"numerics"}
    assert row.findings[-1] == FurtherThreads("numerics", 2)
    assert "torch.set_num_threads(2)" in script(run(CONV), row, None)


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


def test_runs_of_other_profiles_have_no_further_inputs() -> None:
    _, further = row_of(run(CONV.replace("pairs", "exact").replace("kernel_size_uneven", "default")))
    assert further == 0


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
