"""Variants and recipes of workflows, which quantize modules in place: sizes beside and beyond vectors and groups."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from conformance.configs.engines import IN_PLACE
from conformance.configs.workflows import Workflow
from conformance.oracle.scheme import Scheme
from conformance.results.profiles import EXACT, TYPICAL

from .claims import BackendClaims, Claim
from .operators import Operand, Variant
from .operators.variant import Context, Shape
from .recipes import Recipe, dtype_name

INDIVISIBLE = "indivisible"
"""The variant whose features no group divides: it may be refused, but not left in float silently."""

ZERO_ROW = "zero_row"
"""The variant whose weight has a row of zeros, as pruning leaves it."""

STRIDED = Context(ties=("self.op.weight = nn.Parameter(self.op.weight.t().contiguous().t())",))


@dataclass(frozen=True)
class _Size:
    """The sizes of a linear layer: features that it takes and gives, and the dimensions of its input before them."""

    takes: int
    gives: int
    rows: Shape
    bias: bool = True


SIZES = {
    "default": _Size(64, 16, (4,)),
    "no_bias": _Size(64, 16, (4,), bias=False),
    "one_row": _Size(96, 24, (1,)),
    "one_feature": _Size(1, 1, (2,)),
    "odd": _Size(17, 5, (3,)),
    "odd_rank3": _Size(33, 7, (2, 3)),
    "rank1": _Size(64, 33, ()),
    "rank4": _Size(32, 8, (2, 1, 3)),
    "batch0": _Size(32, 16, (0,)),
    "between_vectors": _Size(72, 33, (4,)),
    "beyond_tiles": _Size(160, 65, (67,)),
    "long": _Size(2048, 16, (2,)),
    "strided": _Size(64, 16, (4,)),
    ZERO_ROW: _Size(64, 16, (4,)),
    INDIVISIBLE: _Size(72, 8, (2,)),
}
"""Sizes of the variants by name. Only groups of equal length have an indivisible one."""

COMPILED = {"bfloat16": ("default", "one_row", "odd")}
"""The variants that compiled programs run, which take a second each, by the dtype of the module: inductor has kernels for
integer weights in bfloat16 alone. In others it runs the default variant."""

REMAINDERS = tuple(range(32, 65, 4))
"""Features of the layers on which the kernel for int8 weights in bfloat16 is run."""


def workflow_variants(claim: Claim) -> list[Variant]:
    """All variants of a workflow."""
    assert isinstance(claim.entry, Workflow)
    group = claim.entry.weight.blocks
    named = dict(SIZES)
    if group == "tensor":
        del named[ZERO_ROW]  # may have the element that decides the scale
    if not isinstance(group, int):
        del named[INDIVISIBLE]
        named |= {f"takes_{size}": _Size(size, 32, (4,), bias=False) for size in REMAINDERS}
    else:
        named = {name: size for name, size in named.items() if name == INDIVISIBLE or size.takes % group == 0}
    compiled = COMPILED.get(dtype_name(claim.dtypes.input_dtype), ("default",))
    return [_variant(name, size, core=name in compiled) for name, size in named.items()]


def _variant(name: str, size: _Size, *, core: bool) -> Variant:
    bias = "" if size.bias else ", bias=False"
    made = Variant(
        name,
        "self.op(x)",
        {"x": Operand((*size.rows, size.takes))},
        init=f"nn.Linear({size.takes}, {size.gives}{bias})",
        output=(*size.rows, size.gives),
        core=core,
    )
    return made.named(name, context=STRIDED) if name == "strided" else made


def workflow_recipe(claim: Claim) -> Recipe:
    """The recipe of a workflow: its config as source text, which stands for a QConfig."""
    assert isinstance(claim.entry, Workflow)
    kind = "weight" if claim.entry.activation is None else "dynamic"
    return Recipe(Scheme(kind, None, None), claim.entry.source, dtype_name(claim.dtypes.input_dtype), 255)


def workflow_runs(claims: BackendClaims, engines: Sequence[str]) -> Iterator[tuple[Claim, str, Variant, str, str]]:
    """Yield the claim, flow, variant, profile and engine of every run of a library's workflows.

    A compiled program takes a second: of the workflows for integers of some bits, which differ in their codes alone, one is
    compiled.
    """
    for claim in claims.claims:
        entry = claim.entry
        assert isinstance(entry, Workflow)
        for variant in workflow_variants(claim):
            for engine in engines:
                eager = engine == IN_PLACE[0]
                if not eager and not (entry.compiled and (variant.core or _has_kernel(entry, variant, engine))):
                    continue
                for profile in (EXACT.name, TYPICAL.name) if eager else (EXACT.name,):
                    yield claim, "ptq", variant, profile, engine


def _has_kernel(entry: Workflow, variant: Variant, engine: str) -> bool:
    """Whether the engine has a kernel for the weights of a workflow whose vectors the variant is about."""
    return entry.kernel and engine.endswith("frozen") and variant.name.startswith("takes_")
