"""What can be trusted of a config: claims that hold in default use, and rules that the ledger gives for the others."""

from dataclasses import replace

import pytest

from conformance.audit.auditing import claims_for
from conformance.cases.claims import backend
from conformance.prediction.platforms import host_of
from conformance.results.ledger_file import load
from conformance.results.rows import Row
from conformance.results.severity import Severity
from conformance.results.status import Support
from conformance.trusted.promises import Trusted, TrustedRule, trusted
from tests.invocation import row

ENTRIES = load()
HOST = host_of(ENTRIES, "2.13.0", "x86_64", None)


def rows(engine: str, **failing: list[str]) -> list[Row]:
    """A row of default use for each claim on an engine, of which those of patterns fail checks."""
    found = []
    for claim in claims_for(engine).claims:
        changes = {"backend": claim.backend, "dtype_config": claim.dtype_config, "engine": engine}
        fails = failing.get(claim.pattern, ())
        found.append(row(claim.pattern, fails=fails, kernels=kernels_of(claim.pattern), **changes))
    return found


def kernels_of(pattern: str) -> tuple[str, ...]:
    kernels = {"nn.ReLU6": ("aten.hardtanh",), "operator.add(nn.Conv2d,*)": ("quantized.conv2d_add",)}
    return kernels.get(pattern, ("quantized.relu",))


def made(engine: str, found: list[Row] | None = None) -> Trusted:
    return trusted(rows(engine) if found is None else found, claims_for(engine), engine, ENTRIES, HOST)


def rules_of(one: Trusted, finding: str) -> list[TrustedRule]:
    return [rule for rule in one.rules if rule.finding == finding]


def test_what_deviates_in_default_use_is_left_out_and_the_rest_is_kept() -> None:
    one = made("fbgemm", rows("fbgemm", **{"nn.Linear": ["numerics"]}))
    left = [left for left in one.left_out if left.claim.pattern == "nn.Linear"]
    assert {left.status for left in left} == {Severity.REFUSES}
    assert len(left) == len([claim for claim in one.claims.claims if claim.pattern == "nn.Linear"])
    assert "nn.Conv2d" in {claim.pattern for claim in one.kept}
    assert len(one.kept) + len(one.left_out) == len(one.claims.claims)


def test_what_deviates_in_another_form_is_kept() -> None:
    others = [replace(one, variant="groups") for one in rows("fbgemm", **{"nn.Linear": ["numerics"]})]
    one = made("fbgemm", [*rows("fbgemm"), *others])
    assert "nn.Linear" in {claim.pattern for claim in one.kept}


def test_what_was_not_executed_is_left_out() -> None:
    one = made("fbgemm", [row for row in rows("fbgemm") if row.pattern != "nn.Conv2d"])
    assert {left.status for left in one.left_out if left.claim.pattern == "nn.Conv2d"} == {Support.UNAVAILABLE}


def test_modules_for_training_are_left_out_with_the_entry_that_puts_them_in_place() -> None:
    one = made("fbgemm", rows("fbgemm", **{"nni.ConvBn2d": ["numerics"]}))
    left = {left.claim.pattern for left in one.left_out}
    assert "nniqat.ConvBn2d" in left
    assert "nniqat.ConvBn1d" not in left


def test_layers_are_told_by_the_features_of_their_call_and_what_data_decide_is_assumed() -> None:
    (rule,) = rules_of(made("x86"), "depthwise-beyond-reduced-range")
    assert {*rule.conditions} == {"operator", "kernel_size", "dilation", "groups"}
    assert rule.remedies == ("narrow", "float")


def test_the_operators_of_a_kernel_are_those_whose_rows_have_it() -> None:
    (rule,) = rules_of(made("qnnpack"), "qnnpack-clamp-channels-last")
    assert rule.conditions == {"operator": ("nn.ReLU6",)}


def test_a_pattern_that_only_neighbours_make_wrong_is_left_out() -> None:
    found = {left.claim.pattern: left for left in made("onednn").left_out}
    assert found["operator.add(nn.Conv2d,*)"].finding == "conv-add-broadcast"
    assert found["operator.add(nn.Conv2d,*)"].status is Severity.WRONG


def test_a_finding_that_a_traced_network_does_not_tell_remains() -> None:
    remaining = made("fbgemm").remaining
    assert remaining["inplace-alias"] == ("write_lost",)
    assert "called-twice" not in remaining


def test_what_is_left_out_stays_in_float_whatever_lowering_does() -> None:
    one = made("fbgemm", rows("fbgemm", **{"torch.cat": ["lowered"], "Tensor.size": ["matched"]}))
    rule = one.rules[-1]
    assert rule.finding == "quantized-without-qconfig"
    assert rule.remedies == ("float",)
    assert {"torch.cat", "nn.LayerNorm"} <= {*rule.conditions["operator"]}
    assert "Tensor.size" not in rule.conditions["operator"]
    assert "nn.Linear" not in rule.conditions["operator"]


def test_remedies_that_keep_a_layer_in_integers_come_first() -> None:
    remedies = [rule.remedies for rule in made("qnnpack").rules]
    assert remedies == sorted(remedies, key=lambda one: one == ("float",))


@pytest.mark.parametrize("engine", ["x86", "fbgemm", "onednn", "qnnpack"])
def test_no_rule_leaves_a_whole_class_of_weighted_layers_in_float(engine: str) -> None:
    whole = [rule for rule in made(engine).rules if {*rule.conditions} == {"operator"} and rule.remedies == ("float",)]
    assert {name for rule in whole for name in rule.conditions["operator"]}.isdisjoint(["nn.Conv2d", "nn.Linear"])


def test_an_engine_that_is_not_torchs_has_no_rules() -> None:
    claims = backend("executorch")
    found = [replace(one, engine="executorch") for one in rows("fbgemm")]
    one = trusted(found, claims, "executorch", ENTRIES, HOST)
    assert one.rules == ()
    assert one.kept == ()
