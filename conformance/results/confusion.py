"""Predictions beside audits: of what audits found, what was foretold, and of what was foretold, what is not so."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from enum import StrEnum

from .audits import Arithmetic, Audit, Layer
from .predictions import Foretold, PredictedLayer, Prediction
from .severity import Severity

QUANTIZE = "torch.quantize_per_tensor"


class Outcome(StrEnum):
    """What became of a finding of a layer. A condition is one on data, which those of the audit need not meet."""

    CERTAIN = "foretold"
    CONDITIONAL = "with a condition"
    MISSED = "missed"
    FALSE = "not so"
    INAPPLICABLE = "condition not met"


Confusion = dict[str, Counter[Outcome]]


def findings(pairs: Iterable[tuple[Prediction, Audit]]) -> Confusion:
    """Outcomes by the id of the finding, of layers that are blamed, refused or in float against a claim. Findings that the
    ledger does not have are not counted."""
    found: Confusion = defaultdict(Counter)
    for prediction, audit in pairs:
        foretold = {layer.name: layer for layer in prediction.layers}
        quantized = _of_quantized(audit)
        for layer in audit.layers:
            if layer.features.get("operator") == QUANTIZE:
                continue
            own = _blamed(layer) | quantized.pop(layer.name, set())
            _compare(found, own, _said(foretold.pop(layer.name, None), layer, audit))
        for name, own in quantized.items():  # inputs of the network
            layer_foretold = foretold.pop(name, None)
            _compare(found, own, {one.cause: one for one in layer_foretold.foretold} if layer_foretold else {})
        refused = {(one.cause, one.operator) for one in audit.refusals if one.cause}
        said = {(one.cause, one.operator) for one in prediction.refusals if one.cause}
        for outcome, ones in (
            (Outcome.CERTAIN, refused & said),
            (Outcome.MISSED, refused - said),
            (Outcome.FALSE, said - refused),
        ):
            for cause, _ in ones:
                found[str(cause)][outcome] += 1
    return found


def in_float(pairs: Iterable[tuple[Prediction, Audit]]) -> Confusion:
    """Outcomes by the reason, of layers that compute in float."""
    found: Confusion = defaultdict(Counter)
    for prediction, audit in pairs:
        foretold = {layer.name: layer for layer in prediction.layers}
        for layer in audit.layers:
            said = foretold.get(layer.name)
            if layer.arithmetic is Arithmetic.FLOAT:
                same = said is not None and said.arithmetic is Arithmetic.FLOAT
                found[_reason(layer.reason)][Outcome.CERTAIN if same else Outcome.MISSED] += 1
            elif said is not None and said.arithmetic is Arithmetic.FLOAT:
                found[_reason(said.reason)][Outcome.FALSE] += 1
    return found


def _reason(text: str) -> str:
    """A reason without the operator or the error that it is about."""
    if text.startswith("left out because"):
        return "left out because it is refused"
    return "no claim covers it" if text.startswith("no claim covers") else text


def _blamed(layer: Layer) -> set[str]:
    """The findings that an audit has of a layer."""
    causes = {fault.cause for fault in layer.faults} | ({layer.cause} if layer.unkept else set())
    return {cause for cause in causes if cause}


def _of_quantized(audit: Audit) -> dict[str, set[str]]:
    """The findings of layers that only quantize a value, by the name of the layer that computes it."""
    found: dict[str, set[str]] = defaultdict(set)
    for layer in audit.layers:
        if layer.features.get("operator") == QUANTIZE and layer.inputs and (own := _blamed(layer)):
            found[layer.inputs[0]] |= own
    return found


def _said(said: PredictedLayer | None, layer: Layer, audit: Audit) -> dict[str, Foretold]:
    """What was foretold of a layer, without what its audit did not look at."""
    if said is None:
        return {}
    # conversions inside of kernels are measured where the network runs, and some have no entry
    unmeasured = audit.broken is not None and layer.arithmetic is Arithmetic.INTEGER
    unexplained = layer.unkept and layer.cause is None and said.arithmetic is layer.arithmetic
    left_out = (unmeasured or unexplained) and Severity.FLOAT
    return {one.cause: one for one in said.foretold if one.severity is not left_out}


def _compare(found: Confusion, own: set[str], said: dict[str, Foretold]) -> None:
    for cause in own:
        one = said.get(cause)
        outcome = Outcome.MISSED if one is None else Outcome.CONDITIONAL if one.conditions else Outcome.CERTAIN
        found[cause][outcome] += 1
    for cause, one in said.items():
        if cause not in own:
            found[cause][Outcome.INAPPLICABLE if one.conditions else Outcome.FALSE] += 1
