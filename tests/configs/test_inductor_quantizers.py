"""What the quantizers for inductor declare, as claims, and beside what they annotate."""

import importlib.util
from collections import Counter
from typing import Any

import pytest
import torch

from conformance.cases.claims import Claim, backend
from conformance.cases.runs import Run, runs, usual
from conformance.checks.annotation import annotated
from conformance.checks.evidence import Evidence, Front
from conformance.configs.quantizer import Declaration
from conformance.goldens.golden import compute, name_of
from conformance.models import apis, build, pt2e

X86, ARM = backend("x86inductor"), backend("arminductor")
installed = pytest.mark.skipif(importlib.util.find_spec("torchao") is None, reason="torchao is not installed")


def run(case: str, profile: str = "exact") -> Run:
    return next(run for run in runs(X86) if run.id == f"x86inductor/{case}/{profile}@x86-inductor")


def declaration(pattern: str) -> Declaration:
    entry = next(claim.entry for claim in X86.claims if claim.pattern == pattern)
    assert isinstance(entry, Declaration)
    return entry


def test_every_recipe_has_claims() -> None:
    names = Counter(claim.entry.name for claim in X86.claims if isinstance(claim.entry, Declaration))
    assert names == {
        "conv2d": 4,
        "conv2d_unary": 28,
        "conv1d_unary": 8,
        "conv2d_binary": 8,
        "conv2d_binary_unary": 8,
        "qat_conv2d_bn": 1,
        "qat_conv2d_bn_unary": 7,
        "qat_conv2d_bn_binary": 2,
        "qat_conv2d_bn_binary_unary": 2,
        "linear": 6,
        "linear_unary": 30,
        "linear_binary": 8,
        "linear_binary_unary": 8,
        "matmul": 1,
        "mul": 2,
        "max_pool2d": 2,
        "avg_pool2d": 2,
        "adaptive_avg_pool2d": 2,
        "cat": 1,
        "flatten": 2,
    }
    assert len({claim.id for claim in X86.claims}) == len(X86.claims) == 132


def test_every_recipe_for_arm_has_claims() -> None:
    names = Counter(claim.entry.name for claim in ARM.claims if isinstance(claim.entry, Declaration))
    assert names == {
        "conv2d": 4,
        "conv2d_binary": 8,
        "qat_conv2d_bn": 1,
        "qat_conv2d_bn_binary": 2,
        "linear": 4,
        "linear_unary": 20,
        "matmul": 1,
    }
    assert len({claim.id for claim in ARM.claims}) == len(ARM.claims)
    inputs = {claim.dtypes.input_dtype for claim in ARM.claims}
    assert inputs == {torch.qint8}


def test_weights_have_one_scale_or_many_for_arm() -> None:
    named = {
        one.variant.name: one for one in runs(ARM, ["arm-inductor"]) if one.variant and one.claim.pattern == "nn.Linear"
    }
    axes = [named[name].recipe.scheme.weight for name in ("default", "per_channel")]
    assert [weight.axis for weight in axes if weight is not None] == [None, 0]


def test_weights_have_a_scale_for_each_channel_in_every_variant() -> None:
    schemes = [one.recipe.scheme for one in runs(X86, ["x86-inductor"]) if one.profile == "exact"]
    assert {scheme.weight.axis for scheme in schemes if scheme.weight is not None} == {0}
    assert not any(one.variant.name == "per_channel" for one in runs(X86) if one.variant is not None)


def test_results_stay_in_float_but_behind_a_trained_norm_and_where_integers_are_passed_on() -> None:
    in_float = {
        case: run(f"{case}/default").recipe.scheme.float_results
        for case in (
            "nn.Conv2d/static-quint8/ptq",
            "operator.mul/static-quint8/ptq",
            "nn.Conv2d+nn.BatchNorm2d/static-quint8/qat",
        )
    }
    assert [*in_float.values()] == [True, True, False]
    pooled = compute(build.subject(run("nn.MaxPool2d/static-quint8/ptq/default")))
    assert {*pooled.qparams} == {"x", "weight", "output", "output 2"}
    first, second = pooled.qparams["output"], pooled.qparams["output 2"]
    assert (first.scale, first.zero_point) == (second.scale, second.zero_point)


def test_a_golden_of_a_result_in_float_has_a_name_of_its_own() -> None:
    name = name_of(run("nn.Conv2d/static-quint8/ptq/default"))
    assert name == "nn.Conv2d/static-quint8/ptq/default/exact:0..255-pt2e-float"


def test_the_other_summand_of_a_linear_layer_is_not_quantized() -> None:
    assert declaration("operator.add(nn.Linear,*)").floats == ("other",)
    static = run("operator.add(nn.Linear,*)/static-quint8/ptq/default")
    assert static.recipe.scheme.floats == ("other",)
    assert compute(build.subject(static)).qparams.keys() == {"x", "weight"}
    names = {one.variant.name for one in runs(X86) if one.claim.pattern == "operator.add(nn.Linear,*)" and one.variant}
    assert "scalar" in names
    assert not names & {"residual", "two_layers"}


def test_every_summand_behind_a_dynamic_convolution_is_quantized() -> None:
    assert run("operator.add(nn.Conv2d,*)/dynamic-quint8/ptq/default").recipe.scheme.dynamic_inputs
    assert not run("operator.add(nn.Linear,*)/dynamic-quint8/ptq/default").recipe.scheme.dynamic_inputs


def test_operators_that_pass_integers_on_are_run_behind_a_layer() -> None:
    pool = run("nn.MaxPool2d/static-quint8/ptq/default")
    assert pool.model.forward == ("x = self.before_x(x)", "y = self.op(x)", "return y")
    joined = run("torch.cat/static-quint8/ptq/default").model
    assert joined.forward[:2] == ("x = self.before_x(x)", "y = self.before_y(y)")
    flat = run("torch.flatten/static-quint8/ptq/default").model
    assert flat.forward[-2:] == ("y = self.after(y)", "return y")
    names = {one.variant.name for one in runs(X86) if one.claim.pattern == "torch.flatten" and one.profile == "exact"}  # type: ignore[union-attr]
    assert "0" not in names  # its result has another shape than the layer behind it takes


def test_weights_of_float16_are_not_trained_and_their_inputs_stay_in_float() -> None:
    half = [claim for claim in X86.claims if claim.dtype_config == "dynamic-float16"]
    assert {claim.pattern.partition("+")[0] for claim in half} == {"nn.Linear", "F.linear"}
    every = [one for one in runs(X86) if one.claim in half]
    assert {one.flow for one in every} == {"ptq"}
    scheme = run("nn.Linear/dynamic-float16/ptq/default").recipe.scheme
    assert (scheme.half, scheme.floats, scheme.activation, scheme.weight) == (True, ("x",), None, None)


def test_an_engine_that_compiles_runs_default_use_in_one_flow() -> None:
    chosen = [one for one in runs(X86, ["x86-compiled"]) if usual(one)]
    assert len(chosen) == len(X86.claims)
    assert {(one.profile, one.variant.name) for one in chosen if one.variant is not None} == {("exact", "default")}


@installed
@pytest.mark.parametrize("claim", [*X86.claims, *ARM.claims], ids=lambda claim: claim.id)
def test_the_table_is_what_the_quantizer_annotates(claim: Claim, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a graph with the source functions of its nodes, which torch.export records with strict=True only."""
    declared = X86 if claim in X86.claims else ARM
    default = next(
        one for one in runs(declared, declared.engines[:1]) if one.claim is claim and one.variant is not None
    )
    if "F.hardtanh" in default.claim.pattern and "BatchNorm" in default.claim.pattern:
        pytest.skip("torch.export exports another operator for it in training")

    def strictly(*arguments: Any, **options: Any) -> Any:
        return pt2e.EXPORT(*arguments, **{**options, "strict": True})

    monkeypatch.setattr(torch.export, "export", strictly)
    subject = build.subject(default)
    prepared = apis.of(subject.run.backend).prepare(subject)
    outcome = annotated(Evidence(default, Front(subject=subject, prepared=prepared)))
    # a global configuration leaves matmul out
    assert (outcome.result == "fail") == (default.claim.pattern == "torch.matmul"), outcome.detail
