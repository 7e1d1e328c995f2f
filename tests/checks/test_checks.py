"""Integers are equal, ties aside, and where they are not the message says which, how many and by how much."""

import dataclasses
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from conformance.cases.claims import backend
from conformance.cases.runs import Run, runs
from conformance.checks.comparison import SHOWN, Comparison, compare_codes, compare_outputs
from conformance.checks.evidence import Evidence
from conformance.checks.judge import CHECKS, without_chance
from conformance.checks.numerics import accuracy, sqnr_db
from conformance.checks.stability import stable
from conformance.checks.tolerances import (
    EQUAL,
    NEAR_TIES,
    RECURRENT,
    TABLE,
    TYPICAL_BAND,
    Tolerance,
    tolerance,
    unneeded,
)
from conformance.engines.trace import Execution, Output
from conformance.goldens.golden import Expected, Golden
from conformance.oracle.arithmetic import Qparams, quantize
from conformance.oracle.scheme import Grid
from conformance.results.profiles import CHECKS as CHECKS_OF_ROWS
from conformance.results.rows import Row
from conformance.results.verdicts import Verdict

steadily = settings(max_examples=80, deadline=None, derandomize=True, database=None)
SCALE, ZERO_POINT = 0.25, 10
QUINT8 = Grid("quint8", 0, 255)
NEAR = Tolerance("*", "*", "a reason", "a script", steps=1)


def expected(positions: list[float], grid: Grid = QUINT8) -> Expected:
    """A golden for exact values given as positions on the grid."""
    qparams = Qparams(grid, torch.tensor([SCALE]), torch.tensor([ZERO_POINT], dtype=torch.int32))
    codes = quantize((torch.tensor(positions, dtype=torch.float64) - ZERO_POINT) * SCALE, qparams)
    stored = torch.uint8 if grid.dtype == "quint8" else torch.int8
    return Expected(codes.low.to(stored), codes.high.to(stored), SCALE, ZERO_POINT, grid.dtype)


def compare(codes: list[int], positions: list[float], allowed: Tolerance = EQUAL) -> Comparison:
    return compare_codes(torch.tensor(codes, dtype=torch.uint8), expected(positions), allowed)


def test_equal_codes_are_equal() -> None:
    assert compare([3, 10, 200], [3.0, 10.25, 199.75]) == Comparison(total=3)


@pytest.mark.parametrize("code", [3, 5])
@pytest.mark.parametrize("position", [4.0, 4.25, 3.75])
def test_a_code_beside_the_right_one_is_wrong(code: int, position: float) -> None:
    found = compare([code], [position])
    assert (found.mismatched, found.ties, found.steps_max) == (1, 0, 1)


@pytest.mark.parametrize(("code", "ties"), [(4, 0), (5, 1)])
def test_at_a_tie_either_neighbour_is_right_and_the_odd_one_counts_as_tied(code: int, ties: int) -> None:
    assert compare([code], [4.5]) == Comparison(total=1, ties=ties)


@pytest.mark.parametrize(("code", "steps"), [(3, 1), (6, 1), (8, 3)])
def test_at_a_tie_anything_else_is_wrong_by_its_distance_to_the_nearer_neighbour(code: int, steps: int) -> None:
    found = compare([code], [4.5])
    assert (found.mismatched, found.ties, found.steps_max) == (1, 0, steps)


@pytest.mark.parametrize(("position", "code"), [(-7.0, 0), (-0.5, 0), (255.5, 255), (300.0, 255), (1e9, 255)])
def test_codes_saturate_at_both_ends(position: float, code: int) -> None:
    assert compare([code], [position]).mismatched == 0
    for wrapped in {code - 1, code + 1} & set(range(256)):
        assert compare([wrapped], [position]).mismatched == 1


def test_signed_codes_saturate_at_both_ends() -> None:
    signed = expected([-1000.0, 1000.0], Grid("qint8", -128, 127))
    assert compare_codes(torch.tensor([-128, 127], dtype=torch.int8), signed, EQUAL).mismatched == 0
    assert compare_codes(torch.tensor([-127, 126], dtype=torch.int8), signed, EQUAL).mismatched == 2


@pytest.mark.parametrize(("steps", "mismatched"), [(0, 3), (1, 2), (2, 1), (3, 0)])
def test_a_tolerance_is_a_number_of_steps_and_what_it_lets_pass_is_counted(steps: int, mismatched: int) -> None:
    found = compare([9, 8, 7, 10], [10.0, 10.0, 10.0, 10.0], Tolerance("*", "*", "a reason", "", steps=steps))
    assert (found.mismatched, found.tolerated, found.total) == (mismatched, 3 - mismatched, 4)
    assert (found.detail == "") is (mismatched == 0)


def test_the_message_says_how_many_how_far_and_where_with_what_is_exact() -> None:
    golden = expected([4.0, 4.0, 4.5, 4.0, 4.0, 4.25])
    golden = dataclasses.replace(golden, low=golden.low.reshape(2, 3), high=golden.high.reshape(2, 3))
    codes = torch.tensor([[4, 5, 5], [4, 4, 7]], dtype=torch.uint8)
    found = compare_codes(codes, golden, EQUAL, lambda: torch.tensor([[4.0, 4.0, 4.5], [4.0, 4.0, 4.25]]))
    assert (found.total, found.mismatched, found.ties, found.steps_max) == (6, 2, 1, 3)
    assert found.detail == (
        "2 of 6 codes differ (33.3%), by up to 3 steps: (1, 2) got 7 golden 4 exact 4.25 | (0, 1) got 5 golden 4 exact 4"
    )


def test_the_message_shows_the_worst_few() -> None:
    found = compare([*range(20)], [0.0] * 20)
    assert found.detail.count("got") == SHOWN
    assert "(19,) got 19 golden 0 | (18,) got 18" in found.detail


def test_nothing_is_equal_to_nothing() -> None:
    assert compare([], []) == Comparison()


@steadily
@given(st.lists(st.integers(-100, 400), min_size=1, max_size=9), st.sampled_from([0.0, 0.25, -0.25, 0.498]))
def test_rounding_to_the_nearest_code_is_right_wherever_the_value_lies(positions: list[int], offset: float) -> None:
    codes = [min(max(position, 0), 255) for position in positions]
    assert compare(codes, [position + offset for position in positions]).mismatched == 0


def test_comparisons_of_outputs_add_up() -> None:
    one, other = Comparison(6, 2, 1, 1, 3, "first"), Comparison(4, 1, 2, 0, 5, "second")
    assert one.plus(other) == Comparison(10, 3, 3, 1, 5, "first")
    assert Comparison(3).plus(one) == Comparison(9, 2, 1, 1, 3, "first")


def output(codes: list[int], scale: float = SCALE, zero_point: int = 10, dtype: torch.dtype = torch.quint8) -> Output:
    exact = (torch.tensor(codes, dtype=torch.float32) - zero_point) * scale
    quantized = torch.quantize_per_tensor(exact, scale, zero_point, dtype)
    return Output(quantized.dequantize(), quantized)


EXPECTED = expected([3.0, 10.0, 100.0])


def test_the_same_output_is_the_same() -> None:
    assert compare_outputs(output([3, 10, 100]), EXPECTED, EQUAL) == Comparison(total=3)


def test_other_codes_are_found() -> None:
    found = compare_outputs(output([3, 11, 100]), EXPECTED, EQUAL)
    assert (found.mismatched, found.steps_max) == (1, 1)


def test_an_output_that_is_off_by_one_in_one_of_512_elements_is_found() -> None:
    golden = expected([float(i % 256) for i in range(512)])
    codes = torch.arange(512).remainder(256).to(torch.uint8)
    assert compare_codes(codes, golden, EQUAL) == Comparison(total=512)
    for where in (0, 255, 511):
        wrong = codes.clone()
        wrong[where] += 1 if where == 0 else -1
        found = compare_codes(wrong, golden, EQUAL)
        assert (found.mismatched, found.steps_max) == (1, 1)
        assert f"({where},)" in found.detail


LAST_BIT = 0.25 * (1 + 2.0**-52)
OTHERS = {
    "scale in its last bit": (output([3, 10, 100], scale=LAST_BIT), "golden 0.25, 10, quint8"),
    "zero point by one": (output([3, 10, 100], zero_point=11), "zero point 11"),
    "scale and zero point that cancel": (output([6, 20, 200], SCALE / 2, 20), "scale 0.125, zero point 20"),
    "dtype": (output([3, 10, 100], dtype=torch.qint8), "qint8, golden 0.25, 10, quint8"),
    "shape": (output([3, 10]), "shape (2,), golden (3,)"),
    "float values": (Output(torch.zeros(3)), "gives float values"),
}


@pytest.mark.parametrize("what", OTHERS)
def test_an_output_of_another_kind_is_wrong_as_a_whole(what: str) -> None:
    other, message = OTHERS[what]
    found = compare_outputs(other, EXPECTED, Tolerance("*", "*", "a reason", "", steps=255, relative=1.0))
    assert message in found.detail
    assert found.mismatched == found.total == other.values.numel()


def floats(*numbers: float) -> Expected:
    values = torch.tensor(numbers)
    return Expected(values, values)


def values(*numbers: float) -> Output:
    return Output(torch.tensor(numbers))


def test_codes_where_float_is_due_are_wrong() -> None:
    found = compare_outputs(output([1, 2]), floats(1.0, 2.0), EQUAL)
    assert (found.detail, found.mismatched) == ("gives codes, the golden has the other", 2)


def test_float_outputs_are_equal_but_for_the_rounding_of_float32() -> None:
    assert compare_outputs(values(1.0, 4096.0), floats(1.0, 4096.001), EQUAL) == Comparison(total=2)
    found = compare_outputs(values(1.0, 4096.0), floats(1.0, 4096.5), EQUAL)
    assert found.detail == "1 of 2 values differ, by up to 0.5: (1,) got 4096 golden 4096.5"


def test_a_relative_tolerance_is_of_the_greatest_value() -> None:
    allowed = Tolerance("*", "*", "a reason", "", relative=0.05)
    assert compare_outputs(values(0.0, 100.0), floats(4.9, 100.0), allowed).mismatched == 0
    assert compare_outputs(values(0.0, 100.0), floats(5.1, 100.0), allowed).mismatched == 1


def test_float32_rounds_relative_to_what_it_computed_with_where_that_cancels_out() -> None:
    gates = dataclasses.replace(EQUAL, magnitude=1.0)
    assert compare_outputs(values(1e-6), floats(1.5e-6), gates).mismatched == 0
    assert compare_outputs(values(1e-6), floats(1.5e-6), EQUAL).mismatched == 1
    assert compare_outputs(values(1e-6), floats(2.5e-6), gates).mismatched == 1


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_what_is_no_number_is_wrong(bad: float) -> None:
    found = compare_outputs(values(1.0, bad), floats(1.0, 2.0), Tolerance("*", "*", "a reason", "", relative=1.0))
    assert "(1,) got" in found.detail


def test_empty_float_outputs_are_equal() -> None:
    nothing = torch.empty(0, 3)
    assert compare_outputs(Output(nothing), Expected(nothing, nothing), EQUAL).detail == ""


def a_run(engine: str = "fbgemm", pattern: str = "nn.Linear", profile: str = "exact") -> Run:
    found = runs(backend("fbgemm"), [engine])
    return next(run for run in found if run.claim.pattern == pattern and run.profile == profile)


def test_only_operators_in_the_table_are_tolerated() -> None:
    assert tolerance(a_run()) == EQUAL
    assert tolerance(a_run(), [NEAR]).steps == 1
    assert tolerance(a_run(), [dataclasses.replace(NEAR, operator="nn.Conv2d")]) == EQUAL
    assert tolerance(a_run(), [dataclasses.replace(NEAR, engine="x86")]) == EQUAL
    assert (EQUAL.steps, EQUAL.relative) == (0, 0.0)


def test_what_is_not_dyadic_may_be_off_by_one_step_beside_a_tie() -> None:
    allowed = tolerance(a_run(profile="typical"))
    assert (allowed.steps, allowed.band, allowed.anywhere) == (1, TYPICAL_BAND, 0)
    assert NEAR.anywhere == tolerance(a_run(profile="typical"), [NEAR]).anywhere == 1


BESIDE, APART = 0.5 - TYPICAL_BAND / 2, 0.5 - TYPICAL_BAND * 2


@pytest.mark.parametrize(
    ("position", "code", "outcome"),
    [
        (4 + BESIDE, 5, (0, 1)),
        (5 - BESIDE, 4, (0, 1)),
        (4 + APART, 5, (1, 0)),
        (5 - APART, 4, (1, 0)),
        (4 + BESIDE, 6, (1, 0)),
        (4 + BESIDE, 3, (1, 0)),
        (4.0, 5, (1, 0)),
        (4 + APART, 4, (0, 0)),
    ],
)
def test_a_step_is_tolerated_beside_a_tie_and_nowhere_else(
    position: float, code: int, outcome: tuple[int, int]
) -> None:
    golden, codes = expected([position, 7.0]), torch.tensor([code, 7], dtype=torch.uint8)
    found = compare_codes(codes, golden, NEAR_TIES, lambda: torch.tensor([position, 7.0], dtype=torch.float64))
    assert (found.mismatched, found.tolerated) == outcome
    assert compare_codes(codes, golden, NEAR_TIES).tolerated == 0  # nobody knows where it lies


def test_what_is_tolerated_is_not_shown() -> None:
    positions = torch.tensor([4 + BESIDE, 5.0], dtype=torch.float64)
    found = compare_codes(
        torch.tensor([5, 6], dtype=torch.uint8), expected(positions.tolist()), NEAR_TIES, lambda: positions
    )
    assert found.detail == "1 of 2 codes differ (50.0%), by up to 1 steps: (1,) got 6 golden 5 exact 5"


@pytest.mark.parametrize("operator", sorted(RECURRENT))
def test_recurrent_layers_round_values_about_one(operator: str) -> None:
    assert tolerance(a_run(pattern=operator)).magnitude == 1.0


def test_recurrent_layers_round_values_about_the_state_they_begin_with() -> None:
    run = next(
        one
        for one in runs(backend("fbgemm"), ["fbgemm"])
        if one.id.startswith("fbgemm/nn.GRU/dynamic-quint8/ptq/state/")
    )
    assert tolerance(run).magnitude == (run.recipe.steps + 1) / 2 / 16
    assert run.variant is not None
    far = run.variant.named("far", data="37:-4")
    assert tolerance(dataclasses.replace(run, variant=far)).magnitude == (run.recipe.steps - 37) / 16


@pytest.mark.parametrize(("variant", "greatest"), [("default", 2.0), ("no_bias", 0.0)])
@pytest.mark.parametrize("operator", ["nn.Linear", "F.linear"])
def test_layers_round_values_about_their_bias(operator: str, variant: str, greatest: float) -> None:
    wanted = f"fbgemm/{operator}/dynamic-quint8/ptq/{variant}/exact@fbgemm"
    assert tolerance(next(run for run in runs(backend("fbgemm")) if run.id == wanted)).magnitude == greatest


def test_every_tolerance_has_a_reason_evidence_and_a_width() -> None:
    for row in TABLE:
        assert row.reason
        assert row.evidence
        assert row.steps or row.relative


def test_a_tolerance_that_no_run_needs_is_named() -> None:
    run = a_run()
    exactly = Row(run.id, "", "", "", "", "", "", "", verdict=Verdict.CONFORMS, tolerated=0)
    assert unneeded([exactly], [run], [NEAR]) == [NEAR]
    assert unneeded([dataclasses.replace(exactly, tolerated=3)], [run], [NEAR]) == []
    assert unneeded([exactly], [run], [dataclasses.replace(NEAR, engine="qnnpack")]) == []


def test_the_checks_are_those_that_rows_hold_in_the_same_order() -> None:
    assert tuple(CHECKS) == CHECKS_OF_ROWS


@pytest.mark.parametrize(
    ("repetition", "changed", "result"),
    [
        ("channels_last", "tie", "pass"),
        ("channels_last", "other", "fail"),
        ("second run", "tie", "fail"),
        ("state_dict", "tie", "fail"),
        ("second run", "nothing", "pass"),
    ],
)
def test_only_another_memory_format_may_change_anything_and_only_at_ties(
    repetition: str, changed: str, result: str
) -> None:
    quantized = torch.quantize_per_tensor(torch.tensor([4.0, 7.0]), 1.0, 0, torch.quint8)
    outputs = (Output(quantized.dequantize(), quantized),)
    codes = torch.tensor([4, 7], dtype=torch.uint8)
    golden = Golden((Expected(codes, codes + torch.tensor([1, 0], dtype=torch.uint8), 1.0, 0, "quint8"),), ("output",))
    again = quantized.dequantize() + torch.tensor(
        {"tie": [1.0, 0.0], "other": [0.0, 1.0], "nothing": [0.0, 0.0]}[changed]
    )
    evidence = Evidence(a_run(), execution=Execution((), outputs), golden=golden)
    evidence.repetitions[repetition] = [again]
    assert stable(evidence).result == result


def test_the_detail_of_a_run_that_differs_from_run_to_run_holds_no_figure_of_one_run() -> None:
    detail = (
        "numerics: 3 of 9 codes differ (33.3%), by up to 7 steps: (0, 1) got 1 golden 8 exact 8.25 | (2, 1) got 0 golden 1; "
        "accuracy: SQNR -4.8 dB is below 20 dB; stable: second run changes 5 of 9 values; state_dict changes 2 of 9 values; "
        "channels_last changes 9 of 9 values"
    )
    assert without_chance(detail) == (
        "numerics: the codes differ from run to run; accuracy: SQNR is below 20 dB; stable: second run changes values"
    )


@pytest.mark.parametrize(
    ("got", "wanted", "ratio"),
    [([3.0, 4.0], [3.0, 4.0], 200.0), ([3.0, 4.5], [3.0, 4.0], 20.0), ([0.0, 0.1], [0.0, 0.0], -math.inf)],
)
def test_noise_is_in_decibels_of_the_signal(got: list[float], wanted: list[float], ratio: float) -> None:
    # 25 over 0.25 is 20 dB
    assert sqnr_db([torch.tensor(got)], [torch.tensor(wanted)]) == pytest.approx(ratio)


def test_noise_without_end_is_no_number() -> None:
    assert math.isnan(sqnr_db([torch.tensor([math.inf])], [torch.tensor([1.0])]))


@pytest.mark.parametrize(("batch", "golden", "result"), [(1, 15.0, "skip"), (1, 100.0, "fail"), (None, 15.0, "fail")])
def test_a_batch_beyond_calibration_is_no_inaccuracy_where_exact_arithmetic_saturates_too(
    batch: int | None, golden: float, result: str
) -> None:
    one = a_run()
    assert one.variant is not None
    one = dataclasses.replace(one, variant=dataclasses.replace(one.variant, batch=batch))
    quantized = torch.quantize_per_tensor(torch.tensor([15.0]), 1.0, 0, torch.quint8)
    execution = Execution((), (Output(quantized.dequantize(), quantized),))
    evidence = Evidence(
        one, execution=execution, expected=[torch.tensor([100.0])], golden=Golden((floats(golden),), ("",))
    )
    assert accuracy(evidence).result == result
