"""Strategies for cases: a claim's operator with drawn geometry, options, call style, operands, layouts and qparams."""

import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from operator import le
from typing import Any

import torch
from hypothesis import assume
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from conformance.cases.claims import BackendClaims, Claim
from conformance.cases.operators import LAYERS, OPERATORS, WEIGHTED, Operand, Shape, Variant
from conformance.cases.operators.variant import arguments
from conformance.cases.operators.weighted import Geometry, linear, plain_of, positional, wrapped
from conformance.cases.ranges import bounds
from conformance.cases.recipes import QUANTIZED
from conformance.cases.runs import AHEAD_OF_TIME, Run
from conformance.cases.sources import continuing, flows, missing_operators, root_of
from conformance.host.poison import fresh_memory_holds
from conformance.models.build import float_outputs, subject
from conformance.models.fx import quiet
from conformance.results.families import FAMILIES, family_named
from conformance.results.profiles import GENERATED


def family(claim: Claim) -> str:
    """The family that a claim belongs to."""
    return family_named(root_of(claim.tree))


@dataclass(frozen=True)
class Drawn:
    """A generated case on an engine. `like` names the fixed variants whose features it has: what the ledger knows of those is
    no news."""

    claim: str
    flow: str
    engine: str
    variant: Variant
    like: tuple[str, ...]


SIZES = st.one_of(st.integers(1, 9), st.sampled_from((1, 8, 16, 17, 31, 32, 33, 64, 65)))
"""Numbers of channels, features and elements: small ones, and those about the widths of vector registers."""


@st.composite
def _each(draw: DrawFn, rank: int, values: SearchStrategy[int]) -> Any:
    """One number for all dimensions, or one for each."""
    if rank == 1 or draw(st.booleans()):
        return draw(values)
    return tuple(draw(values) for _ in range(rank))


@st.composite
def geometries(draw: DrawFn, rank: int, *, transposed: bool, functional: bool) -> tuple[Geometry, set[str]]:
    """A convolution's options, with the names of the fixed variants that have the like."""
    like: set[str] = set()
    groups = draw(st.sampled_from((1, 1, 2, 3, 4, 8)))
    left, right = (draw(st.integers(1, 4) if groups > 1 else SIZES) * groups for _ in range(2))
    if groups > 1:
        like |= {"groups", "depthwise"} if left == groups or transposed else {"groups"}
    options: dict[str, object] = {}
    kernel = draw(_each(rank, st.integers(1, 4)))
    if isinstance(kernel, tuple):
        like.add("asymmetric")
    elif kernel == 1:
        like.add("pointwise")
    for name, values in (
        ("stride", st.integers(1, 3)),
        ("dilation", st.integers(1, 3)),
        ("padding", st.integers(0, 3)),
    ):
        if draw(st.booleans()):
            options[name] = draw(_each(rank, values))
            like |= {name} if name != "padding" else set()
    if options.get("padding", 0) == 0:
        like.add("unequal")
    if transposed and draw(st.booleans()):
        options["output_padding"] = draw(_each(rank, st.integers(0, 2)))
        like.add("stride")
    if transposed and rank == 2 and groups == 1 and not (left % 8 or right % 8):
        like |= {"upsampling"} if (kernel if isinstance(kernel, int) else kernel[0]) == 2 else set()
    both: list[Any] = [kernel, options.get("padding", 0)]
    sizes, paddings = ((given,) * rank if isinstance(given, int) else given for given in both)
    if left == groups and not transposed and any(map(le, sizes[:-1], paddings[:-1])):
        like.add("rows_of_padding")
    if not transposed and draw(st.integers(0, 7)) == 0:
        options["padding"] = draw(st.sampled_from(("same", "valid")))
        like.add("padding_same")
    if groups > 1:
        options["groups"] = groups
    if draw(st.booleans()):
        options["bias"] = False
        like.add("no_bias")
    if not transposed and not functional and draw(st.integers(0, 7)) == 0:
        options["padding_mode"] = draw(st.sampled_from(("reflect", "replicate", "circular")))
        like.add(f"padding_{options['padding_mode']}")
    spatial = tuple(draw(st.integers(1, 12)) for _ in range(rank))
    return Geometry(rank, (left, right), kernel, transposed=transposed, spatial=spatial, **options), like


def functional_calls(geometry: Geometry) -> dict[str, str]:
    """Ways to call a convolution, by the name of the fixed variant that is called so."""
    function = f"F.conv{'_transpose' * geometry.transposed}{geometry.rank}d"
    bias = "self.bias" if "bias" in geometry.parameters else "None"
    options = arguments(**{name: value for name, value in geometry.options.items() if name != "bias"})
    return {
        "default": f"{function}(x, self.weight, {bias}{positional(geometry)})",
        "keyword_options": f"{function}(x, self.weight, {bias}{options})",
        "keyword_bias": f"{function}(x, self.weight, bias={bias}{options})",
        "keyword": f"{function}(input=x, weight=self.weight, bias={bias}{options})",
    }


@st.composite
def convolutions(draw: DrawFn, operator: str, *, alone: bool) -> tuple[Variant, set[str]]:
    """A variant of a convolution as module, fused or QAT module, or functional."""
    plain = plain_of(operator)
    rank, transposed = int(plain[-2]), "ranspose" in plain
    functional = plain.startswith("F.")
    geometry, like = draw(geometries(rank, transposed=transposed, functional=functional))
    shape: Shape = (draw(st.integers(1, 3)), geometry.channels[0], *geometry.spatial)
    call, output = "self.op(x)", geometry.output
    parameters: dict[str, Shape] = {}
    if functional:
        style, call = draw(st.sampled_from([*functional_calls(geometry).items()]))
        like |= {style, "options_left_out"} if style != "default" else {style}
        parameters = geometry.parameters
    variant = Variant(
        "drawn", call, {"x": Operand(shape)}, "" if functional else geometry.module, parameters, (shape[0], *output[1:])
    )
    if not functional and alone:
        style = draw(st.sampled_from(("default", "default", "keyword", "called_twice")))
        if style == "keyword":
            variant = replace(variant, call="self.op(input=x)")
        elif style == "called_twice" and geometry.channels[0] == geometry.channels[1]:
            variant = replace(variant, call="self.op(self.op(x))")
        like.add(style)
    if alone and draw(st.integers(0, 9)) == 0:
        like.add("unbatched")
        variant = replace(variant, operands={"x": Operand(shape[1:])}, output=())
    return wrapped(variant, operator), like


@st.composite
def linears(draw: DrawFn, operator: str, *, alone: bool) -> tuple[Variant, set[str]]:
    """A variant of a linear layer as module, fused or QAT module, or functional."""
    plain = plain_of(operator)
    features = draw(SIZES), draw(SIZES)
    leading = draw(st.lists(st.integers(1, 9), min_size=0 if alone else 1, max_size=3 if alone else 1))
    bias = draw(st.booleans())
    like = {"default"} if bias else {"no_bias"}
    like |= {("unbatched", "default", "rank3", "rank4")[len(leading)]}
    if plain == "F.linear":
        call = draw(
            st.sampled_from(
                (
                    "F.linear(x, self.weight, self.bias)",
                    "F.linear(x, self.weight, bias=self.bias)",
                    "F.linear(input=x, weight=self.weight, bias=self.bias)",
                )
                if bias
                else ("F.linear(x, self.weight)",)
            )
        )
        like |= {"keyword"} if "input" in call else {"keyword_bias"} if "bias=" in call else set()
        parameters: dict[str, Shape] = {"weight": (features[1], features[0])} | (
            {"bias": (features[1],)} if bias else {}
        )
        return Variant(
            "drawn",
            call,
            {"x": Operand((*leading, features[0]))},
            parameters=parameters,
            output=(*leading, features[1]),
        ), like
    variant = linear(features, *leading, **({} if bias else {"bias": False}))
    if alone and draw(st.integers(0, 7)) == 0:
        variant = replace(variant, call="self.op(input=x)")
        like.add("keyword")
    return wrapped(variant, operator), like


MOST = 100_000
"""Elements of an output: larger ones take time and show nothing that smaller ones do not."""


NUMBER = re.compile(r"(?<![\w.\[])-?\d+(?:\.\d+)?(?![\w.\]])")
"""A number that stands alone in source text, and is no index."""


@st.composite
def redrawn(draw: DrawFn, base: Variant, *, tied: bool, most: int = 65) -> tuple[Variant, set[str]]:
    """A fixed variant with other numbers in its shapes and its text.

    Sizes that are equal stay equal, so that operands still fit each other. With `tied` so do those in the text, where
    they say how many channels, features or rows there are. None is greater than `most`.
    """
    sizes: dict[int, int] = {1: 1}

    def size(old: int) -> int:
        if old not in sizes:
            sizes[old] = draw(st.one_of(st.just(old), SIZES.filter(lambda drawn: drawn <= most)))
        return sizes[old]

    def shaped(shape: Shape) -> Shape:
        return tuple(size(old) for old in shape)

    redraw = draw(st.booleans()) or tied

    def number(match: re.Match[str]) -> str:
        text = match[0]
        if tied:
            return str(size(int(text))) if text.isdigit() and int(text) > 3 else text
        if not redraw or draw(st.booleans()):
            return text
        if "." in text:
            return repr(draw(st.integers(-24, 24)) / 4)
        return str(draw(st.integers(-3, 6)))

    operands = {
        name: replace(
            spec,
            shape=shaped(spec.shape) if "x.shape" not in base.call else spec.shape,
            limit=size(spec.limit) if spec.limit else 0,
        )
        for name, spec in base.operands.items()
    }
    assume(all(math.prod(spec.shape) <= MOST // 10 for spec in operands.values()))
    made = replace(
        base,
        operands=operands,
        parameters={name: shaped(shape) for name, shape in base.parameters.items()},
        output=shaped(base.output),
        init=NUMBER.sub(number, base.init),
        call=NUMBER.sub(number, base.call),
    )
    return made, {base.name}


@st.composite
def placed(draw: DrawFn, variant: Variant, like: set[str], lowest: int, highest: int) -> tuple[Variant, set[str]]:
    """A variant with drawn data: where they lie on the grid and in memory, and how many items are executed.

    Their step is from 2**`lowest` to 2**`highest`.
    """
    data = variant.data
    covered = st.one_of(st.sampled_from(("both", "above", "below")), st.integers(0, 255).map(str))
    if data == "full":
        covers = draw(covered)
        exponent = draw(st.one_of(st.just(-4), st.integers(lowest, highest)))
        data = f"{covers}:{exponent}"
        like = like | ({"tiny"} if exponent < -8 else {"huge"} if exponent > -2 else set())
    operands = {}
    for name, spec in variant.operands.items():
        if spec.kind != "activation":
            operands[name] = spec
            continue
        layouts = ["contiguous", "strided", *(["channels_last"] if len(spec.shape) in (4, 5) else [])]
        further = bool(operands) and variant.data == "full"
        shift = draw(st.integers(-4, 4)) if further else 0
        own = f"{draw(covered)}:{exponent}" if further and draw(st.booleans()) else spec.data
        layout = draw(st.sampled_from(layouts))
        operands[name] = replace(spec, exponent=shift, layout=layout, data=own)
        like |= {"channels_last"} if layout == "channels_last" else set()
        like |= {"other_scale"} if shift else set()
        like |= {"other_zero_point"} if own != spec.data else set()
    bags = any(spec.kind == "offsets" for spec in operands.values())
    batch = None if bags else draw(st.sampled_from((None, None, None, 0, 1, 5)))
    like |= {f"batch{batch}"} if batch is not None else set()
    return replace(variant, operands=operands, data=data, batch=batch), like


@dataclass(frozen=True, eq=False)
class Family:
    """The claims of one family that a backend makes and the operator tables cover, on an engine."""

    name: str
    backend: BackendClaims
    claims: tuple[Claim, ...]
    engine: str

    @property
    def id(self) -> str:
        return f"{self.backend.name}/{self.name.replace(' ', '-')}@{self.engine}"

    def __repr__(self) -> str:
        return self.id


def _drawn_from(root: str, *, alone: bool) -> list[Variant]:
    """The fixed variants of an operator that cases are drawn from. Of modules that are called twice it is known that both
    calls get the qparams of the last: whether that shows is chance."""
    twice = root.startswith("nn.")
    found = [v for v in OPERATORS[root] if v.batch is None and (alone or v.core)]
    return [v for v in found if not (twice and v.name.startswith("called_twice"))]


OF_SHAPE = frozenset({"spread", "spread_strided", "spread_volume", "unbatched_flat", "volume_same", "volume_same_flat"})
"""Fixed variants that are about their shape."""


def _alike(root: str, variant: Variant) -> set[str]:
    """Names of the fixed variants whose shape has what a drawn one has: with one channel, or one element in each, memory
    formats look alike."""
    shape = variant.operands["x"].shape if "x" in variant.operands else ()
    one = set(shape[2:]) == {1}
    flat = one or shape[1:2] == (1,)
    found = set()
    if "daptive" in root:
        rank = int(root[-2])
        found |= {"spread"} if set(shape[-rank:]) == {1} else set()
        found |= {"unbatched_flat"} if flat and rank == 3 and len(shape) == 4 else set()
    if "interpolate" in root:
        found |= {"spread", "spread_volume"} if one else set()
        found |= {"volume_same"} if len(shape) == 5 else set()
        found |= {"volume_same_flat"} if flat and len(shape) == 5 else set()
    if ".mean" in root:
        found |= {"spread_strided"} if flat and len(shape) == 4 else set()
    return found


@st.composite
def cases(draw: DrawFn, of: Family) -> Drawn:
    """A case of one of a family's claims, whose float model works."""
    claim = draw(st.sampled_from(of.claims))
    root, alone = root_of(claim.tree), not isinstance(claim.tree, tuple)
    variant: Variant
    if root in WEIGHTED:
        plain = plain_of(root)
        made = linears if "inear" in plain else convolutions
        variant, like = draw(made(root, alone=alone and plain == root))
        if claim.dtypes.weight_dtype in QUANTIZED and "ranspose" not in plain and draw(st.booleans()):
            variant = replace(variant, per_channel=True)
            like |= {"per_channel", "depthwise_per_channel"}
    else:
        base = draw(st.sampled_from(_drawn_from(root, alone=alone)))
        # float32's rounding adds up over the products of a step and over the steps, beyond what the oracle allows
        most = 9 if of.name == "recurrent" else 65
        variant, like = draw(redrawn(base, tied=root in LAYERS, most=most))
        if (variant.call, variant.init) != (base.call, base.init):  # any of the options may be what it is like now
            like |= {
                v.name
                for v in OPERATORS[root]
                if (v.call, v.init) != (OPERATORS[root][0].call, OPERATORS[root][0].init) and v.batch is None
            }
        if base.name.startswith("unbatched"):
            like |= {"unbatched"}
        like = (like - OF_SHAPE) | _alike(root, variant)
        if "InstanceNorm" in root or "instance_norm" in root:
            like |= {"many_items_channels_last", "many_items_one_channel"}
        if width := re.search(r"Embedding(?:Bag)?\(\d+, (\d+)", variant.init):
            like |= {"odd_width"} if int(width[1]) % 2 else set()
    # a bias has to lie on the grid of the products, and both in the 24 bits that float32 has; a folded batch norm makes
    # finer biases, and greater ones
    lowest, highest = (-12, -4) if "Bn" in root or "BatchNorm" in claim.pattern else (-16, 3)
    variant, like = draw(placed(variant, like | {"default"}, lowest, highest))
    both = {f"{one}_{other}" for one in like for other in like & {"tiny", "channels_last"}}
    like |= both & {v.name for v in OPERATORS[root]}
    if variant.batch == 0 and "inear" in root and {"rank3", "rank4"} & like:
        like |= {"rank3_batch0"}
    if variant.batch == 0 and "batch_first=True" in variant.init:
        like |= {"batch_first_empty"}
    if variant.batch == 0 and (along := re.search(r"Softmax\(dim=(-?\d+)", variant.init)):
        like |= {"empty_vector"} if int(along[1]) % len(variant.operands["x"].shape) == 0 else set()
    if not alone:
        variant = draw(st.sampled_from(continuing(claim.tree, [variant.named("default")])))
        like |= {variant.name}
        joined = variant.operands.get("other")
        if joined is not None and 1 in (joined.shape[1], math.prod(joined.shape[2:])):  # memory formats look alike
            like |= {"residual"}
    name = f"drawn{draw(st.integers(0, 9))}"  # the data are a function of it
    flow = draw(st.sampled_from(flows(claim, of.backend.entries)))
    drawn = Drawn(claim.id, flow, of.engine, variant.named(name), ())
    run = run_of(of.backend, drawn)
    assume(valid(run))
    return replace(drawn, like=tuple(sorted(like | _one_sided(run))))


def _one_sided(run: Run) -> set[str]:
    """Names of the fixed variants whose data have the signs that drawn ones have: of 256 codes, `255:-4` covers none above
    zero."""
    assert run.variant is not None
    if ":" not in run.variant.data:
        return set()
    low, high, _ = bounds(run.variant.data, run.recipe.steps)
    return {"negative"} if high == 0 else {"positive"} if low == 0 else set()


def run_of(backend: BackendClaims, drawn: Drawn) -> Run:
    """The run that a drawn case is."""
    claim = next(claim for claim in backend.claims if claim.id == drawn.claim)
    return Run(backend, claim, drawn.flow, drawn.variant, GENERATED.name, drawn.engine)


def valid(run: Run) -> bool:
    """Whether the float model can be built, takes its data, and computes with nothing else."""
    with quiet():
        try:
            given = subject(run)
            observed = float_outputs(given, given.calibration)
            with fresh_memory_holds(0x55):
                outputs = float_outputs(given)
            with fresh_memory_holds(0xAA):
                again = float_outputs(given)
        except Exception:  # whatever torch raises, it is no model
            return False
    if not all(map(torch.equal, outputs, again)):  # as after `resize_` to more than there is
        return False
    # an observer that has seen nothing, or what has no bounds, has nothing to go by
    bounded = all(output.numel() and bool(output.isfinite().all()) for output in observed)
    return bounded and all(output.numel() <= MOST for output in outputs)


def like_ids(backend: BackendClaims, drawn: Drawn) -> set[str]:
    """Ids of the fixed runs whose features a drawn case has: of its claim, of its root operator alone, and of the layer
    inside of that."""
    claim = run_of(backend, drawn).claim
    root = root_of(claim.tree)
    claims = {claim.id, *(f"{backend.name}/{one}/{claim.dtype_config}" for one in (root, plain_of(root)))}
    return {
        f"{one}/{flow}/{name}/exact@{drawn.engine}" for one in claims for flow in ("ptq", "qat") for name in drawn.like
    }


def families(backend: BackendClaims, engines: Iterable[str] = ()) -> Iterator[Family]:
    """Yield every family of a backend's claims on `engines`, or on those that the registry names for it."""
    covered = [claim for claim in backend.claims if not missing_operators(claim)]
    for name in FAMILIES:
        mine = tuple(claim for claim in covered if family(claim) == name)
        for engine in tuple(engines) or backend.engines:
            if mine and engine not in AHEAD_OF_TIME:  # shrinking takes a thousand runs
                yield Family(name, backend, mine, engine)
