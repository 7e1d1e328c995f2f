"""Hypothesis strategies for samples: a point of a claim's option space with drawn memory formats, data and flow."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hypothesis import assume
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from conformance.cases.combined import continues
from conformance.cases.declarations import declared_variants
from conformance.cases.families import Family
from conformance.cases.operators import OPERATORS, SPACES, Operand, Variant
from conformance.cases.operators.fused import is_normed, plain_of, wrapped
from conformance.cases.recipes import QUANTIZED
from conformance.cases.variants import continuing, flows
from conformance.configs.quantizer import Declaration

from .samples import Sample, run_of, valid

PLACED = frozenset({"data", "batch", "layout", "second"})
"""Factors that `placed` draws from wider domains than those of the fixed variants."""


@st.composite
def points(draw: DrawFn, operator: str) -> Variant:
    """A variant of an operator's option space: some factors have a drawn value, if constraints allow it with those before.

    The input is passed by keyword only if it is in a fixed variant, by whose entries the ledger covers that.
    """
    space = SPACES[operator]
    by_keyword = any("input" in variant.keywords for variant in OPERATORS[operator])

    def pick(values: Sequence[Any]) -> Any:
        return draw(st.sampled_from(values))

    values = space.values({})
    for factor in space.factors:
        if factor.name in PLACED or not draw(st.booleans()):
            continue
        wider = factor.drawn is not None and draw(st.booleans())
        fixed = [value for label, value in factor.values.items() if by_keyword or label != "keyword"]
        value = factor.drawn(pick) if wider and factor.drawn else pick(fixed)
        if space.holds({**values, factor.name: value}):
            values[factor.name] = value
    return space.written("drawn", values)


@st.composite
def placed(draw: DrawFn, variant: Variant, lowest: int, highest: int) -> Variant:
    """A variant with drawn ranges of data on the quantization grid, memory formats, and batch size of the execution.

    The step of the grid is from 2**`lowest` to 2**`highest`.
    """
    data = variant.data
    covered = st.one_of(st.sampled_from(("both", "above", "below")), st.integers(0, 255).map(str))
    if data == "full":
        covers = draw(covered)
        exponent = draw(st.one_of(st.just(-4), st.integers(lowest, highest)))
        data = f"{covers}:{exponent}"
    operands: dict[str, Operand] = {}
    for name, spec in variant.operands.items():
        if spec.kind != "activation":
            operands[name] = spec
            continue
        layouts = ["contiguous", "strided", *(["channels_last"] if len(spec.shape) in (4, 5) else [])]
        further = bool(operands) and variant.data == "full"
        shift = draw(st.integers(-4, 4)) if further else 0
        own = f"{draw(covered)}:{exponent}" if further and draw(st.booleans()) else spec.data
        operands[name] = replace(spec, exponent=shift, layout=draw(st.sampled_from(layouts)), data=own)
    bags = any(spec.kind == "offsets" for spec in operands.values())
    batch = None if bags else draw(st.sampled_from((None, None, None, 0, 1, 5)))
    return replace(variant, operands=operands, data=data, batch=batch)


@st.composite
def samples(draw: DrawFn, family: Family) -> Sample:
    """A sample of one of a family's claims, whose float model is valid."""
    claim = draw(st.sampled_from(family.claims))
    root, alone = claim.root, not isinstance(claim.tree, tuple)
    plain = plain_of(root)
    variant = draw(points(plain)) if plain in SPACES else draw(st.sampled_from(OPERATORS[root]))
    # both calls of a module get the qparams of the last one, and it depends on the data whether that shows
    assume(variant.applications == 1)
    if not alone or plain != root:
        assume(continues(claim, variant))
    if variant.per_channel:
        assume(claim.dtypes.weight_dtype in QUANTIZED)
    if variant.saturates:
        assume(claim.dtypes.input_dtype in QUANTIZED and not claim.dtypes.is_dynamic)
    # a bias has to lie on the grid of the products, and both in the 24 bits that float32 has; a folded batch norm makes
    # finer biases, and greater ones
    lowest, highest = (-12, -4) if any(map(is_normed, claim.operators)) else (-16, 3)
    if isinstance(claim.entry, Declaration):  # quantizers bound scales from below by 2**-12
        lowest = -12
    variant = draw(placed(wrapped(variant, root), lowest, highest))
    if not alone:
        variant = draw(st.sampled_from(continuing(claim, [variant.named("default")])))
    variant = variant.named(f"drawn{draw(st.integers(0, 9))}")  # the data are a function of it
    if isinstance(claim.entry, Declaration):
        variant = _declared(claim.entry, OPERATORS[root][0], variant)
    flow = draw(st.sampled_from(flows(claim, family.backend.entries)))
    sample = Sample(claim.id, flow, family.engine, variant)
    assume(valid(run_of(family.backend, sample)))
    return sample


def _declared(entry: Declaration, main: Variant, variant: Variant) -> Variant:
    """A drawn variant among the operators that a quantizer requires, if it declares the pattern in that form."""
    *_, last = [None, *declared_variants(entry, [main, variant], transposed=False)]
    assume(last is not None and last.name == variant.name)
    assert last is not None
    return last
