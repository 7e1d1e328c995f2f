"""Further inputs have sizes that the float model accepts, and the features of their run."""

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import pytest

from conformance.cases.claims import backend
from conformance.cases.features import LONG_SEQUENCE, LONG_SUM
from conformance.cases.operators import OPERATORS, Operand, Variant
from conformance.cases.ranges import Range, magnitude, range_of
from conformance.cases.runs import Run
from conformance.models.build import Subject, subject
from conformance.models.further import ELEMENTS, LARGE, Sizes, in_other_sizes
from tests.runs_by_id import run

CONV = "nn.Conv2d", "default"


def run_of(pattern: str, variant: str, **changes: object) -> Run:
    backend_claims = backend("fbgemm")
    claim = next(claim for claim in backend_claims.claims if claim.pattern == pattern)
    chosen = next(one for one in OPERATORS[pattern] if one.name == variant)
    return Run(backend_claims, claim, "ptq", chosen.named(variant, **changes), "pairs", "fbgemm")


def free(run: Run) -> dict[tuple[tuple[str, int], ...], int]:
    """The steps of a run's free axes, by the axes."""
    return {tuple(one.axes): one.step for one in Sizes(subject(run)).free}


def subjects_of(run: Run, count: int = 6, *, in_ranges: bool = False) -> list[Subject]:
    return [*in_other_sizes(subject(run), count, in_ranges=in_ranges)]


def variants_of(run: Run, count: int = 6, *, in_ranges: bool = False) -> list[Variant]:
    return [one.run.variant for one in subjects_of(run, count, in_ranges=in_ranges) if one.run.variant is not None]


@pytest.mark.parametrize(
    ("pattern", "steps"),
    [
        ("nn.Conv2d", {(("x", -4),): 1, (("x", -2),): 1, (("x", -1),): 1}),  # not the channels
        ("nn.Linear", {(("x", -2),): 1}),
        ("nn.PixelShuffle", {(("x", -4),): 1, (("x", -3),): 8, (("x", -2),): 1, (("x", -1),): 1}),
        ("nn.EmbeddingBag", {(("x", -1),): 1, (("offsets", -1),): 1}),
    ],
)
def test_axes_are_free_where_the_float_model_accepts_other_sizes(
    pattern: str, steps: dict[tuple[tuple[str, int], ...], int]
) -> None:
    assert free(run_of(pattern, "default")) == steps


def test_operands_of_one_shape_change_together() -> None:
    run = run_of("operator.add", "default")
    assert all({name for name, _ in axes} == {"x", "y"} for axes in free(run))
    assert all(len({spec.shape for spec in variant.executed.values()}) == 1 for variant in variants_of(run))


def test_a_product_keeps_its_inner_size() -> None:
    (x, y) = (spec.shape for spec in OPERATORS["torch.matmul"][0].operands.values())
    assert x[-1] == y[-2]
    for variant in variants_of(run_of("torch.matmul", "default")):
        x, y = (spec.shape for spec in variant.executed.values())
        assert x[-1] == y[-2]


def test_an_axis_of_one_element_stays() -> None:
    run = run_of("nn.Hardswish", "default", operands={"x": Operand((3, 1, 5, 4))})
    assert {variant.executed["x"].shape[1] for variant in variants_of(run)} == {1}


def test_a_size_on_which_the_result_does_not_depend_only_grows() -> None:
    run = run_of("nn.AdaptiveAvgPool2d", "default")
    own = OPERATORS["nn.AdaptiveAvgPool2d"][0].operands["x"].shape
    images = [variant.executed["x"].shape[2:] for variant in variants_of(run)]
    assert images
    assert all(a >= b for image in images for a, b in zip(image, own[2:], strict=True))


def test_sizes_are_a_function_of_the_run_and_differ_between_runs() -> None:
    run = run_of(*CONV)
    shapes = [variant.executed["x"].shape for variant in variants_of(run)]
    assert shapes == [variant.executed["x"].shape for variant in variants_of(run)]
    assert len({*shapes}) > 3
    other = replace(run, variant=OPERATORS["nn.Conv2d"][0].named("other"))
    assert shapes != [variant.executed["x"].shape for variant in variants_of(other)]


def test_operands_have_no_more_elements_than_their_budget() -> None:
    for number, one in enumerate(subjects_of(run_of(*CONV), len(ELEMENTS))):
        assert one.run.variant is not None
        assert one.run.variant.executed["x"].shape == tuple(one.inputs[0].shape)
        assert one.inputs[0].numel() <= ELEMENTS[number]


@pytest.mark.parametrize("pattern", ["nn.Conv2d", "nn.AvgPool3d", "nn.LayerNorm"])
def test_the_first_further_input_of_the_point_long_is_as_large_as_an_image(pattern: str) -> None:
    long = run(f"onednn/{pattern}/static-quint8/ptq/long/pairs@onednn")
    first, second = (math.prod(one.executed["x"].shape) for one in variants_of(long, 2))
    assert 0.6 * LARGE < first <= LARGE
    assert second <= max(ELEMENTS)


def test_offsets_of_bags_are_ascending_and_within_the_indices() -> None:
    for one in subjects_of(run_of("nn.EmbeddingBag", "default"), 3):
        indices, offsets = one.inputs
        assert offsets[0] == 0
        assert bool((offsets.diff() >= 0).all())
        assert int(offsets[-1]) <= len(indices)


def test_a_further_input_has_no_feature_that_the_run_lacks() -> None:
    """A batch of more items than an image has elements is a feature, by which the ledger covers instance norm."""
    run = run_of("nn.InstanceNorm2d", "default")
    for variant in variants_of(run, 9):
        batch, _, *image = variant.executed["x"].shape
        assert batch <= image[0] * image[1]


def test_sums_of_squares_that_float32_rounds_are_no_further_inputs_of_a_run_without_any() -> None:
    run = run_of("nn.InstanceNorm2d", "channels_last")
    shapes = [variant.executed["x"].shape for variant in variants_of(run, 9)]
    assert shapes
    assert all(math.prod(shape[2:]) <= LONG_SUM for shape in shapes)


def test_sequences_stay_short_where_rounding_adds_up() -> None:
    shapes = [variant.executed["x"].shape for variant in variants_of(run_of("nn.LSTM", "default"), 9)]
    assert shapes
    assert all(max(shape) <= LONG_SEQUENCE for shape in shapes)


def test_a_tensor_that_is_resized_only_grows() -> None:
    """Of a smaller one, the result would be memory that nobody has written."""
    for variant in variants_of(run_of("Tensor.resize_", "default")):
        own = OPERATORS["Tensor.resize_"][0].operands["x"].shape
        assert all(a >= b for a, b in zip(variant.executed["x"].shape, own, strict=True))


def scales_of(subjects: Sequence[Subject]) -> list[int]:
    return [range_of(one.run.variant.data).exponent for one in subjects if one.run.variant is not None]


def test_further_inputs_in_ranges_have_other_zero_points_and_never_the_scale_of_the_one_before() -> None:
    subjects = subjects_of(run_of(*CONV, data="37:-4"), 12, in_ranges=True)
    scales = scales_of(subjects)
    assert all(one != other for one, other in pairwise([-4, *scales]))
    assert {magnitude(scale) for scale in scales} == {"usual"}
    below = {range_of(one.run.variant.data).covers for one in subjects if one.run.variant is not None}
    assert len(below) > 8
    for one in subjects:
        assert one.run.variant is not None
        low, high, exponent = one.run.bounds(Operand(()))
        for x in (one.inputs[0], one.calibration[0]):
            assert (float(x.min()), float(x.max())) == (low * 2.0**exponent, high * 2.0**exponent)


def test_further_inputs_have_the_ranges_of_the_run_unless_asked_for() -> None:
    assert {variant.data for variant in variants_of(run_of(*CONV, data="37:-4"))} == {"37:-4"}


@pytest.mark.parametrize("data", ["positive", "symmetric"])
def test_a_range_that_is_under_test_stays(data: str) -> None:
    assert {variant.data for variant in variants_of(run_of(*CONV, data=data), in_ranges=True)} == {data}


def test_the_qparams_of_fixed_functions_stay() -> None:
    run = run_of("torch.sigmoid", "default", data="37:-4")
    assert {variant.data for variant in variants_of(run, in_ranges=True)} == {"37:-4"}


def test_operands_with_a_range_of_their_own_keep_it_in_relation() -> None:
    x, y = OPERATORS["operator.add"][0].operands.values()
    run = run_of("operator.add", "default", data="37:-4", operands={"x": x, "y": replace(y, data="negative")})
    for variant in variants_of(run, in_ranges=True):
        assert range_of(variant.executed["y"].data) == Range("below", range_of(variant.data).exponent)
