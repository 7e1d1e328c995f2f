"""Integers are equal, ties aside, and where they are not the message says which, how many and by how much."""

import dataclasses

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from conformance.cases import Run, runs
from conformance.checks import CHECKS, Evidence, stable
from conformance.claims import backend
from conformance.comparison import Comparison, compare_codes, compare_outputs
from conformance.judge import without_chance
from conformance.rows import CHECKS as CHECKS_OF_ROWS
from conformance.tolerances import NONE, TABLE, TIE_BAND, Tolerance, tolerance
from conformance.trace import Execution, Output

steadily = settings(max_examples=80, deadline=None, derandomize=True, database=None)
SCALE, ZERO_POINT = 0.25, 10
QUINT8 = (0, 255)


def compare(codes: list[int], positions: list[float], allowed: Tolerance = NONE) -> Comparison:
    """Compare codes with exact values given as positions on the grid."""
    exact = (torch.tensor(positions, dtype=torch.float64) - ZERO_POINT) * SCALE
    return compare_codes(torch.tensor(codes, dtype=torch.uint8), SCALE, ZERO_POINT, exact, QUINT8, allowed)


def test_equal_codes_are_equal() -> None:
    assert compare([3, 10, 200], [3.0, 10.25, 199.75]) == Comparison(total=3)


@pytest.mark.parametrize("code", [3, 5])
@pytest.mark.parametrize("position", [4.0, 4.25, 3.75])
def test_a_code_beside_the_right_one_is_wrong(code: int, position: float) -> None:
    found = compare([code], [position])
    assert (found.mismatched, found.ties, found.steps_max) == (1, 0, 1)


@pytest.mark.parametrize("code", [4, 5])
def test_at_a_tie_either_neighbour_is_right(code: int) -> None:
    assert compare([code], [4.5]) == Comparison(total=1, ties=1)


@pytest.mark.parametrize(("code", "steps"), [(3, 1), (6, 1), (8, 3)])
def test_at_a_tie_anything_else_is_wrong_by_its_distance_to_the_nearer_neighbour(code: int, steps: int) -> None:
    found = compare([code], [4.5])
    assert (found.mismatched, found.ties, found.steps_max) == (1, 1, steps)


@pytest.mark.parametrize("side", [-1, 1])
def test_a_tie_is_as_wide_as_its_band_and_no_wider(side: int) -> None:
    assert compare([4, 5], [4.5 + side * 0.9 * TIE_BAND] * 2).mismatched == 0
    assert compare([4, 5], [4.5 + side * 1.1 * TIE_BAND] * 2).mismatched == 1


@pytest.mark.parametrize(("position", "code"), [(-7.0, 0), (-0.5, 0), (255.5, 255), (300.0, 255), (1e9, 255)])
def test_codes_saturate_at_both_ends(position: float, code: int) -> None:
    assert compare([code], [position]).mismatched == 0
    wrapped = (int(position) % 256) if abs(position) < 1e6 else 7
    if wrapped != code:
        assert compare([wrapped], [position]).mismatched == 1


def test_signed_codes_saturate_at_their_own_ends() -> None:
    exact = torch.tensor([-300.0, 300.0])
    signed = (-128, 127)
    assert compare_codes(torch.tensor([-128, 127], dtype=torch.int8), 1.0, 0, exact, signed, NONE).mismatched == 0
    assert compare_codes(torch.tensor([-127, 126], dtype=torch.int8), 1.0, 0, exact, signed, NONE).mismatched == 2


@pytest.mark.parametrize(("steps", "mismatched"), [(0, 3), (1, 2), (2, 1), (3, 0)])
def test_a_tolerance_is_a_number_of_steps(steps: int, mismatched: int) -> None:
    found = compare([9, 8, 7], [10.0, 10.0, 10.0], Tolerance("*", "*", "a reason", steps=steps))
    assert found.mismatched == mismatched
    assert (found.detail == "") is (mismatched == 0)


def test_the_message_says_how_many_how_far_and_where() -> None:
    exact = torch.tensor([[4.0, 4.0, 4.5], [4.0, 4.0, 4.25]])
    codes = torch.tensor([[4, 5, 5], [4, 4, 7]], dtype=torch.uint8)
    found = compare_codes(codes, 1.0, 0, exact, QUINT8, NONE)
    assert (found.total, found.mismatched, found.ties, found.steps_max) == (6, 2, 1, 3)
    assert found.detail == "2 of 6 codes differ (33.3%), worst 3 steps at (1, 2): got 7, expected 4 (exact 4.2500)"


def test_nothing_is_equal_to_nothing() -> None:
    empty = torch.empty(0, 4)
    assert compare_codes(empty.to(torch.uint8), 1.0, 0, empty, QUINT8, NONE) == Comparison()


@steadily
@given(st.lists(st.integers(-100, 400), min_size=1, max_size=9), st.sampled_from([0.0, 0.25, -0.25, 0.498]))
def test_rounding_to_the_nearest_code_is_right_wherever_the_value_lies(positions: list[int], offset: float) -> None:
    codes = [min(max(position, 0), 255) for position in positions]
    assert compare(codes, [position + offset for position in positions]).mismatched == 0


def test_comparisons_of_outputs_add_up() -> None:
    one, other = Comparison(6, 2, 1, 3, "first"), Comparison(4, 1, 2, 5, "second")
    assert one.plus(other) == Comparison(10, 3, 3, 5, "first")
    assert Comparison(3).plus(one) == Comparison(9, 2, 1, 3, "first")


def output(codes: list[int], scale: float = SCALE, zero_point: int = 10, dtype: torch.dtype = torch.quint8) -> Output:
    exact = (torch.tensor(codes, dtype=torch.float32) - zero_point) * scale
    quantized = torch.quantize_per_tensor(exact, scale, zero_point, dtype)
    return Output(quantized.dequantize(), quantized, exact)


EXPECTED = output([3, 10, 100])


def test_the_same_output_is_the_same() -> None:
    assert compare_outputs(output([3, 10, 100]), EXPECTED, NONE) == Comparison(total=3)


def test_other_codes_are_found() -> None:
    found = compare_outputs(output([3, 11, 100]), EXPECTED, NONE)
    assert (found.mismatched, found.steps_max) == (1, 1)


LAST_BIT = 0.25 * (1 + 2.0**-52)
OTHERS = {
    "scale in its last bit": (output([3, 10, 100], scale=LAST_BIT), "expected 0.25, 10, quint8"),
    "zero point by one": (output([3, 10, 100], zero_point=11), "zero point 11"),
    "scale and zero point that cancel": (output([6, 20, 200], SCALE / 2, 20), "scale 0.125, zero point 20"),
    "dtype": (output([3, 10, 100], dtype=torch.qint8), "qint8; expected 0.25, 10, quint8"),
    "shape": (output([3, 10]), "shape (2,), expected (3,)"),
    "float values": (dataclasses.replace(EXPECTED, quantized=None), "the engine gives float values"),
}


@pytest.mark.parametrize("what", OTHERS)
def test_an_output_of_another_kind_is_wrong_as_a_whole(what: str) -> None:
    other, message = OTHERS[what]
    found = compare_outputs(other, EXPECTED, Tolerance("*", "*", "a reason", steps=255, relative=1.0))
    assert message in found.detail
    assert found.mismatched == found.total == other.values.numel()


def test_codes_where_float_is_due_are_wrong() -> None:
    found = compare_outputs(EXPECTED, Output(EXPECTED.values), NONE)
    assert found.detail == "the engine gives codes, the reference does not"


def values(*numbers: float) -> Output:
    return Output(torch.tensor(numbers))


def test_float_outputs_are_equal_but_for_the_rounding_of_float32() -> None:
    assert compare_outputs(values(1.0, 4096.0), values(1.0, 4096.001), NONE) == Comparison(total=2)
    found = compare_outputs(values(1.0, 4096.0), values(1.0, 4096.5), NONE)
    assert found.detail == "1 of 2 values differ, worst by 0.5 at (1,): got 4096, expected 4096.5"


def test_a_relative_tolerance_is_of_the_greatest_value() -> None:
    allowed = Tolerance("*", "*", "a reason", relative=0.05)
    assert compare_outputs(values(0.0, 100.0), values(4.9, 100.0), allowed).mismatched == 0
    assert compare_outputs(values(0.0, 100.0), values(5.1, 100.0), allowed).mismatched == 1


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_what_is_no_number_is_wrong(bad: float) -> None:
    found = compare_outputs(values(1.0, bad), values(1.0, 2.0), Tolerance("*", "*", "a reason", relative=1.0))
    assert "at (1,)" in found.detail


def test_empty_float_outputs_are_equal() -> None:
    assert compare_outputs(Output(torch.empty(0, 3)), Output(torch.empty(0, 3)), NONE).detail == ""


def a_run(engine: str = "fbgemm") -> Run:
    return next(run for run in runs(backend("fbgemm"), [engine]) if run.claim.pattern == "nn.Linear")


def test_only_operators_in_the_table_are_tolerated() -> None:
    assert tolerance("nn.Linear", a_run()) == NONE
    assert (NONE.steps, NONE.relative) == (0, 0.0)


def test_every_tolerance_has_a_reason_and_a_width() -> None:
    for row in TABLE:
        assert row.reason
        assert row.steps or row.relative
        assert tolerance(row.operator, a_run()) is row


def test_the_checks_are_those_that_rows_hold_in_the_same_order() -> None:
    assert tuple(CHECKS) == CHECKS_OF_ROWS


def test_exact_values_are_compared_in_float64() -> None:
    exact: Tensor = torch.tensor([(2**24 + 1) * 1.0], dtype=torch.float64)
    found = compare_codes(torch.tensor([2**24 + 1], dtype=torch.int32), 1.0, 0, exact, (-(2**31), 2**31 - 1), NONE)
    assert found.mismatched == 0


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
    exact = torch.tensor([4.5, 7.0])
    quantized = torch.quantize_per_tensor(exact, 1.0, 0, torch.quint8)
    outputs = (Output(quantized.dequantize(), quantized, exact),)
    again = quantized.dequantize() + torch.tensor(
        {"tie": [1.0, 0.0], "other": [0.0, 1.0], "nothing": [0.0, 0.0]}[changed]
    )
    evidence = Evidence(a_run(), execution=Execution((), outputs), reference_execution=Execution((), outputs))
    evidence.repetitions[repetition] = [again]
    assert stable(evidence).result == result


def test_the_detail_of_a_run_that_differs_from_run_to_run_holds_no_figure_of_one_run() -> None:
    detail = (
        "numerics: 3 of 9 codes differ (33.3%), worst 7 steps at (0, 1): got 1, expected 8 (exact 8.2500); "
        "accuracy: SQNR -4.8 dB is below 20 dB; stable: second run changes 5 of 9 values"
    )
    assert without_chance(detail) == (
        "numerics: the codes differ from run to run; accuracy: SQNR is below 20 dB; stable: second run changes values"
    )
