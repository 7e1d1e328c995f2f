"""Static models whose results stay in float, and dynamic ones whose activation is quantized by part or as a whole."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from conformance.oracle import Codes, evaluate
from conformance.oracle.scheme import PARTS, Grid, Scheme

ACTIVATION, WEIGHT = Grid("quint8", 0, 255), Grid("qint8", -128, 127, "symmetric")
FLOAT = Scheme("static", ACTIVATION, WEIGHT, float_results=True)
DYNAMIC = Scheme("dynamic", ACTIVATION, WEIGHT)


class Two(nn.Module):
    """A linear layer, maybe with another one before it, and a sum with another input."""

    def __init__(self, *, before: bool = False, adds: bool = False) -> None:
        super().__init__()
        self.before = nn.Linear(4, 4, bias=False) if before else None
        self.op = nn.Linear(4, 4, bias=False)
        self.adds = adds
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.copy_(torch.eye(4) * 127 * 2**-7)

    def forward(self, x: Tensor, other: Tensor) -> Tensor:
        if self.before is not None:
            x = self.before(x)
        y: Tensor = self.op(x)
        return y + other if self.adds else y


X = torch.arange(-8, 8).reshape(4, 4) * 2.0**-4
OTHER = torch.full((4, 4), 0.3)


def values(output: Codes | Tensor) -> Tensor:
    assert isinstance(output, Tensor)
    return output


def test_a_result_that_no_operator_takes_stays_in_float() -> None:
    answer = evaluate(Two(), (X, OTHER), (X, OTHER), FLOAT)
    assert torch.equal(values(answer.outputs[0]), X.double() * 127 / 128)
    assert answer.qparams.keys() == {"x", "weight"}


def test_without_the_mark_the_result_is_quantized() -> None:
    answer = evaluate(Two(), (X, OTHER), (X, OTHER), replace(FLOAT, float_results=False))
    assert isinstance(answer.outputs[0], Codes)
    assert answer.qparams.keys() == {"x", "weight", "output"}


def test_a_result_that_another_operator_takes_is_quantized_there() -> None:
    scheme = replace(FLOAT, before=(False,))
    answer = evaluate(Two(before=True), (X, OTHER), (X, OTHER), scheme)
    assert answer.qparams.keys() == {"x", "weight", "weight 2", "output"}
    between = X.double() * 127 / 128
    scale = float(answer.qparams["output"].scale)
    apart = (values(answer.outputs[0]) - between * 127 / 128).abs()
    assert 0 < float(apart.max()) <= scale / 2
    on_grid = values(answer.outputs[0]) * 128 / 127 / scale
    assert torch.equal(on_grid, on_grid.round())


def test_an_input_that_stays_in_float_is_not_quantized() -> None:
    fused = replace(FLOAT, fused=True)
    model = Two(adds=True)
    quantized = evaluate(model, (X, OTHER), (X, OTHER), fused)
    floating = evaluate(model, (X, OTHER), (X, OTHER), replace(fused, floats=("other",)))
    assert quantized.qparams.keys() == {"x", "other", "weight"}
    assert floating.qparams.keys() == {"x", "weight"}
    assert torch.equal(values(floating.outputs[0]), X.double() * 127 / 128 + OTHER.double())


def test_a_float_result_behind_a_tie_is_uncertain() -> None:
    tied = X + 2.0**-9  # between two codes of the observed range
    answer, exact = (evaluate(Two(), (X, OTHER), (inputs, OTHER), FLOAT) for inputs in (tied, X))
    assert (answer.certain, exact.certain) == (False, True)
    low, high = answer.ranges[0]
    step = float(answer.qparams["x"].scale) * 127 / 128
    assert torch.allclose(high - low, torch.full((4, 4), step, dtype=torch.float64))
    assert bool(((low <= values(answer.outputs[0])) & (values(answer.outputs[0]) <= high)).all())
    assert not exact.ranges


def test_a_dynamic_pattern_quantizes_its_other_inputs_if_it_says_so() -> None:
    model, other = Two(adds=True), torch.tensor([[0.1, 1.0, -1.0, 0.37]]).expand(4, 4)
    alone = evaluate(model, (X, other), (X, other), replace(DYNAMIC, fused=True))
    both = evaluate(model, (X, other), (X, other), replace(DYNAMIC, fused=True, dynamic_inputs=True))
    apart = (values(both.outputs[0]) - values(alone.outputs[0])).abs()
    assert 0 < float(apart.max()) <= 2 / 255


def quantized(rows: Tensor) -> Tensor:
    """Each row on the grid of its own range."""
    low, high = rows.amin(1, keepdim=True).clamp(max=0), rows.amax(1, keepdim=True).clamp(min=0)
    scale = (high - low) / 255
    zero_point = torch.round(-low / scale)
    return (torch.clamp(torch.round(rows / scale + zero_point), 0, 255) - zero_point) * scale


@pytest.mark.parametrize(
    ("part", "layer", "shape"),
    [
        ("row", nn.Linear(5, 5, bias=False), (3, 5)),
        ("item", nn.Conv1d(5, 5, 1, bias=False), (3, 5, 4)),
        ("pixel", nn.Conv1d(5, 5, 1, bias=False), (3, 5, 4)),
    ],
)
def test_each_part_of_a_dynamic_activation_may_have_qparams_of_its_own(
    part: str, layer: nn.Module, shape: tuple[int, ...]
) -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(shape, generator=generator, dtype=torch.float64)
    with torch.no_grad():
        eye = torch.eye(5) * 2.0**-7
        layer.weight.copy_(eye if part == "row" else eye.unsqueeze(-1))  # type: ignore[union-attr, operator]
    rows = x.movedim(1, -1).flatten(0, 1) if part == "pixel" else x.flatten(1)
    expected = quantized(rows).reshape(x.movedim(1, -1).shape if part == "pixel" else x.shape)
    expected = (expected.movedim(-1, 1) if part == "pixel" else expected) * 2.0**-7
    answer = evaluate(nn.Sequential(layer), (x,), (x,), replace(DYNAMIC, dynamic_parts=part))
    assert torch.allclose(values(answer.outputs[0]), expected, rtol=1e-5, atol=1e-9)
    whole = evaluate(nn.Sequential(layer), (x,), (x,), DYNAMIC)
    assert not torch.allclose(values(whole.outputs[0]), expected, rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("part", PARTS[1:])
def test_an_unbatched_activation_is_one_part(part: str) -> None:
    x = torch.tensor([[0.25, -1.5, 0.75]], dtype=torch.float64)
    layer, scheme = nn.Linear(3, 2), replace(DYNAMIC, dynamic_parts=part)
    (batched,) = evaluate(layer, (x,), (x,), scheme).outputs
    (alone,) = evaluate(layer, (x[0],), (x[0],), scheme).outputs
    assert torch.equal(values(alone), values(batched)[0])


def test_parts_are_named() -> None:
    assert PARTS == ("tensor", "row", "item", "pixel")
