"""Every operator of a config has variants, and every variant is a model that runs in float."""

import ast
import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from itertools import chain

import pytest
import torch
from torch.ao.quantization.backend_config.native import get_native_backend_config

from conformance.cases.claims import BackendClaims, Claim, backend, claims_of
from conformance.cases.operators import OPERATORS, Variant, has_weights
from conformance.cases.ranges import RANGES
from conformance.cases.runs import Run, runs
from conformance.cases.sources import model_source
from conformance.cases.variants import missing_operators, variants
from conformance.configs.registry import BACKENDS
from conformance.errors import UsageError
from conformance.models import build, fx

CANNOT_OCCUR = {
    "*/Tensor.hardsigmoid/*": "has no attribute 'hardsigmoid'",
    "*/Tensor.hardsigmoid_/*": "has no attribute 'hardsigmoid_'",
    "executorch/Tensor.leaky_relu/*": "has no attribute 'leaky_relu'",
    "*/nnqat.Linear/dynamic-float16/*": "unexpected keyword argument 'factory_kwargs'",
    "*/nniqat.LinearReLU/dynamic-float16/*": "unexpected keyword argument 'factory_kwargs'",
    "*/nniqat.ConvBn*/*/padding_same/*": "received an invalid combination of arguments",
}
"""Claims that float PyTorch cannot execute, as globs over run ids, and its messages."""


def native() -> BackendClaims:
    config = get_native_backend_config()
    return BackendClaims("native", config, ("fbgemm",), claims_of("native", config), "")


EVERY_CONFIG = [*BACKENDS, "native"]


def claims(name: str) -> BackendClaims:
    return native() if name == "native" else backend(name)


def models(*names: str) -> Iterator[Run]:
    """One run for every different float model of some configs."""
    seen = set()
    for run in chain.from_iterable(runs(claims(name)) for name in names):
        assert run.variant is not None
        qat_only = run.claim.dtype_config if "qconfig" in run.model.source else ""
        key = (run.model.source, tuple(run.model.operands), run.variant.batch, run.variant.data, qat_only)
        if key not in seen:
            seen.add(key)
            yield run


PARTS = 6


def part_of_models(part: int) -> list[Run]:
    """A sixth of the different float models of all configs, for tests that take seconds for all."""
    return [*models(*EVERY_CONFIG)][part::PARTS]


@pytest.mark.parametrize("name", EVERY_CONFIG)
def test_every_operator_of_a_config_is_in_the_tables(name: str) -> None:
    assert {claim.id: missing_operators(claim) for claim in claims(name).claims if missing_operators(claim)} == {}


def test_an_operator_that_is_not_known_is_reported_with_the_option_that_declares_it() -> None:
    entry = backend("fbgemm").claims[0].entry
    claim = Claim("fbgemm", "Tensor.swap", "static-quint8", type(entry)("swap"), backend("fbgemm").claims[0].dtypes)
    assert missing_operators(claim) == ["Tensor.swap"]
    message = r"no operator 'Tensor.swap' in the tables: .*: declare it with --operators"
    with pytest.raises(UsageError, match=message):
        variants(claim)


@pytest.mark.parametrize("name", EVERY_CONFIG)
def test_a_claim_has_variants_and_their_names_are_unique(name: str) -> None:
    for claim in claims(name).claims:
        names = [variant.name for variant in variants(claim)]
        assert names, claim.id
        assert len(set(names)) == len(names), claim.id


@pytest.mark.parametrize("operator", OPERATORS)
def test_an_operator_has_a_default_that_longer_patterns_use(operator: str) -> None:
    first = OPERATORS[operator][0]
    assert (first.name, first.core) == ("default", True)


@pytest.mark.parametrize("operator", OPERATORS)
def test_the_variants_of_an_operator_differ_in_more_than_their_name(operator: str) -> None:
    variants = [repr(variant.named("", core=False)) for variant in OPERATORS[operator]]
    assert len(set(variants)) == len(variants)


def test_variants_have_known_data_and_names_that_are_valid_in_ids() -> None:
    for operator, table in OPERATORS.items():
        for variant in table:
            assert variant.data in RANGES, operator
            assert not set(variant.name) & set("/@*?[] "), (operator, variant.name)


def test_the_source_of_every_model_is_python() -> None:
    for run in models(*EVERY_CONFIG):
        (statement,) = ast.parse(run.model.source).body
        assert isinstance(statement, ast.ClassDef), run.id


@pytest.mark.parametrize("part", range(PARTS))
def test_every_variant_runs_in_float(part: int) -> None:
    failed: dict[str, str] = {}
    with fx.quiet():
        for run in part_of_models(part):
            try:
                outputs = build.float_outputs(build.subject(run))
            except (build.CannotBeBuilt, AttributeError, RuntimeError, ValueError, TypeError) as error:
                failed[run.id] = str(error)
            else:
                assert outputs, run.id
                assert all(bool(output.isfinite().all()) for output in outputs), run.id
    known = {run_id: [text for glob, text in CANNOT_OCCUR.items() if fnmatchcase(run_id, glob)] for run_id in failed}
    unexpected = {run_id: text for run_id, text in failed.items() if not any(part in text for part in known[run_id])}
    assert unexpected == {}


@pytest.mark.parametrize("name", BACKENDS)
def test_the_padding_index_is_among_the_indices(name: str) -> None:
    padded = [run for run in runs(backend(name)) if "/padding_index/" in run.id and "Bag" in run.id]
    assert padded
    for run in padded:
        padding = re.search(r"padding_idx=(\d+)", run.model.source)
        assert padding is not None
        assert int(padding[1]) in build.subject(run).fresh_inputs()[0], run.id


def test_claims_that_float_pytorch_cannot_execute_raise() -> None:
    ids = [run for name in BACKENDS for run in models(name)]
    with fx.quiet():
        for glob in CANNOT_OCCUR:
            matching = [run for run in ids if fnmatchcase(run.id, glob)]
            assert matching, glob
            for run in matching:
                with pytest.raises((build.CannotBeBuilt, AttributeError, TypeError)):
                    build.float_outputs(build.subject(run))


def stated() -> Iterator[tuple[str, Variant]]:
    """Variants whose output shape is used: for a second operand, or for the channels of a batch norm."""
    for name in BACKENDS:
        for claim in backend(name).claims:
            if isinstance(claim.tree, tuple) and any(
                "*" in part or "BatchNorm" in part for part in claim.pattern.split("+")
            ):
                for variant in OPERATORS[claim.root]:
                    if variant.core:
                        yield claim.root, variant


def test_the_stated_output_shape_is_that_of_the_output() -> None:
    names = dict.fromkeys(name for name, _ in stated())
    assert {"nn.Conv2d", "nn.Linear", "nn.ConvTranspose2d"} <= set(names)
    for name, variant in stated():
        model = eval(variant.init, build.names())
        data = [torch.zeros(operand.shape) for operand in variant.operands.values()]
        assert tuple(model(*data).shape) == variant.output, (name, variant.name)


def layers() -> Iterator[tuple[str, Variant]]:
    for name, table in OPERATORS.items():
        if has_weights(name) and name.startswith(("nn.", "F.")):
            yield from ((name, variant) for variant in table if variant.name != "called_twice" and variant.output)


def test_every_layer_states_the_shape_of_its_output() -> None:
    for name, variant in layers():
        scope = build.names()
        parameters = {key: torch.zeros(shape) for key, shape in variant.parameters.items()}
        holder = type(
            "Holder", (), {**parameters, "op": staticmethod(eval(variant.init, scope)) if variant.init else None}
        )
        scope |= {"self": holder, **{key: torch.zeros(operand.shape) for key, operand in variant.operands.items()}}
        assert tuple(eval(variant.call, scope).shape) == variant.output, (name, variant.name)


def test_a_model_applies_every_operator_of_its_pattern() -> None:
    for name in BACKENDS:
        for claim in backend(name).claims:
            source = model_source(claim, variants(claim)[0]).source
            for operator in claim.operators:
                written = operator.rpartition(".")[2]
                if operator.startswith("operator."):
                    written = {"add": " + ", "sub": " - ", "mul": " * ", "floordiv": " // "}[written]
                assert written in source, (claim.id, operator)
