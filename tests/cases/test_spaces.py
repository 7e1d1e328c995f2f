"""Option spaces declare every keyword argument, their arrays cover every pair, and every point is a valid float model."""

import inspect
import re
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from conformance.cases.claims import backend
from conformance.cases.combined import SLICE, combined, points
from conformance.cases.operators import OPERATORS, SPACES, Space
from conformance.cases.operators.arrays import Group, arrays, groups
from conformance.cases.operators.fused import plain_of
from conformance.cases.operators.space import APART, LEFT_OUT, factor

NOT_IN_TORCH = frozenset(
    {
        "Tensor.leaky_relu",
        "Tensor.hardsigmoid",
        "Tensor.hardsigmoid_",
        "Tensor.permute_copy",
        "torch.contiguous",
        "torch.repeat",
        "torch.resize_",
        "torch.unsqueeze_",
        "torch.view",
    }
)
"""Operators of configs that torch does not have, so that they have no options."""

TENSORS = frozenset({"input", "other", "tensors", "x", "self", "weight"})
"""Parameters that take the operands; a module's are those of its `forward`."""


def object_of(operator: str) -> Any:
    """The module class, function or method that an operator's name means."""
    prefix, _, name = operator.partition(".")
    if prefix == "nnqat":
        prefix = "nn"
    return getattr({"nn": nn, "F": F, "torch": torch, "Tensor": torch.Tensor}[prefix], name)


def documented(operator: str) -> Iterator[str]:
    """The parameters in the first line of a builtin's documentation, without stars, defaults and types."""
    text = (object_of(operator).__doc__ or "").strip().partition("\n")[0]
    match = re.match(r"\w+\((.*)\) *->", text)
    for part in re.sub(r"\[[^\]]*\]|\([^)]*\)", "", match[1]).split(",") if match else ():
        name = re.split(r"[=:]", part.strip())[0].strip(" *")
        if name:
            yield name


def registered(operator: str) -> Iterator[str]:
    """The parameters of the overloads of a builtin without documentation that return their result."""
    for schema in torch._C._jit_get_schemas_for_operator(f"aten::{operator.partition('.')[2]}"):
        if "out" not in schema.overload_name and str(schema.arguments[0].type) == "Tensor":
            yield from (argument.name for argument in schema.arguments)


def parameters(operator: str) -> set[str]:
    """The names of the parameters of an operator."""
    if operator in ("F.max_pool1d", "F.max_pool2d", "F.max_pool3d"):
        return {*inspect.signature(getattr(F, operator[2:] + "_with_indices")).parameters}
    subject = {"nn.LSTM": nn.RNNBase, "nn.GRU": nn.RNNBase}.get(operator) or object_of(operator)
    try:
        return {*inspect.signature(subject).parameters} - {"mode" if subject is nn.RNNBase else ""}
    except (TypeError, ValueError):
        return {*documented(operator)} or {*registered(operator)}


def declared(space: Space) -> set[str]:
    return {name for one in space.factors for name in one.keywords}


@pytest.mark.parametrize("operator", sorted(set(OPERATORS) - NOT_IN_TORCH))
def test_every_operator_has_an_option_space(operator: str) -> None:
    assert plain_of(operator) in SPACES


@pytest.mark.parametrize("operator", sorted(o for o in SPACES if not o.startswith("operator.")))
def test_every_keyword_argument_is_declared_or_left_out_with_a_reason(operator: str) -> None:
    if operator in NOT_IN_TORCH or operator == "Tensor.shape":
        pytest.skip("not a function of torch")
    space = SPACES[operator]
    names = parameters(operator)
    assert names, "nothing is known of its signature"
    assert names - TENSORS - declared(space) <= {*space.left_out}
    assert all(space.left_out.values())


def test_a_keyword_argument_that_is_not_declared_would_be_noticed() -> None:
    space = SPACES["nn.ELU"]
    without = Space(tuple(one for one in space.factors if one.name != "alpha"), space.write)
    assert parameters("nn.ELU") - TENSORS - declared(without) == {"alpha"}


@pytest.mark.parametrize("operator", SPACES)
def test_labels_name_one_value(operator: str) -> None:
    labels = [label for one in SPACES[operator].factors for label in one.values if label]
    assert len(labels) == len({*labels})
    assert not [label for label in labels if set(label) & set("+/@*?[]")]


@pytest.mark.parametrize("operator", SPACES)
def test_every_value_occurs_in_a_valid_point(operator: str) -> None:
    space = SPACES[operator]
    never = [
        label
        for label, name in space.factor_of.items()
        if label not in APART and space.completed({name: label}) is None
    ]
    assert not never


@pytest.mark.parametrize("name", groups())
def test_the_array_of_a_group_covers_every_pair(name: str) -> None:
    group = Group(groups()[name])
    assert not group.pairs() - group.covered(arrays())


def test_an_array_with_a_point_too_few_does_not_cover_every_pair() -> None:
    group = Group(groups()["clamp"])
    stored = {operator: arrays()[operator][1:] for operator in group.spaces}
    assert group.pairs() - group.covered(stored)


@pytest.mark.parametrize("operator", SPACES)
def test_the_points_of_an_array_are_valid_and_named_by_their_labels(operator: str) -> None:
    space = SPACES[operator]
    for name in arrays()[operator]:
        point = space.point(name)
        assert space.holds(space.values(point))
        assert space.name(point) == name
        assert not APART & {*point.values()}


def small() -> Space:
    """A space of two options and a constraint."""
    return Space(
        (factor("alpha", LEFT_OUT, 1, 2), factor("beta", LEFT_OUT, 1, 2), factor("gamma", False, True)),
        SPACES["nn.ReLU"].write,
        (lambda alpha, beta: alpha is LEFT_OUT or alpha != beta,),
    )


def test_pairs_that_no_valid_point_has_are_not_asked_for() -> None:
    pairs = {*small().pairs()}
    assert frozenset({("alpha", "alpha_1"), ("beta", "beta_2")}) in pairs
    assert frozenset({("alpha", "alpha_1"), ("beta", "beta_1")}) not in pairs


def test_a_completed_array_keeps_the_points_that_are_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("covertable")
    monkeypatch.setitem(SPACES, "small", small())
    group = Group(["small"])
    first = group.completed({})
    assert not group.pairs() - group.covered(first)
    fewer = {"small": [*reversed(first["small"])][:3]}
    assert group.completed(fewer)["small"][:3] == fewer["small"]
    assert group.completed({"small": [*first["small"], "alpha_7"]}) == first


def test_a_point_with_an_unknown_label_is_refused() -> None:
    with pytest.raises(KeyError, match="gamma_9"):
        small().point("alpha_1+gamma_9")
    with pytest.raises(KeyError, match="no factor 'delta'"):
        small().values({"delta": "delta_1"})


@pytest.mark.parametrize("name", ["fbgemm", "onednn", "qnnpack"])
def test_each_operator_has_all_its_points_once_and_other_claims_have_a_part(name: str) -> None:
    whole: dict[str, set[str]] = {}
    for claim, variant in combined(backend(name)):
        whole.setdefault(claim.id, set()).add(variant.name)
    for claim in backend(name).claims:
        operator = claim.root
        if claim.id.endswith("static-quint8") and claim.pattern == operator and operator in SPACES:
            possible = {variant.name for variant in points(operator)}
            assert whole[claim.id] == possible or len(whole[claim.id]) <= SLICE
    assert any(len(names) <= SLICE for names in whole.values())
