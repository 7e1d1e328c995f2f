"""Variants of a claim in the sizes of networks, with the profile of their data."""

import math
import zlib
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache

import torch

from conformance.configs.spelling import computation
from conformance.results.in_use import REPRESENTATIVE, read
from conformance.results.profiles import IN_USE, INITIALIZED, TRAINED

from .claims import Claim
from .declarations import has_form_of, required
from .in_use import variant_of
from .operators import EXTENTS, RECORDS, Variant
from .operators.fused import plain_of
from .sources import deployed, has_per_channel, is_qat_module

ROTATION = (IN_USE.name, INITIALIZED.name, TRAINED.name)
"""Profiles of layers in use. Each layer has one of them, decided by its name."""


FEWER: dict[torch.dtype | None, int] = {torch.qint8: 8, torch.float16: 3}
"""Of the layers of a claim with activations of a dtype one in so many is tested: kernels for qint8 are those of quint8, or
raise, and those for float16 multiply in float32."""

LEAST_ELEMENTS = 16
"""A layer with an operand of fewer elements has dyadic data: they are too few to be distributed like anything."""


@cache
def representatives() -> Mapping[str, list[Variant]]:
    """Variants of the representative layers by pattern, the most frequent first."""
    by_pattern = defaultdict(list)
    for layer in read(REPRESENTATIVE):
        by_pattern[layer.pattern].append(variant_of(layer))
    return by_pattern


def sized(claim: Claim) -> Iterator[tuple[str, Variant]]:
    """Profiles and variants of a claim in the sizes of networks, per channel if any variant is.

    The most frequent layer in use that has enough elements has dyadic data and trained parameters, whatever its name.
    """
    per_channel = has_per_channel(claim)
    fewer = FEWER.get(claim.dtypes.input_dtype, 1)
    variants = [variant for variant in representatives().get(claim.pattern, []) if has_form_of(claim.entry, variant)]
    main = next((variant for variant in variants if _least_elements(variant) >= LEAST_ELEMENTS), None)
    for variant in variants:
        hashed = zlib.crc32(f"{claim.pattern}/{variant.name}".encode())
        if variant is not main and hashed % fewer:
            continue
        turn = ROTATION[hashed // fewer % len(ROTATION)]
        few = _least_elements(variant) < LEAST_ELEMENTS
        profiles = {IN_USE.name} if few else {IN_USE.name, TRAINED.name} if variant is main else {turn}
        for profile in (profile for profile in ROTATION if profile in profiles):
            yield profile, required(claim.entry, variant.named(variant.name, per_channel=per_channel))
    for variant in _further(claim):
        yield IN_USE.name, required(claim.entry, variant.named(variant.name, per_channel=per_channel))


def _least_elements(variant: Variant) -> int:
    return min(math.prod(spec.shape) for spec in variant.operands.values())


def _further(claim: Claim) -> Iterator[Variant]:
    """Variants of an operator alone: its sizes with large counts and, if no layer in use computes the same, the smallest
    layer that is timed."""
    operator = claim.root
    if isinstance(claim.tree, tuple) or plain_of(operator) != operator or is_qat_module(operator):
        return
    yield from RECORDS[operator].counted()
    if computation(operator) not in {computation(pattern.partition("+")[0]) for pattern in representatives()}:
        yield from (variant for extent, variant in deployed(claim) if extent == EXTENTS[0])
