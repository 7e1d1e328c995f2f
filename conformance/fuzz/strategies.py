"""Hypothesis strategies for samples: a claim's operator with drawn options, operands, memory formats, data and flow."""

import math
from dataclasses import replace
from functools import cache

from hypothesis import assume
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from conformance.cases.operators import LAYERS, OPERATORS, WEIGHTED, Operand, Shape, Variant
from conformance.cases.operators.expressions import with_numbers
from conformance.cases.operators.weighted import plain_of
from conformance.cases.recipes import QUANTIZED
from conformance.cases.sources import continuing, flows, root_of

from .layers import SIZES, convolutions, linears
from .samples import MOST_ELEMENTS, Family, Sample, run_of, valid


@cache
def _sizes(old: int, largest: int) -> SearchStrategy[int]:
    """Sizes to put in place of one. Made once, because hypothesis examines the source of a filter whenever it gets one."""
    return st.one_of(st.just(old), SIZES.filter(lambda drawn: drawn <= largest))


@st.composite
def redrawn(draw: DrawFn, base: Variant, *, tied: bool, largest: int = 65) -> Variant:
    """A fixed variant with other sizes in its shapes and other numbers in its source text.

    Sizes that are equal stay equal, so that operands still fit each other. With `tied` the numbers above 3 in the text are
    sizes too: they say how many channels, features or rows there are. No size is greater than `largest`.
    """
    sizes: dict[int, int] = {1: 1}

    def size(old: int) -> int:
        if old not in sizes:
            sizes[old] = draw(_sizes(old, largest))
        return sizes[old]

    def shaped(shape: Shape) -> Shape:
        return tuple(size(old) for old in shape)

    redraw = draw(st.booleans()) or tied

    def number(old: int | float) -> int | float:
        if tied:
            return size(old) if isinstance(old, int) and old > 3 else old
        if not redraw or draw(st.booleans()):
            return old
        return draw(st.integers(-3, 6)) if isinstance(old, int) else draw(st.integers(-24, 24)) / 4

    operands = {
        name: replace(
            spec,
            shape=shaped(spec.shape) if "x.shape" not in base.call else spec.shape,
            limit=size(spec.limit) if spec.limit else 0,
        )
        for name, spec in base.operands.items()
    }
    assume(all(math.prod(spec.shape) <= MOST_ELEMENTS // 10 for spec in operands.values()))
    return replace(
        base,
        operands=operands,
        parameters={name: shaped(shape) for name, shape in base.parameters.items()},
        output=shaped(base.output),
        init=with_numbers(base.init, number),
        call=with_numbers(base.call, number),
    )


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


def _bases(root: str, *, alone: bool) -> list[Variant]:
    """The fixed variants of an operator that samples are drawn from.

    Modules that are called twice are left out: both calls get the qparams of the last one, and it depends on the data
    whether that shows.
    """
    bases = [variant for variant in OPERATORS[root] if variant.batch is None and (alone or variant.core)]
    return [variant for variant in bases if not (root.startswith("nn.") and variant.applications > 1)]


@st.composite
def samples(draw: DrawFn, family: Family) -> Sample:
    """A sample of one of a family's claims, whose float model is valid."""
    claim = draw(st.sampled_from(family.claims))
    root, alone = root_of(claim.tree), not isinstance(claim.tree, tuple)
    variant: Variant
    if root in WEIGHTED:
        plain = plain_of(root)
        layer = linears if "inear" in plain else convolutions
        variant = draw(layer(root, alone=alone and plain == root))
        if claim.dtypes.weight_dtype in QUANTIZED and "ranspose" not in plain and draw(st.booleans()):
            variant = replace(variant, per_channel=True)
    else:
        base = draw(st.sampled_from(_bases(root, alone=alone)))
        # float32's rounding adds up over the products of a step and over the steps, beyond what the oracle allows
        largest = 9 if family.name == "recurrent" else 65
        variant = draw(redrawn(base, tied=root in LAYERS, largest=largest))
    # a bias has to lie on the grid of the products, and both in the 24 bits that float32 has; a folded batch norm makes
    # finer biases, and greater ones
    lowest, highest = (-12, -4) if "Bn" in root or "BatchNorm" in claim.pattern else (-16, 3)
    variant = draw(placed(variant, lowest, highest))
    if not alone:
        variant = draw(st.sampled_from(continuing(claim.tree, [variant.named("default")])))
    name = f"drawn{draw(st.integers(0, 9))}"  # the data are a function of it
    flow = draw(st.sampled_from(flows(claim, family.backend.entries)))
    sample = Sample(claim.id, flow, family.engine, variant.named(name))
    assume(valid(run_of(family.backend, sample)))
    return sample
