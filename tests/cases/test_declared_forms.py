"""The forms in which what quantizers declare is run."""

from dataclasses import replace

import pytest

from conformance.cases.claims import backend
from conformance.cases.declarations import IMAGE_DIMENSIONS, has_form
from conformance.cases.operators import OPERATORS
from conformance.cases.operators.signatures import finite_everywhere, tried
from conformance.cases.operators.variant import strided_variant
from conformance.cases.runs import runs
from conformance.cases.similar import nameable_ids, similar_variants
from conformance.configs.quantizer import Declaration

XNNPACK, TOSA = backend("xnnpack"), backend("tosa")


def entry(pattern: str) -> Declaration:
    found = next(claim.entry for claim in XNNPACK.claims if claim.pattern == pattern)
    assert isinstance(found, Declaration)
    return found


def test_what_is_annotated_behind_others_alone_takes_images_and_returns_its_result_alone() -> None:
    behind = [run for run in runs(XNNPACK) if isinstance(run.claim.entry, Declaration) and run.claim.entry.behind]
    assert behind
    for run in behind:
        assert run.variant is not None
        assert {len(spec.shape) for spec in run.variant.operands.values()} == {IMAGE_DIMENSIONS}
        assert (run.variant.prelude, run.variant.result) == ("", "y")


def test_it_stands_in_front_of_no_other_pattern() -> None:
    names = {
        neighbour.operator
        for run in runs(XNNPACK)
        if run.profile == "contexts" and run.variant is not None
        for neighbour in run.variant.context.before
    }
    assert names
    assert not names & {"nn.ReLU6", "nn.Hardtanh", "F.hardtanh", "torch.permute", "torch.transpose", "nn.MaxPool2d"}


def test_a_claim_without_weights_is_not_among_layers_which_its_configuration_leaves_in_float() -> None:
    for run in runs(XNNPACK):
        if run.profile == "contexts" and run.variant is not None and run.claim.dtypes.weight_dtype is None:
            assert not any(neighbour.operator.startswith("nn.Conv") for neighbour in run.variant.context.neighbours)


def test_a_form_with_the_shapes_of_its_calibration_has_no_other_batch() -> None:
    reshaped = next(variant for variant in OPERATORS["Tensor.reshape"] if ".shape" in variant.call)
    assert has_form(entry("nn.Linear"), reshaped)
    assert not has_form(entry("nn.Linear"), reshaped.named("batch0", batch=0))


@pytest.mark.parametrize("pattern", ["nn.Conv2d", "operator.add"])
def test_a_strided_run_is_like_the_strided_variant_that_the_ledger_names(pattern: str) -> None:
    run = next(run for run in runs(XNNPACK) if run.claim.pattern == pattern and run.profile == "exact")
    assert run.variant is not None
    assert "strided" not in similar_variants(run)
    strided = strided_variant(run.variant).named("drawn0")
    assert "strided" in similar_variants(type(run)(run.backend, run.claim, run.flow, strided, "exact", run.engine))


def test_the_ledger_may_name_the_result_and_the_data_of_every_operator() -> None:
    run = next(run for run in runs(TOSA) if run.claim.pattern == "nn.Linear" and run.profile == "exact")
    assert run.variant is not None
    names = {
        result: similar_variants(replace(run, variant=run.variant.named("drawn0", result=result)))
        for result in ("y", "y, x")
    }
    assert {result for result, found in names.items() if "reused" in found} == {"y, x"}
    assert all("other_data" in found for found in names.values())
    nameable = {*nameable_ids(TOSA)}
    fixed = {run.id for run in runs(TOSA) if run.profile == "exact" and run.claim.pattern == "nn.Linear"}
    further = {f"tosa/nn.Linear/static-qint8/ptq/{name}/exact@tosa" for name in ("reused", "other_data")}
    assert further.isdisjoint(fixed)
    assert nameable >= fixed | further


@pytest.mark.parametrize(
    ("operator", "data"),
    [("torch.exp", "full"), ("torch.asin", "signed_unit"), ("torch.sqrt", "positive"), ("torch.log", "")],
)
def test_an_operator_is_tried_on_data_for_which_it_is_finite(operator: str, data: str) -> None:
    found = tried(operator)
    assert (found.variant.data if found.variant else "") == data
    assert bool(found.reason) is not bool(data)


def test_normal_data_are_for_operators_that_are_finite_everywhere() -> None:
    profiles = {
        pattern: {run.profile for run in runs(TOSA) if run.claim.pattern == pattern}
        for pattern in ("torch.exp", "torch.sqrt")
    }
    assert profiles["torch.exp"] - profiles["torch.sqrt"] == {"typical"}
    variant = tried("torch.sqrt").variant
    assert variant is not None
    assert not finite_everywhere(variant)
