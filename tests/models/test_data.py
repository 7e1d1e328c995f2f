"""Data of the `exact` profile: deterministic integers, grids, and parameters."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from conformance.cases.ranges import RANGES, bounds
from conformance.models.data import GREATEST_BIAS, ends_alone, fill, grid, integer, integers

KEYS = st.text("abcdefghij/._-@", min_size=1, max_size=20)
steadily = settings(max_examples=60, deadline=None, derandomize=True, database=None)


def power_of_two(values: Tensor) -> bool:
    return bool((torch.frexp(values.abs()).mantissa == 0.5).all())


def whole(values: Tensor) -> bool:
    return torch.equal(values, values.round())


def splitmix(key_crc: int, count: int) -> list[int]:
    """SplitMix64 with Python integers."""
    mask, numbers = (1 << 64) - 1, []
    for position in range(1, count + 1):
        z = ((position + (key_crc << 24)) * 0x9E3779B97F4A7C15) & mask
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
        numbers.append((z ^ (z >> 31)) & 0x7FFFFFFF)
    return numbers


def test_integers_are_the_same_bits_everywhere() -> None:
    assert integers("nn.Linear/x", 12, 0, 255).tolist() == [28, 140, 12, 246, 6, 97, 192, 122, 82, 109, 113, 133]
    assert integers("nn.Linear/y", 6, -128, 127).tolist() == [6, 122, -43, 56, 105, -51]
    assert integers("", 4, -1, 1).tolist() == [0, 1, 0, -1]


def test_integers_are_those_of_splitmix64() -> None:
    crc = 0x352441C2  # of "abc"
    assert integers("abc", 50, 0, 999).tolist() == [z % 1000 for z in splitmix(crc, 50)]


@steadily
@given(KEYS, st.integers(-300, 300), st.integers(0, 2**20))
def test_an_integer_is_the_first_of_many(key: str, low: int, width: int) -> None:
    assert integer(key, low, low + width) == integers(key, 1, low, low + width).item()


@given(KEYS, st.integers(-300, 300), st.integers(0, 600))
def test_integers_lie_within_their_bounds_and_reach_them(key: str, low: int, span: int) -> None:
    numbers = integers(key, 40 * (span + 1), low, low + span)
    assert numbers.dtype == torch.int64
    assert (int(numbers.min()), int(numbers.max())) == (low, low + span)


@steadily
@given(KEYS, st.integers(1, 50))
def test_a_shorter_sequence_is_a_prefix_of_a_longer_one(key: str, count: int) -> None:
    assert torch.equal(integers(key, count, 0, 99), integers(key, 60, 0, 99)[:count])


def test_integers_neither_use_nor_advance_torchs_generator() -> None:
    torch.manual_seed(1)
    first, state = integers("key", 9, 0, 99), torch.get_rng_state()
    torch.manual_seed(2)
    assert torch.equal(integers("key", 9, 0, 99), first)
    torch.manual_seed(1)
    assert torch.equal(torch.get_rng_state(), state)


def test_different_keys_have_different_integers() -> None:
    sequences = {tuple(integers(f"run/{i}", 8, 0, 255).tolist()) for i in range(200)}
    assert len(sequences) == 200


@steadily
@given(KEYS, st.integers(-128, 0), st.integers(1, 255), st.integers(-16, 4))
def test_a_grid_contains_whole_steps_and_both_ends(key: str, low: int, span: int, exponent: int) -> None:
    values = grid(key, (3, 4), low, low + span, exponent)
    assert (values.dtype, values.shape) == (torch.float32, (3, 4))
    codes = values / 2.0**exponent
    assert whole(codes)
    assert (int(codes.min()), int(codes.max())) == (low, low + span)
    assert (int(codes[0, 0]), int(codes[-1, -1])) == (low, low + span)


@pytest.mark.parametrize("shape", [(0, 4), (), (1,)])
def test_a_grid_of_fewer_than_two_elements_lies_within_its_ends(shape: tuple[int, ...]) -> None:
    values = grid("key", shape, -8, 7, -4)
    assert values.shape == shape
    assert bool(((values * 16 >= -8) & (values * 16 <= 7)).all())


def test_the_sum_of_products_of_grids_is_exact_in_any_order() -> None:
    x, w = grid("x", (4096,), -128, 127, -4), grid("w", (4096,), -127, 127, -7)
    exact = sum(int(a) * int(b) for a, b in zip((x * 16).tolist(), (w * 128).tolist(), strict=True)) / 2**11
    shuffled = integers("order", 4096, 0, 1 << 30).argsort()
    assert (x * w).sum().item() == (x * w)[shuffled].sum().item() == torch.dot(x, w).item() == exact


NORMS: dict[str, nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d] = {
    "BatchNorm1d": nn.BatchNorm1d(64),
    "BatchNorm2d": nn.BatchNorm2d(64),
    "BatchNorm3d": nn.BatchNorm3d(64),
    "small eps": nn.BatchNorm2d(64, eps=1e-3),
    "no affine": nn.BatchNorm2d(64, affine=False),
}


@pytest.mark.parametrize("name", NORMS)
def test_batch_norm_divides_by_a_power_of_two(name: str) -> None:
    norm = NORMS[name]
    fill(norm, "key", 127)
    assert norm.running_var is not None
    divisor = (norm.running_var + norm.eps).sqrt()
    assert power_of_two(divisor)
    gamma = norm.weight.detach() if norm.affine else torch.ones(64)
    factors = gamma / divisor
    assert power_of_two(factors)
    assert set(factors.tolist()) <= {0.25, 0.5, 1.0, 2.0}
    assert len(set(factors.tolist())) > 2


def test_batch_norm_keeps_dyadic_data_dyadic() -> None:
    norm = nn.BatchNorm2d(16)
    fill(norm.eval(), "key", 127)
    result = norm(grid("x", (2, 16, 5, 3), -128, 127, -4))
    assert whole(result * 2**9)


@pytest.mark.parametrize(
    "layer",
    [nn.Linear(9, 5), nn.Conv2d(4, 6, 3, groups=2), nn.ConvTranspose1d(4, 6, 3), nn.Embedding(7, 5), nn.LSTM(4, 3)],
)
@pytest.mark.parametrize("levels", [127, 7])
def test_weights_lie_on_their_grid_and_every_row_reaches_its_ends(layer: nn.Module, levels: int) -> None:
    fill(layer, "key", levels)
    for name, weight in layer.named_parameters():
        if weight.dim() > 1:
            codes = weight.detach() * 128
            assert whole(codes), name
            assert bool((codes.flatten(1).amin(1) == -levels).all()), name
            assert bool((codes.flatten(1).amax(1) == levels).all()), name


def test_biases_lie_on_the_grid_of_accumulators() -> None:
    layer = nn.Linear(9, 50)
    fill(layer, "key", 127)
    codes = layer.bias.detach() * 16
    assert whole(codes)
    assert float(layer.bias.detach().abs().max()) == GREATEST_BIAS


def test_filled_values_do_not_depend_on_previous_ones() -> None:
    fresh, overwritten = (
        nn.Sequential(nn.Conv2d(3, 4, 2), nn.BatchNorm2d(4)),
        nn.Sequential(nn.Conv2d(3, 4, 2), nn.BatchNorm2d(4)),
    )
    with torch.no_grad():
        for parameter in overwritten.parameters():
            parameter.fill_(math.nan)
    for model in (fresh, overwritten):
        fill(model, "key", 127)
    for name, tensor in fresh.state_dict().items():
        assert torch.equal(tensor, overwritten.state_dict()[name]), name


def test_filled_values_depend_on_the_key() -> None:
    first, second = nn.Linear(9, 5), nn.Linear(9, 5)
    fill(first, "key", 127)
    fill(second, "other", 127)
    assert not torch.equal(first.weight, second.weight)
    assert not torch.equal(first.bias, second.bias)


@pytest.mark.parametrize("data", RANGES)
@pytest.mark.parametrize("steps", [255, 127, 15])
def test_bounds_span_all_codes_and_contain_zero(data: str, steps: int) -> None:
    low, high, exponent = bounds(data, steps)
    assert high - low == (steps if data != "symmetric" else steps - 1)
    assert low <= 0 <= high
    assert exponent == RANGES[data].exponent


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ("full", (-128, 127, -4)),
        ("positive", (0, 255, -4)),
        ("negative", (-255, 0, -4)),
        ("tiny", (-128, 127, -16)),
        ("huge", (-128, 127, 3)),
        ("unit", (0, 255, -8)),
        ("signed_unit", (-128, 127, -7)),
        ("symmetric", (-127, 127, -4)),
        ("37:-9", (-37, 218, -9)),
    ],
)
def test_bounds_of_eight_bits(data: str, expected: tuple[int, int, int]) -> None:
    assert bounds(data, 255) == expected


def test_ends_alone_keeps_only_the_first_and_last_element() -> None:
    data = grid("key", (2, 3, 4), -128, 127, -4)
    alone = ends_alone(data)
    assert (alone.min(), alone.max()) == (data.min(), data.max()) == (data[0, 0, 0], data[-1, -1, -1])
    assert int(alone.count_nonzero()) == 2


@pytest.mark.parametrize(("data", "lowest", "highest"), [("unit", 0.0, 1.0), ("signed_unit", -1.0, 1.0)])
def test_the_unit_ranges_match_the_fixed_qparams(data: str, lowest: float, highest: float) -> None:
    low, high, exponent = bounds(data, 255)
    assert (low * 2.0**exponent, (high + 1) * 2.0**exponent) == (lowest, highest)


def test_no_integers_have_the_strides_of_other_empty_tensors() -> None:
    assert integers("a key", 0, 0, 9).stride() == torch.empty(0, dtype=torch.int64).stride()
