"""Variants and recipes of workflows, which quantize modules in place: sizes beside and beyond vectors and groups."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from conformance.configs.engines import ENGINE_TABLE, IN_PLACE
from conformance.configs.workflows import Workflow, WorkflowConfig
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

WIDE = "wide"
"""The variant that stands for the default one where groups are longer than that."""

EAGER, FROZEN = IN_PLACE[0], IN_PLACE[2]

CALL = "self.op(x)"

STRIDED = Context(ties=("self.op.weight = nn.Parameter(self.op.weight.t().contiguous().t())",))


def _linear(takes: int, gives: int, rows: Shape, options: str = "", call: str = CALL) -> Variant:
    """A linear layer, of these features, and of an input with these dimensions before them."""
    operands = {"x": Operand((*rows, takes))}
    return Variant("", call, operands, init=f"nn.Linear({takes}, {gives}{options})", output=(*rows, gives))


def _conv2d(
    takes: int, gives: int, kernel: int, options: str = "", *, batch: Shape = (2,), call: str = CALL
) -> Variant:
    """A convolution of images of 6 by 6."""
    operands = {"x": Operand((*batch, takes, 6, 6))}
    return Variant("", call, operands, init=f"nn.Conv2d({takes}, {gives}, {kernel}{options})")


def _embedding(rows: int, features: int, shape: Shape, options: str = "", call: str = CALL) -> Variant:
    """A table with so many rows and features, and indices of a shape."""
    operands = {"x": Operand(shape, "indices", rows)}
    return Variant("", call, operands, init=f"nn.Embedding({rows}, {features}{options})", output=(*shape, features))


LINEARS = {
    "default": _linear(64, 16, (4,)),
    "no_bias": _linear(64, 16, (4,), ", bias=False"),
    "keyword": _linear(64, 16, (4,), call="F.linear(x, self.op.weight, bias=self.op.bias)"),
    "one_row": _linear(96, 24, (1,)),
    "one_feature": _linear(1, 1, (2,)),
    "two_features": _linear(64, 2, (4,)),
    "odd": _linear(17, 5, (3,)),
    "odd_rank3": _linear(33, 7, (2, 3)),
    "rank1": _linear(64, 33, ()),
    "rank4": _linear(64, 8, (2, 4, 5)),
    "tokens": _linear(128, 32, (1, 2)),
    "sequence": _linear(64, 16, (1, 20)),
    "windows": _linear(96, 16, (1, 8, 4)),
    "batch0": _linear(32, 16, (0,)),
    "between_vectors": _linear(72, 33, (4,)),
    "beyond_tiles": _linear(160, 65, (67,)),
    "long": _linear(2048, 16, (2,)),
    WIDE: _linear(256, 96, (5,)),
    "strided": replace(_linear(64, 16, (4,)), context=STRIDED),
    ZERO_ROW: _linear(64, 16, (4,)),
    INDIVISIBLE: _linear(72, 8, (2,)),
}
CONVOLUTIONS = {
    "default": _conv2d(32, 8, 3),
    "no_bias": _conv2d(32, 8, 3, ", bias=False"),
    "keyword": _conv2d(32, 8, 3, ", stride=2", call="F.conv2d(x, self.op.weight, self.op.bias, stride=2)"),
    "one_by_one": _conv2d(64, 5, 1),
    "options": _conv2d(32, 16, 3, ", stride=2, padding=2, dilation=2"),
    "groups": _conv2d(64, 6, 3, ", groups=2"),
    "same": _conv2d(32, 4, 3, ", padding='same'"),
    "reflect": _conv2d(32, 4, 3, ", padding=1, padding_mode='reflect'"),
    "unbatched": _conv2d(32, 8, 3, batch=()),
    "batch0": _conv2d(32, 8, 3, batch=(0,)),
    ZERO_ROW: _conv2d(32, 8, 3),
    INDIVISIBLE: _conv2d(48, 8, 3),
    "depthwise": _conv2d(8, 8, 3, ", groups=8"),
}
EMBEDDINGS = {
    "default": _embedding(20, 64, (6,)),
    "rank2": _embedding(20, 32, (2, 3)),
    "scalar": _embedding(20, 32, ()),
    "batch0": _embedding(20, 32, (0,)),
    "padding_idx": _embedding(20, 32, (6,), ", padding_idx=3"),
    "function": _embedding(20, 32, (6,), call="F.embedding(x, self.op.weight)"),
    ZERO_ROW: _embedding(20, 64, (6,)),
    INDIVISIBLE: _embedding(20, 72, (6,)),
}
FORMS: Mapping[str, Mapping[str, Variant]] = {
    "nn.Linear": LINEARS,
    "nn.Conv2d": CONVOLUTIONS,
    "nn.Embedding": EMBEDDINGS,
}
"""The variants of each module by name. Only groups of equal length have an indivisible one."""

OF_CODES = frozenset(
    (
        *("default", "keyword", "batch0", "one_feature", "odd", "between_vectors", "long", WIDE, ZERO_ROW, INDIVISIBLE),
        *("one_by_one", "depthwise"),
    )
)
"""The variants of workflows that differ from another one in their codes alone: those that depend on codes, and the forms of
calls that libraries are known to get wrong."""

SHAPES = {
    f"{rows}x{takes}x{gives}": _linear(takes, gives, (rows,), ", bias=False")
    for rows, takes, gives in (
        *((2, 64, 16), (2, 1152, 1008), (8, 128, 48), (10, 96, 32), (17, 256, 112), (32, 192, 80), (40, 416, 144)),
        *((64, 320, 192), (50, 192, 64), (36, 64, 80), (2, 96, 40), (2, 64, 2), (3, 84, 10)),
        *((65, 160, 208), (34, 48, 10), (72, 112, 40), (3, 400, 100), (24, 208, 257)),
    )
}
"""Layers on which the kernels for integers are run, by rows, features that they take and features that they give: as their
operands are in networks."""

RANKED = {
    "x".join(map(str, (*rows, 64, 16))): _linear(64, 16, rows, ", bias=False")
    for rows in ((1, 6), (1, 13), (2, 50), (1, 1, 6), (1, 7, 13), (2, 4, 64), (1, 2, 3, 4), (1, 4, 7, 7))
}
"""Layers whose inputs have the dimensions of networks: sequences, windows, and windows of volumes."""

COMPILED = {"bfloat16": ("default", "keyword", "one_row", "odd")}
"""The variants that compiled programs run, which take a second each, by the dtype of the module: inductor has kernels for
integer weights in bfloat16 alone. In others it runs the default variant."""

VECTORS = {f"takes_{size}": _linear(size, 32, (4,), ", bias=False") for size in range(32, 65, 4)}
"""Layers whose features fill vectors or do not. Kernels of inductor with frozen weights run all of them."""


def workflow_variants(claim: Claim) -> list[Variant]:
    """All variants of a workflow."""
    assert isinstance(claim.entry, Workflow)
    group = claim.entry.weight.blocks
    named = dict(FORMS[claim.root])
    if group == "tensor":
        del named[ZERO_ROW]  # may have the element that decides the scale
    if not isinstance(group, int):
        del named[INDIVISIBLE]
    else:
        named = {name: made for name, made in named.items() if name == INDIVISIBLE or channels(made) % group == 0}
    if "default" not in named:
        named = {"default": named.pop(WIDE)} | named
    if claim.root == "nn.Linear" and not isinstance(group, int):
        named |= VECTORS
    dtype = dtype_name(claim.dtypes.input_dtype)
    if claim.root == "nn.Linear" and claim.entry.integers and dtype in COMPILED:
        named |= {name: made for name, made in (SHAPES | RANKED).items() if _fits(claim.entry, made)}
    if claim.entry.codes_alone:
        named = {name: made for name, made in named.items() if name in OF_CODES}
    compiled = COMPILED.get(dtype, ("default",))
    return [replace(made, name=name, core=name in compiled) for name, made in named.items()]


def _fits(entry: Workflow, made: Variant) -> bool:
    """Whether groups divide the features that a layer takes, and blocks of packed weights those that it gives."""
    takes, gives = made.stated.positional
    divided = not isinstance(entry.weight.blocks, int) or takes % entry.weight.blocks == 0
    return divided and (not entry.packed or gives % 16 == 0)


def channels(made: Variant) -> int:
    """The elements along which a weight has groups."""
    call = made.stated
    takes = call.positional[1 if call.function == "nn.Embedding" else 0]
    return int(takes) // int(call.keywords.get("groups", 1))


def workflow_recipe(claim: Claim) -> Recipe:
    """The recipe of a workflow: its config as source text, which stands for a QConfig."""
    assert isinstance(claim.entry, Workflow)
    kind = "weight" if claim.entry.activation is None else "dynamic"
    return Recipe(Scheme(kind, None, None), claim.entry.source, dtype_name(claim.dtypes.input_dtype), 255)


def workflow_runs(claims: BackendClaims, engines: Sequence[str]) -> Iterator[tuple[Claim, str, Variant, str, str]]:
    """Yield the claim, flow, variant, profile and engine of every run of a library's workflows.

    A compiled program takes a second: of the workflows for integers of some bits, which differ in their codes alone, one is
    compiled. What packed codes stand for is known of dyadic data alone, and no data are dyadic on a grid whose scales share a
    factor.
    """
    for claim in claims.claims:
        entry = claim.entry
        assert isinstance(entry, Workflow)
        for variant in workflow_variants(claim):
            for engine in engines:
                eager = engine == EAGER
                if not eager and not _is_compiled(claims, claim, variant, engine):
                    continue
                profiles = (EXACT.name, TYPICAL.name) if eager and not entry.packed else (EXACT.name,)
                for profile in (TYPICAL.name,) if entry.weight.shared else profiles:
                    yield claim, "ptq", variant, profile, engine


def _is_compiled(claims: BackendClaims, claim: Claim, variant: Variant, engine: str) -> bool:
    """Whether an engine that compiles runs a variant. A package takes six times as long as a program."""
    entry, config = claim.entry, claims.config
    assert isinstance(entry, Workflow)
    assert isinstance(config, WorkflowConfig)
    if not entry.compiled:
        return False
    has_kernels = dtype_name(claim.dtypes.input_dtype) in COMPILED
    if ENGINE_TABLE[engine].default_only:
        return config.exports and entry.packaged and has_kernels and variant.name == "default"
    of_kernel = variant.name in SHAPES or (engine == FROZEN and variant.name in VECTORS)
    return variant.core or (entry.kernel and has_kernels and of_kernel)
