"""Scripts of findings about sweeps conform where exact arithmetic holds, and deviate where it does not."""

from dataclasses import replace
from functools import cache

import pytest
import torch

from conformance.engines.registry import engine
from conformance.models import build, fx
from conformance.oracle.sweep import quantized
from conformance.properties.codes.judge import Judged
from conformance.properties.codes.sweeps import Executed, Plan, Swept, plan
from conformance.repro.checks import kinds
from conformance.results.findings import Finding
from conformance.results.findings.codes import (
    SweptCodes,
    SweptElement,
    SweptOrder,
    SweptPlaces,
    SweptQparams,
    SweptRaises,
    SweptScale,
    SweptTies,
)
from tests.property_scripts import executed, source
from tests.runs_by_id import run

HARDSWISH = "fbgemm/nn.Hardswish/static-quint8/ptq/every_code/codes@fbgemm"
ADD = "fbgemm/torch.add/static-quint8/ptq/every_pair/codes@fbgemm"
LINEAR = "fbgemm/nn.Linear/static-quint8/ptq/one_weight/codes@fbgemm"
NARROW = "fbgemm/torch.narrow/static-quint8/ptq/every_code/codes@fbgemm"


@cache
def planned(name: str) -> Plan:
    subject_run = run(name)
    if (reason := engine(subject_run.engine).unavailable()) is not None:
        pytest.skip(reason)
    with engine(subject_run.engine).scope(), fx.quiet():
        subject = build.subject(subject_run)
        prepared = fx.prepare(subject, subject_run.backend.config)
        fx.calibrate(prepared, subject)
        model = Executed(fx.lower(prepared, subject_run.backend.config))
        return plan(subject_run, subject, model.own_qparams)


def element(name: str, turn: int, code: int) -> SweptElement:
    """An element that is no tie, behind so many codes of its turn, with the code that exact arithmetic gives."""
    swept = planned(name)
    expected = quantized(swept.results, swept.magnitude, swept.qparams)
    judged = Judged(Swept(swept, expected, expected.low, swept.qparams, {}))
    untied = (~expected.tied[turn]).flatten().nonzero().flatten()
    return judged.element(turn * expected.low[turn].numel() + int(untied[code]))


def wrong(one: SweptElement) -> SweptElement:
    return replace(one, low=(one.low + 2) % 256, high=(one.low + 2) % 256)


def findings(name: str, *, right: bool) -> list[Finding]:
    """A finding of each kind, whose script conforms if it is `right` about what the engine does wrong: nothing."""
    first, second = element(name, 2, 7), element(name, 2, 8)
    if (first.low <= second.low) is not (first.exact <= second.exact):
        first, second = second, first
    other = first if right else wrong(first)
    operands, output = first.operands, first.got.tensor
    ends = (first, first) if right else (first, element(name, 2, 60))
    order = sorted((first, second), key=lambda one: one.low)
    if not right:
        order = [replace(order[0], exact=9.0), replace(element(name, 2, 60), exact=0.0)]
    qparams = output if right else replace(output, scale=output.scale * 2)
    return [
        SweptCodes("numerics", 1, 2, 1, 1, 3, (other,)),
        SweptScale("stable", 1, 2, replace(output, scale=output.scale * 1.5), other),
        SweptPlaces("stable", 1, 2, *ends),
        SweptOrder("numerics", 1, *order),
        SweptQparams("numerics", 2, 1, 3, operands, output, qparams),
    ]


def test_every_kind_has_blocks() -> None:
    tested = {finding.kind for finding in findings(HARDSWISH, right=True)} | {SweptRaises.kind, SweptTies.kind}
    assert tested == {kind for kind in kinds() if kind.startswith("swept-")}


@pytest.mark.parametrize("name", [HARDSWISH, ADD, LINEAR])
def test_scripts_conform_where_the_engine_does(name: str) -> None:
    operands, output = element(name, 2, 7).operands, element(name, 2, 7).got.tensor
    raises = SweptRaises("lowered", 2, 1, 3, operands, output, "RuntimeError", "no kernel")
    assert executed(source(name, *findings(name, right=True), raises)) == [["CONFORMS"]]


def test_scripts_deviate_where_the_engine_does() -> None:
    first, last = element(HARDSWISH, 2, 7), element(HARDSWISH, 2, 60)
    assert first.low != last.low
    sources = [source(HARDSWISH, finding) for finding in findings(HARDSWISH, right=False)[:3]]
    for lines in executed(*sources):
        assert len(lines) == 1
        assert lines[0].startswith("DEVIATES")


def test_a_script_deviates_where_qparams_are_others() -> None:
    first = element(NARROW, 1, 3)
    other = replace(first.got.tensor, scale=first.got.tensor.scale * 2)
    finding = SweptQparams("numerics", 1, 1, 3, first.operands, first.got.tensor, other)
    (lines,) = executed(source(NARROW, finding))
    assert lines == [f"DEVIATES numerics: scale {first.got.tensor.scale}, zero point {first.got.tensor.zero_point}"]


def test_a_script_deviates_where_a_call_raises() -> None:
    first = element(HARDSWISH, 1, 3)
    operands = (replace(first.operands[0], zero_point=300),)
    finding = SweptRaises("lowered", 1, 1, 3, operands, first.got.tensor, "RuntimeError", "zero point")
    ((line,),) = executed(source(HARDSWISH, finding))
    assert line.startswith("DEVIATES lowered: execution raises RuntimeError")


def test_scripts_execute_the_turn_of_the_sweep() -> None:
    assert torch.equal(planned(HARDSWISH).operands[0].numbers[2], planned(HARDSWISH).operands[0].turn(2)[0])
