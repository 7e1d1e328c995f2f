"""Rows of properties are the same without shortcuts."""

from dataclasses import replace

import pytest
import torch

from conformance.engines.registry import engine
from conformance.execution import batch
from conformance.host.isolation import Done, run_isolated
from conformance.models import build, fx, torchs
from conformance.models.observers import unpacked
from conformance.properties.constraints.enforcement import Enforcement
from conformance.properties.metamorphic import relations
from conformance.results.rows import Row
from conformance.shortcuts import without
from conformance.stopwatch import Stopwatch
from tests.runs_by_id import run

LINEAR = "qnnpack/F.linear/static-qint8/ptq/weight.quant_min_lower_bound/constraints@qnnpack"
FOLDED = "qnnpack/nn.Conv1d+nn.BatchNorm1d/static-qint8/ptq/weight.quant_min_lower_bound/constraints@qnnpack"
TRAINED = "qnnpack/nn.Linear/static-qint8/qat/input.scale_min_lower_bound/constraints@qnnpack"
SIGMOID = "{0}/nn.Sigmoid/static-quint8/ptq/output.zero_point_exact_match/constraints@{1}"
LARGE = "fbgemm/nn.Linear+nn.ReLU/static-quint8/ptq/large/laws@{}"


def row_of(name: str) -> Row:
    """The row of a run, judged in this process for constraints, which runs no kernel, and else in another."""
    if "/constraints@" in name:
        row = Enforcement(Stopwatch()).row(run(name))
    else:
        batch.warm_up()
        (outcome,) = run_isolated([run(name)], lambda judged: relations.row(Stopwatch(), judged))
        assert isinstance(outcome, Done), outcome
        row = outcome.value
    return replace(row, seconds=0.0)


@pytest.mark.parametrize("name", [LINEAR, FOLDED, TRAINED, SIGMOID.format("fbgemm", "x86"), LARGE.format("fbgemm")])
def test_a_row_is_the_same_without_shortcuts(name: str) -> None:
    if (reason := engine(run(name).engine).unavailable()) is not None:
        pytest.skip(reason)
    with without():
        honest = row_of(name)
    assert row_of(name) == honest


def test_a_row_does_not_depend_on_which_constraint_is_tested_first() -> None:
    """Constraints of one dtype config are tested on one model, whose weights are those of the first constraint."""
    name = "qnnpack/nn.ConvTranspose1d+nn.BatchNorm1d/static-qint8/ptq/weight.quant_min_lower_bound/constraints@qnnpack"
    fields = ("input.scale_min_lower_bound", "output.scale_min_lower_bound", "weight.quant_max_upper_bound")
    rows = []
    for first in (*(name.replace("weight.quant_min_lower_bound", field) for field in fields), name):
        enforcement = Enforcement(Stopwatch())
        enforcement.row(run(first))
        rows.append(replace(enforcement.row(run(name)), seconds=0.0))
    assert all(row == rows[0] for row in rows)


def test_a_lowered_reference_model_is_the_converted_model() -> None:
    if (reason := engine("qnnpack").unavailable()) is not None:
        pytest.skip(reason)
    subject = build.subject(run(LINEAR))
    config = subject.run.backend.config
    with engine("qnnpack").scope(), fx.quiet():
        prepared = fx.prepare(subject, config)
        fx.calibrate(prepared, subject)
        lowered = torchs.lowered(prepared, fx.reference(prepared, config))
        converted = fx.lower(prepared, config)
        assert lowered.code == converted.code
        (weight,), (expected,) = unpacked(lowered), unpacked(converted)
    assert torch.equal(weight, expected)
