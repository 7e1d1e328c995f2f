"""Drawn cases are valid, cover what they promise, and say which fixed variants they are like."""

import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache

import pytest

from conformance.cases.claims import backend
from conformance.cases.operators import OPERATORS
from conformance.cases.runs import AHEAD_OF_TIME
from conformance.configs.registry import BACKENDS
from conformance.fuzz import strategies
from conformance.fuzz.strategies import Drawn, Family, cases, families, geometries, like_ids, run_of, valid
from conformance.properties.search import search
from conformance.results.families import FAMILIES
from conformance.results.profiles import GENERATED


@cache
def family(name: str, of: str = "qnnpack") -> Family:
    return next(one for one in families(backend(of)) if one.name == name)


@pytest.mark.parametrize("name", BACKENDS)
def test_every_claim_belongs_to_one_family_on_every_engine_that_lowers_at_once(name: str) -> None:
    for engine in BACKENDS[name].engines:
        claims = [claim for one in families(backend(name)) if one.engine == engine for claim in one.claims]
        searched = () if engine in AHEAD_OF_TIME else backend(name).claims
        assert len(claims) == len(searched)
        assert set(claims) == set(searched)


def test_other_engines_can_be_given() -> None:
    assert {one.engine for one in families(backend("qnnpack"), ["x86", "onednn"])} == {"x86", "onednn"}


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
    assert {strategies.family(claim) for claim in backend("qnnpack").claims if claim.pattern == pattern} == {name}


@pytest.mark.parametrize("name", FAMILIES)
def test_every_drawn_case_is_one_of_its_family_whose_float_model_works(name: str) -> None:
    one, drawn = family(name), list[Drawn]()
    search(cases(one), lambda case: drawn.append(case) or "", share=0.2)  # type: ignore[func-returns-value]
    assert len(drawn) == 20
    for case in drawn:
        run = run_of(one.backend, case)
        assert run.claim in one.claims
        assert run.profile == GENERATED.name
        assert run.engine == one.engine
        assert valid(run)


def calls(case: Drawn, text: str) -> bool:
    return text in case.variant.call or text in case.variant.init


KINDS: dict[str, tuple[str, Callable[[Drawn], bool]]] = {
    "a grouped convolution": ("convolution", lambda case: calls(case, "groups=") and "groups" in case.like),
    "a depthwise one": ("convolution", lambda case: "depthwise" in case.like),
    "weights quantized by channel": ("convolution", lambda case: case.variant.per_channel),
    "no bias": ("convolution", lambda case: calls(case, "bias=False")),
    "another padding mode": ("convolution", lambda case: calls(case, "padding_mode='reflect'")),
    "a keyword argument": ("convolution", lambda case: calls(case, "input=x") and "keyword" in case.like),
    "no batch": ("convolution", lambda case: "unbatched" in case.like),
    "for training": ("convolution", lambda case: case.flow == "qat"),
    "output padding": ("transposed convolution", lambda case: calls(case, "output_padding")),
    "channels-last operands": ("convolution", lambda case: case.variant.operands["x"].layout == "channels_last"),
    "strided operands": ("linear", lambda case: case.variant.operands["x"].layout == "strided"),
    "many features": ("linear", lambda case: case.variant.operands["x"].shape[-1] > 60),
    "an empty batch": ("linear", lambda case: case.variant.batch == 0 and "batch0" in case.like),
    "an empty batch of sequences": (
        "linear",
        lambda case: len(case.variant.operands["x"].shape) > 2 and "rank3_batch0" in case.like,
    ),
    "the greatest values": ("activation", lambda case: case.variant.data.endswith(":3") and "huge" in case.like),
    "the smallest values": (
        "activation",
        lambda case: bool(re.search(":-1[3-6]$", case.variant.data)) and "tiny" in case.like,
    ),
    "any zero point": ("convolution", lambda case: case.variant.data.partition(":")[0].isdecimal()),
    "operands with other zero points": ("arithmetic", lambda case: "other_zero_point" in case.like),
    "no values above zero, by the zero point": (
        "arithmetic",
        lambda case: case.variant.data.startswith(("127:", "255:")) and "negative" in case.like,
    ),
    "negative values": ("activation", lambda case: case.variant.data.startswith("below") and "negative" in case.like),
    "operands of other scales": ("arithmetic", lambda case: "other_scale" in case.like),
    "a number": ("arithmetic", lambda case: bool(re.search(r"\.[27]5", case.variant.call))),
    "another kernel size": ("pooling", lambda case: bool(re.search(r"Pool\dd\([456]", case.variant.init))),
    "a layer of two": ("recurrent", lambda case: calls(case, "num_layers=2")),
    "an image alone": ("pooling", lambda case: {"unbatched", "unbatched_2"} <= {*case.like}),
    "one element a channel": ("pooling", lambda case: "spread" in case.like),
    "an odd width": ("embedding", lambda case: "odd_width" in case.like),
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_search_reaches(kind: str) -> None:
    name, holds = KINDS[kind]
    assert search(cases(family(name)), lambda case: kind if holds(case) else "", share=6) is not None


def test_an_operand_that_looks_channels_last_is_like_the_fixed_variant_that_is() -> None:
    one = next(of for of in families(backend("onednn")) if of.name == "convolution")
    joining = replace(one, claims=tuple(claim for claim in one.claims if "operator.add" in claim.pattern))
    found = search(cases(joining), lambda case: "residual" if "residual" in case.like else "", share=6)
    assert found is not None
    channels, *image = found.example.variant.operands["other"].shape[1:]
    assert channels == 1 or image == [1, 1]


def test_an_image_of_one_element_is_like_the_fixed_variant_that_is() -> None:
    one = family("shape")
    resized = replace(one, claims=tuple(claim for claim in one.claims if claim.pattern == "F.interpolate"))
    for name, flat in (("spread", False), ("volume_same_flat", True)):
        found = search(cases(resized), lambda case, name=name: name if name in case.like else "", share=6)  # type: ignore[misc]
        assert found is not None
        shape = found.example.variant.operands["x"].shape
        assert set(shape[2:]) == {1} or (flat and len(shape) == 5 and shape[1] == 1)


def test_the_mean_of_an_image_of_one_channel_is_like_the_fixed_variant_that_is() -> None:
    one = family("shape")
    means = replace(one, claims=tuple(claim for claim in one.claims if claim.pattern == "Tensor.mean"))

    def flat(case: Drawn) -> str:
        _, channels, *image = case.variant.operands["x"].shape
        return "flat" if len(image) == 2 and set(image) != {1} and channels == 1 else ""

    found = search(cases(means), flat, share=6)
    assert found is not None
    assert "spread_strided" in found.example.like


def test_an_empty_dimension_is_like_the_fixed_variant_that_has_one() -> None:
    one = family("fixed qparams")
    softmax = replace(one, claims=tuple(claim for claim in one.claims if claim.pattern == "nn.Softmax"))
    found = search(cases(softmax), lambda case: "empty" if "empty_vector" in case.like else "", share=6)
    assert found is not None
    variant = found.example.variant
    assert variant.batch == 0
    assert calls(found.example, "dim=0") or calls(found.example, f"dim=-{len(variant.operands['x'].shape)}")


def test_a_kernel_of_two_rows_is_like_the_fixed_variant_that_doubles() -> None:
    images = geometries(2, transposed=True, functional=False)
    found = search(images, lambda made: "upsampling" if "upsampling" in made[1] else "", share=20)
    assert found is not None
    geometry, _ = found.example
    assert [size % 8 for size in geometry.channels] == [0, 0]
    assert geometry.parameters["weight"][2] == 2
    flat = geometries(1, transposed=True, functional=False)
    assert search(flat, lambda made: "upsampling" if "upsampling" in made[1] else "", share=20) is None


def test_what_is_not_finite_is_no_case() -> None:
    one = family("arithmetic", "onednn")
    floor = next(claim for claim in one.claims if claim.pattern == "operator.floordiv")
    for call, expected in (("x // 2", True), ("x // 0", False)):
        variant = OPERATORS["operator.floordiv"][0].named("drawn0", call=call)
        assert valid(run_of(one.backend, Drawn(floor.id, "ptq", one.engine, variant, ()))) is expected


def test_padding_as_high_as_the_kernel_is_like_the_fixed_variant_with_rows_of_it() -> None:
    images = geometries(2, transposed=False, functional=False)
    found = search(images, lambda made: "rows" if "rows_of_padding" in made[1] else "", share=20)
    assert found is not None
    geometry, _ = found.example
    assert geometry.parameters["weight"][1] == 1
    padding = geometry.options["padding"]
    assert geometry.parameters["weight"][2] <= (padding if isinstance(padding, int) else padding[0])  # type: ignore[index]


def test_a_folded_bias_fits_into_float32_beside_the_products() -> None:
    one = family("convolution")
    folded = replace(one, claims=tuple(claim for claim in one.claims if "BatchNorm" in claim.pattern))

    def fine(case: Drawn) -> str:
        exponent = int(case.variant.data.partition(":")[2] or -4)
        return "" if -12 <= exponent <= -4 else f"steps of 2**{exponent}"

    assert search(cases(folded), fine) is None


def test_what_a_wildcard_stands_for_is_drawn() -> None:
    one = family("convolution", "onednn")
    seen: set[str] = set()
    search(cases(one), lambda case: seen.update(case.like) or "", share=4)  # type: ignore[func-returns-value]
    assert {"scalar", "broadcast", "other_reused"} <= seen


def test_equal_sizes_stay_equal() -> None:
    """So that operands fit each other and, where text says how many features there are, the text."""
    one = family("recurrent")

    def fits(case: Drawn) -> str:
        shape, init = case.variant.operands["x"].shape, case.variant.init
        return "" if f"({shape[-1]}, " in init else f"{init} takes {shape}"

    assert search(cases(one), fits, share=0.5) is None


def test_a_case_is_like_the_fixed_runs_of_its_claim_and_of_its_root_operator() -> None:
    one = family("linear")
    claim = next(claim for claim in one.claims if claim.id == "qnnpack/nn.Linear+nn.ReLU/static-quint8")
    case = Drawn(claim.id, "ptq", "qnnpack", OPERATORS["nn.Linear"][0], ("default", "batch0"))
    assert like_ids(one.backend, case) == {
        f"qnnpack/{pattern}/static-quint8/{flow}/{name}/exact@qnnpack"
        for pattern in ("nn.Linear+nn.ReLU", "nn.Linear")
        for flow in ("ptq", "qat")
        for name in ("default", "batch0")
    }


@pytest.mark.parametrize("name", FAMILIES)
def test_the_names_of_what_cases_are_like_are_those_of_fixed_variants(name: str) -> None:
    """Otherwise the ledger would never know of them."""
    names = {variant.name for variants in OPERATORS.values() for variant in variants}
    names |= {"residual", "two_layers", "scalar", "broadcast", "other_reused"}
    seen: set[str] = set()
    search(cases(family(name)), lambda case: seen.update(case.like) or "", share=0.5)  # type: ignore[func-returns-value]
    assert seen <= names
