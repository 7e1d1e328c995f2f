"""Fixed variants that a run is like: those with no feature that it lacks."""

from collections.abc import Iterator
from functools import cache

from .claims import BackendClaims, Claim
from .contexts import CHANNELS_LAST
from .features import features, features_of
from .operators import OPERATORS
from .operators.fused import plain_of
from .operators.variant import batch_variants, data_variants, layout_variants, strided_variant
from .runs import Run, runs
from .variants import variants

OTHER_DATA = "other_data"
"""The default variant with data of which the exact arithmetic of a fixed run says nothing."""


@cache
def _fixed(claim: Claim, steps: int) -> tuple[tuple[str, frozenset[str]], ...]:
    """Names and features of the variants to which others of a claim are compared.

    They are the fixed variants of the claim, of its root operator and of the layer inside that, and the variants of data,
    batch size, memory format and result, which the ledger may name for every operator.
    """
    root = claim.root
    layer, default = plain_of(root), OPERATORS[root][0]
    laid = (strided_variant(default), *layout_variants(default))
    empty = (one.named(f"{one.name}_batch0", batch=0) for one in laid)
    returned = (default.named(OTHER_DATA), default.named("reused", result="y, x"))
    general = (*batch_variants(default), *data_variants(default), *laid, *empty, *returned)
    named = [(root, variant) for variant in (*variants(claim), *OPERATORS[root], *general)]
    named += [(layer, variant) for variant in OPERATORS[layer]]
    return tuple((variant.name, features(operator, variant, steps)) for operator, variant in named)


def similar_variants(run: Run, further: frozenset[str] = frozenset()) -> list[str]:
    """Names of the fixed variants all of whose features a run has, those with most first; `further` count as features of the
    run."""
    present = features_of(run) | further
    found = [(name, fixed) for name, fixed in _fixed(run.claim, run.recipe.steps) if fixed <= present]
    return [name for name, _ in sorted(found, key=lambda one: (-len(one[1]), one[0]))]


def similar_ids(run: Run, further: frozenset[str] = frozenset()) -> dict[str, None]:
    """Ids of the fixed runs that a run is like: of its claim, its root operator, the layer inside, and operators beside, in
    its flow, on its engine, with its dtypes. Those that have most in common with it come first.
    """
    claim, backend = run.claim, run.backend.name
    root = claim.root
    claims = dict.fromkeys(
        (claim.id, *(f"{backend}/{operator}/{claim.dtype_config}" for operator in (root, plain_of(root))))
    )
    alike = similar_variants(run, further)
    ids = (f"{name}/{run.flow}/{variant}/exact@{run.engine}" for variant in alike for name in claims)
    return dict.fromkeys((*ids, *_ids_beside(run)))


def _ids_beside(run: Run) -> Iterator[str]:
    """Ids of fixed runs of the operators beside the pattern, whose inputs are channels-last behind some layers."""
    assert run.variant is not None
    may_be_channels_last = any(len(spec.shape) in CHANNELS_LAST for spec in run.variant.operands.values())
    names = ("default", "channels_last") if may_be_channels_last else ("default",)
    for neighbour in run.variant.context.neighbours:
        claim = f"{run.backend.name}/{neighbour.operator}/{run.claim.dtype_config}"
        yield from (f"{claim}/{run.flow}/{name}/exact@{run.engine}" for name in names)


def nameable_ids(claims: BackendClaims) -> Iterator[str]:
    """Ids of all fixed runs to which runs of a backend may be compared, whether or not they are executed themselves."""
    for run in runs(claims):
        is_default = run.profile == "exact" and run.variant is not None and run.variant.name == "default"
        if is_default and run.claim.root in OPERATORS:
            head, tail = f"{run.claim.id}/{run.flow}", f"exact@{run.engine}"
            yield from (f"{head}/{name}/{tail}" for name, _ in _fixed(run.claim, run.recipe.steps))
