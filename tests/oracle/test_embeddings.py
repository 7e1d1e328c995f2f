"""Outputs of weight-only quantized embeddings."""

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from conformance.oracle import evaluate
from conformance.oracle.scheme import Grid, Scheme
from tests.oracle.oracle_models import (
    BAGS,
    ROWS4,
    ROWS8,
    SequentialSteps,
    ThreeInputs,
    TwoInputs,
    only_values,
    with_parameters,
)


@pytest.mark.parametrize("grid", [ROWS8, ROWS4])
def test_each_row_of_an_embedding_has_its_own_range(grid: Grid) -> None:
    table, expected_qparams, expected = {
        ROWS8: (
            # a quarter of 2**-6 becomes 0; half of 2**-7 is a tie and becomes 0 too
            [[-1.0, 2.984375, 0.50390625], [0.5, 2.4921875, 1.00390625], [0.75, 0.75, 0.75]],
            ([2.0**-6, 2.0**-7, 1.0], [64.0, -64.0, -0.75]),
            [[-1.0, 2.984375, 0.5], [0.5, 2.4921875, 1.0], [0.75, 0.75, 0.75]],
        ),
        ROWS4: (
            # 7.25 becomes 7, with an offset of -2048 for -2049 in float16; 3.5 is a tie and becomes 4, that is 0.5
            [[-2049.0, -2034.0, -2041.75], [-1.5, 6.0, 0.25], [-0.75, -0.75, -0.75]],
            ([1.0, 0.5, 1.0], [2049.0, 3.0, 0.75]),
            [[-2048.0, -2033.0, -2041.0], [-1.5, 6.0, 0.5], [-0.75, -0.75, -0.75]],
        ),
    }[grid]
    model = SequentialSteps(with_parameters(nn.Embedding(3, 3), weight=table))
    answer = evaluate(model, [], [torch.tensor([[1, 0], [2, 1]])], Scheme("weight", None, grid))
    weight = answer.qparams["weight"]
    assert (weight.scale.tolist(), weight.zero_point.tolist()) == expected_qparams
    assert only_values(answer) == [[expected[1], expected[0]], [expected[2], expected[1]]]


# each row is on the grid of its own
ROWS = [[1.0, 2.0], [4.0, -8.0], [16.0, 0.5], [-2.0, 32.0]]
NONE = [0.0, 0.0]


@pytest.mark.parametrize(
    ("options", "indices", "offsets", "expected"),
    [
        ({"mode": "sum"}, [0, 1, 2, 3], [0, 2, 2], [[5.0, -6.0], NONE, [14.0, 32.5]]),
        ({"mode": "mean"}, [0, 1, 2, 3], [0, 2, 2], [[2.5, -3.0], NONE, [7.0, 16.25]]),
        ({"mode": "max"}, [0, 1, 2, 3], [0, 2, 2], [[4.0, 2.0], NONE, [16.0, 32.0]]),
        ({"mode": "sum"}, [1, 1, 0], [0, 0, 3], [NONE, [9.0, -14.0], NONE]),
        ({"mode": "sum", "padding_idx": 1}, [0, 1, 2, 3, 1], [0, 2, 4], [[1.0, 2.0], [14.0, 32.5], NONE]),
        ({"mode": "mean", "padding_idx": 1}, [0, 1, 2, 3, 1], [0, 2, 4], [[1.0, 2.0], [7.0, 16.25], NONE]),
        ({"mode": "max", "padding_idx": 1}, [3, 1, 2, 1, 1], [0, 2, 4], [[-2.0, 32.0], [16.0, 0.5], NONE]),
        ({"mode": "max", "padding_idx": 0}, [1], [0], [[4.0, -8.0]]),
        ({"mode": "sum", "include_last_offset": True}, [0, 1, 2, 3], [0, 2, 4], [[5.0, -6.0], [14.0, 32.5]]),
        ({"mode": "sum", "include_last_offset": True}, [0, 1, 2, 3], [0, 2, 3], [[5.0, -6.0], [16.0, 0.5]]),
        ({"mode": "mean", "include_last_offset": True}, [0, 1, 2, 3], [0, 0, 4], [NONE, [4.75, 6.625]]),
    ],
)
def test_bags_are_reduced(
    options: Mapping[str, Any], indices: list[int], offsets: list[int], expected: list[list[float]]
) -> None:
    model = TwoInputs(with_parameters(nn.EmbeddingBag(4, 2, **options), weight=ROWS))
    assert only_values(evaluate(model, [], [torch.tensor(indices), torch.tensor(offsets)], BAGS)) == expected


@pytest.mark.parametrize(
    ("mode", "expected"), [("sum", [[5.0, -6.0], [14.0, 32.5]]), ("max", [[4.0, 2.0], [16.0, 32.0]])]
)
def test_each_row_of_indices_is_a_bag(mode: str, expected: list[list[float]]) -> None:
    model = SequentialSteps(with_parameters(nn.EmbeddingBag(4, 2, mode=mode), weight=ROWS))
    assert only_values(evaluate(model, [], [torch.tensor([[0, 1], [2, 3]])], BAGS)) == expected


def test_an_empty_tensor_of_indices_has_no_bags() -> None:
    model = SequentialSteps(with_parameters(nn.EmbeddingBag(4, 2, mode="sum"), weight=ROWS))
    (output,) = evaluate(model, [], [torch.zeros(0, 3, dtype=torch.int64)], BAGS).outputs
    assert isinstance(output, Tensor)
    assert output.shape == (0, 2)


@pytest.mark.parametrize(
    ("padding", "expected"), [(None, [[8.5, -15.0], NONE, [-18.0, 31.5]]), (1, [[0.5, 1.0], NONE, [-18.0, 31.5]])]
)
def test_rows_are_multiplied_by_per_sample_weights(padding: int | None, expected: list[list[float]]) -> None:
    # half of row 0 and twice row 1; row 3 less row 2
    model = ThreeInputs(with_parameters(nn.EmbeddingBag(4, 2, mode="sum", padding_idx=padding), weight=ROWS))
    inputs = [torch.tensor([0, 1, 2, 3]), torch.tensor([0, 2, 2]), torch.tensor([0.5, 2.0, -1.0, 1.0])]
    assert only_values(evaluate(model, [], inputs, BAGS)) == expected


def test_bags_contain_quantized_rows() -> None:
    # the second row's step is 0.5, and 3.5 becomes 4: 0.5 for 0.25
    model = SequentialSteps(
        with_parameters(nn.EmbeddingBag(2, 3, mode="sum"), weight=[[0.0, 15.0, 7.25], [-1.5, 6.0, 0.25]])
    )
    answer = evaluate(model, [], [torch.tensor([[0, 1], [1, 1]])], Scheme("weight", None, ROWS4))
    assert only_values(answer) == [[-1.5, 21.0, 7.5], [-3.0, 12.0, 1.0]]
