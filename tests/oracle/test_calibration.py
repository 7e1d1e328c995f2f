"""Calibration of static quantization: which observers see which values, and which outputs share them."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from conformance.oracle import evaluate
from conformance.oracle.scheme import ALWAYS
from tests.oracle.oracle_models import (
    BIAS,
    QUINT8,
    STATIC,
    WEIGHTS,
    WIDE,
    SequentialSteps,
    ThreeInputs,
    TwoInputs,
    linear,
    only_codes,
    only_output,
    qparams_of,
)


def test_an_output_shares_the_qparams_of_its_input_or_has_its_own() -> None:
    model, inputs = SequentialSteps(nn.ReLU()), torch.tensor([[-1.0, 1.0, 5.0]])
    shared = evaluate(model, [WIDE], [inputs], replace(STATIC, shares=ALWAYS))
    assert qparams_of(shared) == {"x": (2.0**-6, 128), "output": (2.0**-6, 128)}
    assert only_codes(shared) == [[128, 192, 255]]
    # 1.984375 is less than 255 steps of 2**-7; 5 is 1.984375 after the input's quantization
    own = evaluate(model, [WIDE], [inputs], STATIC)
    assert qparams_of(own) == {"x": (2.0**-6, 128), "output": (2.0**-7, 0)}
    assert only_codes(own) == [[0, 128, 254]]


def test_concatenated_tensors_share_one_range() -> None:
    calibration = [torch.tensor([[-2.0, 0.0]]), torch.tensor([[0.0, 1.984375]])]
    inputs = [torch.tensor([[-1.0, 3.0]]), torch.tensor([[1.0, -3.0]])]
    model = TwoInputs(lambda x, y: torch.cat([x, y], 1))
    shared = evaluate(model, calibration, inputs, replace(STATIC, shares=ALWAYS))
    assert qparams_of(shared) == dict.fromkeys(("x", "y", "output"), (2.0**-6, 128))
    assert only_codes(shared) == [[64, 255, 192, 0]]
    # by itself y is 254 steps of 2**-7 and has none below zero; x is 128 of 2**-6 below zero
    own = evaluate(model, calibration, inputs, STATIC)
    assert qparams_of(own) == {"x": (2.0**-6, 128), "y": (2.0**-7, 0), "output": (2.0**-6, 128)}
    assert only_codes(own) == [[64, 255, 192, 128]]


def test_an_observer_after_a_concatenation_is_separate_from_the_shared_one() -> None:
    calibration = [torch.tensor([[-1.0, 0.0]]), torch.tensor([[0.0, 200.0]]), torch.tensor([[0.0, 254.0]])]

    def scaled(times: int, *tensors: Tensor) -> Tensor:
        joined = torch.cat(tensors, 1)
        for _ in range(times):
            joined = joined * 2.0**-8
        return joined

    for times in range(1, 9):
        model = ThreeInputs(partial(scaled, times))
        chosen = qparams_of(evaluate(model, calibration, calibration, replace(STATIC, shares=(3,))))
        assert chosen["output"] == (1.0, 1)
        assert chosen["output 2"] == (2.0**-8, 1)


# 255 steps of 2**-7, 128 of them below zero
NARROWER = [torch.tensor([[-1.0, 0.984375]])]
OWN = (2.0**-7, 128)


@pytest.mark.parametrize(
    ("op", "shares", "input_qparams", "output_qparams", "code"),
    [
        (lambda x: x + 1.0, (1,), (2.0**-6, 64), (2.0**-6, 64), 160),  # the observer sees -1 to 1.984375
        (lambda x: torch.add(1.0, x), (1,), (2.0**-6, 64), (2.0**-6, 64), 160),
        (lambda x: torch.add(input=x, other=1.0), (1,), (2.0**-6, 64), (2.0**-6, 64), 160),
        (lambda x: x + 1.0, (), OWN, (2.0**-7, 0), 192),  # -1 to 0.984375, and 0 to 1.984375
        (lambda x: x + 1.0, (2,), OWN, (2.0**-7, 0), 192),
        (lambda x: x + x, (1,), OWN, (2.0**-6, 128), 192),  # -2 to 1.96875; a tensor that is passed twice counts twice
        (lambda x: x + x, (2,), (2.0**-6, 128), (2.0**-6, 128), 192),
        # a shape is no tensor; the second column is 255 steps of 2**-8 or less and none below zero
        (lambda x: x.narrow(1, x.size(0), x.shape[0]), (1,), OWN, OWN, 192),
        (lambda x: x.narrow(1, x.size(0), x.shape[0]), (), OWN, (2.0**-8, 0), 128),
    ],
)
def test_qparams_are_shared_for_the_stated_numbers_of_tensors(
    op: Callable[[Tensor], Tensor],
    shares: tuple[int, ...],
    input_qparams: tuple[float, int],
    output_qparams: tuple[float, int],
    code: int,
) -> None:
    answer = evaluate(SequentialSteps(op), NARROWER, [torch.tensor([[0.5, 0.5]])], replace(STATIC, shares=shares))
    assert qparams_of(answer) == {"x": input_qparams, "output": output_qparams}
    assert only_codes(answer)[0][-1] == code


def test_an_in_place_operator_does_not_change_the_data() -> None:
    calibration, inputs = WIDE.double(), torch.tensor([[-1.0, 1.0]]).double()
    answer = evaluate(SequentialSteps(lambda x: x.relu_()), [calibration], [inputs], replace(STATIC, shares=ALWAYS))
    assert only_codes(answer) == [[128, 192]]
    assert torch.equal(calibration, WIDE.double())
    assert inputs.tolist() == [[-1.0, 1.0]]


# 2/3 * 256 = 170.67; 1 is beyond the last code
SIGMOIDS = [[-3.0, 0.0, 1.0, 3.0]]


def test_fixed_qparams_apply_to_inputs_too() -> None:
    # 255 steps of 2**-7, 128 of them below zero: everything beyond saturates; 0.9921875 / 6 + 0.5 is 85.2 steps, 1/3 is 42.7
    scheme = replace(STATIC, activation=replace(QUINT8, fixed=(2.0**-7, 128)))
    answer = evaluate(SequentialSteps(nn.Hardsigmoid()), [WIDE], [torch.tensor(SIGMOIDS)], scheme)
    assert qparams_of(answer) == {"x": (2.0**-7, 128), "output": (2.0**-7, 128)}
    assert only_codes(answer) == [[171, 192, 213, 213]]


def test_an_operator_before_the_pattern_has_its_own_grid() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.prelude, self.op = nn.Hardtanh(-8.0, 8.0), nn.Hardsigmoid()

        def forward(self, x: Tensor) -> Any:
            return self.op(self.prelude(x))

    scheme = replace(STATIC, activation=replace(QUINT8, fixed=(2.0**-8, 0)), others=QUINT8)
    # 255 steps of 2**-4, 128 of them below zero
    answer = evaluate(Model(), [torch.tensor([[-8.0, 7.9375]])], [torch.tensor(SIGMOIDS)], scheme)
    assert qparams_of(answer) == {"x": (2.0**-4, 128), "output": (2.0**-4, 128), "output 2": (2.0**-8, 0)}
    assert only_codes(answer) == [[0, 128, 171, 255]]


def test_calibration_with_an_empty_batch_is_refused() -> None:
    with pytest.raises(ValueError, match="empty tensor"):
        evaluate(SequentialSteps(linear(WEIGHTS, BIAS)), [torch.empty(0, 2)], [WIDE], STATIC)


@pytest.mark.parametrize(
    ("model", "data", "ptq", "qat"),
    [
        # the step of the weight is 2**-6, 2**-8 becomes 0: 255 where the float model gives 255.996
        (SequentialSteps(linear([[1.0, 2.0**-8]])), [[0.0, 0.0], [255.0, 255.0]], 2.0, 1.0),
        # 204.25 becomes 204: 255 where the float model gives 255.3125
        (SequentialSteps(lambda x: x * 1.25), [[0.0, 204.25]], 2.0, 1.0),
        # the same of another operator's output: 10.75 is 172 steps of 2**-4
        (SequentialSteps(lambda x: x * 19.0, lambda x: x * 1.25), [[0.0, 10.75]], 2.0, 1.0),
    ],
)
def test_calibration_of_a_model_for_qat_sees_fake_quantized_values(
    model: nn.Module, data: list[list[float]], ptq: float, qat: float
) -> None:
    for scheme, scale in ((STATIC, ptq), (replace(STATIC, qat=True), qat)):
        answer = evaluate(model, [torch.tensor(data)], [torch.tensor(data)], scheme)
        assert only_output(answer).qparams.scale.tolist() == [scale]
