"""Findings of relations, constraints and sweeps: their sentences, and encoding as JSON and back."""

import json
from string import Formatter

import pytest

from conformance.results.findings import KINDS, Finding, detail_of, from_json
from conformance.results.findings.codes import (
    Code,
    SweptCodes,
    SweptElement,
    SweptOrder,
    SweptPlaces,
    SweptQparams,
    SweptRaises,
    SweptScale,
    SweptTies,
    TensorQparams,
)
from conformance.results.findings.constraints import (
    ConstraintViolated,
    ConversionViolates,
    ConvertedViolation,
    IgnoredQConfigTrainsWeight,
    NoFixedQparams,
    ObserverViolation,
    SatisfyingQConfigIgnored,
    SatisfyingQConfigWarned,
    ViolatingQConfigIgnored,
    ViolatingQConfigUsed,
    Violation,
)
from conformance.results.findings.relations import (
    KernelWrite,
    RelationOutputs,
    RelationShape,
    RelationValues,
    RelationVaries,
    RelationWrites,
)

EPS = ObserverViolation("scale_min_lower_bound", "eps", 2.0**-23, 2.0**-12)
ZERO_POINT = ObserverViolation("zero_point_exact_match", "zero_point", 1, 0)
SCALE = Violation("scale_min_lower_bound", float("nan"), 0.5)
CODE = Violation("quant_min_lower_bound", -128, -127)

X = TensorQparams("x", 0.25, 3)
Y = TensorQparams("output", 0.1, 0)
CODE_OF_X = "7 of x (scale 0.25, zero point 3) gives 9 of output (scale 0.1, zero point 0) at (0, 5) in turn 2"
OFF = SweptElement(2, (0, 5), (X,), (7,), Code(Y, 9), 10, 10, 10.0)
TIED = SweptElement(2, (0, 5), (X,), (7,), Code(Y, 9), 9, 10, 9.5)

SENTENCES: dict[str, Finding] = {
    "x changes the number of outputs from 2 to 1": RelationOutputs("stable", "x", 1, 2),
    "x changes the shape from (3,) to (2, 2)": RelationShape("stable", "x", 0, (2, 2), (3,)),
    "x changes the shape of output 1 from (3,) to ()": RelationShape("stable", "x", 1, (), (3,)),
    "x changes 3 of 64 values, first at (0, 1): 2, not 3": RelationValues("stable", "x", 0, 3, 64, (0, 1), 2.0, 3.0),
    "x changes 1 of 1 values of output 2, first at (): nan, not 0.5": RelationValues(
        "stable", "x", 2, 1, 1, (), float("nan"), 0.5
    ),
    f"1 of 8 codes differ from exact arithmetic in 1 of 4 turns, by up to 2 steps: {CODE_OF_X}, not 10 (exact 10)": (
        SweptCodes("numerics", 1, 8, 2, 1, 4, (OFF,))
    ),
    "beside ties, 1 of 8 codes differ from exact arithmetic in 1 of 4 turns, by up to 1 steps: "
    f"{CODE_OF_X}, not 10 (exact 10)": SweptTies("numerics", 1, 8, 1, 1, 4, (OFF,)),
    f"the result depends on the place of 1 of 8 codes: 9 at (0, 5), and {CODE_OF_X}, not 9 or 10 (exact 9.5)": (
        SweptPlaces("stable", 1, 8, TIED, TIED)
    ),
    f"2 results are in the wrong order: {CODE_OF_X}, not 10 (exact 10); beside {CODE_OF_X}, not 9 or 10 (exact 9.5)": (
        SweptOrder("numerics", 2, OFF, TIED)
    ),
    "output (scale 0.1, zero point 0), not x (scale 0.25, zero point 3), for x (scale 0.25, zero point 3) in turn 2 of 4": (
        SweptQparams("numerics", 2, 1, 4, (X,), Y, X)
    ),
    "execution raises E for x (scale 0.25, zero point 3), output (scale 0.1, zero point 0) in turn 2 and 1 others of 4: w": (
        SweptRaises("lowered", 2, 2, 4, (X,), Y, "E", "w")
    ),
    "a call with output (scale 0.1, zero point 0) before one with another scale of the output and the same input changes"
    f" 1 of 8 codes: {CODE_OF_X}, not 10 (exact 10)": SweptScale("stable", 1, 8, Y, OFF),
    "x changes values": RelationVaries("stable", "x"),
    "a call aten.f writes to its tensor 0, changes input 0, 2": RelationWrites(
        "stable", "a call", (KernelWrite("aten.f", 0),), (0, 2)
    ),
    "a call aten.f writes to its tensor 0, aten.g writes to its tensor 1": RelationWrites(
        "stable", "a call", (KernelWrite("aten.f", 0), KernelWrite("aten.g", 1)), ()
    ),
    "output scale 0.1 is above 0.01": ConstraintViolated("constraints", "output", "scale_max_upper_bound", 0.1, 0.01),
    "weight scale is 0.1, not 0.5": ConstraintViolated("constraints", "weight", "scale_exact_match", 0.1, 0.5),
    "engine's output zero point is 3, not 0": ConstraintViolated(
        "constraints", "engine's output", "zero_point_exact_match", 3.0, 0
    ),
    "weight has code 128, above quant_max 127": ConstraintViolated(
        "constraints", "weight", "quant_max_upper_bound", 128, 127
    ),
    "input scale nan is below 0.5 when torch.zeros(2) is observed: Q": ConversionViolates(
        "constraints", ConvertedViolation("input", SCALE, "torch.zeros(2)", "", ""), "Q"
    ),
    "input has code -128, below quant_min -127 when D is observed and twice that is quantized: Q": ConversionViolates(
        "constraints", ConvertedViolation("input", CODE, "D", "", ""), "Q"
    ),
    "packed weight has code -128, below quant_min -127 when -w is the weight when training then makes w * 2 of it: Q": (
        ConversionViolates("constraints", ConvertedViolation("packed weight", CODE, "", "-w", "w * 2"), "Q")
    ),
    "weight has code -128, below quant_min -127: Q": ConversionViolates(
        "constraints", ConvertedViolation("weight", CODE, "", "w", ""), "Q"
    ),
    "eps 1.1920928955078125e-07 is below 0.000244140625, and it is used without a warning: Q": ViolatingQConfigUsed(
        "observed", (EPS,), False, "Q", None
    ),
    "zero point is 1, not 0, and it is used: Q; then weight has code -128, below quant_min -127": ViolatingQConfigUsed(
        "observed", (ZERO_POINT,), True, "Q", ConvertedViolation("weight", CODE, "", "w", "")
    ),
    "zero point is 1, not 0, MinMaxObserver has no fixed qparams, and it is ignored without a warning: Q": (
        ViolatingQConfigIgnored("observed", (ZERO_POINT, NoFixedQparams("MinMaxObserver")), "Q")
    ),
    "satisfies every constraint and is ignored: Q": SatisfyingQConfigIgnored("observed", "Q"),
    "satisfies every constraint and is used, with a warning that it is ignored: Q": SatisfyingQConfigWarned(
        "observed", "Q", None
    ),
    "it is ignored, and its weight is fake-quantized in training all the same: Q": IgnoredQConfigTrainsWeight(
        "observed", "Q"
    ),
}


@pytest.mark.parametrize("sentence", SENTENCES)
def test_a_finding_has_a_sentence_and_survives_json(sentence: str) -> None:
    finding = SENTENCES[sentence]
    assert finding.text == sentence
    again = from_json(json.loads(json.dumps(finding.to_json(), allow_nan=False)))
    assert type(again) is type(finding)
    assert again.text == sentence
    assert repr(again) == repr(finding)  # NaN is not equal to itself


def test_every_kind_about_a_property_has_a_sentence() -> None:
    modules = {f"conformance.results.findings.{name}" for name in ("relations", "constraints", "codes")}
    assert {kind for kind in KINDS.values() if kind.__module__ in modules} == {*map(type, SENTENCES.values())}


@pytest.mark.parametrize("kind", KINDS)
def test_a_template_names_fields_of_its_kind(kind: str) -> None:
    parsed = Formatter().parse(getattr(KINDS[kind], "template", ""))
    named = {name.partition(".")[0] for _, name, _, _ in parsed if name is not None}
    assert named <= KINDS[kind].__dataclass_fields__.keys()


def test_an_ignored_qconfig_that_trains_weights_is_separated_from_the_other_counterexample() -> None:
    findings = SatisfyingQConfigIgnored("observed", "Q"), IgnoredQConfigTrainsWeight("observed", "P")
    assert detail_of(findings) == (
        "observed: satisfies every constraint and is ignored: Q"
        " | it is ignored, and its weight is fake-quantized in training all the same: P"
    )
