"""Outputs are compared up to ties, data contain both ends of the range, and a stage that raises is a finding."""

import copy
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.jit._check import AttributeTypeIsSupportedChecker

from conformance.cases.runs import Run
from conformance.execution import batch
from conformance.host.isolation import Done, run_isolated
from conformance.models import build, fx
from conformance.models.scripting import remembered_sources
from conformance.models.templates import Template
from conformance.models.trace import Execution, Output
from conformance.properties.metamorphic import callables, relations, transforms
from conformance.results.findings.relations import RelationOutputs, RelationShape, RelationValues
from conformance.results.findings.stages import Raises
from conformance.results.rows import Row
from conformance.shortcuts import without
from conformance.stopwatch import Stopwatch
from tests.runs_by_id import run


def compared(expected: list[Tensor], got: list[Tensor], steps: Tensor | None) -> object:
    return callables.compared("a split batch", expected, got, lambda number: steps)


def test_one_step_at_a_tie_is_no_difference_and_two_steps_are() -> None:
    first, again, ties = torch.tensor([0.0, 0.0, 0.0]), torch.tensor([0.5, 0.0, 0.0]), torch.tensor([0.5, 0.5, 0.0])
    assert compared([first], [again], ties) is None
    assert compared([first], [2 * again], ties) == RelationValues("stable", "a split batch", 0, 1, 3, (0,), 1.0, 0.0)
    assert compared([first], [again.flip(0)], ties) == RelationValues(
        "stable", "a split batch", 0, 1, 3, (2,), 0.5, 0.0
    )
    finding = compared([first], [again], None)
    assert isinstance(finding, RelationValues)
    assert finding.text == "a split batch changes 1 of 3 values, first at (0,): 0.5, not 0"


def test_float_outputs_of_functions_that_round_may_differ_by_the_error_of_float32(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    values = torch.tensor([0.5, -2.0])
    outputs = Execution((), (Output(values),))
    monkeypatch.setattr(callables, "execute", lambda model, inputs: outputs)
    allowed = {}
    for name in ("nn.Sigmoid", "nn.Linear"):
        subject = build.subject(run(f"fbgemm/{name}/static-quint8/ptq/default/exact@fbgemm"))
        prepared = fx.prepare(subject, subject.run.backend.config)
        fx.calibrate(prepared, subject)
        allowed[name] = callables.allowed_difference(subject, prepared, 0)
    sigmoid, linear = allowed.values()
    assert linear is None
    assert sigmoid is not None
    assert compared([values], [values + 2.0**-20], sigmoid) is None
    assert compared([values], [values + 2.0**-18], sigmoid) is not None
    assert compared([values], [values * float("nan")], sigmoid) is not None


def test_other_shapes_and_numbers_of_outputs_are_differences() -> None:
    first, again = torch.zeros(3), torch.zeros(2)
    assert compared([first], [again], None) == RelationShape("stable", "a split batch", 0, (2,), (3,))
    second = compared([first, first], [first, again], None)
    assert isinstance(second, RelationShape)
    assert second.text == "a split batch changes the shape of output 1 from (3,) to (2,)"
    number = compared([first, first], [first], None)
    assert number == RelationOutputs("stable", "a split batch", 1, 2)
    assert isinstance(number, RelationOutputs)
    assert number.text == "a split batch changes the number of outputs from 2 to 1"


def test_a_stage_that_raises_is_a_finding_and_later_checks_are_skipped() -> None:
    batch.warm_up()

    def work(subject: Run) -> Row:
        return relations.row(Stopwatch(), subject)

    (outcome,) = run_isolated([run("fbgemm/Tensor.hardsigmoid/static-quint8/ptq/large/laws@fbgemm")], work)
    assert isinstance(outcome, Done), outcome
    row = outcome.value
    (finding,) = row.findings
    assert isinstance(finding, Raises)
    assert (finding.check, finding.stage, finding.exception) == ("matched", "float", "AttributeError")
    assert row.detail.startswith("matched: the pattern cannot occur: the float model raises AttributeError")
    assert dict(row.checks) == {"matched": "fail", "observed": "skip", "lowered": "skip", "stable": "skip"}


def test_every_item_gets_both_ends_of_the_range_and_channels_get_scales_of_their_own() -> None:
    subject = callables.subject(run("fbgemm/nn.Conv2d/static-quint8/ptq/large/laws@fbgemm"))
    (x,) = subject.inputs
    assert {(item.min().item(), item.max().item()) for item in x} == {(x.min().item(), x.max().item())}
    assert len({channel.abs().max().item() for channel in subject.model.op.weight}) == 3  # type: ignore[union-attr]
    assert isinstance(subject.model, nn.Module)


LINEAR = "fbgemm/nn.Linear/static-quint8/ptq/large/laws@{}"


def shuffled(name: str) -> tuple[nn.Module | None, nn.Module]:
    """A prepared model whose channels are permuted, and what prepare makes of a model with permuted channels."""
    own = callables.small(run(name))
    other = copy.deepcopy(own.model)
    transforms.shuffle_channels(other, 8, 0)
    config = own.run.backend.config
    with fx.quiet():
        replaced = Template(own.model, fx.prepare(own, config)).of(other)
        return replaced, fx.prepare(replace(own, model=other), config)


def test_permuted_tensors_in_a_prepared_model_equal_a_prepared_model_of_permuted_tensors() -> None:
    replaced, prepared = shuffled(LINEAR.format("fbgemm"))
    assert replaced is not None
    assert replaced.code == prepared.code
    assert all(map(torch.equal, replaced.state_dict().values(), prepared.state_dict().values()))
    with without("templates"):
        assert shuffled(LINEAR.format("fbgemm"))[0] is None


def test_a_folded_batch_norm_is_folded_again() -> None:
    replaced, _ = shuffled("fbgemm/nn.Linear+nn.BatchNorm1d/static-quint8/ptq/large/laws@fbgemm")
    assert replaced is None


def test_sources_are_remembered_in_a_scope() -> None:
    def read() -> Any:
        return torch._jit_internal.get_type_hint_captures

    def lines() -> Any:
        return torch._sources.get_source_lines_and_file

    honest, honest_lines, check = read(), lines(), AttributeTypeIsSupportedChecker.check
    with remembered_sources():
        assert read() is not honest
        assert read()(compared) is read()(compared)
        assert read()(compared) == honest(compared)
        assert lines() is not honest_lines
        assert lines()(compared) is lines()(compared, "a call stack")
        assert lines()(compared) == honest_lines(compared)
        assert AttributeTypeIsSupportedChecker.check is not check
        with pytest.raises(OSError, match="a call stack"):
            lines()(eval("lambda: 0"), "a call stack")
    assert read() is honest
    assert lines() is honest_lines
    assert AttributeTypeIsSupportedChecker.check is check
    with without("remembered-sources"), remembered_sources():
        assert read() is honest
