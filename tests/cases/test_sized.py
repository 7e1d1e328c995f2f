"""Claims get layers in use and sizes with large counts, each with a profile."""

from collections import Counter

import pytest
import torch

from conformance.cases.claims import backend
from conformance.cases.operators import RECORDS
from conformance.cases.runs import Run, runs
from conformance.cases.variants import ROTATION, layers_in_use, sized
from conformance.models import build

NATIVE = ("qnnpack", "fbgemm", "onednn")


def of_layers(name: str) -> list[Run]:
    return [run for run in runs(backend(name)) if run.profile in ROTATION]


@pytest.mark.parametrize("name", NATIVE)
def test_every_claim_with_layers_in_use_has_dyadic_data_and_trained_parameters(name: str) -> None:
    having: dict[str, set[str]] = {}
    for run in of_layers(name):
        having.setdefault(run.claim.id, set()).add(run.profile)
    for claim in backend(name).claims:
        if claim.pattern in layers_in_use(ahead_of_time=False).by_pattern:
            assert {"in_use", "trained"} <= having[claim.id], claim.id


@pytest.mark.parametrize("name", NATIVE)
def test_the_ids_of_runs_are_distinct(name: str) -> None:
    assert max(Counter(run.id for run in runs(backend(name))).values()) == 1


def test_layers_are_shared_out_among_the_profiles() -> None:
    shares = Counter(run.profile for run in of_layers("fbgemm"))
    assert min(shares.values()) > sum(shares.values()) / 6


def test_a_layer_is_quantized_per_channel_if_its_claim_allows_it() -> None:
    per_channel = {run.claim.dtype_config for run in of_layers("fbgemm") if run.variant and run.variant.per_channel}
    assert per_channel == {"static-quint8", "dynamic-quint8"}


def test_a_layer_with_few_elements_has_dyadic_data() -> None:
    small = [
        run
        for run in of_layers("fbgemm")
        if run.variant and run.variant.name == "2x1" and run.claim.pattern == "torch.sigmoid"
    ]
    assert {run.profile for run in small} == {"in_use"}


def test_a_layer_with_a_rare_trait_has_all_profiles_that_suit_it() -> None:
    rare = layers_in_use(ahead_of_time=False).rare
    of = {
        pattern: next(name for other, name in sorted(rare) if other == pattern) for pattern in ("nn.PReLU", "nn.Conv2d")
    }
    for pattern, profiles in {"nn.Conv2d": {*ROTATION}, "nn.PReLU": {"in_use", "trained", "pairs"}}.items():
        claim = next(claim for claim in backend("fbgemm").claims if claim.pattern == pattern)
        assert {profile for profile, variant in sized(claim) if variant.name == of[pattern]} == profiles


def test_one_step_of_wide_recurrent_layers_has_two_profiles() -> None:
    claim = next(claim for claim in backend("fbgemm").claims if claim.pattern == "nn.GRU")
    assert {profile for profile, variant in sized(claim) if variant.name == "72to136_rows_20"} == {"in_use", "pairs"}


def test_a_claim_that_computes_what_no_layer_in_use_does_has_the_smallest_layer_that_is_timed() -> None:
    claim = next(claim for claim in backend("fbgemm").claims if claim.id == "fbgemm/nn.AvgPool1d/static-quint8")
    runs = [(profile, variant.name) for profile, variant in sized(claim)]
    assert runs == [("in_use", "resnet50_256_14"), ("pairs", "resnet50_256_14")]


def test_a_claim_about_an_operator_alone_has_its_large_counts() -> None:
    counted = {name for name, record in RECORDS.items() if record.counts}
    assert {"nn.Linear", "nn.Conv2d", "nn.Embedding", "nn.LSTM", "torch.cat"} <= counted
    for claim in backend("fbgemm").claims:
        if claim.pattern in counted:
            for of in ("in_use", "pairs"):  # of these sizes no other run has any, so two profiles have them
                names = {variant.name for profile, variant in sized(claim) if profile == of}
                assert {*RECORDS[claim.pattern].counts} <= names, claim.id


def of(name: str) -> Run:
    return next(run for run in of_layers("fbgemm") if f"/{name}/" in run.id)


def test_indices_need_16_bits_and_offsets_more_than_8() -> None:
    (indices,) = build.subject(of("rows_40000")).inputs
    assert int(indices.max()) > 2**15
    _, offsets = build.subject(of("offsets_600")).inputs
    assert int(offsets.max()) > 2**8


def test_a_batch_of_images_is_more_than_torch_gives_one_thread() -> None:
    (image,) = build.subject(of("ptq/batch_257")).inputs[:1]
    assert image.numel() > 32768


def test_layers_run_in_float_with_finite_results() -> None:
    for run in of_layers("onednn")[::9]:
        assert all(bool(torch.isfinite(y).all()) for y in build.float_outputs(build.subject(run))), run.id
