"""Further inputs have sizes that the float model accepts, and the features of their run."""

from dataclasses import replace

import pytest

from conformance.cases.claims import backend
from conformance.cases.operators import OPERATORS, Operand, Variant
from conformance.cases.runs import Run
from conformance.models.build import subject
from conformance.models.further import ELEMENTS, Sizes, further

CONV = "nn.Conv2d", "default"


def run_of(pattern: str, variant: str, **changes: object) -> Run:
    backend_claims = backend("fbgemm")
    claim = next(claim for claim in backend_claims.claims if claim.pattern == pattern)
    chosen = next(one for one in OPERATORS[pattern] if one.name == variant)
    return Run(backend_claims, claim, "ptq", chosen.named(variant, **changes), "pairs", "fbgemm")


def free(run: Run) -> dict[tuple[tuple[str, int], ...], int]:
    """The steps of a run's free axes, by the axes."""
    return {tuple(one.axes): one.step for one in Sizes(subject(run)).free}


def variants_of(run: Run, count: int = 6) -> list[Variant]:
    return [variant for variant, _ in further(subject(run), count)]


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
    for number, (variant, (x,)) in enumerate(further(subject(run_of(*CONV)), len(ELEMENTS))):
        assert variant.executed["x"].shape == tuple(x.shape)
        assert x.numel() <= ELEMENTS[number]


def test_offsets_of_bags_are_ascending_and_within_the_indices() -> None:
    for _, (indices, offsets) in further(subject(run_of("nn.EmbeddingBag", "default")), 3):
        assert offsets[0] == 0
        assert bool((offsets.diff() >= 0).all())
        assert int(offsets[-1]) <= len(indices)


def test_a_further_input_has_no_feature_that_the_run_lacks() -> None:
    """A batch of more items than an image has elements is a feature, by which the ledger covers instance norm."""
    run = run_of("nn.InstanceNorm2d", "default")
    for variant in variants_of(run, 9):
        batch, _, *image = variant.executed["x"].shape
        assert batch <= image[0] * image[1]


def test_a_tensor_that_is_resized_only_grows() -> None:
    """Of a smaller one, the result would be memory that nobody has written."""
    for variant in variants_of(run_of("Tensor.resize_", "default")):
        own = OPERATORS["Tensor.resize_"][0].operands["x"].shape
        assert all(a >= b for a, b in zip(variant.executed["x"].shape, own, strict=True))
