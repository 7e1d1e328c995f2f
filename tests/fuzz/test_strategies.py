"""Samples are valid, reach the kinds of cases that a family has, and are like fixed variants with no feature they lack."""

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cache

import pytest

from conformance.cases.claims import backend
from conformance.cases.families import Family, families
from conformance.cases.features import features
from conformance.cases.operators import OPERATORS, Operand, Variant
from conformance.cases.similar import similar_ids, similar_variants
from conformance.cases.variants import variants
from conformance.configs.engines import ahead_of_time
from conformance.configs.quantizer import Declaration
from conformance.configs.registry import BACKENDS
from conformance.fuzz.samples import Sample, run_of, valid
from conformance.fuzz.strategies import points, samples
from conformance.properties.search import search
from conformance.results.families import FAMILIES, family_named
from conformance.results.profiles import GENERATED
from conformance.selection import Selection


@cache
def family_of(name: str, backend_name: str = "qnnpack") -> Family:
    return next(candidate for candidate in families(backend(backend_name)) if candidate.name == name)


@pytest.mark.parametrize("name", BACKENDS)
def test_every_claim_belongs_to_one_family_on_every_engine_that_lowers_at_once(name: str) -> None:
    for engine in BACKENDS[name].engines:
        claims = [claim for family in families(backend(name)) if family.engine == engine for claim in family.claims]
        searched = () if ahead_of_time(engine) else backend(name).claims
        assert len(claims) == len(searched)
        assert set(claims) == set(searched)


def test_families_of_other_engines_can_be_selected() -> None:
    assert {family.engine for family in families(backend("qnnpack"), ["x86", "onednn"])} == {"x86", "onednn"}


def test_engines_that_lower_ahead_of_time_are_searched_only_where_time_is_given() -> None:
    assert [*families(backend("x86inductor"))] == []
    slow = [*families(backend("x86inductor"), slow=True)]
    assert {family.engine for family in slow} == {"x86-inductor"}  # a compiled model takes seconds
    assert {claim for family in slow for claim in family.claims} == set(backend("x86inductor").claims)
    assert len(Selection(backends=["x86inductor"], search_minutes=1.0).families) == len(slow)


@pytest.mark.parametrize(("quantizer", "operators"), [("x86inductor", "pooling"), ("xnnpack", "fixed qparams")])
def test_samples_of_a_quantizer_are_behind_what_it_requires(quantizer: str, operators: str) -> None:
    drawn: list[Sample] = []
    chosen = next(one for one in families(backend(quantizer), slow=True) if one.name == operators)
    search(samples(chosen), drawn.append)
    assert drawn
    for sample in drawn:
        entry = run_of(chosen.backend, sample).claim.entry
        assert isinstance(entry, Declaration)
        assert entry.behind
        layers = [neighbour.operator for neighbour in sample.variant.context.before]
        assert layers == ["nn.Conv2d"] * len(sample.variant.operands)


@pytest.mark.parametrize(
    ("pattern", "name"),
    [
        ("nn.Conv2d", "convolution"),
        ("nni.ConvBnReLU3d", "convolution"),
        ("nniqat.ConvBn1d", "convolution"),
        ("F.conv_transpose2d", "transposed convolution"),
        ("nn.ConvTranspose1d+nn.BatchNorm1d", "transposed convolution"),
        ("nn.Linear+nn.BatchNorm1d", "linear"),
        ("torch.matmul", "arithmetic"),
        ("F.avg_pool3d", "pooling"),
        ("nn.BatchNorm2d+F.relu", "normalization"),
        ("nn.LSTM", "recurrent"),
        ("nnqat.EmbeddingBag", "embedding"),
        ("Tensor.sigmoid_", "fixed qparams"),
        ("nn.PReLU", "activation"),
        ("Tensor.repeat_interleave", "shape"),
        ("torch.transpose", "shape"),
    ],
)
def test_claims_are_in_the_family_of_their_operator(pattern: str, name: str) -> None:
    assert {family_named(claim.root) for claim in backend("qnnpack").claims if claim.pattern == pattern} == {name}


@pytest.mark.parametrize("name", FAMILIES)
def test_every_sample_belongs_to_its_family_and_has_a_valid_float_model(name: str) -> None:
    family, drawn = family_of(name), list[Sample]()
    search(samples(family), lambda case: drawn.append(case) or "", share=0.2)  # type: ignore[func-returns-value]
    assert len(drawn) == 8
    for case in drawn:
        run = run_of(family.backend, case)
        assert run.claim in family.claims
        assert run.profile == GENERATED.name
        assert run.engine == family.engine
        assert valid(run)


def similar(case: Sample) -> set[str]:
    """Names of the fixed variants that a sample is like."""
    return {*similar_variants(run_of(backend(case.claim.partition("/")[0]), case))}


def calls(case: Sample, text: str) -> bool:
    return text in case.variant.call or text in case.variant.init


KINDS: dict[str, tuple[str, Callable[[Sample], bool]]] = {
    "a grouped convolution": ("convolution", lambda case: calls(case, "groups=") and "groups" in similar(case)),
    "a depthwise one": ("convolution", lambda case: "depthwise" in similar(case)),
    "weights quantized by channel": ("convolution", lambda case: case.variant.per_channel),
    "no bias": ("convolution", lambda case: calls(case, "bias=False")),
    "another padding mode": ("convolution", lambda case: calls(case, "padding_mode='reflect'")),
    "a keyword argument": ("convolution", lambda case: calls(case, "input=x") and "keyword" in similar(case)),
    "no batch": ("convolution", lambda case: "unbatched" in similar(case)),
    "for training": ("convolution", lambda case: case.flow == "qat"),
    "output padding": ("transposed convolution", lambda case: calls(case, "output_padding")),
    "channels-last operands": ("convolution", lambda case: case.variant.operands["x"].layout == "channels_last"),
    "strided operands": ("linear", lambda case: case.variant.operands["x"].layout == "strided"),
    "many features": ("linear", lambda case: case.variant.operands["x"].shape[-1] > 60),
    "an empty batch": ("linear", lambda case: case.variant.batch == 0 and "batch0" in similar(case)),
    "an empty batch of sequences": (
        "linear",
        lambda case: len(case.variant.operands["x"].shape) > 2 and "rank3_batch0" in similar(case),
    ),
    "the greatest values": ("activation", lambda case: case.variant.data.endswith(":3") and "huge" in similar(case)),
    "the smallest values": (
        "activation",
        lambda case: bool(re.search(":-1[3-6]$", case.variant.data)) and "tiny" in similar(case),
    ),
    "any zero point": ("convolution", lambda case: case.variant.data.partition(":")[0].isdecimal()),
    "operands with other zero points": ("arithmetic", lambda case: "other_zero_point" in similar(case)),
    "no values above zero, by the zero point": (
        "arithmetic",
        lambda case: case.variant.data.startswith(("127:", "255:")) and "negative" in similar(case),
    ),
    "negative values": (
        "activation",
        lambda case: case.variant.data.startswith("below") and "negative" in similar(case),
    ),
    "operands of other scales": ("arithmetic", lambda case: "other_scale" in similar(case)),
    "a number": ("arithmetic", lambda case: bool(re.search(r"\.[27]5", case.variant.call))),
    "another kernel size": ("pooling", lambda case: bool(re.search(r"Pool\dd\([456]", case.variant.init))),
    "a layer of two": ("recurrent", lambda case: calls(case, "num_layers=2")),
    "an image alone": ("pooling", lambda case: {"unbatched", "unbatched_2"} <= similar(case)),
    "one element a channel": ("pooling", lambda case: "spread" in similar(case)),
    "an odd width": ("embedding", lambda case: "odd_width" in similar(case)),
}


class Enough(BaseException):
    """Ends a search without shrinking: hypothesis does not catch it."""


def seen(family: Family, kinds: Mapping[str, Callable[[Sample], bool]], share: float) -> set[str]:
    """The kinds that a search reaches. It ends with the sample that is the first of the last kind."""
    reached: set[str] = set()

    def note(case: Sample) -> str:
        reached.update(kind for kind in kinds.keys() - reached if kinds[kind](case))
        if reached == kinds.keys():
            raise Enough
        return ""

    with suppress(Enough):
        search(samples(family), note, share)
    return reached


@pytest.mark.parametrize("name", dict.fromkeys(name for name, _ in KINDS.values()))
def test_the_search_reaches_every_kind(name: str) -> None:
    kinds = {kind: holds for kind, (family_name, holds) in KINDS.items() if family_name == name}
    assert seen(family_of(name), kinds, share=60) == kinds.keys()


def test_an_operand_of_ambiguous_memory_format_is_like_the_residual_variant() -> None:
    family = next(candidate for candidate in families(backend("onednn")) if candidate.name == "convolution")
    joining = replace(family, claims=tuple(claim for claim in family.claims if "operator.add" in claim.pattern))
    counterexample = search(samples(joining), lambda case: "residual" if "residual" in similar(case) else "", share=15)
    assert counterexample is not None
    channels, *image = counterexample.variant.operands["other"].shape[1:]
    assert channels == 1 or image == [1, 1]


def test_an_image_of_one_element_is_like_the_spread_variant() -> None:
    family = family_of("shape")
    resized = replace(family, claims=tuple(claim for claim in family.claims if claim.pattern == "F.interpolate"))
    for name, flat in (("spread", False), ("volume_same_flat", True)):
        counterexample = search(
            samples(resized),
            lambda case, name=name: name if name in similar(case) else "",  # type: ignore[misc]
            share=15,
        )
        assert counterexample is not None
        shape = counterexample.variant.operands["x"].shape
        assert set(shape[2:]) == {1} or (flat and len(shape) == 5 and shape[1] == 1)


def test_the_mean_of_an_image_of_one_channel_is_like_the_spread_variant() -> None:
    family = family_of("shape")
    means = replace(family, claims=tuple(claim for claim in family.claims if claim.pattern == "Tensor.mean"))

    def flat(case: Sample) -> str:
        _, channels, *image = case.variant.operands["x"].shape
        return "flat" if len(image) == 2 and set(image) != {1} and channels == 1 else ""

    counterexample = search(samples(means), flat, share=15)
    assert counterexample is not None
    assert "spread_strided" in similar(counterexample)


def test_softmax_over_an_empty_batch_is_like_the_empty_vector_variant() -> None:
    family = family_of("fixed qparams")
    softmax = replace(family, claims=tuple(claim for claim in family.claims if claim.pattern == "nn.Softmax"))
    counterexample = search(samples(softmax), lambda case: "empty" if "empty_vector" in similar(case) else "", share=50)
    assert counterexample is not None
    variant = counterexample.variant
    assert variant.batch == 0
    rank = len(variant.operands["x"].shape)
    assert calls(counterexample, "dim=0") or calls(counterexample, f"dim=-{rank}")


def drawn_with(operator: str, feature: str, share: float = 20) -> Variant | None:
    """The smallest drawn variant of a convolution that has a feature."""
    strategy = points(operator)
    return search(strategy, lambda variant: feature if feature in features(operator, variant, 255) else "", share)


def test_a_transposed_kernel_of_two_rows_is_like_the_upsampling_variant() -> None:
    variant = drawn_with("nn.ConvTranspose2d", "upsampling")
    assert variant is not None
    in_channels, out_channels, kernel = variant.stated.positional
    assert (in_channels % 8, out_channels % 8) == (0, 0)
    assert kernel == 2 or kernel[0] == 2
    assert drawn_with("nn.ConvTranspose1d", "upsampling", share=12) is None


def test_a_model_whose_output_is_not_finite_is_not_valid() -> None:
    family = family_of("arithmetic", "onednn")
    floor = next(claim for claim in family.claims if claim.pattern == "operator.floordiv")
    for call, expected in (("x // 2", True), ("x // 0", False)):
        variant = OPERATORS["operator.floordiv"][0].named("drawn0", call=call)
        assert valid(run_of(family.backend, Sample(floor.id, "ptq", family.engine, variant))) is expected


@pytest.mark.parametrize(
    ("init", "depth", "expected"),
    [
        ("nn.Conv3d(1, 16, 5, padding=2)", 1, True),
        ("nn.Conv3d(4, 8, 3, padding='same', groups=4)", 1, True),
        ("nn.Conv3d(4, 8, 3, padding=1, groups=4)", 2, False),
        ("nn.Conv3d(4, 8, (1, 3, 3), groups=4)", 1, False),
        ("nn.Conv3d(4, 8, 3, padding=1, groups=2)", 1, False),
    ],
)
def test_padded_volumes_of_depth_one_are_like_the_shallow_variant(init: str, depth: int, expected: bool) -> None:
    groups = int(init.partition("groups=")[2].rstrip(")") or 1)
    channels = groups if groups > 2 else 1 if groups == 1 else 4
    variant = Variant("drawn", "self.op(x)", {"x": Operand((2, channels, depth, 7, 6))}, init)
    assert ("shallow" in features("nn.Conv3d", variant, 127)) is expected


def test_padding_as_high_as_the_kernel_is_like_the_rows_of_padding_variant() -> None:
    variant = drawn_with("nn.Conv2d", "rows_of_padding")
    assert variant is not None
    call = variant.stated
    assert call.keywords.get("groups", 1) == call.positional[0]
    kernel, padding = call.positional[2], call.keywords["padding"]
    assert (kernel if isinstance(kernel, int) else kernel[0]) <= (padding if isinstance(padding, int) else padding[0])


@pytest.mark.parametrize(
    ("operator", "source", "shape", "feature", "expected"),
    [
        ("nn.ConvTranspose2d", "nn.ConvTranspose2d(4, 8, 3, padding=(0, 3))", (2, 4, 8, 7), "cropped", True),
        ("nn.ConvTranspose2d", "nn.ConvTranspose2d(4, 8, 3, padding=2)", (2, 4, 8, 7), "cropped", False),
        ("nn.Conv2d", "nn.Conv2d(1, 8, 3)", (2, 1, 8, 7), "grayscale", True),
        ("nn.Conv2d", "nn.Conv2d(3, 8, 3)", (2, 3, 8, 7), "grayscale", False),
        ("nn.MaxPool2d", "nn.MaxPool2d(2, dilation=2)", (2, 4, 8, 7), "dilation", True),
        ("nn.MaxPool2d", "nn.MaxPool2d(2, dilation=1)", (2, 4, 8, 7), "dilation", False),
        ("nn.MaxPool2d", "nn.MaxPool2d(2)", (2, 4, 16, 8), "over_127_elements", True),
        ("nn.MaxPool2d", "nn.MaxPool2d(2)", (2, 4, 9, 14), "over_127_elements", False),
        ("F.max_pool2d", "F.max_pool2d(x, 2, padding=1)", (2, 4, 8, 7), "stride_left_out", True),
        ("F.max_pool2d", "F.max_pool2d(x, 2, 2, padding=1)", (2, 4, 8, 7), "stride_left_out", False),
        ("F.max_pool2d", "F.max_pool2d(x, 2)", (2, 4, 8, 7), "stride_left_out", False),
        ("F.pad", "F.pad(x, (1, -1))", (2, 4, 8, 7), "cropping", True),
        ("F.pad", "F.pad(x, (1, 0))", (2, 4, 8, 7), "cropping", False),
        ("torch.squeeze", "torch.squeeze(x, (0, -1))", (2, 1, 5, 4), "nothing_squeezed", True),
        ("torch.squeeze", "torch.squeeze(x, (1, -1))", (2, 1, 5, 4), "nothing_squeezed", False),
        ("Tensor.squeeze_", "x.squeeze_()", (2, 3, 5, 4), "nothing_squeezed", True),
    ],
)
def test_what_lowering_treats_apart_is_a_feature(
    operator: str, source: str, shape: tuple[int, ...], feature: str, expected: bool
) -> None:
    call, init = ("self.op(x)", source) if operator.startswith("nn.") else (source, "")
    variant = Variant("drawn0", call, {"x": Operand(shape)}, init)
    assert (feature in features(operator, variant, 255)) is expected


def test_a_folded_bias_and_the_products_fit_into_float32() -> None:
    family = family_of("convolution")
    folded = replace(family, claims=tuple(claim for claim in family.claims if "BatchNorm" in claim.pattern))

    def fine(case: Sample) -> str:
        exponent = int(case.variant.data.partition(":")[2] or -4)
        return "" if -12 <= exponent <= -4 else f"steps of 2**{exponent}"

    assert search(samples(folded), fine) is None


def test_the_operand_of_a_wildcard_is_drawn() -> None:
    kinds = {name: lambda case, name=name: name in similar(case) for name in ("scalar", "broadcast", "other_reused")}
    assert seen(family_of("convolution", "onednn"), kinds, share=10) == kinds.keys()


def test_equal_sizes_stay_equal() -> None:
    """Operands then fit each other, and the source text that states the number of features."""
    family = family_of("recurrent")

    def fits(case: Sample) -> str:
        shape, init = case.variant.operands["x"].shape, case.variant.init
        return "" if f"({shape[-1]}, " in init else f"{init} takes {shape}"

    assert search(samples(family), fits, share=0.5) is None


def test_a_sample_is_like_the_fixed_runs_of_its_claim_and_of_its_root_operator() -> None:
    family = family_of("linear")
    claim = next(claim for claim in family.claims if claim.id == "qnnpack/nn.Linear+nn.ReLU/static-quint8")
    case = Sample(claim.id, "ptq", "qnnpack", OPERATORS["nn.Linear"][0].named("drawn0", batch=0))
    names = similar(case)
    assert {"default", "batch0"} <= names
    assert not {"no_bias", "keyword", "rank3_batch0", "batch1", "per_channel", "negative"} & names
    assert similar_ids(run_of(family.backend, case)).keys() == {
        f"qnnpack/{pattern}/static-quint8/ptq/{name}/exact@qnnpack"
        for pattern in ("nn.Linear+nn.ReLU", "nn.Linear")
        for name in names
    }


@pytest.mark.parametrize("operator", OPERATORS)
def test_only_the_default_variant_has_no_features(operator: str) -> None:
    """Otherwise an entry of the ledger for that variant would cover every sample."""
    without = [variant.name for variant in OPERATORS[operator] if not features(operator, variant, 255)]
    assert without == ["default"]


@pytest.mark.parametrize("name", FAMILIES)
def test_every_sample_is_like_the_default_variant(name: str) -> None:
    drawn: list[set[str]] = []
    search(samples(family_of(name)), lambda case: drawn.append(similar(case)) or "", share=0.5)  # type: ignore[func-returns-value]
    assert all("default" in names for names in drawn)


def test_a_fixed_variant_drawn_again_is_like_itself() -> None:
    claims = {(c.pattern, c.dtype_config): c for name in ("fbgemm", "onednn") for c in backend(name).claims}
    for claim in claims.values():
        for variant in variants(claim):
            case = Sample(claim.id, "ptq", backend(claim.backend).engines[0], variant)
            assert variant.name in similar(case), (claim.id, variant.name)
