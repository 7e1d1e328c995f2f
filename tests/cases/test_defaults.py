"""The default variant of an operator leaves out every argument that torch has a default for."""

import ast
import inspect
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from conformance.cases.operators import OPERATORS
from conformance.configs.names import operator_named

STATED = {
    "qconfig": "a QAT module is made with one",
    "padding": "a convolution is padded, as most are: zeros beside the input are what a zero point is for",
    "weight": "a functional norm has the parameters that a module has",
    "bias": "a functional norm has the parameters that a module has",
    "training": "dropout at random cannot be compared",
    "scale_factor": "an interpolation needs a size or a factor",
    "offsets": "the lookups of a bag",
}
"""Arguments that default variants state although torch has a default for them, with the reason."""

STATED_IN = {
    "nn.Softmax": {"dim": "torch warns of the default, and chooses a dimension by the rank"},
    "torch.cat": {"dim": "along the default, the batch, calibration and execution have other sizes"},
    "torch.concat": {"dim": "as torch.cat"},
    "torch.concatenate": {"dim": "as torch.cat"},
    "torch.stack": {"dim": "as torch.cat"},
}


def stated(operator: str) -> Iterator[str]:
    """The arguments with defaults that the default variant of an operator states: of a function without a signature, all that
    it states by keyword."""
    default = OPERATORS[operator][0]
    called: Any = None
    with suppress(LookupError):  # configs promise functions that torch does not have
        called = operator_named(operator)[0]
    sources = [(called, default.init, 0), (getattr(called, "forward", None), default.call, 1)]
    for of, source, skipped in sources if default.init else [(called, default.call, 0)]:
        call = ast.parse(source, mode="eval").body
        if not isinstance(call, ast.Call):
            continue
        keywords = [str(one.arg) for one in call.keywords]
        try:
            parameters = inspect.signature(of).parameters
        except (TypeError, ValueError):
            yield from keywords
            continue
        positional = [*parameters][skipped : skipped + len(call.args)]
        for name in (*positional, *keywords):
            has_default = name in parameters and parameters[name].default is not inspect.Parameter.empty
            if has_default or name not in parameters:
                yield name


@pytest.mark.parametrize("operator", OPERATORS)
def test_a_default_variant_states_no_argument_that_has_a_default(operator: str) -> None:
    assert OPERATORS[operator][0].name == "default"
    assert {*stated(operator)} <= STATED.keys() | STATED_IN.get(operator, {}).keys()


def test_every_exception_is_needed() -> None:
    found = {(operator, name) for operator in OPERATORS for name in stated(operator)}
    assert {name for _, name in found} >= STATED.keys()
    assert {(operator, name) for operator, names in STATED_IN.items() for name in names} <= found
