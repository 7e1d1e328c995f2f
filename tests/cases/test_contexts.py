"""Every family of operators is in every context, whose neighbours are operators of their own."""

import copy
import operator
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.ao.nn.intrinsic as nni
import torch.nn.functional as F
from torch import Tensor, nn
from torch.ao.quantization.backend_config import BackendConfig, BackendPatternConfig, DTypeConfig, ObservationType

from conformance.cases.claims import BackendClaims, Claim, backend, claims_of
from conformance.cases.contexts import CONTEXTS, RESULTS, in_contexts
from conformance.cases.keepers import keepers
from conformance.cases.operators import Variant
from conformance.cases.operators.fused import is_qat_module
from conformance.cases.recipes import recipe, shares
from conformance.cases.runs import runs
from conformance.cases.sources import model_source
from conformance.cases.variants import missing_operators, variants
from conformance.checks.lowering import findings_of
from conformance.configs.registry import BACKENDS
from conformance.models.trace import Execution, Kernel
from conformance.oracle.graph import Graph
from conformance.results.families import family_named
from tests.runs_by_id import run

NAMES = {"torch": torch, "nn": nn, "F": F, "nni": nni, "operator": operator}

WITHOUT_A_CONTEXT = {
    "Tensor.leaky_relu": "tensors have no such method",
    "Tensor.detach_": "an alias of Tensor.detach on a tensor that needs no gradient",
    "Tensor.resize_": "raises for an input that is used again",
    "nn.Flatten": "a module that makes the view of torch.flatten",
    "operator.floordiv": "floor division by a constant is not arithmetic on codes",
    "torch.cat": "joins tensors: contexts of their own",
    "torch.concat": "joins tensors: contexts of their own",
    "torch.concatenate": "joins tensors: contexts of their own",
    "torch.flatten": "a reshape to fewer dimensions",
    "torch.stack": "joins tensors: contexts of their own",
    "Tensor.shape": "reads no values",
    "Tensor.size": "reads no values",
    "F.pad": "reshapes with constants",
    "nn.ConstantPad2d": "reshapes with constants",
}
"""Operators that keep the qparams of one tensor and are no context of others, with the reason."""


def model_of(claim: Claim, variant: Variant) -> tuple[nn.Module, list[Tensor]]:
    """The model of a claim and a variant, and inputs of zeros."""
    scope: dict[str, Any] = dict(NAMES)
    exec(model_source(claim, variant).source, scope)
    dtypes = {"activation": torch.float32, "weights": torch.float32}
    shapes = [(spec.shape, dtypes.get(spec.kind, torch.int64)) for spec in variant.operands.values()]
    return scope["Model"]().eval(), [torch.zeros(shape, dtype=dtype) for shape, dtype in shapes]


def defaults(name: str) -> Iterator[tuple[Claim, Variant]]:
    for claim in backend(name).claims:
        if not missing_operators(claim) and not is_qat_module(claim.root):
            yield claim, variants(claim)[0]


@pytest.mark.parametrize("name", BACKENDS)
def test_shapes_of_results_are_those_of_the_float_model(name: str) -> None:
    for claim, variant in defaults(name):
        model, inputs = model_of(claim, variant)
        try:
            result = model(*inputs)
        except AttributeError:
            expected: tuple[int, ...] = ()
        else:
            expected = tuple(result.shape) if isinstance(result, Tensor) else ()
        stated = RESULTS.get(claim.root, variant.output)
        if variant.operands["x"].kind == "activation":
            assert stated == expected, claim.id


@pytest.mark.parametrize("shape", [(4, 6), (2, 4, 12), (2, 4, 8, 6), (2, 4, 7, 5), (2, 3, 5, 6, 4)])
def test_operators_that_keep_qparams_return_the_shape_that_is_asked_for(shape: tuple[int, ...]) -> None:
    for group, spellings in keepers(shape).items():
        results = []
        for spelling in spellings:
            x = torch.linspace(-4, 4, torch.Size(spelling.taken).numel()).reshape(spelling.taken)
            for _, line, layer in spelling.steps:
                holder = nn.Module()
                holder.op = eval(layer, NAMES).eval() if layer else nn.Identity()
                x = eval(line.format(name="op"), {**NAMES, "self": holder, "x": x})
            assert x.shape == shape, spelling
            results.append(x)
        # these have spellings that compute other values
        if group not in ("relu", "leaky_relu", "repeat"):
            assert all(torch.equal(result, results[0]) for result in results), group


@pytest.mark.parametrize("name", BACKENDS)
def test_every_operator_that_keeps_qparams_is_a_context_or_says_why_not(name: str) -> None:
    spelled = {
        operator
        for shape in ((2, 4, 12), (2, 4, 8, 6), (2, 4, 7, 5), (2, 3, 5, 6, 4))
        for spellings in keepers(shape).values()
        for spelling in spellings
        for operator, _, _ in spelling.steps
    }
    for claim, variant in defaults(name):
        one_tensor = len(variant.operands) == 1
        if claim.dtype_config.startswith("static") and one_tensor and 1 in shares(claim.entry):
            assert claim.pattern in spelled or claim.pattern in WITHOUT_A_CONTEXT, claim.pattern


@pytest.mark.parametrize("name", ["qnnpack", "fbgemm", "onednn"])
def test_every_family_is_in_every_context_that_fits_its_tensors(name: str) -> None:
    families: dict[str, set[str]] = {context: set() for context in CONTEXTS}
    for claim, variant in in_contexts(backend(name)):
        if claim.dtype_config == "static-quint8":
            families[variant.name].add(family_named(claim.root))
    every = {family_named(claim.root) for claim, _ in defaults(name) if claim.dtype_config == "static-quint8"}
    of_matrices = {"linear"}
    assert not families.pop("after_leaky_relu")  # it keeps qparams in the config of ExecuTorch only
    assert {"convolution", "activation", "normalization", "pooling"} <= families.pop("unasked")
    for of_quantizers in ("residual_augmented", "selected", "padded", "permuted", "by_name", "by_type"):
        assert not families.pop(of_quantizers)
    assert {"convolution", "transposed convolution"} <= families.pop("other_norm")
    assert {"convolution", "transposed convolution", "linear"} <= families.pop("fused_twice")
    for context, found in families.items():
        if context.startswith(("shared_", "applied_")):
            assert {"convolution", "transposed convolution", "linear", "normalization"} <= found
        elif context.endswith(("pool", "interpolate", "pixel_shuffle")):
            assert every - of_matrices <= found, context
        else:
            assert every <= found, context


def test_a_quantizer_is_configured_for_the_module_of_a_pattern() -> None:
    xnnpack = backend("xnnpack")
    ways = {(run.variant.name, run.recipe.mapping) for run in runs(xnnpack, globs=["*/by_*/contexts@*"]) if run.variant}
    assert ("by_name", "XNNPACKQuantizer().set_module_name('op', qconfig)") in ways
    assert ("by_type", "XNNPACKQuantizer().set_module_type(torch.nn.Linear, qconfig)") in ways
    assert not {variant.name for _, variant in in_contexts(backend("cortexm"))} & {"by_name", "by_type"}


def test_company_is_what_a_quantizer_does_not_declare() -> None:
    names = {name: {variant.name for _, variant in in_contexts(backend(name))} for name in ("xnnpack", "tosa")}
    assert {"padded", "permuted"} <= names["xnnpack"]
    assert not {"padded", "permuted"} & names["tosa"]


def test_dynamic_patterns_of_a_quantizer_have_a_scale_for_each_channel_in_contexts() -> None:
    found = [variant for claim, variant in in_contexts(backend("xnnpack")) if claim.dtypes.is_dynamic]
    assert len(found) > 10
    assert all(variant.per_channel for variant in found)


def test_a_claim_keeps_its_contexts_when_a_config_loses_another() -> None:
    whole = backend("fbgemm")
    kept = tuple(claim for claim in whole.claims if claim.pattern != "nn.ELU")
    smaller = type(whole)(whole.name, whole.config, whole.engines, kept, whole.source)
    before, after = (
        {(claim.id, variant.name) for claim, variant in in_contexts(claims)} for claims in (whole, smaller)
    )
    assert before - after == {pair for pair in before if "/nn.ELU/" in pair[0]}
    assert before - after


@pytest.mark.parametrize("name", ["fbgemm", "onednn"])
def test_each_neighbour_is_one_operator_outside_the_pattern(name: str) -> None:
    for claim, variant in in_contexts(backend(name)):
        model, _ = model_of(claim, variant)
        case = recipe(
            claim.dtypes,
            engine="fbgemm",
            qat=False,
            per_channel=False,
            shares=shares(claim.entry),
            fused=isinstance(claim.tree, tuple),
            context=variant.context,
        )
        graph = Graph(model, case.scheme)
        pattern = [group for group in graph.groups if group.pattern]
        before = 1 if variant.prelude else len(variant.context.before)
        assert len(graph.groups) - len(pattern) == before + len(variant.context.after), (claim.id, variant.name)
        assert all(not group.pattern for group in graph.groups[:before])
        if isinstance(claim.tree, tuple):
            assert len(pattern) == variant.context.applications, (claim.id, variant.name)


def test_a_neighbour_that_would_become_part_of_the_pattern_is_left_out() -> None:
    of_onednn = [(claim, variant) for claim, variant in in_contexts(backend("onednn"))]
    for claim, variant in of_onednn:
        if claim.pattern.endswith(("Conv2d", "nn.BatchNorm2d")) and "add" not in claim.pattern:
            assert not variant.name.startswith("residual"), claim.id  # convolution and addition are one pattern
    for name in ("qnnpack", "fbgemm"):
        for claim, variant in in_contexts(backend(name)):
            if claim.pattern.startswith("nn.BatchNorm") and variant.context.before:
                assert not variant.context.before[-1].operator.startswith("nn.Conv"), claim.id


def test_a_context_without_its_neighbours_claims_is_left_out() -> None:
    whole = backend("fbgemm")
    kept = tuple(claim for claim in whole.claims if claim.pattern != "torch.cat")
    smaller = type(whole)(whole.name, whole.config, whole.engines, kept, whole.source)
    of_cat = {"cat_first", "cat_last", "cat_kept", "behind_slice"}
    assert not {v.name for _, v in in_contexts(smaller)} & of_cat
    assert {v.name for _, v in in_contexts(smaller)} == {v.name for _, v in in_contexts(whole)} - of_cat


def test_the_second_application_of_a_layer_has_a_norm_of_its_own() -> None:
    (claim, variant), *_ = (pair for pair in in_contexts(backend("fbgemm")) if pair[1].name == "other_norm")
    lines = model_source(claim, variant).forward
    assert sum("self.op(" in line for line in lines) == 2
    assert ["self.second_" in line for line in lines if "batchnorm" in line] == [False, True]


def test_a_slice_that_no_claim_is_about_may_run_in_float_where_one_that_a_claim_is_about_may_not() -> None:
    executed = Execution((Kernel("aten.slice_copy", False, True),), ())
    for name, allowed in (("tosa", True), ("fbgemm", False)):
        behind = next(
            one for one in runs(backend(name)) if one.variant is not None and one.variant.name == "behind_slice"
        )
        assert (not [*findings_of(behind, executed)]) == allowed


def test_an_embedding_whose_indices_a_config_quantizes_has_no_contexts() -> None:
    entries = backend("qnnpack").config.configs
    embedding = BackendPatternConfig(nn.Embedding).set_dtype_configs([DTypeConfig(torch.quint8, torch.quint8)])
    config = BackendConfig("vendor").set_backend_pattern_configs([*entries, embedding])
    vendor = BackendClaims("vendor", config, ("qnnpack",), claims_of("vendor", config), "")
    found = {(claim.pattern, claim.dtype_config) for claim, _ in in_contexts(vendor)}
    assert ("nn.Linear", "static-quint8") in found
    assert ("nn.Embedding", "static-quint8") not in found


def test_an_activation_before_a_pattern_keeps_qparams_if_its_entry_says_so() -> None:
    whole, prelude = backend("fbgemm"), "fbgemm/nn.Sigmoid/static-quint8/ptq/in_network/exact@fbgemm"
    own = copy.deepcopy(whole.config)
    for entry in own.configs:
        if entry.pattern is nn.Hardtanh:
            entry.set_observation_type(ObservationType.OUTPUT_USE_DIFFERENT_OBSERVER_AS_INPUT)
    for config, keeps in ((whole.config, True), (own, False)):
        subject = replace(run(prelude), backend=replace(whole, config=config))
        assert subject.recipe.scheme.prelude_keeps is keeps
        assert subject.variant is not None
        model, _ = model_of(subject.claim, subject.variant)
        before = Graph(model, subject.recipe.scheme).groups[0]
        assert (before.pattern, before.keeps_qparams) == (False, keeps)


@pytest.mark.parametrize("name", ["x86inductor", "arminductor"])
def test_a_module_with_a_shared_parameter_returns_codes_only_if_the_pattern_does(name: str) -> None:
    outputs = {(claim.pattern, claim.dtype_config): claim.dtypes.output_dtype for claim in backend(name).claims}
    tied = [(claim, variant) for claim, variant in in_contexts(backend(name)) if variant.name.startswith("shared_")]
    assert tied
    for claim, variant in tied:
        (twin,) = variant.context.after
        assert outputs[twin.operator, claim.dtype_config] == claim.dtypes.output_dtype
