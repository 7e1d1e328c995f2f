"""What the quantizers for Arm declare, as claims, and beside their tables."""

import importlib.util
import operator
from collections import Counter
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
import torch

from conformance.cases.claims import BackendClaims, backend
from conformance.cases.runs import Run, runs
from conformance.configs.quantizer import Declaration
from conformance.goldens.golden import name_of
from conformance.models import build, pt2e

TOSA, CORTEX_M = backend("tosa"), backend("cortexm")
missing = importlib.util.find_spec("tosa_serializer") is None
installed = pytest.mark.skipif(missing, reason="tosa-tools is not installed")


def names(claims: BackendClaims) -> Counter[str]:
    return Counter(claim.entry.name for claim in claims.claims if isinstance(claim.entry, Declaration))


def run(claims: BackendClaims, case: str) -> Run:
    (engine,) = claims.engines
    return next(run for run in runs(claims) if run.id == f"{claims.name}/{case}@{engine}")


def test_every_row_of_the_table_for_tosa_has_claims() -> None:
    assert names(TOSA) == {
        "conv": 8,
        "conv + relu": 24,
        "conv + batch_norm": 5,
        "conv + batch_norm + relu": 15,
        "linear": 2,
        "linear + relu": 6,
        "binary": 6,
        "product": 3,
        "function": 17,
        "normalization": 3,
        "resampling": 9,
        "shared": 35,
        "further": 77,
        "further, shared": 3,
    }


def test_every_row_of_the_table_for_cortex_m_has_claims() -> None:
    assert names(CORTEX_M) == {
        "add": 14,
        "mul": 2,
        "hardswish": 2,
        "linear": 18,
        "conv2d": 18,
        "conv_transpose2d": 18,
        "softmax": 1,
        "avg_pool2d": 2,
        "max_pool2d": 14,
        "bmm": 1,
        "activation": 6,
        "further": 1,
    }


def test_the_bias_is_quantized_and_no_observer_is_asked_for_its_range() -> None:
    claim = run(TOSA, "nn.Conv2d/static-qint8/ptq/default/exact").claim
    assert claim.dtypes.bias_dtype == torch.qint32


def test_a_layer_is_held_to_the_golden_of_xnnpack_and_cortex_m_to_one_without_a_least_scale() -> None:
    case = "nn.Conv2d/static-qint8/ptq/default/exact"
    assert name_of(run(TOSA, case)) == name_of(run(backend("xnnpack"), case))
    assert name_of(run(CORTEX_M, case)).endswith("-pt2e-unbounded")


def test_a_quantizer_without_a_configuration_gets_other_observers() -> None:
    exact, typical = (
        run(CORTEX_M, f"nn.Conv2d/static-qint8/ptq/default/{profile}") for profile in ("exact", "typical")
    )
    assert exact.recipe.mapping == "Observed(CortexMQuantizer(), PowerOfTwoObserver, PowerOfTwoPerChannelObserver)"
    assert (typical.recipe.mapping, typical.recipe.qconfig) == ("CortexMQuantizer()", "None")


def test_what_is_declared_for_affine_activations_has_no_symmetric_variant() -> None:
    symmetric = {run.claim.pattern for run in runs(TOSA) if run.variant is not None and run.variant.symmetric}
    assert "nn.Conv2d" in symmetric
    assert "nn.Conv2d+nn.ReLU" not in symmetric
    assert not any(run.variant is not None and run.variant.symmetric for run in runs(CORTEX_M))


def test_convolutions_have_a_scale_for_each_channel_and_linear_layers_have_one() -> None:
    axes = {
        pattern: {
            None if run.recipe.scheme.weight is None else run.recipe.scheme.weight.axis
            for run in runs(CORTEX_M)
            if run.claim.pattern == pattern and run.profile == "exact"
        }
        for pattern in ("nn.Conv2d", "nn.ConvTranspose2d", "nn.Linear")
    }
    assert axes == {"nn.Conv2d": {0}, "nn.ConvTranspose2d": {1}, "nn.Linear": {None}}


@cache
def exported(claims: BackendClaims) -> dict[str, tuple[Any, ...]]:
    """The operators of each claim's default model in the graph that torch.export makes of it."""

    def of_every_claim() -> Iterator[tuple[str, tuple[Any, ...]]]:
        seen = set()
        for one in runs(claims):
            if one.claim.id in seen or one.variant is None or one.profile != "exact":
                continue
            seen.add(one.claim.id)
            subject = build.subject(one)
            graph = pt2e.exported(subject.model, subject.calibration).graph
            yield one.claim.pattern, tuple(node.target for node in graph.nodes if node.op == "call_function")

    return dict(of_every_claim())


@installed
def test_what_is_declared_is_in_the_tables_of_the_quantizers() -> None:
    from executorch.backends.arm.quantizer.arm_quantizer_utils import SharedQspecQuantizer
    from executorch.backends.arm.quantizer.quantizer_support import TOSA_QUANTIZER_SUPPORT_DICT
    from executorch.backends.cortex_m.quantizer.quantizer_support import CORTEX_M_QUANTIZER_SUPPORT_DICT

    shared = {*SharedQspecQuantizer.SHARED_QSPEC_OPS_DEFAULT, operator.getitem}

    def undeclared(claims: BackendClaims, table: Any) -> set[str]:
        return {
            pattern
            for pattern, operators in exported(claims).items()
            if operators not in table and not {*operators} <= shared
        }

    assert undeclared(TOSA, TOSA_QUANTIZER_SUPPORT_DICT) == set()
    # a pass makes it the bmm of the table before the graph is annotated
    assert undeclared(CORTEX_M, CORTEX_M_QUANTIZER_SUPPORT_DICT) == {"torch.matmul"}


@installed
def test_every_row_of_the_table_for_cortex_m_is_declared_but_for_other_spellings() -> None:
    from executorch.backends.cortex_m.quantizer.quantizer_support import CORTEX_M_QUANTIZER_SUPPORT_DICT

    covered = {*exported(CORTEX_M).values()}
    rows = ["+".join(map(str, row)) for row in CORTEX_M_QUANTIZER_SUPPORT_DICT if row not in covered]
    # operators that write to their argument, and those that torch.export does not write
    assert {row for row in rows if "_." not in row and "_with_indices" not in row} == {
        "aten._softmax.default",
        "aten.bmm.default",
    }
