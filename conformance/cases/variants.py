"""Variants of a claim: of each of its operators and options, in the sizes of networks, for laws, sweeps and timing."""

import math
import warnings
import zlib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import islice
from typing import Any

import torch
from torch.ao.quantization.utils import MatchAllNode

from conformance.configs.names import NAMESPACES
from conformance.configs.quantizer import Declaration
from conformance.configs.spelling import TRANSPOSED, computation, is_batch_norm, spelled
from conformance.configs.workflows import Workflow
from conformance.errors import UsageError
from conformance.results.in_use import REPRESENTATIVE, SHRUNK, read
from conformance.results.profiles import IN_USE, INITIALIZED, PAIRS, TRAINED

from .claims import Claim
from .declarations import declared_variants, has_form_of, required
from .followers import FOLLOWERS, JOINS, OPTIONS, follower, variants_of
from .in_use import as_produced, variant_of
from .operators import EXTENTS, NORMED_RANKS, OPERATORS, RECORDS, Variant
from .operators.declared import DECLARED
from .operators.fused import is_qat_module, plain_of, wrapped
from .operators.signatures import NAME, tried
from .recipes import QUANTIZED, observes_inputs
from .shrunk import with_rare_traits
from .sources import Model, model_source
from .workflows import workflow_variants

ROTATION = (IN_USE.name, INITIALIZED.name, TRAINED.name)
"""Profiles of layers in use."""


NOT_AS_INITIALIZED = frozenset({"prelu"})
"""What layers compute whose initial parameters show a known deviation, which would hide any other."""

FEWER = 8
"""Of the layers of a claim whose activations have another dtype than the engine's own, one in so many is tested: kernels for
it are those of the other, or raise."""

FEWER_FLOAT16 = 3
"""Of the layers with activations in float16 one in so many is tested on engines that lower ahead of time: kernels multiply in
float32."""

LEAST_ELEMENTS = 16
"""A layer with an operand of fewer elements has dyadic data: they are too few to be distributed like anything."""


def transposed(claim: Claim) -> bool:
    """Whether the root of a pattern is a transposed convolution, whose weights have output channels in dimension 1."""
    return spelled(plain_of(claim.root)).computes == TRANSPOSED


def in_tables(claim: Claim) -> bool:
    """Whether the suite's own tables have all operators of a claim. Others have no contexts, no layers in use, and nothing
    else that depends on what an operator does."""
    root, *rest = claim.operators
    return root in OPERATORS and all(name in OPERATORS or name in FOLLOWERS or name in JOINS for name in rest)


def from_signature(claim: Claim) -> list[str]:
    """Names of the pattern's operators that are tried from their signatures."""
    known = {*OPERATORS, *DECLARED, *FOLLOWERS, *JOINS}
    return [name for name in claim.operators if name not in known]


def missing_operators(claim: Claim) -> list[str]:
    """Names of the pattern's operators that the tables lack, and whose signatures do not say how to call them."""
    root, *rest = claim.operators
    missing = [] if variants_of(root) else [root]
    return missing + [name for name in rest if name not in JOINS and follower(name) is None]


def not_covered(claim: Claim) -> str:
    """Why a claim is not run; empty if it is."""
    if claim.refused:
        return f"torch refuses the entry: {claim.refused}"
    for name in missing_operators(claim):
        return f"no operator {name!r} in the tables: {_untried(claim, name)}: declare it with --operators"
    return "" if _variants(claim) else f"no variant of {claim.root} has an output that the others take"


def _untried(claim: Claim, name: str) -> str:
    """Why an operator is not tried in a pattern."""
    if name != claim.root and variants_of(name):
        return f"{name} takes more operands than the result before it"
    return tried(name).reason


def flows(claim: Claim, config_entries: dict[Any, Any]) -> tuple[str, ...]:
    """`ptq`, and `qat` for an entry with a QAT module; a QAT module itself exists only in models prepared for training."""
    entry = claim.entry
    if claim.refused or isinstance(entry, Workflow):
        return ("ptq",)
    if isinstance(entry, Declaration):  # observers of integers alone have fake-quantizes for training
        return ("ptq",) if claim.dtypes.weight_dtype == torch.float16 else entry.flows
    if is_qat_module(claim.root) or _is_trained(claim, config_entries):
        return ("qat",)
    fused = config_entries.get(entry.fused_module)
    trainable = entry.qat_module is not None or (fused is not None and fused.qat_module is not None)
    return ("ptq", "qat") if trainable else ("ptq",)


def _is_trained(claim: Claim, config_entries: dict[Any, Any]) -> bool:
    """Whether a claim is about a module of a third party that an entry of its config has for training."""
    ours = claim.root in OPERATORS or not isinstance(claim.tree, type)
    return not ours and any(entry.qat_module is claim.tree for entry in config_entries.values())


def variants(claim: Claim) -> list[Variant]:
    """All variants of a claim. Raises UsageError naming an operator that the tables lack."""
    if missing_operators(claim):
        raise UsageError(f"{claim.id}: {not_covered(claim)}")
    if isinstance(claim.entry, Workflow):
        return workflow_variants(claim)
    applicable = _variants(claim)
    if isinstance(claim.entry, Declaration):
        applicable = declared_variants(claim.entry, applicable, transposed=transposed(claim))
    if claim.dtypes.weight_dtype not in QUANTIZED:
        applicable = [variant for variant in applicable if not variant.per_channel]
    if not observes_inputs(claim.dtypes):
        applicable = [variant for variant in applicable if not variant.saturates and not variant.symmetric]
    return applicable


@cache
def _variants(claim: Claim) -> list[Variant]:
    own = variants_of(claim.root)
    if not isinstance(claim.tree, tuple):
        return own
    continued = continuing(claim, [variant for variant in own if variant.core])
    if in_tables(claim):
        normed = claim.root == "nn.Linear" and "nn.BatchNorm1d" in claim.operators
        return [*continued, *(NORMED_RANKS if normed else ())]
    name = NAME if from_signature(claim) else ""
    accepted = (one.named(name or one.name) for one in continued if _executes(model_source(claim, one)))
    return [*islice(accepted, 1 if name else None)]


@cache
def _executes(model: Model) -> bool:
    """Whether the operators of a model take the results of those before them."""
    scope = dict(NAMESPACES)
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            exec(model.source, scope)
            scope["Model"]().eval()(*(torch.zeros(spec.shape) for _, spec in model.operands))
    except Exception:
        return False
    return True


def continuing(claim: Claim, core: list[Variant]) -> list[Variant]:
    """Variants of a pattern from variants of its root operator."""
    if _has_wildcard(claim.tree):
        core = [beside for v in core for beside in v.beside(left=_wildcard_is_left(claim.tree))]
    if any(map(is_batch_norm, claim.operators)):
        core = [v for v in core if v.output]
    return core


def followed(claim: Claim) -> Iterator[Variant]:
    """The default variant of a longer pattern with each option of the operators that follow its root."""
    if isinstance(claim.tree, tuple):
        default = variants(claim)[0]
        for name in claim.operators[1:]:
            for label, argument in OPTIONS.get(name, {}).items():
                yield default.named(label, core=False, followers={name: argument})


def large(claim: Claim) -> Variant:
    """The variant of a claim for the metamorphic relations: the enlarged default one, per channel if any variant is."""
    return _begun(claim, RECORDS[plain_of(claim.root)].enlarged()).named("large", per_channel=has_per_channel(claim))


def _begun(claim: Claim, layer: Variant) -> Variant:
    """The variant of a pattern or of a fused module that begins with a layer."""
    variant, *_ = continuing(claim, [wrapped(layer, claim.root)])
    return variant


def deployed(claim: Claim) -> Iterator[tuple[str, Variant]]:
    """Extents and variants of a claim for timing: layers of networks, per channel if any variant is; none of a workflow."""
    if isinstance(claim.entry, Workflow):
        return
    per_channel = has_per_channel(claim)
    for extent, layer in RECORDS[plain_of(claim.root)].timed():
        yield extent, _begun(claim, layer).named(layer.name, per_channel=per_channel)


def swept(claim: Claim) -> Iterator[Variant]:
    """Variants of a statically quantized claim for sweeps over all codes; none for a claim whose operator has none, or whose
    inputs have no codes.

    Layers are per channel if any variant is, and those that are not part of a pattern or module also per tensor.
    """
    if not claim.dtype_config.startswith("static") or claim.dtypes.input_dtype not in QUANTIZED:
        return
    layer = plain_of(claim.root)
    record = RECORDS[layer]
    declared = claim.entry if isinstance(claim.entry, Declaration) else None
    behind, last = (False, False) if declared is None else (declared.behind, declared.channels_last)
    for sized in record.swept(images=behind, channels_last=last):
        variant = _begun(claim, sized)
        if not has_form_of(claim.entry, variant):
            continue
        variant = required(claim.entry, variant)
        per_channel = record.weighted and has_per_channel(claim)
        if not per_channel or (claim.root == layer and not isinstance(claim.tree, tuple)):
            yield variant
        if per_channel:
            yield variant.named(f"{variant.name}_per_channel", per_channel=True)


def has_per_channel(claim: Claim) -> bool:
    """Whether any variant of a claim quantizes weights per channel."""
    return any(variant.per_channel for variant in variants(claim))


def _has_wildcard(tree: Any) -> bool:
    return tree is MatchAllNode or (isinstance(tree, tuple) and any(_has_wildcard(part) for part in tree))


def _wildcard_is_left(tree: Any) -> bool:
    """Whether the wildcard is the first operand, as in `(torch.add, MatchAllNode, nn.Conv2d)`."""
    return isinstance(tree, tuple) and (tree[1] is MatchAllNode or _wildcard_is_left(tree[1]))


@dataclass(frozen=True)
class Layers:
    """Variants of layers in use by pattern, the most frequent first, and those of them with a trait that few have."""

    by_pattern: Mapping[str, Sequence[Variant]]
    rare: frozenset[tuple[str, str]] = frozenset()

    def is_rare(self, pattern: str, variant: Variant) -> bool:
        return (pattern, variant.name) in self.rare


@cache
def layers_in_use(*, ahead_of_time: bool) -> Layers:
    """Every layer in use, shrunk; for engines that lower ahead of time a selection in their own sizes."""
    by_pattern = defaultdict(list)
    if ahead_of_time:
        for layer in read(REPRESENTATIVE):
            by_pattern[layer.pattern].append(variant_of(layer))
        return Layers(by_pattern)
    layers = [layer for layer in read(SHRUNK) if layer.variant and not layer.run_as]
    variants = {id(layer): as_produced(layer) for layer in layers}
    for layer in layers:
        by_pattern[layer.pattern].append(variants[id(layer)])
    rare = with_rare_traits(layers, lambda layer: turn(layer.pattern, variants[id(layer)]))
    return Layers(by_pattern, frozenset((layer.pattern, variants[id(layer)].name) for layer in rare))


def turn(pattern: str, variant: Variant, turns: Sequence[str] = ROTATION, fewer: int = 1) -> str:
    """The profile that the name of a layer's variant decides. A small one has dyadic data."""
    if _least_elements(variant) < LEAST_ELEMENTS:
        return IN_USE.name
    return turns[_hash(pattern, variant) // fewer % len(turns)]


def _hash(pattern: str, variant: Variant) -> int:
    return zlib.crc32(f"{pattern}/{variant.name}".encode())


def _fewer(claim: Claim, *, ahead_of_time: bool, signed: bool) -> int:
    """One in how many layers in use a claim is tested with."""
    dtype = claim.dtypes.input_dtype
    if ahead_of_time and dtype == torch.float16:
        return FEWER_FLOAT16
    return FEWER if dtype == (torch.quint8 if signed else torch.qint8) else 1


def sized(claim: Claim, ahead_of_time: bool = False, signed: bool = False) -> Iterator[tuple[str, Variant]]:
    """Profiles and variants of a claim in the sizes of networks, per channel if any variant is.

    Each layer in use has one profile, which its name decides. The most frequent one that has enough elements has dyadic data
    and trained parameters, and one with a trait that few have all profiles, so that no trait hangs on one run. Shrunk layers
    with the parameters that torch's modules begin with are per tensor.
    """
    per_channel, layers = has_per_channel(claim), layers_in_use(ahead_of_time=ahead_of_time)
    fewer = _fewer(claim, ahead_of_time=ahead_of_time, signed=signed)
    in_use = [one for one in layers.by_pattern.get(claim.pattern, []) if has_form_of(claim.entry, one)]
    variants = [required(claim.entry, variant) for variant in in_use]
    main = next((variant for variant in variants if _least_elements(variant) >= LEAST_ELEMENTS), None)
    turns: tuple[str, ...] = ROTATION
    if spelled(claim.root).computes in NOT_AS_INITIALIZED:
        turns = tuple(profile for profile in ROTATION if profile != INITIALIZED.name)
    for variant in variants:
        if variant is not main and _hash(claim.pattern, variant) % fewer:
            continue
        profiles: tuple[str, ...] = (turn(claim.pattern, variant, turns, fewer),)
        if layers.is_rare(claim.pattern, variant):
            suiting = (IN_USE.name,) if _has_few_values(variant) else turns
            profiles = suiting if suiting == ROTATION else (*suiting, PAIRS.name)
        elif variant is main:
            profiles = IN_USE.name, TRAINED.name
        for profile in profiles:
            by_tensor = profile == INITIALIZED.name and not ahead_of_time
            yield profile, variant.named(variant.name, per_channel=per_channel and not by_tensor)
    for variant in _further(claim, layers):
        for profile in (IN_USE.name, PAIRS.name):
            yield profile, required(claim.entry, variant.named(variant.name, per_channel=per_channel))


def _least_elements(variant: Variant) -> int:
    return min(math.prod(spec.shape) for spec in variant.operands.values())


def _has_few_values(variant: Variant) -> bool:
    """Whether an operand has too few values to be distributed like anything; indices have none."""
    values = [spec for spec in variant.operands.values() if spec.kind == "activation"]
    return any(math.prod(spec.shape) < LEAST_ELEMENTS for spec in values)


def _further(claim: Claim, layers: Layers) -> Iterator[Variant]:
    """Variants of an operator alone: its sizes with large counts and, if no layer in use computes the same, the smallest
    layer that is timed."""
    operator = claim.root
    if isinstance(claim.tree, tuple) or plain_of(operator) != operator or is_qat_module(operator):
        return
    yield from RECORDS[operator].counted()
    if computation(operator) not in {computation(pattern.partition("+")[0]) for pattern in layers.by_pattern}:
        yield from (variant for extent, variant in deployed(claim) if extent == EXTENTS[0])
