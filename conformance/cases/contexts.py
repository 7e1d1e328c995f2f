"""Contexts: claims among the operators that networks put around them.

Neighbours decide the memory format, the observers and the reuse of what a claim takes and returns, which its operator alone
does not show.
"""

import zlib
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import Any

import torch
from torch.ao.nn.intrinsic.modules.fused import _FusedModule

from conformance.configs.names import pattern_name
from conformance.configs.quantizer import Declaration
from conformance.configs.spelling import is_batch_norm, spelled
from conformance.results.families import family_named

from .apis import api
from .claims import BackendClaims, Claim, operators_of
from .keepers import keepers
from .operators import Operand, Shape, Variant, has_weights
from .operators.fused import is_qat_module, plain_of
from .operators.variant import Context, Neighbour
from .recipes import QUANTIZED, activation_constraints, shares
from .variants import has_per_channel, in_tables, not_covered, variants

CHANNELS_LAST = (4, 5)
"""Numbers of dimensions of tensors that have a channels-last memory format."""


RESULTS: dict[str, Shape] = {
    operator: shape
    for shape, operators in {
        (): "Tensor.hardsigmoid Tensor.hardsigmoid_ Tensor.leaky_relu",  # tensors have no such methods
        (2, 4): "torch.mean Tensor.mean",
        (560,): "torch.repeat_interleave Tensor.repeat_interleave",
        (3, 6): "nn.GRUCell nn.RNNCell",
        (2, 140): "nn.Flatten torch.flatten Tensor.shape Tensor.size",
        (2, 4, 1): "nn.AdaptiveAvgPool1d F.adaptive_avg_pool1d",
        (2, 4, 5): "nn.AvgPool1d nn.MaxPool1d F.avg_pool1d F.max_pool1d",
        (2, 4, 12): "nn.InstanceNorm1d",
        (2, 4, 35): "Tensor.resize_",
        (2, 5, 1): "torch.squeeze Tensor.squeeze Tensor.squeeze_",
        (2, 20, 7): "Tensor.reshape Tensor.view",
        (2, 4, 1, 1): "nn.AdaptiveAvgPool2d F.adaptive_avg_pool2d",
        (2, 4, 4, 3): "nn.AvgPool2d nn.MaxPool2d F.avg_pool2d F.max_pool2d",
        (2, 4, 8, 7): "nn.InstanceNorm2d",
        (2, 4, 9, 10): "F.pad",
        (2, 4, 10, 9): "nn.ConstantPad2d",
        (2, 4, 16, 14): "F.interpolate",
        (2, 16, 6, 5): "F.group_norm",
        (2, 2, 6, 8): "nn.PixelShuffle F.pixel_shuffle",
        (2, 8, 3, 2): "nn.PixelUnshuffle F.pixel_unshuffle",
        (2, 2, 7, 5): "torch.narrow",
        (2, 8, 7, 5): "torch.cat torch.concat torch.concatenate Tensor.repeat",
        (2, 7, 4, 5): "torch.transpose Tensor.transpose",
        (2, 7, 5, 4): "torch.permute torch.permute_copy Tensor.permute",
        (2, 1, 4, 7, 5): "torch.unsqueeze Tensor.unsqueeze Tensor.unsqueeze_",
        (2, 2, 4, 7, 5): "torch.stack",
        (2, 4, 5, 6, 4): "nn.InstanceNorm3d",
        (2, 3, 1, 1, 1): "nn.AdaptiveAvgPool3d F.adaptive_avg_pool3d",
        (2, 3, 2, 3, 3): "nn.AvgPool3d nn.MaxPool3d F.avg_pool3d F.max_pool3d",
    }.items()
    for operator in operators.split()
}
"""Shapes of the results of default variants, of operators whose default variant states another one or none."""


QUERIES = ("Tensor.shape", "Tensor.size")
"""Operators that read no values: what computes with their result has qparams by a claim of its own."""

_LAYERS = frozenset({"nn.Linear", "nn.LayerNorm", "nn.BatchNorm2d", "nn.BatchNorm3d"}) | {
    f"nn.{name}{rank}d" for name in ("Conv", "ConvTranspose") for rank in (1, 2, 3)
}
OPERATORS_WITH = {"weight": _LAYERS | {"nn.PReLU", "nn.Embedding", "nn.EmbeddingBag"}, "bias": _LAYERS}
"""Modules whose default variant has a parameter, by its name."""


@dataclass(frozen=True)
class Site:
    """A claim with a variant, and what its backend config says about operators beside it."""

    claim: Claim
    variant: Variant
    entries: dict[str, Claim]
    """The backend's claims about an operator alone, with the dtypes of this one, by operator."""
    adjacent: frozenset[tuple[str, str]]
    """Operators that follow each other in a pattern of the backend, which would become part of it."""
    ways: Collection[str] = ()
    """The ways in which a quantizer is configured for one module, or for those of one class."""

    @property
    def taken(self) -> Shape:
        """Shape of the pattern's input; empty if that is not an activation."""
        taken = self.variant.operands["x"]
        return taken.shape if taken.kind == "activation" else ()

    @property
    def result(self) -> Shape:
        """Shape of the pattern's result; empty if that is not one tensor."""
        return RESULTS.get(self.claim.root, self.variant.output)

    @property
    def exists(self) -> bool:
        """Whether torch has the operator, and it takes what the dtype config declares: a config may name a method that no
        tensor has, or quantize indices."""
        quantizes = self.claim.dtypes.input_dtype in QUANTIZED and not self.claim.dtypes.is_dynamic
        return bool(self.result or self.variant.init) and bool(self.taken or not quantizes)

    @property
    def writes(self) -> bool:
        """Whether the operator writes to its input."""
        return self.claim.root.endswith("_") or "inplace" in self.variant.init + self.variant.call

    def neighbour(self, name: str, line: str, layer: str = "", *, keeps: bool | None = None) -> Iterator[Neighbour]:
        """Yield the neighbour if the backend has a claim about its operator; `keeps` requires that its output has, or has
        not, the qparams of its input."""
        if name in self.entries:
            tensors = 2 if name in ("operator.add", "torch.cat") else 1
            kept = tensors in shares(self.entries[name].entry)
            if keeps is None or keeps == kept:
                yield Neighbour(name, line, layer, kept)

    def layer(self, bound: str, target: str, shape: Shape) -> Iterator[Neighbour]:
        """Yield a layer that keeps this shape, if the backend has a claim about it."""
        rank = len(shape) - 2
        layers = [(f"nn.Conv{rank}d", f"nn.Conv{rank}d({shape[1]}, {shape[1]}, 1)")] if rank in (1, 2, 3) else []
        layers += [("nn.Linear", f"nn.Linear({shape[-1]}, {shape[-1]})")] if rank in (0, 1) else []
        found = (self.neighbour(name, target, f"self.{bound} = {source}") for name, source in layers)
        yield from islice(chain.from_iterable(found), 1)

    def may_follow(self, neighbour: Neighbour) -> bool:
        """Whether an operator after the pattern stays one of its own."""
        *_, last = self.claim.operators
        return (last, neighbour.operator) not in self.adjacent

    def may_precede(self, neighbour: Neighbour) -> bool:
        """Whether an operator before the pattern stays one of its own."""
        return (neighbour.operator, self.claim.root) not in self.adjacent


def _between_layers(site: Site) -> Iterator[Context]:
    """Behind a layer and before another, which have channels-last outputs where the tensors have that format."""
    before = [n for n in site.layer("before", "x = self.before(x)", site.taken) if site.may_precede(n)]
    after = [n for n in site.layer("after", "y = self.after(y)", site.result) if site.may_follow(n)]
    if before or after:
        layout = "channels_last" if len(site.taken) in CHANNELS_LAST else "contiguous"
        # small enough that the biases of layers behind another one lie on the grids of their products
        taken = replace(site.variant.operands["x"], layout=layout, exponent=-3)
        yield Context(tuple(before), tuple(after), operands={"x": taken})


def _unasked(site: Site) -> Iterator[Context]:
    """Between two quantized layers, left in float by the mapping."""
    claim, operator, dtypes = site.claim, site.claim.tree, site.claim.dtypes
    fused = isinstance(operator, tuple) or (isinstance(operator, type) and issubclass(operator, _FusedModule))
    if (
        not fused
        and not isinstance(claim.entry, Declaration)
        and {dtypes.input_dtype, dtypes.output_dtype} <= QUANTIZED
    ):
        for context in _between_layers(site):
            if context.before and context.after and claim.pattern not in {n.operator for n in context.neighbours}:
                taken = {name: replace(spec, layout="contiguous") for name, spec in context.operands.items()}
                yield replace(context, operands=taken, unasked=True)


def _residual(site: Site, line: str) -> Iterator[Context]:
    """As one branch of a residual connection, the other of which is the pattern's input if it has the same shape."""
    shared = site.taken == site.result and not site.writes
    other = "x" if shared else "w"
    operands = {} if shared else {"w": Operand(site.result, exponent=1)}
    for joined in site.neighbour("operator.add", line.format(other=other), keeps=False):
        if site.may_follow(joined):
            yield Context(after=(joined,), operands=operands)


def _augmented(site: Site) -> Iterator[Context]:
    """As one branch of a residual connection that an augmented assignment adds, which torch.export writes as addition."""
    if isinstance(site.claim.entry, Declaration):
        yield from _residual(site, "y += {other}")


def _cat(site: Site, line: str) -> Iterator[Context]:
    """As one branch of a concatenation, whose observer has a greater range."""
    dim = min(1, len(site.result) - 1)
    for joined in site.neighbour("torch.cat", line.format(dim=dim), keeps=True):
        yield Context(after=(joined,), operands={"w": Operand(site.result, exponent=2)})


def _cat_kept(site: Site) -> Iterator[Context]:
    """As the last branch of a concatenation, through an operator that keeps qparams."""
    for context in _cat(site, "y = torch.cat([w, y], {dim})"):
        for name, source in (("nn.MaxPool2d", "nn.MaxPool2d(3, 1, 1)"), ("nn.Hardtanh", "nn.Hardtanh(-64.0, 64.0)")):
            if name == "nn.Hardtanh" or len(site.result) == 4:
                kept = site.neighbour(name, "y = self.after(y)", f"self.after = {source}", keeps=True)
                yield from (replace(context, after=(neighbour, *context.after)) for neighbour in kept)


def _used_again(site: Site) -> Iterator[Context]:
    """Before a layer, with its output used again after that."""
    for after in site.layer("after", "z = self.after(y)", site.result):
        if site.may_follow(after):
            yield Context(after=(after,), result="y, z")


def _applied_twice(site: Site) -> Iterator[Context]:
    """The same modules or parameters applied to two inputs."""
    if site.variant.init or site.variant.parameters:
        second = replace(site.variant.operands["x"], exponent=1)
        yield Context(operands={"w": second}, applications=2, result="z, y")


def _fused_twice(site: Site) -> Iterator[Context]:
    """A layer, and with it the modules that are fused with it, applied to two inputs."""
    operators = site.claim.operators
    if len(operators) > 1 and all(spelled(name).namespace == "nn" for name in operators):
        yield from _applied_twice(site)


def _other_norm(site: Site) -> Iterator[Context]:
    """A layer applied to two inputs, each time with a norm of its own."""
    for norm in site.claim.operators[1:]:
        if is_batch_norm(norm):
            others = {norm.removeprefix("nn.").lower(): f"{norm}({site.variant.channels})"}
            yield Context(operands={"w": site.variant.operands["x"]}, applications=2, others=others, result="z, y")


def _behind_slice(site: Site) -> Iterator[Context]:
    """Behind a slice of a quantized tensor, whose range is a quarter of that tensor's."""
    if len(site.taken) > 1 and site.claim.root not in QUERIES:
        line = f"x = torch.narrow(x, 1, 0, {site.taken[1]})"
        unclaimed = Neighbour("torch.narrow", line, in_float=("slice_copy",))
        sliced = next(site.neighbour("torch.narrow", line), unclaimed)
        for joined in site.neighbour("torch.cat", "x = torch.cat([x, w], 1)", keeps=True):
            yield Context((joined, sliced), operands={"w": Operand(site.taken, exponent=2)})


def _before(site: Site, name: str, line: str, in_float: tuple[str, ...]) -> Iterator[Context]:
    """Before an operator that keeps values and that a quantizer is given with the rest of an exported graph, but does not
    declare: it may run in float, in kernels of the names `in_float`."""
    undeclared = isinstance(site.claim.entry, Declaration) and name not in site.entries
    if undeclared and site.result and site.claim.dtypes.output_dtype in QUANTIZED:
        yield Context(after=(Neighbour(name, line, keeps_qparams=True, in_float=in_float),))


def _selected(site: Site) -> Iterator[Context]:
    """Before a selection by indices that are computed."""
    for size in site.result[:1]:
        line = f"y = torch.index_select(y, 0, torch.arange({size}) + 0)"
        yield from _before(site, "torch.index_select", line, ("index_select",))


def _permuted(site: Site) -> Iterator[Context]:
    """Before a permutation of its dimensions."""
    dims = [*range(1, len(site.result)), 0]
    yield from _before(site, "torch.permute", f"y = torch.permute(y, {dims})", ("permute_copy", "permute"))


def _configured(site: Site, way: str) -> Iterator[Context]:
    """Alone, in a model of which the quantizer is configured for the pattern's module, not for all operators."""
    if way in site.ways and isinstance(site.claim.tree, type):
        yield Context(configured=way)


def _beside_twin(site: Site, parameter: str = "") -> Iterator[Context]:
    """Beside another module of the same operator, which takes the same input and may have the same weight or bias, and whose
    result is quantized if that of the pattern is."""
    operator, variant = site.claim.root, site.variant
    alone = site.entries.get(operator)
    has_parameter = operator in OPERATORS_WITH[parameter or "weight"]
    if has_parameter and alone and alone.dtypes.output_dtype == site.claim.dtypes.output_dtype:
        call = variant.call.replace("self.op(", "self.twin(")
        ties = (f"self.twin.{parameter} = self.op.{parameter}",) if parameter else ()
        for twin in site.neighbour(operator, f"z = {call}", f"self.twin = {variant.init}"):
            yield Context(after=(twin,), ties=ties, result="y, z")


def _kept(site: Site, group: str) -> Iterator[Context]:
    """Behind an operator that keeps qparams, in one of its spellings."""
    forms = keepers(site.taken).get(group, ())
    for form in sorted(forms, key=lambda form: zlib.crc32(f"{site.claim.pattern}/{form.operators}".encode())):
        before: list[Neighbour] = []
        for number, (name, line, layer) in enumerate(form.steps):
            bound = f"before{number or ''}"
            source = f"self.{bound} = {layer}" if layer else ""
            before += site.neighbour(name, f"x = {line.format(name=bound)}", source, keeps=True)
        if len(before) == len(form.steps) and site.may_precede(before[-1]):
            yield Context(tuple(before), operands={"x": replace(site.variant.operands["x"], shape=form.taken)})


CONTEXTS: dict[str, Callable[[Site], Iterator[Context]]] = {
    "between_layers": _between_layers,
    "unasked": _unasked,
    "residual_left": lambda site: _residual(site, "y = y + {other}"),
    "residual_right": lambda site: _residual(site, "y = {other} + y"),
    "residual_augmented": _augmented,
    "cat_first": lambda site: _cat(site, "y = torch.cat([y, w], {dim})"),
    "cat_last": lambda site: _cat(site, "y = torch.cat([w, y], {dim})"),
    "cat_kept": _cat_kept,
    "used_again": _used_again,
    "applied_twice": _applied_twice,
    "fused_twice": _fused_twice,
    "other_norm": _other_norm,
    "behind_slice": _behind_slice,
    "selected": _selected,
    "padded": lambda site: _before(site, "F.pad", "y = F.pad(y, [1, 2])", ("constant_pad_nd",)),
    "permuted": _permuted,
    "by_name": lambda site: _configured(site, "name"),
    "by_type": lambda site: _configured(site, "type"),
    "shared_input": _beside_twin,
    "shared_weight": lambda site: _beside_twin(site, "weight"),
    "shared_bias": lambda site: _beside_twin(site, "bias"),
    **{f"after_{group}": lambda site, group=group: _kept(site, group) for group in keepers((4, 4, 4, 4))},  # type: ignore[misc]
}
"""The contexts by name. Each yields those forms that a site has; the first counts."""


OF_EVERY_CLAIM = ("unasked",)
"""Contexts in which lowering knows operators by their names."""


def in_contexts(backend: BackendClaims) -> Iterator[tuple[Claim, Variant]]:
    """Yield claims of a backend with their default variants in contexts.

    Every family of operators, quantized statically, dynamically or in its weights only, is in every context that any claim
    of it can have. The claims take turns: which one is in a context depends on a checksum of their names. In `OF_EVERY_CLAIM`
    is each of them.
    """
    families = defaultdict(list)
    for claim in backend.claims:
        if _is_behind(claim):
            continue  # it has a context of its own
        if in_tables(claim) and not not_covered(claim) and not is_qat_module(claim.root):
            kind = claim.dtype_config.partition("-")[0]
            families[family_named(plain_of(claim.root)), kind].append(claim)
    ways = api(backend).ways
    adjacent = frozenset(pair for claim in backend.claims for pair in _adjacent(claim.tree))
    for claims in families.values():
        chosen = next((claim for claim in claims if claim.dtypes.input_dtype == torch.quint8), claims[0]).dtype_config
        alone = [claim for claim in backend.claims if not isinstance(claim.tree, tuple) and not _is_behind(claim)]
        entries = {claim.pattern: claim for claim in alone if claim.dtype_config == chosen}
        own = [claim for claim in claims if claim.dtype_config == chosen]
        sites = [Site(claim, _default(claim), entries, adjacent, ways) for claim in own]
        for name, build in CONTEXTS.items():
            sites.sort(key=lambda site: zlib.crc32(f"{name}/{site.claim.pattern}".encode()))
            existing = ((site, context) for site in sites if site.exists for context in build(site))
            found = ((site, context) for site, context in existing if _quantizes(site.claim, context))
            most = None if name in OF_EVERY_CLAIM else 1
            yield from ((site.claim, _within(site, name, context)) for site, context in islice(found, most))


def _default(claim: Claim) -> Variant:
    """The default variant of a claim, with a scale for each channel in the dynamic patterns of a quantizer: with one for all
    weights these stay in float."""
    first = variants(claim)[0]
    dynamic = isinstance(claim.entry, Declaration) and bool(claim.dtypes.is_dynamic)
    return replace(first, per_channel=first.per_channel or (dynamic and has_per_channel(claim)))


def _is_behind(claim: Claim) -> bool:
    """Whether a quantizer declares the pattern behind other operators alone, and not at the input of a model."""
    return isinstance(claim.entry, Declaration) and claim.entry.behind


def _quantizes(claim: Claim, context: Context) -> bool:
    """Whether the layers of a context are quantized: a quantizer has one configuration for all of a model, and that of a
    claim may have none for weights."""
    if not isinstance(claim.entry, Declaration) or claim.dtypes.weight_dtype is not None:
        return True
    return not any(has_weights(neighbour.operator) for neighbour in context.neighbours)


def _adjacent(tree: Any) -> Iterator[tuple[str, str]]:
    """Pairs of operators of a nested pattern, of which the second takes the result of the first."""
    if isinstance(tree, tuple):
        for part in tree[1:]:
            *_, last = ("", *operators_of(part))
            yield last, pattern_name(tree[0])
            yield from _adjacent(part)


def _within(site: Site, name: str, context: Context) -> Variant:
    """The variant of a site in a context.

    Beside operators with other qparams, an operator whose own are fixed has data of the whole range, and is preceded by one.
    """
    operands = {**site.variant.operands, **context.operands}
    variant = site.variant.named(name, core=False, operands=operands, context=context)
    if context.result != "y":
        variant = replace(variant, result=context.result)
    fixed = activation_constraints(site.claim.dtypes).scale_exact_match is not None and not context.unasked
    if fixed and context.neighbours:
        preludes = [other.prelude for other in variants(site.claim) if other.prelude]
        variant = replace(variant, data="full", prelude="" if context.before else preludes[0])
    return variant
