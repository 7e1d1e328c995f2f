"""Exact arithmetic of modules that are quantized in place, against values worked out by hand."""

import pytest
import torch
from torch.nn.functional import conv2d, embedding, linear

from conformance.configs.codes import Codes
from conformance.oracle.workflows import Interval, codes, in_blocks, inputs, outputs, qparams, rows, uncertain

INT4 = Codes(-8, 7)
TINY = torch.finfo(torch.float32).smallest_normal


@pytest.mark.parametrize(
    ("grid", "values", "scale", "zero_point"),
    [
        (INT4, [[-7.5, 3.0]], 1.0, 0),
        (Codes(-8, 7, "no_clipping"), [[-8.0, 6.0]], 1.0, 0),
        (Codes(-8, 7, "no_clipping"), [[-1.0, 14.0]], 2.0, 0),
        (Codes(-8, 7, "asymmetric"), [[0.0, 30.0]], 2.0, -8),
        (Codes(-8, 7, "asymmetric"), [[2.0, 30.0]], 2.0, -8),  # zero is in the range
        (Codes(-8, 7, "asymmetric"), [[-4.0, 11.0]], 1.0, -4),
        (Codes(-448, 448, dtype="float8_e4m3fn"), [[896.0, 1.0]], 2.0, 0),
        (INT4, [[0.0, 0.0]], TINY, 0),
        (Codes(-8, 7, floor=0.5), [[0.0, 1.0]], 0.5, 0),
        (Codes(0, 15, "from_least"), [[2.0, 32.0]], 2.0, -1),  # zero need not be in the range
        (Codes(-8, 7, "least_squares"), [[-8.0, 5.25, 5.25]], 116.5 / 114, 0),  # of the codes -8, 5 and 5
        (Codes(-8, 7, "least_squares", floor=0.5), [[0.0, 0.0]], 0.5, 0),
        (Codes(-8, 7, stored="bfloat16"), [[-7.529296875, 0.0]], 1.0, 0),  # 1 + 2 ** -8 as it is computed
        (Codes(-448, 448, "floor", dtype="float8_e4m3fn"), [[-511.0, 1.0]], 1.0, 0),  # what is beyond 448 is clipped
        (Codes(-448, 448, "floor", dtype="float8_e4m3fn"), [[512.0, 1.0]], 2.0, 0),
        (Codes(-448, 448, "ceil", dtype="float8_e4m3fn"), [[256.0, 1.0]], 1.0, 0),
        (Codes(-448, 448, "ceil", dtype="float8_e4m3fn"), [[257.0, 1.0]], 2.0, 0),
        (Codes(-448, 448, "even", dtype="float8_e4m3fn"), [[495.0, 1.0]], 1.0, 0),
        (Codes(-448, 448, "even", dtype="float8_e4m3fn"), [[496.0, 1.0]], 2.0, 0),  # is rounded to 512
        (Codes(-448, 448, "rceil", dtype="float8_e4m3fn"), [[448.0, 1.0]], 1.0, 0),
        (Codes(-448, 448, "rceil", dtype="float8_e4m3fn"), [[449.0, 1.0]], 2.0, 0),
        (Codes(-6, 6, "floor", dtype="float4_e2m1"), [[0.0, 0.0]], 2.0**-127, 0),
        (Codes(-6, 6, dtype="float4_e2m1", floor=2.0**-6, stored="float8_e4m3fn"), [[6.25, 0.0]], 1.0, 0),
        (
            Codes(-6, 6, dtype="float4_e2m1", floor=2.0**-6, stored="float8_e4m3fn", shared=448),
            [[2688.0, 1.0]],
            448.0,
            0,
        ),
        (Codes(0, 15, floor=0.1), [[0.0, 0.0]], torch.tensor(0.1).item(), 0),  # the scale is a float32
    ],
)
def test_a_block_has_the_scale_of_its_extremes(
    grid: Codes, values: list[list[float]], scale: float, zero_point: int
) -> None:
    found = qparams(torch.tensor(values), grid)
    assert [x.tolist() for x in found] == [[[scale]], [[zero_point]]]


def test_blocks_are_rows_groups_or_the_whole() -> None:
    values = torch.arange(12.0).reshape(2, 6)
    assert [in_blocks(values, blocks).shape for blocks in ("row", "tensor", 3)] == [(2, 6), (1, 12), (4, 3)]
    with pytest.raises(ValueError, match="groups of 4 do not divide 6 elements"):
        in_blocks(values, 4)


def test_floats_of_four_bits_have_steps_of_a_half_and_more_with_ties_to_even() -> None:
    one = torch.ones(1, 1).double()
    values = [0.25, 0.26, 0.75, 1.25, 1.75, 2.5, 3.5, 4.9, 5.0, 5.1, 9.0, -2.6]
    found = codes(torch.tensor([values]), Codes(-6, 6, "floor", dtype="float4_e2m1"), one, 0 * one, 0.0)
    assert found.low.tolist() == [[0, 0.5, 1, 1, 2, 2, 4, 4, 4, 6, 6, -3]]


def test_a_scale_of_least_squares_is_uncertain_where_a_tie_decides_it() -> None:
    grid = Codes(-8, 7, "least_squares")
    at_tie = [-8.0, 5.45, 91.25 / 26]  # 3.5 times the second scale
    found = uncertain(torch.tensor([at_tie, [-8.0, 5.25, 5.25]]).double(), grid)
    assert found.tolist() == [[True], [False]]
    assert not uncertain(torch.tensor([at_tie]), INT4).any()


def test_a_scale_that_vanishes_where_it_is_stored_lets_codes_be_any() -> None:
    values = torch.tensor([[2.0**-30, 0.0]])
    scale, zero_point = qparams(values, Codes(-8, 7, stored="float16"))
    assert scale.tolist() == [[0.0]]
    found = codes(values, INT4, scale, zero_point, 0.0)
    assert (found.low.tolist(), found.high.tolist()) == ([[-8, -8]], [[7, 7]])


def test_an_error_of_positions_widens_codes_at_ties_alone() -> None:
    one = torch.ones(1, 1)
    found = codes(torch.tensor([[2.49, 2.25, 6.4]]), INT4, one, 0 * one, 0.01)
    assert found.low.tolist() == [[2, 2, 6]]
    assert found.high.tolist() == [[3, 2, 6]]


def test_an_input_with_a_fixed_scale_has_its_codes() -> None:
    found = inputs(torch.tensor([[0.3, 9.0]]), Codes(-8, 7, "asymmetric"), 2.0**-24, (0.5, 2))
    assert found.low.tolist() == found.high.tolist() == [[0.5, 2.5]]


@pytest.mark.parametrize("bias", [None, torch.tensor([2.0**-9]).double()])
def test_a_dyadic_product_is_rounded_to_the_dtype_and_nothing_else(bias: torch.Tensor | None) -> None:
    x = torch.tensor([[1.0, 2.0**-8]]).double()
    found = outputs(
        linear, Interval(x, x), torch.ones(1, 2).double(), bias, "bfloat16", step=2.0**-8, dequantizes=False
    )
    exact = outputs(linear, Interval(x, x), torch.ones(1, 2).double(), bias, "float32", step=2.0**-8, dequantizes=False)
    assert exact.low.item() == exact.high.item() == 1 + 2.0**-8 + (0 if bias is None else 2.0**-9)
    # bfloat16 has 1 and 1 + 2**-7: the product alone is a tie, with the bias it may be rounded before and after
    assert (found.low.item(), found.high.item()) == (1.0, 1.0 if bias is None else 1 + 2.0**-7)


def test_sums_that_float32_does_not_have_are_an_interval() -> None:
    x = torch.tensor([[2.0**24, 1.0]]).double()
    found = outputs(linear, Interval(x, x), torch.ones(1, 2).double(), None, "float32", step=1.0, dequantizes=False)
    assert found.low.item() < 2.0**24 < found.high.item()
    assert found.outside(torch.tensor([[2.0**24]]).double()).item() is False
    assert found.outside(torch.tensor([[float("nan")]])).item() is True


def test_a_least_code_stands_for_the_least_element() -> None:
    grid, values = Codes(0, 15, "from_least"), torch.tensor([[-3.0, 4.5]])
    scale, zero_point = qparams(values, grid)
    assert (scale.item(), zero_point.item()) == (0.5, 6.0)
    assert codes(values, grid, scale, zero_point, 0.0).low.tolist() == [[0, 15]]


def test_a_convolution_is_linear_in_its_weight() -> None:
    x, weight = torch.ones(1, 2, 3, 3).double(), torch.ones(1, 2, 3, 3).double()
    bias = torch.tensor([[[0.5]]]).double()
    found = outputs(conv2d, Interval(x, x), weight, bias, "float32", step=1.0, dequantizes=True)
    assert found.low.tolist() == found.high.tolist() == [[[[18.5]]]]


@pytest.mark.parametrize(("exact", "low"), [(True, 1.0), (False, (1 + 2.0**-9) * (1 - 2.0**-7))])
def test_what_is_looked_up_has_two_roundings(exact: bool, low: float) -> None:
    table = torch.tensor([[0.0], [1 + 2.0**-9]]).double()
    found = rows(lambda indices, weight: embedding(indices, weight), torch.tensor([1]), table, "bfloat16", exact=exact)
    assert found.low.item() == low
