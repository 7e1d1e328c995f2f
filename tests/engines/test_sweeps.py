"""Sweeps of engines whose programs have their qparams as constants: each turn converts and lowers the calibrated model anew.

`tox -e pt2e-tosa`, which has every engine, runs these tests; elsewhere those of absent engines are skipped.
"""

from dataclasses import replace
from functools import cache

import pytest
import torch
from torch import Tensor

from conformance.engines.registry import engine
from conformance.execution.batch import make_ready
from conformance.models import apis, build, fx
from conformance.oracle.sweep import quantized
from conformance.properties.codes import settings
from conformance.properties.codes.judge import Judged
from conformance.properties.codes.sweeps import Plan, Relowered, Swept, plan
from conformance.results.findings.codes import SweptCodes, SweptElement, SweptRaises
from tests.property_scripts import executed, source
from tests.runs_by_id import run

LINEAR = "executorch/nn.Linear/static-qint8/ptq/one_weight/codes@executorch"
BEHIND = "xnnpack/nn.Hardtanh/static-qint8/ptq/every_code/codes@executorch"
IN_FLOAT = "x86inductor/nn.Conv2d/static-quint8/ptq/one_weight/codes@x86-inductor"
TRAINED = "x86inductor/nn.Conv2d+nn.BatchNorm2d/static-quint8/qat/one_weight/codes@x86-inductor"
TWO_WEIGHTS = "cortexm/nn.Conv2d/static-qint8/ptq/two_weights/codes@cortex-m"
PAIRS = "tosa/torch.add/static-qint8/ptq/every_pair/codes@tosa"
CASES = [LINEAR, BEHIND, IN_FLOAT, TRAINED, TWO_WEIGHTS, PAIRS]


@cache
def planned(name: str) -> tuple[Relowered, Plan]:
    subject_run = run(name)
    used = engine(subject_run.engine)
    if (reason := used.unavailable()) is not None:
        pytest.skip(reason)
    make_ready([subject_run.backend], [subject_run.engine])
    with used.scope(), fx.quiet():
        subject = build.subject(subject_run)
        prepared = apis.of(subject.run.backend).prepare(subject)
        apis.of(subject.run.backend).calibrate(prepared, subject)
        model = Relowered(used, prepared, subject_run.backend.config)
        return model, plan(subject_run, subject, model.own_qparams, in_float=model.in_float)


def turn(name: str, number: int) -> Tensor:
    model, sweep = planned(name)
    with engine(sweep.run.engine).scope(), fx.quiet(), torch.no_grad():
        return model.turn(sweep, number)


@pytest.mark.parametrize("name", CASES)
def test_a_turn_has_the_qparams_that_it_is_given_and_the_codes_of_exact_arithmetic(name: str) -> None:
    _, sweep = planned(name)
    expected = quantized(sweep.results, sweep.magnitude, sweep.qparams)
    for number in (0, 4):
        got = turn(name, number)
        assert got.is_quantized is not (name == IN_FLOAT)
        if got.is_quantized:
            output = sweep.output_qparams(number, sweep.qparams)
            assert (got.q_scale(), got.q_zero_point()) == (output.scale, output.zero_point)
        codes = settings.result_codes(got)
        assert codes.min() < codes.max()
        beyond = torch.maximum(expected.low[number] - codes, codes - expected.high[number])
        # a step beside a tie, where CMSIS-NN rounds twice
        assert int(beyond.max()) <= (name == TWO_WEIGHTS)
        assert float((beyond > 0).double().mean()) < 0.01


def element(name: str, number: int) -> SweptElement:
    """An element of a turn that is no tie, with the code that exact arithmetic gives."""
    _, sweep = planned(name)
    expected = quantized(sweep.results, sweep.magnitude, sweep.qparams)
    judged = Judged(Swept(sweep, expected, expected.low, sweep.qparams, {}))
    untied = (~expected.tied[number]).flatten().nonzero().flatten()
    return judged.element(number * expected.low[number].numel() + int(untied[9]))


@pytest.mark.parametrize("name", [LINEAR, IN_FLOAT, TWO_WEIGHTS, PAIRS])
def test_a_script_lowers_the_model_with_the_qparams_of_a_turn(name: str) -> None:
    first = element(name, 2)
    wrong = replace(first, low=first.low + 9, high=first.high + 9)
    kinds = [SweptCodes("numerics", 1, 2, 1, 1, 3, (one,)) for one in (first, wrong)]
    output = first.got.tensor
    raises = SweptRaises("lowered", 2, 1, 3, first.operands, output, "RuntimeError", "no kernel")
    right, off = executed(source(name, kinds[0], raises), source(name, kinds[1]))
    assert right == ["CONFORMS"]
    assert off == [f"DEVIATES numerics: {first.low}, exact arithmetic gives {first.exact:.9g}"]
