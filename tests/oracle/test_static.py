"""Outputs of statically quantized models."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from conformance.oracle import NotCovered, evaluate
from conformance.oracle.layers import foldable, folded, normalized
from tests.oracle.oracle_models import (
    BIAS,
    QINT8,
    QUINT8,
    STATIC,
    WEIGHT,
    WEIGHTS,
    WIDE,
    SequentialSteps,
    linear,
    only_codes,
    only_output,
    qparams,
    qparams_of,
    with_parameters,
)


class Functional(nn.Module):
    """A linear layer as a function of its parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.tensor(WEIGHTS)), nn.Parameter(torch.tensor(BIAS))

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight, bias=self.bias)


@pytest.mark.parametrize("model", [SequentialSteps(linear(WEIGHTS, BIAS)), Functional()])
def test_a_static_linear_layer(model: nn.Module) -> None:
    inputs = [
        [1.0, 1.0],  # 1 - 0.5 + 0.5 = 1, 0.25 + 2 - 1 = 1.25
        [-0.5, 0.25],  # -0.125, -0.625
        [2.0**-8, 0.0],  # a quarter of a step is 0: 0.5, -1
        [10.0, 0.0],  # saturates at 1.984375: 2.484375, -0.50390625
    ]
    answer = evaluate(model, [WIDE], [torch.tensor(inputs)], STATIC)
    # the float model gives -2.4921875, 2.46875 and 3.484375, -4.50390625: 255 steps of more than 2**-5, and
    # 4.50390625 * 16 = 72.0625
    assert qparams_of(answer) == {"x": (2.0**-6, 128), "weight": (2.0**-5, 0), "output": (2.0**-4, 72)}
    # 16 and 20; -2 and -10; 8 and -16; 39.75 and -8.0625
    assert only_codes(answer) == [[88, 92], [70, 62], [80, 56], [112, 64]]


def test_a_tie_of_the_output_gets_both_codes() -> None:
    # 0.03125 + 0.5 is 8.5 steps of 2**-4; 0.25 / 32 - 1 is -15.875
    output = only_output(
        evaluate(SequentialSteps(linear(WEIGHTS, BIAS)), [WIDE], [torch.tensor([[2.0**-5, 0.0]])], STATIC)
    )
    assert (output.low.tolist(), output.high.tolist()) == ([[80, 56]], [[81, 56]])
    assert output.position.tolist() == [[80.5, 56.125]]


def test_calibration_uses_float_weights_and_evaluation_quantized_ones() -> None:
    # 2**-8 is a quarter of the weight's step, 2**-6: it becomes 0. The float model gives 255.996, above 255 steps of 1
    model, data = SequentialSteps(linear([[1.0, 2.0**-8]])), torch.tensor([[255.0, 255.0], [0.0, 0.0]])
    answer = evaluate(model, [data], [torch.tensor([[100.0, 255.0]])], STATIC)
    assert qparams_of(answer) == {"x": (1.0, 0), "weight": (2.0**-6, 0), "output": (2.0, 0)}
    assert only_codes(answer) == [[50]]


def test_weights_have_a_scale_for_each_row() -> None:
    # 127 * 2**-7 keeps 2**-7, 100 needs 1: 0.25 of a step is 0
    scheme = replace(STATIC, weight=replace(WEIGHT, axis=0))
    model = SequentialSteps(linear([[127 * 2.0**-7, 2.0**-7], [100.0, 0.25]]))
    answer = evaluate(model, [torch.tensor([[0.0, 255.0]])], [torch.tensor([[0.0, 128.0]])], scheme)
    assert (answer.qparams["weight"].scale.tolist(), answer.qparams["weight"].zero_point.tolist()) == (
        [2.0**-7, 1.0],
        [0, 0],
    )
    # the outputs are 1 and 0; calibration saw 1.99 and 63.75: 255 steps of 0.25
    assert only_codes(answer) == [[4, 0]]


CHAINED = [[1.0, 1.0], [2.0**-5, 0.0], [-2.0, -2.0]]


def test_a_fused_pattern_is_quantized_once() -> None:
    model = SequentialSteps(linear(WEIGHTS, BIAS), nn.ReLU())
    answer = evaluate(model, [WIDE], [torch.tensor(CHAINED)], replace(STATIC, fused=True))
    # at most 3.484375: 255 steps of more than 2**-7
    assert qparams_of(answer) == {"x": (2.0**-6, 128), "weight": (2.0**-5, 0), "output": (2.0**-6, 0)}
    # 1 and 1.25; 0.53125 and less than 0; -0.5 and -5.5
    assert only_codes(answer) == [[64, 80], [34, 0], [0, 0]]


def test_unfused_operators_are_quantized_separately() -> None:
    model = SequentialSteps(linear(WEIGHTS, BIAS), nn.ReLU())
    answer = evaluate(model, [WIDE], [torch.tensor(CHAINED)], STATIC)
    assert qparams_of(answer) == {
        "x": (2.0**-6, 128),
        "weight": (2.0**-5, 0),
        "output": (2.0**-4, 72),
        "output 2": (2.0**-6, 0),
    }
    # 0.53125 is a tie of the first output, 0.5 or 0.5625, that is 32 or 36 of the second
    output = only_output(answer)
    assert output.low.tolist() == [[64, 80], [32, 0], [0, 0]]
    assert output.high.tolist() == [[64, 80], [36, 0], [0, 0]]


def test_batch_norm_is_folded_into_a_convolution_before_its_weight_is_quantized() -> None:
    conv = with_parameters(nn.Conv2d(1, 2, 1), weight=[[[[1.0]]], [[[-0.515625]]]], bias=[0.5, 0.0])
    # variances and eps make 1 and 4: factors 2 and 1/2
    norm = with_parameters(
        nn.BatchNorm2d(2, eps=0.25),
        weight=[2.0, 1.0],
        bias=[0.25, -1.0],
        running_mean=[0.5, 1.0],
        running_var=[0.75, 3.75],
    )
    data = torch.tensor([-2.0, 1.984375]).reshape(1, 1, 1, 2)
    inputs = torch.tensor([1.0, -0.5]).reshape(1, 1, 1, 2)
    answer = evaluate(SequentialSteps(conv, norm), [data], [inputs], replace(STATIC, fused=True))
    # weights 2 and -0.2578125, biases 0.25 and -1.5; 2/127 makes the step 2**-5, and -8.25 becomes -8: -0.25
    # calibration saw -3.75 to 4.21875, 255 steps of 2**-5
    assert qparams_of(answer) == {"x": (2.0**-6, 128), "weight": (2.0**-5, 0), "output": (2.0**-5, 120)}
    # 2 * x + 0.25 = 2.25, -0.75 and -0.25 * x - 1.5 = -1.75, -1.375
    assert only_codes(answer) == [[[[192, 96]], [[64, 76]]]]


def test_a_batch_norm_without_parameters_scales_by_its_variances_alone() -> None:
    norm = with_parameters(nn.BatchNorm1d(2, eps=0.25, affine=False), running_mean=[4.0, 8.0], running_var=[0.75, 3.75])
    layer = with_parameters(nn.Linear(1, 2), weight=[[1.0], [2.0]], bias=[1.0, 4.0])
    with torch.no_grad():
        weight, bias = folded(layer, norm)
    # factors 1 and 1/2; (bias - mean) * factor
    assert (weight.tolist(), bias.tolist()) == ([[1.0], [1.0]], [-3.0, -2.0])
    assert normalized(torch.tensor([[5.0, 4.0]], dtype=torch.float64), norm).tolist() == [[1.0, -2.0]]


def test_a_batch_norm_without_statistics_normalizes_by_those_of_the_batch_and_is_not_folded() -> None:
    norm = with_parameters(nn.BatchNorm1d(2, eps=0.0, track_running_stats=False), weight=[1.0, 2.0], bias=[0.0, 1.0])
    # means 1 and 4, variances 1/4 and 4 without Bessel's correction: factors 2 and 2 / 2
    x = torch.tensor([[0.5, 2.0], [1.5, 6.0]], dtype=torch.float64)
    assert normalized(x, norm).tolist() == [[-1.0, -1.0], [1.0, 3.0]]
    layer = nn.Linear(1, 2)
    assert [foldable(layer, norm, 2), foldable(layer, nn.BatchNorm1d(2), 2), foldable(layer, nn.BatchNorm1d(2), 3)] == [
        False, True, False,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("layer", "weight"),
    [
        (nn.Linear(2, 4), [[1.0, 1.0], [2.0, 2.0], [4.0, 4.0], [8.0, 8.0]]),
        (nn.Conv1d(4, 4, 1, groups=2), [[[1.0], [1.0]], [[2.0], [2.0]], [[4.0], [4.0]], [[8.0], [8.0]]]),
        # (in, out / groups, …): inputs 0 and 1 give outputs 0 and 1, inputs 2 and 3 give outputs 2 and 3
        (
            nn.ConvTranspose2d(4, 4, 1, groups=2),
            [[[[1.0]], [[2.0]]], [[[1.0]], [[2.0]]], [[[4.0]], [[8.0]]], [[[4.0]], [[8.0]]]],
        ),
        (nn.ConvTranspose1d(1, 4, 1), [[[1.0], [2.0], [4.0], [8.0]]]),
    ],
)
@pytest.mark.parametrize(("bias", "moved"), [(None, [-3.0, -7.0, -15.0, -31.0]), (1.0, [-2.0, -5.0, -11.0, -23.0])])
def test_batch_norm_is_folded_into_the_outputs_of_a_layer(
    layer: nn.Module, weight: Any, bias: float | None, moved: list[float]
) -> None:
    # factors 1, 2, 4, 8; (bias - 4) * factor + 1
    norm = with_parameters(
        nn.BatchNorm2d(4, eps=0.25),
        weight=[1.0, 2.0, 4.0, 8.0],
        bias=[1.0] * 4,
        running_mean=[4.0] * 4,
        running_var=[0.75] * 4,
    )
    with torch.no_grad():
        layer.get_parameter("weight").fill_(1.0)
        layer.register_parameter("bias", None if bias is None else nn.Parameter(torch.full((4,), bias)))
        folded_weight, folded_bias = folded(layer, norm)
    assert (folded_weight.tolist(), folded_bias.tolist()) == (weight, moved)
    assert folded_weight.dtype == torch.float32


@pytest.mark.parametrize(
    ("follows", "low", "high"), [(F.relu, 1, 1), (nn.ReLU(), 1, 1), (F.leaky_relu, 0, 1), (nn.LeakyReLU(), 0, 1)]
)
def test_the_band_is_wider_for_operators_that_float32_rounds(
    follows: Callable[[Tensor], Tensor], low: int, high: int
) -> None:
    model = SequentialSteps(lambda x: x * (0.5 + 2.0**-15), follows)
    known = {"x": qparams(QUINT8, 1.0, 0), "output": qparams(QUINT8, 1.0, 0)}
    output = only_output(evaluate(model, [], [torch.tensor([1.0])], replace(STATIC, fused=True), known))
    assert (output.low.tolist(), output.high.tolist()) == ([low], [high])


@pytest.mark.parametrize(("beyond", "low", "high"), [(2.0**-13, 0, 1), (2.0**-11, 1, 1)])
def test_the_band_is_wider_between_operators_where_observers_choose_the_scales(
    beyond: float, low: int, high: int
) -> None:
    def codes(*functions: Callable[[Tensor], Tensor]) -> tuple[Any, Any]:
        output = only_output(evaluate(SequentialSteps(*functions), [], [torch.tensor([1.0])], STATIC, UNIT))
        return output.low.tolist(), output.high.tolist()

    assert codes(lambda x: x * (0.5 + beyond), lambda x: x * 1) == ([low], [high])
    assert codes(lambda x: x * (0.5 + beyond)) == ([1], [1])  # the output is compared with a tolerance of its own


def test_an_empty_batch_gives_empty_outputs_with_calibrated_qparams() -> None:
    answer = evaluate(SequentialSteps(linear(WEIGHTS, BIAS)), [WIDE], [torch.empty(0, 2)], STATIC)
    assert qparams_of(answer) == {"x": (2.0**-6, 128), "weight": (2.0**-5, 0), "output": (2.0**-4, 72)}
    output = only_output(answer)
    assert (output.low.shape, output.high.shape) == ((0, 2), (0, 2))


KNOWN = {
    "x": qparams(QINT8, 0.75, 10),
    "weight": qparams(replace(WEIGHT, zero_point="affine"), 0.3125, 3),
    "output": qparams(QUINT8, 1.5, 5),
}


def test_known_qparams_replace_calibration() -> None:
    # x: 3 / 0.75 = 4 and round(-2 / 0.75) = -3, that is 3 and -2.25
    # weight: round(1 / 0.3125) = 3 and round(2 / 0.3125) = 6, that is 0.9375 and 1.875
    # 2.8125 - 4.21875 + 2.90625 = 1.5, one step; and 2.25 more is a tie
    model, inputs = SequentialSteps(linear([[1.0, 2.0], [1.0, 2.0]], [2.90625, 5.15625])), torch.tensor([[3.0, -2.0]])
    answer = evaluate(model, [], [inputs], STATIC, KNOWN)
    assert all(answer.qparams[name] is qparams for name, qparams in KNOWN.items())
    output = only_output(answer)
    assert output.qparams is KNOWN["output"]
    assert (output.low.tolist(), output.high.tolist()) == ([[6, 7]], [[6, 8]])


@pytest.mark.parametrize("missing", KNOWN)
def test_missing_qparams_are_named(missing: str) -> None:
    others = {name: qparams for name, qparams in KNOWN.items() if name != missing}
    with pytest.raises(NotCovered, match=f"no qparams of {missing} among {', '.join(others)}"):
        evaluate(SequentialSteps(linear([[1.0, 2.0]])), [], [torch.tensor([[3.0, -2.0]])], STATIC, others)


def test_static_quantization_without_integers_is_not_covered() -> None:
    with pytest.raises(NotCovered, match="without integers"):
        evaluate(SequentialSteps(linear(WEIGHTS, BIAS)), [WIDE], [WIDE], replace(STATIC, activation=None))


UNIT = {"x": qparams(QUINT8, 1.0, 0), "output": qparams(QUINT8, 1.0, 0), "output 2": qparams(QUINT8, 1.0, 0)}


def twice() -> SequentialSteps:
    layer = linear([[1.5]])
    return SequentialSteps(layer, layer)


@pytest.mark.parametrize(
    ("model", "value", "low", "high"),
    [
        (twice(), 1.0, 1, 3),  # 1.5 is 1 or 2, of which 1.5 follows, 1 or 2, or 3
        (twice(), 2.0, 4, 5),  # 3, then 4.5
        (twice(), 4.0, 9, 9),  # 6, then 9
        (twice(), 0.5, 0, 3),  # a tie of the input: 0, or 1 and all that follows from it
        (twice(), 0.5 + 2.0**-15, 0, 3),  # as near to a tie as float32 may miss it
        (twice(), 0.5 + 2.0**-13, 1, 3),
    ],
)
def test_the_result_of_a_tie_covers_both_roundings(model: nn.Module, value: float, low: int, high: int) -> None:
    weight = qparams(WEIGHT, 2.0**-6, 0)
    known = {**UNIT, "weight": weight, "weight 2": weight}
    output = only_output(evaluate(model, [], [torch.tensor([[value]])], STATIC, known))
    assert (output.low.tolist(), output.high.tolist()) == ([[low]], [[high]])


def test_a_layer_that_is_called_twice_has_qparams_for_each_call() -> None:
    # at most 255, 382.5 and 573.75: 255 steps of 1, 2 and 4
    answer = evaluate(twice(), [torch.tensor([[255.0]])], [torch.tensor([[4.0]])], STATIC)
    assert qparams_of(answer) == {
        "x": (1.0, 0),
        "weight": (2.0**-6, 0),
        "output": (2.0, 0),
        "weight 2": (2.0**-6, 0),
        "output 2": (4.0, 0),
    }
    # 6, that is 3 steps; 9 is 2.25 steps
    assert only_codes(answer) == [[2]]


class Joined(nn.Module):
    """A layer whose output, clamped, is joined with another input."""

    def __init__(self) -> None:
        super().__init__()
        self.op, self.after = linear([[1.0]]), nn.Hardtanh(-4.0, 4.0)

    def forward(self, x: Tensor, w: Tensor) -> Tensor:
        return torch.cat([w, self.after(self.op(x))], 1)


def test_an_operator_that_keeps_qparams_passes_a_shared_observer_on() -> None:
    data = [torch.tensor([[0.0], [1.0]]), torch.tensor([[0.0], [15.9375]])]
    answer = evaluate(Joined(), data, data, replace(STATIC, after=(True, True)))
    # the range of w is that of all tensors behind the layer: 15.9375 is 255 steps of 2**-4, 1.0 is 16 of them
    shared = (2.0**-4, 0)
    assert qparams_of(answer) == {
        "x": (2.0**-7, 0), "w": shared, "weight": (2.0**-6, 0), "output": shared, "output 2": shared, "output 3": shared,
    }  # fmt: skip
    assert only_codes(answer) == [[0, 0], [255, 16]]
    apart = evaluate(Joined(), data, data, replace(STATIC, after=(False, False)))
    assert qparams_of(apart)["output"] == (2.0**-7, 0)


class Twice(nn.Module):
    """A layer and a ReLU, quantized as one, applied to two inputs, behind an operator that keeps qparams."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.op = nn.Identity(), linear([[1.0]])

    def forward(self, x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        x = self.before(x)
        y = F.relu(self.op(x))
        return y, F.relu(self.op(w))


def test_each_application_of_a_fused_pattern_has_qparams_of_its_own() -> None:
    data = [torch.tensor([[-1.0], [1.0]]), torch.tensor([[-0.5], [127.0]])]
    scheme = replace(STATIC, fused=True, before=(True,), applications=2)
    answer = evaluate(Twice(), data, data, scheme)
    found = qparams_of(answer)
    assert found["x"] == found["output"] == (2.0**-6, 64)  # 2 is more than 255 steps of 2**-7
    assert found["output 2"] == (2.0**-7, 0)  # -1 is zero after the ReLU
    assert found["output 3"] == (2.0**-1, 0)
    assert [codes.position.tolist() for codes in answer.outputs] == [[[0.0], [128.0]], [[0.0], [254.0]]]  # type: ignore[union-attr]


class Difference(nn.Module):
    """The difference of two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.op = linear([[0.5, 1.0]]), linear([[1.0, 2.0]])

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.before(x)
        z: Tensor = self.op(x)
        return y - z


def test_operators_may_round_their_ties_by_different_rules() -> None:
    data = torch.tensor([[-1.0, -1.0], [255 * 2.0**-7 - 1.0] * 2])
    answer = evaluate(
        Difference(), [data], [torch.tensor([[2.0**-6, 0.0]])], replace(STATIC, before=(False,), after=(False,))
    )
    found = qparams_of(answer)
    assert [found[f"output{number}"][0] for number in ("", " 2", " 3")] == [2.0**-6, 2.0**-5, 2.0**-6]
    # both layers give half a step: 0 or 2**-6, and 0 or 2**-5. With the same rule for both the difference is 0 or -2**-6
    output, zero_point = only_output(answer), found["output 3"][1]
    assert (output.low.tolist(), output.high.tolist()) == ([[zero_point - 2]], [[zero_point + 1]])
