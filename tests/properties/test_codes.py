"""Sweeps hold every code to exact arithmetic, on models that are what lowering would have produced."""

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.ao.quantization import FixedQParamsObserver
from torch.fx import GraphModule

from conformance.cases.claims import backend
from conformance.cases.operators.record import TAIL
from conformance.cases.runs import Run, runs
from conformance.engines.registry import engine
from conformance.execution.batch import judge_runs
from conformance.models import build, fx
from conformance.models.observers import is_observer
from conformance.oracle.arithmetic import Codes, Qparams
from conformance.oracle.scheme import Grid
from conformance.oracle.sweep import quantized
from conformance.properties.codes import settings, sweeps
from conformance.properties.codes.judge import Judged
from conformance.properties.codes.sweeps import Executed, Plan, Swept
from conformance.results.findings.codes import SweptCodes, SweptOrder, SweptPlaces, SweptQparams, SweptTies
from tests.runs_by_id import run

HARDSWISH = "fbgemm/nn.Hardswish/static-quint8/ptq/every_code/codes@fbgemm"
RELU = "fbgemm/nn.ReLU/static-quint8/ptq/every_code/codes@fbgemm"
SIGMOID = "fbgemm/nn.Sigmoid/static-quint8/ptq/every_code/codes@fbgemm"
LEAKY_RELU = "fbgemm/F.leaky_relu/static-quint8/ptq/every_code/codes@fbgemm"
ADD = "fbgemm/torch.add+nn.ReLU/static-quint8/ptq/every_pair/codes@fbgemm"
TWICE = "fbgemm/operator.mul/static-quint8/ptq/every_code_same_tensor/codes@fbgemm"
NARROW = "fbgemm/torch.narrow/static-quint8/ptq/every_code/codes@fbgemm"
LINEAR = "fbgemm/F.linear+F.relu/static-quint8/ptq/one_weight_per_channel/codes@fbgemm"
CONV = "fbgemm/nn.Conv2d/static-quint8/ptq/one_weight/codes@fbgemm"
CONV_ADD = "onednn/nni.ConvAddReLU2d/static-quint8/ptq/one_weight_per_channel/codes@onednn"
QINT8 = "qnnpack/nn.ELU/static-qint8/ptq/every_code/codes@qnnpack"


def lowered(subject_run: Run) -> tuple[GraphModule, build.Subject, GraphModule]:
    """The lowered model of a run, its subject and its calibrated model."""
    subject = build.subject(subject_run)
    prepared = fx.prepare(subject, subject_run.backend.config)
    fx.calibrate(prepared, subject)
    return fx.lower(prepared, subject_run.backend.config), subject, prepared


def planned(name: str) -> tuple[Executed, Plan, GraphModule]:
    subject_run = run(name)
    if (reason := engine(subject_run.engine).unavailable()) is not None:
        pytest.skip(reason)
    with engine(subject_run.engine).scope(), fx.quiet():
        model, subject, prepared = lowered(subject_run)
        executed = Executed(model)
        return executed, sweeps.plan(subject_run, subject, executed.own_qparams), prepared


def exact(plan: Plan) -> Codes:
    """What exact arithmetic allows on the grids of a plan."""
    return quantized(plan.results, plan.magnitude, plan.qparams)


def with_qparams(prepared: GraphModule, qparams: dict[str, tuple[float, int]]) -> GraphModule:
    """A copy of a calibrated model whose observers have these scales and zero points: those of each input by its name, and
    those of `output` for the other ones."""
    other = copy.deepcopy(prepared)
    for node in other.graph.nodes:
        if node.op == "call_module" and is_observer(observer := other.get_submodule(str(node.target))):
            (source,) = node.all_input_nodes
            if isinstance(observer, FixedQParamsObserver) or source.op == "get_attr":
                continue
            scale, zero_point = qparams[str(source.target) if source.op == "placeholder" else "output"]
            fixed: Any = FixedQParamsObserver
            replacement = fixed(scale, zero_point, observer.dtype, quant_min=0, quant_max=255)
            other.set_submodule(str(node.target), replacement)
    result: GraphModule = other
    return result


@pytest.mark.parametrize("name", [HARDSWISH, RELU, SIGMOID, LEAKY_RELU, ADD, TWICE, NARROW, LINEAR, CONV, CONV_ADD])
def test_a_model_with_other_qparams_is_the_one_that_lowering_produces(name: str) -> None:
    model, plan, prepared = planned(name)
    config = plan.run.backend.config
    with engine(plan.run.engine).scope(), fx.quiet(), torch.no_grad():
        for turn in (1, 4):
            got = model.turn(plan, turn)
            given = {one.name: (one.scale, one.zero_point) for one in plan.operand_qparams(turn)}
            output = plan.output_qparams(turn, plan.qparams)
            again = fx.lower(with_qparams(prepared, {**given, "output": (output.scale, output.zero_point)}), config)
            inputs = [settings.dequantized(*operand.turn(turn)) for operand in plan.operands]
            expected = settings.returning_codes(again)(*inputs)
            assert (got.q_scale(), got.q_zero_point()) == (expected.q_scale(), expected.q_zero_point())
            assert torch.equal(got.int_repr(), expected.int_repr())


# Placement.


@pytest.mark.parametrize("vector", [16, 32, 64])
def test_every_code_is_in_the_body_and_in_the_tail_of_vector_loops(vector: int) -> None:
    places = 2 * 256 + TAIL
    tail = places % vector
    turns = [settings.placed(256, places, turn) for turn in range(sweeps.TURNS)]
    assert all(set(numbers[: places - tail].tolist()) == set(range(256)) for numbers in turns)
    assert {number for numbers in turns for number in numbers[-tail:].tolist()} == set(range(256))


def test_a_code_has_other_neighbours_in_every_block_and_turn() -> None:
    before = set()
    for turn in range(4):
        numbers = settings.placed(256, 512, turn)
        before |= {int(numbers[place - 1]) for place in (numbers == 200).nonzero().flatten().tolist()}
    assert len(before) >= 6


def test_all_pairs_of_codes_are_placed_in_every_turn() -> None:
    first, second = (settings.numbers(256, (1, 65567), 3, operand, True) for operand in (0, 1))
    assert len(set((first * 256 + second).flatten().tolist())) == 65536


def test_few_places_have_every_code_after_some_turns() -> None:
    turns = -(-2 * 256 // 10)
    assert {number for turn in range(turns) for number in settings.placed(256, 10, turn).tolist()} == set(range(256))


@pytest.mark.parametrize("count", [128, 255, 256])
def test_any_number_of_codes_is_permuted(count: int) -> None:
    for turn in range(5):
        assert sorted(settings.placed(count, count, turn).tolist()) == [*range(count)]


# What is swept.


def test_scales_and_zero_points_reach_the_ends_and_keep_to_the_least_scale_of_a_config() -> None:
    _, plan, _ = planned(QINT8)
    (operand,) = plan.operands
    assert {-128, 127} <= set(operand.qparams.zero_point.tolist()) & set(plan.qparams.zero_point.tolist())
    assert float(torch.minimum(operand.qparams.scale.min(), plan.qparams.scale.min())) == 2.0**-12
    dyadic = torch.frexp(plan.qparams.scale).mantissa == 0.5
    assert bool(dyadic.any())
    assert not bool(dyadic.all())


def test_outputs_saturate_in_some_turns_and_fit_in_others() -> None:
    _, plan, _ = planned(CONV)
    position = exact(plan).position
    beyond = ((position < -0.5) | (position > 255.5)).flatten(1).double().mean(1)
    assert float(beyond.max()) > 0.5
    assert float(beyond.min()) < 0.05


def test_a_layer_keeps_to_the_codes_of_its_recipe_and_a_function_takes_all() -> None:
    assert int(planned(LINEAR)[1].operands[0].codes.max()) == 127
    assert int(planned(HARDSWISH)[1].operands[0].codes.max()) == 255


@pytest.mark.parametrize("name", ["qnnpack", "fbgemm", "onednn"])
def test_every_operator_with_a_sweep_has_one_on_every_engine_in_every_static_dtype_config(name: str) -> None:
    every = [one for one in runs(backend(name)) if one.profile == "codes"]
    assert len({one.id for one in every}) == len(every)
    assert {one.engine for one in every} == set(backend(name).engines)
    swept = {one.claim.pattern for one in every}
    static = {claim.id for claim in backend(name).claims if claim.pattern in swept and "static" in claim.dtype_config}
    assert {one.claim.id for one in every} == static


# Exact arithmetic.


def stacked(scale: float, zero_point: int) -> Qparams:
    grid = Grid("quint8", 0, 255, axis=0)
    return Qparams(grid, torch.tensor([scale]), torch.tensor([zero_point], dtype=torch.int32))


def test_the_band_of_a_tie_grows_with_intermediate_values_and_not_beyond_float32() -> None:
    values = torch.tensor([[2.5, 2.5 + 2.0**-11, 2.5 + 2.0**-8]]).double()
    small = quantized(values, torch.tensor([1.0]).double(), stacked(1.0, 0))
    assert small.tied.tolist() == [[True, False, False]]
    large = quantized(values, torch.tensor([1000.0]).double(), stacked(1.0, 0))
    assert large.tied.tolist() == [[True, True, False]]


# Judgement.


def swept(name: str, change: Callable[[Codes], Tensor]) -> Judged:
    """A sweep whose outputs are a change of the expected ones."""
    _, plan, _ = planned(name)
    return Judged(Swept(plan, exact(plan), change(exact(plan)), plan.qparams, {}))


@pytest.mark.parametrize("name", [HARDSWISH, RELU, ADD, LINEAR, CONV, CONV_ADD, NARROW])
def test_exact_codes_have_no_findings_at_whichever_neighbour_of_a_tie(name: str) -> None:
    for change in (lambda expected: expected.low, lambda expected: expected.high):
        judged = swept(name, change)
        assert [*judged.findings()] == []
        assert judged.comparison().mismatched == 0
    assert swept(name, lambda expected: expected.high + (expected.high < 255)).comparison().mismatched > 0


def changed(places: tuple[int, ...], step: int) -> Callable[[Codes], Tensor]:
    def change(expected: Codes) -> Tensor:
        got = expected.low.clone()
        got[places] += step
        return got

    return change


@pytest.mark.parametrize(
    ("name", "places"),
    [(HARDSWISH, (3, 0, 77)), (ADD, (2, 0, 40000)), (LINEAR, (4, 100, 33)), (CONV, (4, 0, 34, 3, 7))],
)
def test_one_code_that_is_off_in_one_turn_is_found_with_what_it_is_computed_from(
    name: str, places: tuple[int, ...]
) -> None:
    judged = swept(name, changed(places, -1 if int(exact(planned(name)[1]).low[places]) else 1))
    finding = next(finding for finding in judged.findings() if isinstance(finding, SweptCodes))
    assert (finding.mismatched, finding.turns, finding.worst) == (1, 1, 1)
    (element,) = finding.elements
    assert (element.turn, *element.index) == places
    operands = judged.plan.operands
    assert element.codes == tuple(int(one.codes.expand(judged.swept.got.shape)[places]) for one in operands)
    assert element.operands == judged.plan.operand_qparams(places[0])


@pytest.mark.parametrize(("distance", "kind"), [(0.2, SweptTies), (0.3, SweptCodes)])
def test_codes_beside_a_tie_are_told_from_others(distance: float, kind: type[SweptCodes]) -> None:
    def change(expected: Codes) -> Tensor:
        part = expected.position - expected.position.floor()
        beside = (
            ((part - 0.5).abs() <= distance) & ~expected.tied & (expected.position > 0.5) & (expected.position < 254)
        )
        farther = torch.where(part > 0.5, expected.position.floor(), expected.position.ceil()).long()
        return torch.where(beside, farther, expected.low)

    finding = next(swept(HARDSWISH, change).findings())
    assert type(finding) is kind
    assert finding.worst == 1
    two = next(swept(HARDSWISH, lambda expected: (expected.low - 2).clamp(min=0)).findings())
    assert type(two) is SweptCodes


def tie(plan: Plan, later: int) -> tuple[int, ...]:
    """The place of a tie, behind so many places of its turn."""
    tied = exact(plan).tied.clone()
    tied[:, :, :later] = False
    return tuple(int(part) for part in tied.nonzero()[0])


def test_a_tie_that_is_rounded_otherwise_at_another_place_is_found() -> None:
    _, plan, _ = planned(HARDSWISH)
    place = tie(plan, later=512)
    assert not [*swept(HARDSWISH, lambda expected: expected.low).places_differ()]
    (finding,) = swept(HARDSWISH, changed(place, 1)).places_differ()
    assert isinstance(finding, SweptPlaces)
    assert finding.check == "stable"
    assert finding.first.codes == finding.second.codes
    assert place in [(element.turn, *element.index) for element in (finding.first, finding.second)]


def test_results_in_the_wrong_order_are_found_even_at_ties() -> None:
    _, plan, _ = planned(HARDSWISH)
    got = exact(plan).low.clone()
    numbers, turn = plan.operands[0].numbers, 3
    position = exact(plan).position[turn, 0]
    rising = next(code for code in range(200, 255) if bool((got[turn][numbers[turn] == code] > 0).all()))
    place = int((numbers[turn, 0] == rising).nonzero()[-1])
    got[turn, 0, numbers[turn, 0] == rising + 1] = 0
    findings = [*Judged(Swept(plan, exact(plan), got, plan.qparams, {})).order_differs()]
    (finding,) = findings
    assert isinstance(finding, SweptOrder)
    assert finding.first.codes == (rising,)
    assert finding.second.codes == (rising + 1,)
    assert float(position[place]) == pytest.approx(finding.first.exact)


def test_an_output_with_other_qparams_than_it_was_given_is_found() -> None:
    _, plan, _ = planned(HARDSWISH)
    other = replace(plan.qparams, zero_point=plan.qparams.zero_point.clone())
    other.zero_point[5] += 1
    (finding,) = Judged(Swept(plan, exact(plan), exact(plan).low, other, {})).qparams_differ()
    assert isinstance(finding, SweptQparams)
    assert (finding.turn, finding.turns) == (5, 1)
    assert finding.got.zero_point == finding.expected.zero_point + 1


def test_rows_do_not_depend_on_the_run_before() -> None:
    names = [HARDSWISH, LINEAR, NARROW]
    subjects = [run(name) for name in names]
    unavailable = engine("fbgemm").unavailable()
    if unavailable is not None:
        pytest.skip(unavailable)

    def rows(order: list[Run]) -> dict[str, object]:
        outcomes = judge_runs(order, lambda _: None)
        return {one.row.id: replace(one.row, seconds=0.0) for one in outcomes if not hasattr(one, "traceback")}

    assert rows(subjects) == rows(subjects[::-1])
