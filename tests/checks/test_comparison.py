"""Integers are equal, ties aside; where they are not, the finding has the number, the distance and the elements."""

import dataclasses

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from conformance.checks.comparison import SHOWN, Comparison, compare_codes, compare_outputs
from conformance.checks.tolerances import (
    EQUAL,
    NEAR_TIES,
    TYPICAL_BAND,
    Tolerance,
)
from conformance.goldens.golden import Expected
from conformance.models.trace import Output
from conformance.oracle.arithmetic import Qparams, quantize
from conformance.oracle.scheme import Grid
from conformance.results.findings import text_of
from conformance.results.findings.stages import Lies
from conformance.results.findings.values import CodesDiffer, OutputQparams, OutputShape

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


def detail(comparison: Comparison) -> str:
    """The sentence about an output that does not agree with its golden."""
    finding, *_ = comparison.findings
    return finding.text


def compare(codes: list[int], positions: list[float], allowed: Tolerance = EQUAL) -> Comparison:
    return compare_codes(torch.tensor(codes, dtype=torch.uint8), expected(positions), allowed)


def test_equal_codes_are_equal() -> None:
    assert compare([3, 10, 200], [3.0, 10.25, 199.75]) == Comparison(total=3)


@pytest.mark.parametrize("code", [3, 5])
@pytest.mark.parametrize("position", [4.0, 4.25, 3.75])
def test_a_code_beside_the_right_one_is_wrong(code: int, position: float) -> None:
    comparison = compare([code], [position])
    assert (comparison.mismatched, comparison.ties, comparison.steps_max) == (1, 0, 1)


@pytest.mark.parametrize(("code", "ties"), [(4, 0), (5, 1)])
def test_at_a_tie_either_neighbour_is_right_and_the_odd_code_counts_as_tied(code: int, ties: int) -> None:
    assert compare([code], [4.5]) == Comparison(total=1, ties=ties)


@pytest.mark.parametrize(("code", "steps"), [(3, 1), (6, 1), (8, 3)])
def test_at_a_tie_anything_else_is_wrong_by_its_distance_to_the_nearer_neighbour(code: int, steps: int) -> None:
    comparison = compare([code], [4.5])
    assert (comparison.mismatched, comparison.ties, comparison.steps_max) == (1, 0, steps)


def test_a_code_equals_no_golden_whose_neighbours_are_exchanged() -> None:
    golden = expected([4.5])
    exchanged = dataclasses.replace(golden, low=golden.high, high=golden.low)
    assert compare_codes(golden.code, golden, EQUAL).mismatched == 0
    assert compare_codes(golden.code, exchanged, EQUAL).mismatched == 1


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
def test_a_tolerance_is_a_number_of_steps_and_tolerated_elements_are_counted(steps: int, mismatched: int) -> None:
    comparison = compare([9, 8, 7, 10], [10.0, 10.0, 10.0, 10.0], Tolerance("*", "*", "a reason", "", steps=steps))
    assert (comparison.mismatched, comparison.tolerated, comparison.total) == (mismatched, 3 - mismatched, 4)
    assert (comparison.findings == ()) is (mismatched == 0)


def test_the_finding_has_counts_distances_indices_and_exact_positions() -> None:
    golden = expected([4.0, 4.0, 4.5, 4.0, 4.0, 4.25])
    golden = dataclasses.replace(golden, low=golden.low.reshape(2, 3), high=golden.high.reshape(2, 3))
    codes = torch.tensor([[4, 5, 5], [4, 4, 7]], dtype=torch.uint8)
    comparison = compare_codes(codes, golden, EQUAL, lambda: torch.tensor([[4.0, 4.0, 4.5], [4.0, 4.0, 4.25]]))
    assert (comparison.total, comparison.mismatched, comparison.ties, comparison.steps_max) == (6, 2, 1, 3)
    assert detail(comparison) == (
        "2 of 6 codes differ (33.3%), by up to 3 steps: (1, 2) got 7 golden 4 exact 4.25 | (0, 1) got 5 golden 4 exact 4"
    )


def test_the_finding_has_the_worst_elements() -> None:
    comparison = compare([*range(20)], [0.0] * 20)
    assert detail(comparison).count("got") == SHOWN
    assert "(19,) got 19 golden 0 | (18,) got 18" in detail(comparison)


def test_empty_codes_are_equal() -> None:
    assert compare([], []) == Comparison()


@steadily
@given(st.lists(st.integers(-100, 400), min_size=1, max_size=9), st.sampled_from([0.0, 0.25, -0.25, 0.498]))
def test_rounding_to_the_nearest_code_is_right_wherever_the_value_lies(positions: list[int], offset: float) -> None:
    codes = [min(max(position, 0), 255) for position in positions]
    assert compare(codes, [position + offset for position in positions]).mismatched == 0


def test_comparisons_of_outputs_add_up() -> None:
    first, second = OutputShape("numerics", 0, (1,), (2,)), OutputShape("numerics", 1, (1,), (2,))
    left, right = Comparison(6, 2, 1, 1, 3, (first,)), Comparison(4, 1, 2, 0, 5, (second,))
    assert left.plus(right) == Comparison(10, 3, 3, 1, 5, (first,))
    assert Comparison(3).plus(left) == Comparison(9, 2, 1, 1, 3, (first,))


def output(codes: list[int], scale: float = SCALE, zero_point: int = 10, dtype: torch.dtype = torch.quint8) -> Output:
    exact = (torch.tensor(codes, dtype=torch.float32) - zero_point) * scale
    quantized = torch.quantize_per_tensor(exact, scale, zero_point, dtype)
    return Output(quantized.dequantize(), quantized)


EXPECTED = expected([3.0, 10.0, 100.0])


def test_the_same_output_is_the_same() -> None:
    assert compare_outputs(output([3, 10, 100]), EXPECTED, EQUAL) == Comparison(total=3)


def test_other_codes_are_found() -> None:
    comparison = compare_outputs(output([3, 11, 100]), EXPECTED, EQUAL)
    assert (comparison.mismatched, comparison.steps_max) == (1, 1)


def test_an_output_that_is_off_by_one_in_one_of_512_elements_is_found() -> None:
    golden = expected([float(i % 256) for i in range(512)])
    codes = torch.arange(512).remainder(256).to(torch.uint8)
    assert compare_codes(codes, golden, EQUAL) == Comparison(total=512)
    for where in (0, 255, 511):
        wrong = codes.clone()
        wrong[where] += 1 if where == 0 else -1
        comparison = compare_codes(wrong, golden, EQUAL)
        assert (comparison.mismatched, comparison.steps_max) == (1, 1)
        assert f"({where},)" in detail(comparison)


LAST_BIT = 0.25 * (1 + 2.0**-52)
OTHERS = {
    "scale in its last bit": (output([3, 10, 100], scale=LAST_BIT), "golden 0.25, 10, quint8"),
    "zero point by one": (output([3, 10, 100], zero_point=11), "zero point 11"),
    "scale and zero point that cancel": (output([6, 20, 200], SCALE / 2, 20), "scale 0.125, zero point 20"),
    "dtype": (output([3, 10, 100], dtype=torch.qint8), "qint8, golden 0.25, 10, quint8"),
    "shape": (output([3, 10]), "shape (2,), golden (3,)"),
    "float values": (Output(torch.zeros(3)), "gives float values"),
}


@pytest.mark.parametrize("kind", OTHERS)
def test_all_elements_of_an_output_of_another_kind_are_wrong(kind: str) -> None:
    unequal, message = OTHERS[kind]
    comparison = compare_outputs(unequal, EXPECTED, Tolerance("*", "*", "a reason", "", steps=255, relative=1.0))
    assert message in detail(comparison)
    assert comparison.mismatched == comparison.total == unequal.values.numel()


def floats(*numbers: float) -> Expected:
    values = torch.tensor(numbers)
    return Expected(values, values)


def values(*numbers: float) -> Output:
    return Output(torch.tensor(numbers))


def test_codes_are_wrong_where_the_golden_is_float() -> None:
    comparison = compare_outputs(output([1, 2]), floats(1.0, 2.0), EQUAL)
    assert (detail(comparison), comparison.mismatched) == ("gives codes, the golden has the other", 2)


def test_float_outputs_are_equal_but_for_the_rounding_of_float32() -> None:
    assert compare_outputs(values(1.0, 4096.0), floats(1.0, 4096.001), EQUAL) == Comparison(total=2)
    comparison = compare_outputs(values(1.0, 4096.0), floats(1.0, 4096.5), EQUAL)
    assert detail(comparison) == "1 of 2 values differ, by up to 0.5: (1,) got 4096 golden 4096.5"


def test_float_outputs_behind_a_tie_are_within_a_range() -> None:
    tied = Expected(torch.tensor([1.0, 7.5]), torch.tensor([1.0, 8.0]))
    for inside in (7.5, 7.75, 8.0):
        assert compare_outputs(values(1.0, inside), tied, EQUAL).mismatched == 0
    for outside in (7.25, 8.25):
        assert compare_outputs(values(1.0, outside), tied, EQUAL).mismatched == 1


def test_a_relative_tolerance_is_of_the_greatest_value() -> None:
    allowed = Tolerance("*", "*", "a reason", "", relative=0.05)
    assert compare_outputs(values(0.0, 100.0), floats(4.9, 100.0), allowed).mismatched == 0
    assert compare_outputs(values(0.0, 100.0), floats(5.1, 100.0), allowed).mismatched == 1


def test_float32_rounds_relative_to_greater_intermediate_values_that_cancel_out() -> None:
    gates = dataclasses.replace(EQUAL, magnitude=1.0)
    assert compare_outputs(values(1e-6), floats(1.5e-6), gates).mismatched == 0
    assert compare_outputs(values(1e-6), floats(1.5e-6), EQUAL).mismatched == 1
    assert compare_outputs(values(1e-6), floats(2.5e-6), gates).mismatched == 1


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_nan_and_infinity_are_wrong(bad: float) -> None:
    comparison = compare_outputs(values(1.0, bad), floats(1.0, 2.0), Tolerance("*", "*", "a reason", "", relative=1.0))
    assert "(1,) got" in detail(comparison)


def test_empty_float_outputs_are_equal() -> None:
    nothing = torch.empty(0, 3)
    assert compare_outputs(Output(nothing), Expected(nothing, nothing), EQUAL).findings == ()


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
    comparison = compare_codes(codes, golden, NEAR_TIES, lambda: torch.tensor([position, 7.0], dtype=torch.float64))
    assert (comparison.mismatched, comparison.tolerated) == outcome
    assert compare_codes(codes, golden, NEAR_TIES).tolerated == 0  # without exact positions


def test_tolerated_elements_are_not_in_the_finding() -> None:
    positions = torch.tensor([4 + BESIDE, 5.0], dtype=torch.float64)
    comparison = compare_codes(
        torch.tensor([5, 6], dtype=torch.uint8), expected(positions.tolist()), NEAR_TIES, lambda: positions
    )
    assert detail(comparison) == "1 of 2 codes differ (50.0%), by up to 1 steps: (1,) got 6 golden 5 exact 5"


def own_grid(codes: list[int], scale: float, zero_point: int) -> Comparison:
    """The comparison of codes on a grid of their own with the exact values of `expected`."""
    positions = [10.0, 14.0, 30.0]
    exact = torch.tensor(positions, dtype=torch.float64)
    return compare_outputs(output(codes, scale, zero_point), expected(positions), EQUAL, lambda: exact)


def test_right_codes_on_another_grid_are_wrong_in_their_qparams_alone() -> None:
    """Values 0, 1 and 5 in steps of 1/2 from 20 on."""
    assert [type(finding) for finding in own_grid([20, 22, 30], 0.5, 20).findings] == [OutputQparams]


def test_wrong_codes_on_another_grid_are_a_finding_of_their_own() -> None:
    qparams, codes = own_grid([20, 23, 30], 0.5, 20).findings
    assert isinstance(qparams, OutputQparams)
    assert isinstance(codes, CodesDiffer)
    assert (codes.mismatched, codes.worst) == (1, 1)


def test_both_values_of_a_tie_before_are_right_on_another_grid() -> None:
    low, high = (torch.tensor([code], dtype=torch.uint8) for code in (10, 14))
    golden = Expected(low, high, 0.25, 10, "quint8")
    exact = torch.tensor([14.0], dtype=torch.float64)
    for code in (19, 20, 21, 22, 23):
        findings = compare_outputs(output([code], 0.5, 20), golden, EQUAL, lambda: exact).findings
        assert (CodesDiffer in map(type, findings)) is not (20 <= code <= 22)


def test_codes_of_another_dtype_are_not_compared() -> None:
    got = output([0, 2, 10], 0.5, 0, torch.qint8)
    exact = torch.zeros(3, dtype=torch.float64)
    comparison = compare_outputs(got, expected([10.0, 14.0, 30.0]), EQUAL, lambda: exact)
    assert [type(finding) for finding in comparison.findings] == [OutputQparams]


def test_a_finding_is_followed_by_where_its_elements_lie() -> None:
    differ, lies = compare([0, 1, 3, 4], [0.0, 1.0, 2.0, 3.0]).findings
    assert isinstance(differ, CodesDiffer)
    assert lies == Lies("numerics", "from index 2 of dimension 0 on")
    assert text_of([differ, lies]).endswith("got 4 golden 3, all from index 2 of dimension 0 on")
