"""Variants of claims from option spaces: every boundary value, and every pair of values of an operator's options."""

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache, partial
from itertools import count
from typing import Any

import torch

from conformance.configs.spelling import LINEAR, computation, is_batch_norm, spelled

from .claims import BackendClaims, Claim
from .declarations import has_form_of, required
from .operators import OPERATORS, SPACES, Variant
from .operators.arrays import arrays
from .operators.fused import is_normed, plain_of, wrapped
from .operators.space import COMMON, JOINT, Factor
from .recipes import QUANTIZED, observes_inputs
from .variants import continuing, followed, in_tables, not_covered

SLICE = 2
"""Number of points of an operator's covering array that a claim of a longer pattern or further dtypes gets."""

LEAST = 24
"""The number of points that a module and the functions and methods of its name have together, at least."""

EXECUTIONS = 64
"""The number of further inputs that the models of all points of one name have together, at least: layers in use have other
sizes, too."""

PLACES = [below for below in range(256) if below % 128 not in (0, 127)]
"""Codes below zero that data may cover, of 256 or of 128."""


@cache
def points(operator: str) -> tuple[Variant, ...]:
    """The variants of an operator from its option space, beside the fixed ones: boundary values, and its part of an array.

    A boundary value is tried with the first operator that has it of those with one name.
    """
    if operator not in SPACES:
        return ()
    space = SPACES[operator]
    fixed = {repr(variant.named("", core=False)) for variant in OPERATORS[operator]}
    singles = [name for name in _own(operator) if repr(space.at(name).named("")) not in fixed]
    names = dict.fromkeys((*singles, *arrays().get(operator, ())))
    stated = [filled(operator, name) if JOINT in name else space.at(name) for name in names]
    fixed |= {repr(variant.named("")) for variant in stated}
    drawn = {
        repr(variant.named("")): variant for variant in map(partial(drawn_point, operator), range(_missing(operator)))
    }
    return *stated, *(variant for text, variant in drawn.items() if text not in fixed)


def _namesakes(operator: str) -> list[str]:
    """The operators that have an operator's name as a module, function or method: most of them call the same kernels."""
    return [other for other in SPACES if computation(other) == computation(operator)]


def _stated(operator: str) -> int:
    """The number of points of an operator's name that are boundary values or in an array."""
    return sum(len({*_own(other), *arrays().get(other, ())}) for other in _namesakes(operator))


def _missing(operator: str) -> int:
    """The number of points that an operator draws, for all of its name, because these have few others."""
    options = [factor for factor in SPACES[operator].factors if factor.name not in COMMON and factor.drawn is not None]
    first = next((other for other in _namesakes(operator) if other in OPERATORS), operator)
    return max(0, LEAST - _stated(operator)) if options and first == operator else 0


def further_inputs(operator: str) -> int:
    """The number of further inputs of the models of an operator: the more the fewer points it has."""
    points_of_name = max(_stated(operator), LEAST) if operator in SPACES else LEAST
    return -(-EXECUTIONS // points_of_name)


def filled(operator: str, name: str) -> Variant:
    """The variant of a point, in which half of the factors that have their default have a drawn value instead, as far as
    constraints allow it. The point decides which.

    Pairs of a value and a default occur where the value is tried singly.
    """
    space, turns = SPACES[operator], count()

    def pick(values: Sequence[Any]) -> Any:
        return values[zlib.crc32(f"{operator}/{name}/{next(turns)}".encode()) % len(values)]

    point = space.point(name)
    values = space.values(point)
    for factor in space.factors:
        if factor.name not in point and factor.name not in COMMON and factor.drawn is not None and pick((True, False)):
            value = factor.drawn(pick)
            if space.holds({**values, factor.name: value}):
                values[factor.name] = value
    return space.written(name, values)


def drawn_point(operator: str, number: int) -> Variant:
    """A variant of which two thirds of the factors have a drawn value or another one of theirs, as far as constraints allow
    it. The number decides which, for each factor by itself."""
    space, name = SPACES[operator], f"drawn_{number + 1}"
    values = space.values({})
    for factor in space.factors:
        turns = count()

        def pick(choices: Sequence[Any], turns: Iterator[int] = turns, factor: Factor = factor) -> Any:
            return choices[zlib.crc32(f"{operator}/{name}/{factor.name}/{next(turns)}".encode()) % len(choices)]

        if factor.name in COMMON or not pick((True, True, False)):
            continue
        wider = factor.drawn is not None and pick((True, False))
        value = factor.drawn(pick) if wider and factor.drawn else factor.values[pick(factor.combined)]
        if space.holds({**values, factor.name: value}):
            values[factor.name] = value
    return space.written(name, values)


@cache
def _own(operator: str) -> tuple[str, ...]:
    """The names of the boundary values that no operator of the same name before this one has."""
    namesakes = _namesakes(operator)
    earlier = {name for other in namesakes[: namesakes.index(operator)] for name in SPACES[other].singles}
    return tuple(name for name in SPACES[operator].singles if name not in earlier)


def combined(backend: BackendClaims) -> Iterator[tuple[Claim, Variant]]:
    """Yield the claims of a backend with variants from the option spaces.

    All of them for the first claim of each operator whose activations are quantized statically, dynamically, or not at all,
    and for the first in which certain operators follow it, because kernels compute both in one; every other claim of the
    operator, with a batch norm, as a fused module or with other dtypes, has a part of them, each another one. One claim of
    each longer pattern, that with activations of quint8 if there is one, has the options of what follows its root.
    """
    turns: dict[str, int] = {}
    usual: dict[str, Claim] = {}
    for claim in backend.claims:
        if (
            claim.pattern not in usual
            or usual[claim.pattern].dtypes.input_dtype != torch.quint8 == claim.dtypes.input_dtype
        ):
            usual[claim.pattern] = claim
    whole: set[tuple[str, frozenset[str], bool | None, bool]] = set()
    for claim in backend.claims:
        if not_covered(claim) or not in_tables(claim):
            continue
        root, *rest = claim.operators
        if usual[claim.pattern] is claim:
            yield from ((claim, required(claim.entry, one)) for one in followed(claim) if _applies(claim, one))
        layer = plain_of(root)
        plain = layer == root and not any(map(is_batch_norm, rest))
        kind = layer, frozenset(map(computation, rest)), claim.dtypes.is_dynamic, claim.dtypes.input_dtype in QUANTIZED
        first = plain and kind not in whole
        found = [variant for variant in points(layer) if _applies(claim, variant)]
        if rest and first:  # of the fixed variants a longer pattern has the core ones in other profiles
            names = {variant.name for variant in found}
            others = [variant for variant in OPERATORS[layer] if not variant.core and variant.name not in names]
            found += [variant for variant in others if _applies(claim, variant)]
        if rest or layer != root:
            found = list(_continued(claim, found))
        if first:
            whole.add(kind)
        else:
            turn = turns.get(layer, 0)
            turns[layer] = turn + 1
            start = turn * SLICE % max(len(found), 1)
            found = [*found, *found][start : start + min(SLICE, len(found))]
        placed_variants = (_placed(claim, variant) for variant in found)
        yield from ((claim, required(claim.entry, variant)) for variant in placed_variants)


def _placed(claim: Claim, variant: Variant) -> Variant:
    """The variant with a zero point and a scale of its own, which its name decides; one whose data are a value of its point
    keeps them."""
    if variant.data != "full":
        return variant
    return replace(variant, data=placed(f"{claim.pattern}/{variant.name}", exponents(claim)))


def exponents(claim: Claim) -> range:
    """The exponents of the steps of data that a claim is tried with. Those of what is folded with a batch norm are of the
    usual size, because the bias has to lie on the grid of the products."""
    normed = any(map(is_normed, claim.operators))
    return range(-8, -3) if normed else range(-13, 3)


def placed(key: str, steps: Sequence[int]) -> str:
    """A range of data with one of these exponents, which the key decides.

    No zero point is at an end of the codes, where kernels have paths of their own.
    """
    hashed = zlib.crc32(key.encode())
    return f"{PLACES[hashed % len(PLACES)]}:{steps[hashed // len(PLACES) % len(steps)]}"


def _applies(claim: Claim, variant: Variant) -> bool:
    """Whether a claim's dtypes have the observers that a variant needs, and its declaration, if it has one, has its form."""
    if not has_form_of(claim.entry, variant):
        return False
    if variant.per_channel and claim.dtypes.weight_dtype not in QUANTIZED:
        return False
    observed = observes_inputs(claim.dtypes)
    return observed or not (variant.saturates or variant.symmetric)


def _continued(claim: Claim, variants: list[Variant]) -> Iterator[Variant]:
    """The variants as those of a longer pattern or of a fused module."""
    for variant in variants:
        if continues(claim, variant):
            yield from continuing(claim, [wrapped(variant, claim.root)])[:1]


def continues(claim: Claim, variant: Variant) -> bool:
    """Whether the rest of a pattern can follow a variant of its root operator, whose output has to have channels."""
    normed = any(map(is_normed, claim.operators))
    ranks = (2,) if normed and spelled(plain_of(claim.root)).computes == LINEAR else (2, 3, 4, 5)
    # a bias has to lie on the grid of the products, in the 24 bits that float32 has; folded ones are finer and greater
    exact = not normed or variant.data not in ("tiny", "huge")
    by_position = "input" not in variant.keywords
    if claim.root.startswith("nniqat.") and isinstance(variant.stated.keywords.get("padding"), str):
        return False  # these modules pass the padding on as a number
    once = variant.applications == 1 and variant.result == "y"
    return exact and by_position and once and len(variant.output) in ranks
