"""Kinds of findings that the checks return: their sentences, and their JSON."""

import json

import pytest

from conformance.results.findings import (
    KINDS,
    Finding,
    constraints,
    from_json,
    memory,
    stability,
    stages,
    structure,
    values,
    weights,
)
from conformance.results.findings.constraints import ConstraintViolated
from conformance.results.findings.memory import OutOfBounds
from conformance.results.findings.stability import RepetitionShape, RepetitionValues, WritesToInput
from conformance.results.findings.stages import (
    Crashes,
    FurtherBeyond,
    FurtherData,
    FurtherInputs,
    FurtherRange,
    FurtherThreads,
    Lies,
    Raises,
    Undefined,
)
from conformance.results.findings.structure import (
    ActivationObserved,
    ConvertsInside,
    DynamicOutputObserved,
    FakeQuantizeDisabled,
    InnerObservers,
    LeftQuantized,
    MissingModule,
    MissingQparams,
    NoEffect,
    NoQuantizedKernel,
    NotObserved,
    ObservedDtype,
    ObserverNotDynamic,
    ObserverRange,
    QuantizedUnasked,
    QuantizesNothing,
    RanInFloat,
    SharedObserver,
    UndeclaredDtype,
    WeightDtype,
)
from conformance.results.findings.values import (
    CodesDiffer,
    CodesVary,
    Element,
    FloatShape,
    InSevenBits,
    LowSqnr,
    NoiseWithoutSignal,
    NotFinite,
    OutputCount,
    OutputKind,
    OutputQparams,
    OutputScheme,
    OutputShape,
    QuantizedByPart,
    ValuesDiffer,
)
from conformance.results.findings.weights import (
    OutputDtype,
    WeightBlocks,
    WeightCodes,
    WeightScales,
    WeightVanishes,
    WeightZeroPoints,
)

CODES = (Element((1, 2), 7.0, 4.0, 4.25), Element((0, 1), 5.0, 4.0))
VALUES = (Element((1,), float("nan"), 4096.5), Element((0,), float("inf"), 1.0))

SENTENCES: tuple[tuple[Finding, str], ...] = (
    (
        Raises("matched", "float", "AttributeError", "no hardsigmoid"),
        "the pattern cannot occur: the float model raises AttributeError: no hardsigmoid",
    ),
    (Raises("observed", "prepare", "ValueError", "bad"), "prepare raises ValueError: bad"),
    (Raises("observed", "calibrate", "ValueError", "bad"), "the observed model raises ValueError: bad"),
    (Raises("reference", "reference", "KeyError", "'x'"), "convert_to_reference raises KeyError: 'x'"),
    (Raises("reference", "reference execution", "TypeError", "bad"), "the reference model raises TypeError: bad"),
    (Raises("lowered", "execute", "RuntimeError", ""), "execute raises RuntimeError: "),
    (Crashes("crashes", "memory fault"), "memory fault"),
    (Undefined("undefined", "race"), "threads write the same memory in any order"),
    (NoEffect("matched"), "without this claim in the config the observed and the lowered model are the same"),
    (NotObserved("observed", "x"), "input x is not observed"),
    (NotObserved("observed", None), "the output is not observed"),
    (ObservedDtype("observed", "x", "qint8", "quint8"), "input x is observed as qint8, not quint8"),
    (ObservedDtype("observed", None, "qint8", "quint8"), "the output is observed as qint8, not quint8"),
    (ObserverNotDynamic("observed", "x"), "the observer of input x is not dynamic"),
    (DynamicOutputObserved("observed"), "the output of a dynamic claim is observed"),
    (
        SharedObserver("observed", True, "OUTPUT_USE_DIFFERENT_OBSERVER_AS_INPUT"),
        "input and output share an observer, against OUTPUT_USE_DIFFERENT_OBSERVER_AS_INPUT",
    ),
    (
        SharedObserver("observed", False, "OUTPUT_SHARE_OBSERVER_WITH_INPUT"),
        "input and output do not share an observer, against OUTPUT_SHARE_OBSERVER_WITH_INPUT",
    ),
    (InnerObservers("observed", 2), "2 observers inside of the pattern"),
    (
        ObserverRange("observed", "post_0", 0, 126, ((-64, 63), (0, 127))),
        "post_0 observes the codes 0 to 126, not -64 to 63 or 0 to 127",
    ),
    (FakeQuantizeDisabled("observed", "post_0", False), "post_0 does not fake-quantize"),
    (FakeQuantizeDisabled("observed", "post_0", True), "post_0 does not observe"),
    (
        ActivationObserved("observed", "post_0", "quint8"),
        "post_0 observes an activation as quint8; only weights are quantized",
    ),
    (MissingModule("observed", "Linear", "qat"), "no Linear in the qat model, which the config declares"),
    (MissingModule("reference", "Linear", "reference"), "no Linear in the reference model"),
    (WeightDtype("reference", "qint32", "qint8"), "weight quantized to qint32, not qint8"),
    (UndeclaredDtype("reference", "quantize_0", "qint32"), "quantize_0 quantizes to qint32"),
    (QuantizesNothing("reference"), "the reference model quantizes nothing"),
    (
        MissingQparams("reference", "weight", (0.5, 0.25), (0.0, 64.0)),
        "the reference model quantizes nothing with the scale 0.5, 0.25 and zero point 0.0, 64.0 of weight",
    ),
    (RanInFloat("lowered", ("aten.mul", "aten.add")), "ran in float: aten.mul, aten.add"),
    (
        QuantizedUnasked("asked", ("quantized.elu",)),
        "the mapping has no qconfig for it, and quantized.elu computes it all the same",
    ),
    (NoQuantizedKernel("lowered"), "no quantized kernel ran"),
    (LeftQuantized("lowered", (0, 2)), "output 0, 2 is left quantized, the float model gives float"),
    (
        ConvertsInside("lowered", ("aten.cat > aten.dequantize",)),
        "converts to float inside of the kernel: aten.cat > aten.dequantize",
    ),
    (
        FurtherInputs("numerics", (("x", (3, 4)), ("y", (4,)))),
        "where x is of shape (3, 4) and y is of shape (4,)",
    ),
    (FurtherRange("numerics", 37, -4), "in steps of 2**-4 with 37 codes below zero"),
    (FurtherThreads("numerics", 2), "on 2 threads"),
    (FurtherData("numerics", "zero"), "where all elements are zero"),
    (FurtherData("lowered", "int32"), "where indices and offsets are int32"),
    (FurtherBeyond("numerics", "above"), "where all elements are above the calibrated range"),
    (Lies("numerics", "at index 1 of dimension 0"), "all at index 1 of dimension 0"),
    (OutputCount("numerics", 2, 1), "2 outputs, golden 1"),
    (OutputCount("reference", 0, 1), "the reference model's 0 outputs, golden 1"),
    (OutputShape("numerics", 0, (2,), (1, 2)), "shape (2,), golden (1, 2)"),
    (OutputShape("reference", 1, (), (3,)), "the reference model's output 1: shape (), golden (3,)"),
    (OutputDtype("numerics", 0, "float32", "bfloat16"), "dtype float32, not bfloat16"),
    (
        WeightScales("annotated", 2, 16, 2.0**-8),
        "2 of 16 scales of the weight are not those of its blocks, by up to 0.0039 of them",
    ),
    (WeightBlocks("annotated", 72, 8), "72 scales of the weight, not 8"),
    (WeightZeroPoints("annotated", 2, 16), "2 of 16 zero points of the weight are not those of its blocks"),
    (WeightCodes("annotated", 3, 64), "3 of 64 codes of the weight are not the nearest ones"),
    (WeightVanishes("annotated"), "all codes of the weight stand for zero"),
    (OutputKind("numerics", 0, True), "gives codes, the golden has the other"),
    (OutputKind("numerics", 2, False), "output 2: gives float values, the golden has the other"),
    (OutputScheme("numerics", 0, "per_channel_affine"), "per_channel_affine, golden per_tensor_affine"),
    (
        OutputQparams("numerics", 0, 0.125, 20, "qint8", 0.25, 10, "quint8"),
        "scale 0.125, zero point 20, qint8, golden 0.25, 10, quint8",
    ),
    (
        CodesDiffer("numerics", 0, 2, 6, 3, CODES),
        "2 of 6 codes differ (33.3%), by up to 3 steps: (1, 2) got 7 golden 4 exact 4.25 | (0, 1) got 5 golden 4",
    ),
    (
        InSevenBits("numerics", 0, 1, 9, 0.5, (Element((1,), 0.5, 1.0),)),
        "1 of 9 values differ, by up to 0.5: (1,) got 0.5 golden 1; they are those of activations of 7 bits",
    ),
    (
        QuantizedByPart("numerics", 0, 1, 9, 0.5, (Element((1,), 0.5, 1.0),), "row"),
        "1 of 9 values differ, by up to 0.5: (1,) got 0.5 golden 1; they are those of an activation that is quantized by row",
    ),
    (
        ValuesDiffer("reference", 1, 2, 2, float("inf"), VALUES),
        "the reference model's output 1: 2 of 2 values differ, by up to inf: (1,) got nan golden 4096.5 | "
        "(0,) got inf golden 1",
    ),
    (CodesVary("numerics", 0), "the codes differ from run to run"),
    (FloatShape("accuracy", (1, 8), (4, 8)), "shape (1, 8), the float model gives (4, 8)"),
    (NotFinite("accuracy"), "the output is not finite"),
    (NoiseWithoutSignal("accuracy"), "noise where zero is due"),
    (LowSqnr("accuracy", -4.75, 20.0), "SQNR -4.8 dB is below 20 dB"),
    (LowSqnr("accuracy", None, 24.0), "SQNR is below 24 dB"),
    (WritesToInput("stable", "quantized.relu", 1), "quantized.relu writes to its tensor 1"),
    (WritesToInput("stable", None, 0), "the program writes to its input 0"),
    (
        OutOfBounds("memory", "quantized.linear", "reads", "beyond", 9),
        "quantized.linear reads beyond a tensor of 9 bytes",
    ),
    (OutOfBounds("memory", None, "writes", "before", 1), "code outside of operators writes before a tensor of 1 bytes"),
    (OutOfBounds("memory", "aten.add", "reads", "freed", 4), "aten.add reads a tensor of 4 bytes that is freed"),
    (RepetitionShape("stable", "second run", (1, 8)), "second run changes the shape to (1, 8)"),
    (RepetitionValues("stable", "state_dict", 3, 32), "state_dict changes 3 of 32 values"),
    (RepetitionValues("stable", "second run", None, None), "second run changes values"),
    (
        ConstraintViolated("constraints", "weight", "scale_min_lower_bound", 2.0**-13, 2.0**-12),
        "weight scale 0.0001220703125 is below 0.000244140625",
    ),
    (
        ConstraintViolated("constraints", "weight", "quant_min_lower_bound", -128, -127),
        "weight has code -128, below quant_min -127",
    ),
    (
        ConstraintViolated("constraints", "engine's output", "zero_point_exact_match", 3.0, 0),
        "engine's output zero point is 3, not 0",
    ),
)
"""Findings of the checks with their sentences."""

OWNERS = {module.__name__ for module in (stages, structure, values, stability, memory, weights)}
"""Modules whose kinds are all returned by checks or stand for crashes; of `constraints`, only one kind is."""


def test_every_kind_that_checks_return_has_a_sentence() -> None:
    kinds = {kind for kind in KINDS.values() if kind.__module__ in OWNERS} | {constraints.ConstraintViolated}
    assert {type(finding) for finding, _ in SENTENCES} == kinds


@pytest.mark.parametrize(("finding", "sentence"), SENTENCES, ids=lambda part: getattr(part, "kind", ""))
def test_a_finding_is_rendered_as_its_sentence(finding: Finding, sentence: str) -> None:
    assert finding.text == sentence


@pytest.mark.parametrize("finding", [finding for finding, _ in SENTENCES], ids=lambda finding: finding.kind)
def test_a_finding_is_the_same_after_a_round_trip_through_json(finding: Finding) -> None:
    text = json.dumps(finding.to_json(), allow_nan=False)
    again = from_json(json.loads(text))
    # NaN is not equal to itself, so the texts are compared too
    assert type(again) is type(finding)
    assert json.dumps(again.to_json(), allow_nan=False) == text
    assert again.text == finding.text
    assert again == finding or "nan" in finding.text
