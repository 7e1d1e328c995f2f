"""Variants of what a quantizer declares: where the pattern stands, and what of it is quantized."""

from dataclasses import replace

from torch.ao.quantization.backend_config import BackendPatternConfig

from conformance.configs.quantizer import Declaration

from .operators import Operand, Variant
from .operators.variant import ALONE, Context, Neighbour

IMAGE_DIMENSIONS = 4


def declared_variants(entry: Declaration, applicable: list[Variant], *, transposed: bool) -> list[Variant]:
    """The variants of what a quantizer declares, of those that its pattern has."""
    if entry.per_channel is not None:
        applicable = [variant for variant in applicable if not variant.per_channel]
    elif transposed:  # FX has no observers for the channels of these
        applicable = [*applicable, applicable[0].named("per_channel", per_channel=True)]
    applicable = [variant for variant in applicable if has_form(entry, variant)]
    if entry.before:  # the module fits one form of the result
        applicable = [variant for variant in applicable if variant.call == applicable[0].call]
    if entry.floats:  # the other operand is that of the layer in these, and is quantized there
        applicable = [
            v for v in applicable if v.wildcard is None or not ("x" in v.wildcard.expression or v.wildcard.layer)
        ]
    return [connected(entry, variant) for variant in applicable]


def has_form(entry: Declaration, variant: Variant) -> bool:
    """Whether a quantizer declares a pattern in the form of a variant."""
    if entry.affine and variant.symmetric:
        return False
    if variant.batch is not None and ".shape" in variant.call:  # an exported graph has the shapes of its calibration
        return False
    if not entry.behind:
        return True
    # behind layers, which compute images; their result is no input of the model, and a prelude an operator of its own
    images = all(len(spec.shape) == IMAGE_DIMENSIONS for spec in variant.operands.values())
    return images and not variant.prelude and variant.result == "y"


def has_form_of(entry: BackendPatternConfig, variant: Variant) -> bool:
    """Whether an entry is declared in the form of a variant, if a quantizer declares it."""
    return not isinstance(entry, Declaration) or has_form(entry, variant)


def required(entry: BackendPatternConfig, variant: Variant) -> Variant:
    """The variant among the operators that the entry requires around the pattern, if a quantizer declares it."""
    return connected(entry, variant) if isinstance(entry, Declaration) else variant


def connected(entry: Declaration, variant: Variant) -> Variant:
    """The variant among the operators that a quantizer requires around the pattern: convolutions of each operand of four
    dimensions, and the module that takes the result. One in a context of its own stays as it is."""
    if entry.channels_last:
        variant = replace(variant, operands={name: _channels_last(spec) for name, spec in variant.operands.items()})
    if not entry.behind or variant.context != ALONE:
        return variant
    images = {name: spec.shape[1] for name, spec in variant.operands.items() if len(spec.shape) == IMAGE_DIMENSIONS}
    # without a bias, whose rounding to the accumulator's grid would be taken for an error of the operator behind it
    layers = {name: f"nn.Conv2d({size}, {size}, 1, bias=False)" for name, size in images.items()}
    before = [
        Neighbour("nn.Conv2d", f"{name} = self.before_{name}({name})", f"self.before_{name} = {layer}")
        for name, layer in layers.items()
    ]
    after = [Neighbour(entry.before, "y = self.after(y)", f"self.after = {entry.before}")] if entry.before else []
    return replace(variant, context=Context(tuple(before), tuple(after)))


def _channels_last(spec: Operand) -> Operand:
    """An operand whose memory format is channels-last if it is an image that has no format of its own."""
    image = len(spec.shape) == IMAGE_DIMENSIONS and spec.layout == "contiguous"
    return replace(spec, layout="channels_last") if image else spec
