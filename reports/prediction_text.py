"""A prediction as text for a terminal: what of a network will run in integers, and what its layers will show."""

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

from conformance.results.audits import Arithmetic
from conformance.results.predictions import Foretold, PredictedLayer, Prediction
from conformance.results.severity import IN_ORDER

from .columns import wrapped

WIDTH = 100
MOST_NAMED = 3
"""Layers that are named of those with the same finding."""
NOTHING: Mapping[str, str] = MappingProxyType({})


def text(prediction: Prediction, reasons: Mapping[str, str] = NOTHING) -> str:
    """The prediction as lines of at most 100 columns, each with a line end. `reasons` are those of the ledger by id."""
    return "".join(f"{line}\n" for line in _lines(prediction, reasons))


def _lines(prediction: Prediction, reasons: Mapping[str, str]) -> Iterator[str]:
    symbol = "✓" if prediction.holds else "✗"
    of = f"{prediction.network} on {prediction.engine}, {prediction.platform}, torch {prediction.torch}"
    yield f"{symbol} {of}"
    if prediction.failure:
        yield from _indented(2, f"cannot be converted: {prediction.failure}")
        yield from _indented(2, prediction.advice)
    else:
        yield from _indented(2, _shares(prediction))
    for refusal in prediction.refusals:
        known = f"{refusal.cause}: {reasons.get(refusal.cause, '')}" if refusal.cause else f"NEW: {refusal.error}"
        yield from _indented(2, f"⊘ {refusal.operator} is refused in {refusal.stage} ({known})")
        yield from _indented(6, _names(refusal.layers))
    for one, layers in _by_finding(prediction):
        condition = f", if {' and '.join(one.conditions)}" if one.conditions else ""
        yield from _indented(
            2, f"{one.severity.symbol} {one.severity.phrase}{condition}: {one.cause}, {_count(layers)}"
        )
        yield from _indented(6, reasons.get(one.cause, ""))
        yield from _indented(6, _names([layer.name for layer in layers]))
    for reason, layers in _in_float(prediction):
        yield from _indented(2, f"in float, {reason}: {_count(layers)}")
        yield from _indented(6, _names([layer.name for layer in layers]))


def _shares(prediction: Prediction) -> str:
    computing = prediction.computing
    if not computing:
        return "no layer computes"
    of = {one: sum(layer.arithmetic is one for layer in computing) / len(computing) for one in Arithmetic}
    name_only = f", {of[Arithmetic.NAME_ONLY]:.0%} in integers in name only" if of[Arithmetic.NAME_ONLY] else ""
    return (
        f"of {len(computing)} layers that compute, {of[Arithmetic.INTEGER]:.0%} will do so in integers{name_only}, "
        f"{of[Arithmetic.FLOAT]:.0%} in float; from the ledger alone, no quantized kernel ran"
    )


def _by_finding(prediction: Prediction) -> list[tuple[Foretold, list[PredictedLayer]]]:
    """What is foretold and its layers: what is certain first, and of that the worst."""
    found: dict[Foretold, list[PredictedLayer]] = {}
    for layer in prediction.layers:
        for one in layer.foretold:
            found.setdefault(one, []).append(layer)
    return sorted(found.items(), key=lambda of: (bool(of[0].conditions), IN_ORDER.index(of[0].severity), -len(of[1])))


def _in_float(prediction: Prediction) -> list[tuple[str, list[PredictedLayer]]]:
    found: dict[str, list[PredictedLayer]] = {}
    for layer in prediction.computing:
        if layer.arithmetic is Arithmetic.FLOAT:
            found.setdefault(layer.reason, []).append(layer)
    return sorted(found.items(), key=lambda of: -len(of[1]))


def _count(layers: Sequence[object]) -> str:
    return f"{len(layers)} layer{'' if len(layers) == 1 else 's'}"


def _names(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return ", ".join(names[:MOST_NAMED]) + more


def _indented(columns: int, sentence: str) -> Iterator[str]:
    lines = [*wrapped(sentence, WIDTH - columns)]
    for number, line in enumerate(lines):
        yield " " * (columns + 2 * (number > 0 and columns == 2)) + line
