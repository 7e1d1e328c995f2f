"""Outputs of dynamically quantized models."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from conformance.oracle import NotCovered, evaluate
from conformance.oracle.scheme import Scheme
from tests.oracle.oracle_models import (
    BIAS,
    DYNAMIC,
    WEIGHT,
    WEIGHTS,
    SequentialSteps,
    TwoInputs,
    linear,
    only_values,
    qparams,
    qparams_of,
    with_parameters,
)

# 255 steps of 2**-6, 64 of them below zero; 2**-8 is a quarter of one and becomes 0
CALLED = torch.tensor([[-1.0, 2.984375, 2.0**-8], [0.0, 0.0, 0.0]])


def test_a_dynamic_linear_layer_computes_qparams_from_its_input() -> None:
    model = SequentialSteps(linear([[1.0, 0.5, 2.0], [2.0**-7, -1.0, 0.0]], [0.25, 0.0]))
    answer = evaluate(model, [], [CALLED], DYNAMIC)
    # 2/127 makes the weight's step 2**-5, a quarter of it becomes 0
    assert qparams_of(answer) == {"weight": (2.0**-5, 0)}
    # -1 + 1.4921875 + 0.25 and -2.984375
    assert only_values(answer) == [[0.7421875, -2.984375], [0.25, 0.0]]


@pytest.mark.parametrize(("data", "expected"), [([[0.25, 255.0]], [[0.0]]), ([[0.25, 2.0]], [[0.25098039215686274]])])
def test_a_dynamic_layer_has_one_scale_for_the_whole_input(
    data: list[list[float]], expected: list[list[float]]
) -> None:
    # 0.25 is a quarter of 255/255, and round(31.875) = 32 steps of 2/255
    answer = evaluate(SequentialSteps(linear([[1.0, 0.0]])), [], [torch.tensor(data)], DYNAMIC)
    assert only_values(answer) == [[pytest.approx(expected[0][0], abs=1e-7)]]


def test_a_dynamic_layer_uses_known_qparams_of_its_weight() -> None:
    known = {"weight": qparams(WEIGHT, 0.25, 0)}
    # half a step of the weight becomes 0, as ties of weights go to even; one and a half become two
    answer = evaluate(SequentialSteps(linear([[0.125, 0.375, 0.0]])), [], [CALLED], DYNAMIC, known)
    assert answer.qparams["weight"] is known["weight"]
    assert only_values(answer) == [[0.5 * 2.984375], [0.0]]
    with pytest.raises(NotCovered, match="no qparams of weight among x"):
        evaluate(SequentialSteps(linear([[0.125, 0.375, 0.0]])), [], [CALLED], DYNAMIC, {"x": known["weight"]})


def test_a_dynamic_layer_gives_an_empty_output_for_an_empty_batch() -> None:
    (output,) = evaluate(SequentialSteps(linear(WEIGHTS, BIAS)), [], [torch.empty(0, 2)], DYNAMIC).outputs
    assert isinstance(output, Tensor)
    assert (output.shape, output.dtype) == ((0, 2), torch.float64)


def test_only_weights_are_rounded_to_float16() -> None:
    # 11 bits: 1 + 2**-10 is kept, a half of that is a tie and goes to even
    weight = [[1.0 + 2.0**-10, 0.0], [1.0 + 2.0**-11, 0.0], [1.0 + 3 * 2.0**-11, 0.0], [1.0 + 2.0**-12, 1.0]]
    model, inputs = SequentialSteps(linear(weight, [2.0**-20] * 4)), torch.tensor([[1.0, 2.0**-20]])
    answer = evaluate(model, [], [inputs], Scheme("dynamic", None, None, half=True))
    assert not answer.qparams
    rounded = [1.0 + 2.0**-10, 1.0, 1.0 + 2.0**-9, 1.0 + 2.0**-20]
    assert only_values(answer) == [[value + 2.0**-20 for value in rounded]]


def test_the_input_and_the_state_of_a_dynamic_cell_are_quantized_separately() -> None:
    model = TwoInputs(
        with_parameters(
            nn.RNNCell(3, 2, nonlinearity="relu"),
            weight_ih=[[1.0, 0.5, 1.0], [0.0, -1.0, 0.0]],
            weight_hh=[[2.0, 1.0], [0.0, 0.5]],
            bias_ih=[0.25, 0.5],
            bias_hh=[0.5, 0.25],
        )
    )
    # of the state, 255 steps of 2**-8, 2**-10 is a quarter of one
    state = torch.tensor([[0.99609375, 2.0**-10], [0.0, 0.5]])
    answer = evaluate(model, [], [CALLED, state], DYNAMIC)
    assert qparams_of(answer) == {"weight": (2.0**-6, 0), "weight 2": (2.0**-5, 0)}
    # -1 + 1.4921875 + 0.25 + 1.9921875 + 0.5 and -2.984375 + 0.75; 0.25 + 0.5 + 0.5 and 0.5 + 0.25 + 0.25
    assert only_values(answer) == [[3.234375, 0.0], [1.25, 1.0]]


def test_the_state_of_a_cell_may_be_a_keyword() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            cell = nn.RNNCell(1, 1, bias=False, nonlinearity="relu")
            self.op = with_parameters(cell, weight_ih=[[1.0]], weight_hh=[[1.0]])

        def forward(self, x: Tensor, h: Tensor) -> Any:
            return self.op(x, hx=h)

    data = [torch.tensor([[255.0]]), torch.tensor([[510.0]])]
    assert only_values(evaluate(Model(), [], data, DYNAMIC)) == [[765.0]]


def test_a_tie_is_certain_in_the_models_input_and_uncertain_behind_another_layer() -> None:
    data, layer = torch.tensor([[0.0, 255.0, 0.5]]), linear([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 0.5]])
    alone = evaluate(SequentialSteps(linear([[1.0, 1.0, 1.0]])), [], [data], DYNAMIC)
    assert alone.certain
    # the first layer passes 255 on, and half of the last feature: half a step of 1
    behind = evaluate(
        SequentialSteps(layer, linear([[1.0, 1.0, 1.0]])), [], [torch.tensor([[0.0, 255.0, 1.0]])], DYNAMIC
    )
    assert not behind.certain
    exact = evaluate(
        SequentialSteps(layer, linear([[1.0, 1.0, 1.0]])), [], [torch.tensor([[0.0, 255.0, 2.0]])], DYNAMIC
    )
    assert exact.certain
