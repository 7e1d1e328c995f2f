"""Data without variety have the values that their names say, in steps of the grid."""

from collections import Counter

import pytest
import torch
from torch import Tensor

from conformance.models.data import degenerate, degenerate_indices
from conformance.results.findings.stages import VIEWS

LOW, HIGH, EXPONENT, SHAPE = -128, 127, -4, (2, 3, 5)


def counts(values: Tensor) -> list[tuple[float, int]]:
    """Each value with its number, in ascending order."""
    return sorted(Counter(values.flatten().tolist()).items())


@pytest.mark.parametrize(
    ("data", "step"), [("zero", 0), ("lowest", -128), ("highest", 127), ("below", -383), ("above", 382)]
)
def test_constant_data_have_one_value(data: str, step: int) -> None:
    assert counts(degenerate(data, "key", SHAPE, LOW, HIGH, EXPONENT)) == [(step / 16, 30)]


def test_one_element_differs_and_the_range_is_not_symmetric() -> None:
    low, high = counts(degenerate("one_differs", "key", SHAPE, LOW, HIGH, EXPONENT))
    assert low == (-8.0, 1)
    assert high[1] == 29
    assert low[0] < -high[0] <= 0.0625


def test_values_within_a_code_differ_and_round_to_it() -> None:
    steps = degenerate("within_code", "key", SHAPE, LOW, HIGH, EXPONENT) * 16
    assert len(counts(steps)) > 1
    assert len(counts(steps.round())) == 1


def test_data_are_a_function_of_the_key() -> None:
    first, again, other = (degenerate("one_differs", key, SHAPE, LOW, HIGH, EXPONENT) for key in ("a", "a", "b"))
    assert first.equal(again)
    assert not first.equal(other)


@pytest.mark.parametrize(
    ("data", "strides"), [("expanded", (0, 5, 1)), ("overlapping", (1, 1, 1)), ("permuted", (1, 2, 6))]
)
def test_views_have_strides_of_no_memory_format(data: str, strides: tuple[int, ...]) -> None:
    values = degenerate(data, "key", SHAPE, LOW, HIGH, EXPONENT)
    assert (tuple(values.shape), values.stride()) == (SHAPE, strides)
    assert len(counts(values)) > 1


@pytest.mark.parametrize("data", VIEWS)
def test_a_view_of_a_scalar_has_one_element(data: str) -> None:
    assert degenerate(data, "key", (), LOW, HIGH, EXPONENT).shape == ()


def test_indices_are_the_first_the_last_or_int32() -> None:
    indices = torch.tensor([[3, 1], [0, 2]])
    assert degenerate_indices("first", indices, 5).tolist() == [[0, 0], [0, 0]]
    assert degenerate_indices("last", indices, 5).tolist() == [[4, 4], [4, 4]]
    narrow = degenerate_indices("int32", indices, 5)
    assert (narrow.dtype, narrow.tolist()) == (torch.int32, indices.tolist())
