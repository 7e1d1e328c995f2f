"""Regions and effects: which elements of a result change, and to what."""

import pytest
import torch
from faults.kernels import Call
from torch import Tensor

from .effects import mask, mutated
from .injection import spared
from .mutant import Effect, Mutant, Region

NEIGHBOUR = "the neighbour's value along dimension {axis}"


def quantized(codes: list[int], zero_point: int = 3) -> Tensor:
    return torch._make_per_tensor_quantized_tensor(torch.tensor(codes, dtype=torch.uint8), 0.5, zero_point)


def call(x: Tensor, **more: object) -> Call:
    return Call(torch.ops.aten.relu.default._schema, {"self": x, **more}, lambda x: x)


def mutant(region: Region, effect: Effect) -> Mutant:
    return Mutant("", "", 0, "aten.relu", (), region, effect)


@pytest.mark.parametrize(
    ("region", "expected"),
    [
        (Region("everywhere"), [1, 1, 1, 1, 1, 1]),
        (Region("element", number=4), [0, 0, 0, 0, 1, 0]),
        (Region("lane", number=1, width=4), [0, 1, 0, 0, 0, 1]),
        (Region("tail", width=4), [0, 0, 0, 0, 1, 1]),
        (Region("last", 0), [0, 0, 0, 0, 0, 1]),
        (Region("last", -1), [0, 0, 0, 0, 0, 1]),
        (Region("index", 0, 2), [0, 0, 1, 0, 0, 0]),
        (Region("beyond", 0, 2), [0, 0, 1, 1, 1, 1]),
        (Region("code", number=7), [0, 1, 0, 0, 1, 0]),
        (Region("codes from", number=7), [0, 1, 1, 0, 1, 1]),
        (Region("input code", number=9), [0, 0, 1, 0, 0, 0]),
    ],
)
def test_regions(region: Region, expected: list[int]) -> None:
    x = quantized([0, 7, 9, 3, 7, 255])
    values = x.int_repr().int()
    selected = mask(region, call(x), values, values)
    assert selected is not None
    assert selected.int().tolist() == expected


def test_positions_are_those_in_memory() -> None:
    image = torch.zeros(1, 2, 2, 2, dtype=torch.int32).contiguous(memory_format=torch.channels_last)
    selected = mask(Region("element", number=1), call(quantized([1])), None, image)
    assert selected is not None
    assert selected.nonzero().tolist() == [[0, 1, 0, 0]]


def test_a_region_that_a_result_lacks_changes_nothing() -> None:
    x = quantized([1, 2, 3])
    for region in (Region("last", 1), Region("index", 0, 9), Region("looked up", number=0), Region("tail", width=3)):
        assert mutated(mutant(region, Effect("one step more")), call(x), x, None)[1] == 0


def test_lookups_select_rows() -> None:
    indices = torch.tensor([5, 2, 9])
    selected = mask(Region("looked up", number=5), call(quantized([1]), indices=indices), None, torch.zeros(3, 2))
    assert selected is not None
    assert selected.int().tolist() == [[1, 1], [0, 0], [1, 1]]


@pytest.mark.parametrize(
    ("effect", "expected"),
    [
        (Effect("one step more"), [1, 8, 4, 255]),
        (Effect("one step less"), [0, 6, 2, 254]),
        (Effect("zero"), [3, 3, 3, 3]),
        (Effect("the highest code wraps around"), [0, 7, 3, 0]),
        (Effect("the lowest code becomes the next"), [1, 7, 3, 255]),
        (Effect("the highest code becomes the one below"), [0, 7, 3, 254]),
        (Effect(NEIGHBOUR, 0), [255, 0, 7, 3]),
    ],
)
def test_effects_on_codes(effect: Effect, expected: list[int]) -> None:
    x = quantized([0, 7, 3, 255])
    changed, count = mutated(mutant(Region("everywhere"), effect), call(x), x, None)
    assert changed.int_repr().tolist() == expected
    assert count == sum(a != b for a, b in zip([0, 7, 3, 255], expected, strict=True))
    assert (changed.q_scale(), changed.q_zero_point()) == (0.5, 3)
    assert x.int_repr().tolist() == [0, 7, 3, 255]


def test_effects_on_floats() -> None:
    x = torch.tensor([1.0, -64.0, 0.3])
    changed, count = mutated(mutant(Region("index", 0, 0), Effect("one step more")), call(x), x, None)
    assert (changed.tolist()[0], count) == (1.5, 1)
    changed, count = mutated(mutant(Region("everywhere"), Effect("rounded to bfloat16")), call(x), x, None)
    assert count == 1


def test_the_format_of_a_result_is_kept() -> None:
    x = torch._make_per_tensor_quantized_tensor(torch.zeros(1, 3, 2, 2, dtype=torch.uint8), 0.5, 0)
    x = x.contiguous(memory_format=torch.channels_last)
    changed, _ = mutated(mutant(Region("last", 1), Effect("one step more")), call(x), x, None)
    assert changed.is_contiguous(memory_format=torch.channels_last)


def test_effects_on_arguments() -> None:
    weight = torch._make_per_tensor_quantized_tensor(torch.ones(2, 2, dtype=torch.int8), 1.0, 0)
    packed = torch.ops.quantized.linear_prepack(weight, torch.tensor([1.0, 5.0]))
    x = torch._make_per_tensor_quantized_tensor(torch.tensor([[4, 2]], dtype=torch.uint8), 1.0, 0)
    operator = torch.ops.quantized.linear
    arguments = {"X": x, "W_prepack": packed, "Y_scale_i": 1.0, "Y_zero_point_i": 0}
    made = Call(operator.default._schema, arguments, operator)
    for kind, expected in {
        "the bias is dropped": [[6, 6]],
        "the neighbour's bias": [[11, 7]],
        "the last input channel is dropped": [[5, 9]],
        "the last weight of each filter is one step more": [[9, 13]],
        "the input's zero point is one off": [[5, 9]],
        "the output's zero point is one off": [[8, 12]],
    }.items():
        changed, _ = mutated(mutant(Region("everywhere"), Effect(kind)), made, made.original(), None)
        assert changed.int_repr().tolist() == expected, kind
        assert changed.q_zero_point() == 0


def test_an_effect_on_arguments_that_a_call_lacks_changes_nothing() -> None:
    x = quantized([1, 2])
    assert mutated(mutant(Region("everywhere"), Effect("the bias is dropped")), call(x), x, None) == (x, 0)


def test_integers_change_where_a_call_stores_them_unless_it_is_observed() -> None:
    x, weight = torch.ones(17, 8, dtype=torch.int8), torch.ones(8, 16, dtype=torch.int8)
    out = torch.zeros(17, 16, dtype=torch.int32)
    kernel = torch.ops.aten._int_mm.out
    made = Call(kernel._schema, {"self": x, "mat2": weight, "out": out}, kernel)
    off = mutant(Region("index", 0, 2), Effect("one step more"))
    watched = spared(made, observed=True)
    assert mutated(off, watched, made.original(), None)[1] == 16
    assert bool((out == 8).all())
    mutated(off, spared(made, observed=False), made.original(), None)
    assert out[:, 0].tolist() == [8, 8, 9, *[8] * 14]
