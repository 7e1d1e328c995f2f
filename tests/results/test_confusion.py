"""Predictions beside audits."""

from collections import Counter
from dataclasses import replace

from conformance.results.audits import Arithmetic, Audit, Fault, Layer, Refusal
from conformance.results.confusion import Confusion, Outcome, findings, in_float
from conformance.results.findings.layers import LayerDiffers, LayerRaises
from conformance.results.predictions import Foretold, PredictedLayer, Prediction
from conformance.results.severity import Severity

WRONG = LayerDiffers("numerics", 1, 2, 3)


def layer(
    name: str,
    *causes: str,
    arithmetic: Arithmetic = Arithmetic.INTEGER,
    reason: str = "",
    operator: str = "nn.Linear",
    inputs: tuple[str, ...] = (),
) -> Layer:
    faults = tuple(Fault(WRONG, cause) for cause in causes)
    return Layer(
        name, operator, None, arithmetic, reason, faults=faults, features={"operator": operator}, inputs=inputs
    )


def predicted(
    name: str,
    *causes: str,
    condition: str = "",
    arithmetic: Arithmetic = Arithmetic.INTEGER,
    reason: str = "",
) -> PredictedLayer:
    conditions = (condition,) if condition else ()
    foretold = tuple(Foretold(cause, "numerics", Severity.WRONG, conditions) for cause in causes)
    return PredictedLayer(name, "nn.Linear", None, arithmetic, reason, {}, foretold)


def pair(
    layers: list[PredictedLayer], audited: list[Layer], refused: tuple[list[Refusal], list[Refusal]] = ([], [])
) -> tuple[Prediction, Audit]:
    prediction = Prediction("n", "x86", "fbgemm", "x86_64 avx2", "2.13.0", tuple(layers), tuple(refused[0]))
    return prediction, Audit("n", "x86", "fbgemm", tuple(audited), tuple(refused[1]))


def counted(found: Confusion) -> dict[str, dict[Outcome, int]]:
    return {name: dict(counts) for name, counts in found.items()}


def test_a_finding_is_foretold_missed_or_not_so() -> None:
    found = findings([pair([predicted("a", "f", "g"), predicted("b")], [layer("a", "f"), layer("b", "f")])])
    assert counted(found) == {"f": {Outcome.CERTAIN: 1, Outcome.MISSED: 1}, "g": {Outcome.FALSE: 1}}


def test_a_condition_on_data_may_be_met_or_not() -> None:
    layers = [predicted("a", "f", condition="it rains"), predicted("b", "f", condition="it rains")]
    found = findings([pair(layers, [layer("a", "f"), layer("b")])])
    assert counted(found) == {"f": {Outcome.CONDITIONAL: 1, Outcome.INAPPLICABLE: 1}}


def test_what_only_quantizes_a_value_counts_for_the_layer_that_computes_it() -> None:
    audited = [
        layer("a", arithmetic=Arithmetic.FLOAT),
        layer("q", "f", operator="torch.quantize_per_tensor", inputs=("a",)),
        layer("q2", "g", operator="torch.quantize_per_tensor", inputs=("x",)),
    ]
    found = findings([pair([predicted("a", "f", arithmetic=Arithmetic.FLOAT), predicted("x")], audited)])
    assert counted(found) == {"f": {Outcome.CERTAIN: 1}, "g": {Outcome.MISSED: 1}}


def test_kinds_of_layers_that_are_refused_are_counted_by_their_cause() -> None:
    refusals = [Refusal(name, "prepare", "TypeError", "no", cause=cause) for name, cause in (("a", "f"), ("b", "g"))]
    found = findings([pair([], [], ([refusals[0]], refusals))])
    assert counted(found) == {"f": {Outcome.CERTAIN: 1}, "g": {Outcome.MISSED: 1}}


def test_layers_in_float_are_counted_by_the_reason() -> None:
    in_both = {"arithmetic": Arithmetic.FLOAT, "reason": "no claim covers nn.GELU"}
    found = in_float(
        [
            pair(
                [predicted("a", **in_both), predicted("b"), predicted("c", **in_both)],  # type: ignore[arg-type]
                [layer("a", **in_both), layer("b", **in_both), layer("c")],  # type: ignore[arg-type]
            )
        ]
    )
    assert found == {"no claim covers it": Counter({Outcome.CERTAIN: 1, Outcome.MISSED: 1, Outcome.FALSE: 1})}


def test_conversions_inside_of_kernels_are_not_judged_where_an_audit_did_not_measure_them() -> None:
    said = replace(
        predicted("a", arithmetic=Arithmetic.NAME_ONLY), foretold=(Foretold("cat", "lowered", Severity.FLOAT),)
    )
    raising = replace(layer("b"), faults=(Fault(LayerRaises("lowered", "execute", "TypeError", "no"), "f"),))
    assert "cat" in findings([pair([said], [layer("a")])])
    assert "cat" not in findings([pair([said], [layer("a"), raising])])
