"""Entries for fixed runs cover runs that are like them, unless those have a feature that an entry excludes."""

from dataclasses import replace

import pytest

from conformance.cases.claims import backend
from conformance.cases.runs import Run, describe, runs
from conformance.cases.similar import similar_ids
from conformance.checks.likeness import Likeness
from conformance.configs.registry import REGISTERED
from conformance.results.findings import Finding
from conformance.results.findings.annotations import INPUT, OUTPUT, AnnotatedBeside, NotAnnotated
from conformance.results.findings.structure import RanInFloat
from conformance.results.findings.values import CodesDiffer, Element, OutputQparams
from conformance.results.known import Entry, Host, KnownFinding
from conformance.results.profiles import PROFILES
from conformance.results.rows import Row
from conformance.results.verdicts import Verdict
from conformance.results.where import Where

BY_FEATURES = {name for name, profile in PROFILES.items() if profile.by_features}
ENTRY = Entry(
    KnownFinding("listed", "", "", ""),
    (Where.of({"pattern": "nn.ConvTranspose1d", "variant": "default", "profile": "exact"}),),
    frozenset({"numerics"}),
    "",
)
CODES = CodesDiffer("numerics", 0, 1, 9, 2, (Element((0,), 5.0, 3.0),))
QPARAMS = OutputQparams("numerics", 0, 0.5, 3, "quint8", 0.25, 3, "quint8")


@pytest.fixture(scope="module")
def pairs() -> dict[str, Run]:
    """The runs of the profile `pairs` of a transposed convolution, by their variants."""
    claims = backend("onednn")
    found = runs(claims, ["onednn"], ["onednn/nn.ConvTranspose1d/static-quint8/*"])
    return {one.variant.name: one for one in found if one.profile == "pairs" and one.variant is not None}


def row_of(run: Run) -> Row:
    return Row(**describe(run), verdict=Verdict.DEVIATES, checks={"numerics": "fail"}, findings=(CODES,))


def test_an_entry_covers_a_run_with_more_features(pairs: dict[str, Run]) -> None:
    run = pairs["channels_16x16"]
    assert Likeness([ENTRY]).known(run, row_of(run)) >= {"numerics"}


def test_an_entry_does_not_cover_a_run_with_a_feature_that_it_excludes(pairs: dict[str, Run]) -> None:
    likeness = Likeness([replace(ENTRY, unless=frozenset({"equal_channels"}))])
    equal, unequal = pairs["channels_16x16"], pairs["channels_33x17"]
    assert "numerics" not in likeness.known(equal, row_of(equal))
    assert "numerics" in likeness.known(unequal, row_of(unequal))
    assert likeness.covering(equal, frozenset({"numerics"})) == []


@pytest.mark.parametrize("flow", ["ptq", "qat"])
def test_an_entry_about_one_flow_does_not_cover_runs_of_the_other(pairs: dict[str, Run], flow: str) -> None:
    run = replace(pairs["channels_16x16"], flow=flow)
    for named in ("ptq", "qat"):
        own = replace(ENTRY, where=(Where.of({"pattern": "nn.ConvTranspose1d", "variant": "default", "flow": named}),))
        assert ("numerics" in Likeness([own]).known(run, row_of(run))) is (named == flow)


def test_what_a_run_is_like_has_its_backend_flow_engine_and_dtypes() -> None:
    """An entry for a run of another flow, engine or dtype excuses nothing."""
    for name in REGISTERED:
        for run in [one for one in runs(backend(name)) if one.variant and one.profile in BY_FEATURES][::97]:
            for like in similar_ids(run):
                own, _, dtypes, flow, _, last = like.split("/")
                assert (own, dtypes, flow) == (name, run.claim.dtype_config, run.flow)
                assert last == f"exact@{run.engine}"


def test_an_entry_covers_findings_of_its_kinds_alone(pairs: dict[str, Run]) -> None:
    run, likeness = pairs["channels_33x17"], Likeness([replace(ENTRY, kind=("output-qparams",))])
    assert "numerics" not in likeness.known(run, row_of(run))
    assert "numerics" in likeness.known(run, replace(row_of(run), findings=(QPARAMS,)))


def test_a_run_like_one_whose_outcome_is_undefined_has_none_that_conforms(pairs: dict[str, Run]) -> None:
    run, host = pairs["channels_33x17"], Host("2.13.0", "x86_64", "avx2")
    entry = replace(ENTRY, must=frozenset({"undefined"}), undefined="out-of-bounds")
    conforming = replace(row_of(run), verdict=Verdict.CONFORMS, checks={"numerics": "pass"}, findings=())
    for row in (conforming, row_of(run)):
        expectation = Likeness([entry]).expectation(run, row, host)
        assert expectation.expected
        assert expectation.undefined == "out-of-bounds"
    assert not Likeness([ENTRY]).expectation(run, conforming, host).undefined


@pytest.fixture(scope="module")
def fused() -> Run:
    """A run of a transposed convolution and the ReLU behind it, of a quantizer."""
    found = runs(backend("cortexm"), ["cortex-m"], ["cortexm/nn.ConvTranspose2d+nn.ReLU/*"])
    return next(run for run in found if run.profile == "exact")


LEFT_OUT = Entry(
    KnownFinding("left-out", "", "", ""),
    (Where.of({"backend": "cortexm", "pattern": "nn.ConvTranspose2d", "variant": "default", "profile": "exact"}),),
    frozenset({"annotated", "lowered"}),
    "",
)


@pytest.mark.parametrize(
    "in_float", [NotAnnotated("annotated", INPUT, "x"), RanInFloat("lowered", ("aten.convolution",))]
)
def test_the_scale_of_a_result_follows_from_a_layer_that_is_not_annotated(fused: Run, in_float: Finding) -> None:
    row = replace(row_of(fused), findings=(in_float, QPARAMS))
    assert Likeness([LEFT_OUT]).known(fused, row) >= {"annotated", "observed", "numerics"}


@pytest.mark.parametrize(
    "findings",
    [(AnnotatedBeside("annotated", OUTPUT, "y", "int8"), QPARAMS), (NotAnnotated("annotated", INPUT, "x"), CODES)],
)
def test_codes_do_not_follow_from_it_nor_a_scale_from_other_annotations(
    fused: Run, findings: tuple[Finding, ...]
) -> None:
    assert "numerics" not in Likeness([LEFT_OUT]).known(fused, replace(row_of(fused), findings=findings))


def test_other_codes_follow_from_an_operator_that_is_quantized_unasked(pairs: dict[str, Run]) -> None:
    run = pairs["channels_33x17"]
    unasked = replace(row_of(run), checks={"numerics": "fail", "asked": "fail"})
    assert "numerics" in Likeness([]).known(run, unasked)
    assert "numerics" not in Likeness([]).known(run, row_of(run))


def test_values_that_depend_on_the_state_explain_nothing_in_a_layer_in_use() -> None:
    stable = replace(ENTRY, must=frozenset({"stable"}), where=(Where.of({"pattern": "nn.PReLU", "profile": "exact"}),))
    found = [*runs(backend("onednn"), ["onednn"], ["onednn/nn.PReLU/static-quint8/*"])]
    for profile, explained in (("in_use", False), ("pairs", True)):
        in_format = (run for run in found if run.profile == profile and run.variant is not None)
        run = next(one for one in in_format if one.variant and one.variant.operands["x"].layout == "channels_last")
        assert ("numerics" in Likeness([stable]).known(run, row_of(run))) is explained
