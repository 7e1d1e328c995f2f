"""Every kind of finding has blocks of a script, which conforms for an honest engine and deviates for one that lies."""

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import pytest

from conformance.commands.runs import find
from conformance.goldens.golden import Golden
from conformance.goldens.store import Store
from conformance.models import build
from conformance.repro.checks import kinds
from conformance.repro.inline import free
from conformance.repro.script import script
from conformance.results.findings import KINDS, Finding, layers, weights
from conformance.results.findings.constraints import ConstraintViolated
from conformance.results.findings.memory import OutOfBounds
from conformance.results.findings.stability import RepetitionShape, RepetitionValues, WritesToInput
from conformance.results.findings.stages import INPUTS, Crashes, Raises, Undefined
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

sys.path.insert(0, str(Path(__file__).parents[1]))

from fabricated import row_of
from lies import CONV, DYNAMIC, LINEAR, LINEAR_QAT, LINEAR_RELU, POOLING
from script_child import Ending, endings

pytestmark = pytest.mark.xdist_group("renderers")  # one worker: its fixture takes seconds


@cache
def golden(run_id: str) -> Golden:
    return Store().find(build.subject(find(run_id)))


def elements(run_id: str) -> tuple[Element, ...]:
    """The golden's first element, with -1 as the value of the engine."""
    output = golden(run_id).outputs[0]
    values = output.code if output.quantized else output.low
    index = (0,) * values.dim()
    return (Element(index, -1.0, float(values[index])),)


LINEAR_OUT = golden(LINEAR).outputs[0]
SCALE, ZERO_POINT, SHAPE = LINEAR_OUT.scale, LINEAR_OUT.zero_point, tuple(LINEAR_OUT.low.shape)
QPARAMS = {name: tuple(part.tolist()[:4] for part in parts) for name, parts in golden(LINEAR).qparams.items()}
NAME, (SCALES, ZERO_POINTS) = next(iter(QPARAMS.items()))


@dataclass(frozen=True)
class Claim:
    """A finding about a run, and source text that makes torch behave as the finding states."""

    run: str
    finding: Finding
    lie: str

    @property
    def id(self) -> str:
        finding = self.finding
        names = (getattr(finding, name, None) for name in ("stage", "repetition", "model", "what", "field", "output"))
        return "-".join(map(str, (finding.kind, finding.check, *(name for name in names if name is not None))))


def of_reference(change: str) -> str:
    return f"on_output(lambda y: {change}, 'convert_to_reference_fx')"


def of_prepared(change: str, stage: str = "prepare_fx") -> str:
    return f"set_on({stage!r}, lambda model: {change})"


READS_BEYOND = "import ctypes\non_output(lambda y: (ctypes.string_at(y.data_ptr() + y.nbytes, 1), y)[1])"
STAGES = [
    Claim(LINEAR, Raises("matched", "float", "ValueError", ""), "nn.Linear.forward = boom"),
    Claim(LINEAR, Raises("observed", "prepare", "ValueError", ""), "fx.prepare_fx = boom"),
    Claim(LINEAR, Raises("observed", "calibrate", "ValueError", ""), of_prepared("setattr(model, 'forward', boom)")),
    Claim(LINEAR, Raises("reference", "reference", "ValueError", ""), "fx.convert_to_reference_fx = boom"),
    Claim(LINEAR, Raises("reference", "reference execution", "ValueError", ""), of_reference("boom()")),
    Claim(LINEAR, Raises("lowered", "lower", "ValueError", ""), "fx.convert_fx = boom"),
    Claim(LINEAR, Raises("lowered", "execute", "ValueError", ""), "raises_at(1)"),
    Claim(LINEAR, Raises("stable", "second run", "ValueError", ""), "raises_at(2)"),
    Claim(LINEAR, Raises("stable", "another call", "ValueError", ""), "raises_at(2)"),
    Claim(LINEAR, Raises("stable", "state_dict", "ValueError", ""), "nn.Module.load_state_dict = boom"),
    Claim(CONV, Raises("stable", "channels_last", "ValueError", ""), "raises_at(2)"),
    Claim(LINEAR, Crashes("crashes", "memory fault"), "on_output(lambda y: os.abort())"),
    Claim(LINEAR, Undefined("undefined", "uninitialized"), "on_output(lambda y: y + torch.empty(4_000)[0])"),
    Claim(LINEAR, Undefined("undefined", "out-of-bounds"), READS_BEYOND),
    Claim(LINEAR, OutOfBounds("memory", None, "reads", "beyond", 9), READS_BEYOND),
]

FULL_CONFIG = """
from torch.ao.quantization.backend_config import get_fbgemm_backend_config as whole
prepare, convert = fx.prepare_fx, fx.convert_fx
fx.prepare_fx = lambda model, mapping, inputs, backend_config: prepare(model, mapping, inputs, backend_config=whole())
fx.convert_fx = lambda model, backend_config: convert(model, backend_config=whole())
"""
FIRST, LAST = "model.activation_post_process_0", "model.activation_post_process_1"

STRUCTURE = [
    Claim(LINEAR, NoEffect("matched"), FULL_CONFIG),
    Claim(LINEAR, NotObserved("observed", "x"), of_prepared(f"setattr({FIRST[:5]}, {FIRST[6:]!r}, nn.Identity())")),
    Claim(LINEAR, NotObserved("observed", None), of_prepared(f"setattr({LAST[:5]}, {LAST[6:]!r}, nn.Identity())")),
    Claim(
        LINEAR,
        ObservedDtype("observed", "x", "qint8", "quint8"),
        of_prepared(f"setattr({FIRST}, 'dtype', torch.qint8)"),
    ),
    Claim(
        LINEAR,
        ObservedDtype("observed", None, "qint8", "quint8"),
        of_prepared(f"setattr({LAST}, 'dtype', torch.qint8)"),
    ),
    Claim(DYNAMIC, ObserverNotDynamic("observed", "x"), of_prepared(f"setattr({FIRST}, 'is_dynamic', False)")),
    Claim(DYNAMIC, DynamicOutputObserved("observed"), of_prepared("observe_output_again(model)")),
    Claim(
        LINEAR,
        SharedObserver("observed", True, "OUTPUT_USE_DIFFERENT_OBSERVER_AS_INPUT"),
        of_prepared(f"setattr(model, {LAST[6:]!r}, {FIRST})"),
    ),
    Claim(
        POOLING,
        SharedObserver("observed", False, "OUTPUT_SHARE_OBSERVER_WITH_INPUT"),
        of_prepared(f"setattr(model, {LAST[6:]!r}, copy.deepcopy({FIRST}))"),
    ),
    Claim(LINEAR_RELU, InnerObservers("observed", 1), of_prepared("observe_output_again(model)")),
    Claim(
        LINEAR,
        ObserverRange("observed", FIRST[6:], 0, 99, ((0, 127),)),
        of_prepared(f"(setattr({FIRST}, 'quant_min', 0), setattr({FIRST}, 'quant_max', 99))"),
    ),
    Claim(
        LINEAR_QAT,
        FakeQuantizeDisabled("observed", FIRST[6:], observer_disabled=False),
        of_prepared(f"{FIRST}.disable_fake_quant()", "prepare_qat_fx"),
    ),
    Claim(
        LINEAR_QAT,
        FakeQuantizeDisabled("observed", FIRST[6:], observer_disabled=True),
        of_prepared(f"{FIRST}.disable_observer()", "prepare_qat_fx"),
    ),
    Claim(
        LINEAR,
        ActivationObserved("observed", FIRST[6:], "qint8"),
        of_prepared(f"setattr({FIRST}, 'dtype', torch.qint8)"),
    ),
    Claim(LINEAR_RELU, MissingModule("observed", "LinearReLU", "ptq"), of_prepared("renamed(model, 'LinearReLU')")),
]

NOTHING_QUANTIZED = "fx.convert_to_reference_fx = nothing_quantized"
REFERENCE = [
    Claim(
        LINEAR,
        MissingModule("reference", "Linear", "reference"),
        of_prepared("renamed(model, 'Linear')", "convert_to_reference_fx"),
    ),
    Claim(
        LINEAR,
        WeightDtype("reference", "quint8", "qint8"),
        "set_on('convert_to_reference_fx', lambda model: [setattr(m, 'weight_dtype', torch.quint8) for m in model.modules()"
        " if hasattr(m, 'weight_dtype')])",
    ),
    Claim(
        LINEAR,
        UndeclaredDtype("reference", "quantize_per_tensor", "qint8"),
        of_prepared("quantizes_to(model, torch.qint8)", "convert_to_reference_fx"),
    ),
    Claim(LINEAR, QuantizesNothing("reference"), NOTHING_QUANTIZED),
    Claim(LINEAR, MissingQparams("reference", NAME, tuple(SCALES), tuple(ZERO_POINTS)), NOTHING_QUANTIZED),
]


def of_output(tensor: str, field: str, bound: float, change: str) -> Claim:
    stage = "convert_fx" if tensor == "engine's output" else "convert_to_reference_fx"
    lie = f"on_output(lambda y: {change}, {stage!r})"
    return Claim(LINEAR, ConstraintViolated("constraints", tensor, field, -1, bound), lie)


VIOLATIONS = [
    violation
    for tensor in ("output", "engine's output")
    for violation in (
        of_output(tensor, "scale_min_lower_bound", SCALE, f"codes(y, {SCALE / 2}, 0)"),
        of_output(tensor, "scale_max_upper_bound", SCALE, f"codes(y, {SCALE * 2}, 0)"),
        of_output(tensor, "scale_exact_match", SCALE, f"codes(y, {SCALE * 2}, 0)"),
        of_output(tensor, "zero_point_exact_match", ZERO_POINT, f"codes(y, {SCALE}, {ZERO_POINT + 1})"),
        of_output(tensor, "quant_min_lower_bound", 0, f"codes(y - 1000, {SCALE}, 0, torch.qint8)"),
        of_output(tensor, "quant_max_upper_bound", 255, f"codes(y + 1000 * {SCALE}, {SCALE}, 0, torch.qint32)"),
    )
] + [
    Claim(
        LINEAR,
        ConstraintViolated("constraints", "weight", "quant_min_lower_bound", -129, -128),
        "set_on('convert_to_reference_fx', lambda model: [setattr(m, 'get_quantized_weight', lambda:"
        " torch.quantize_per_tensor(torch.tensor([-129.0]), 1.0, 0, torch.qint32)) for m in model.modules()"
        " if hasattr(m, 'get_quantized_weight')])",
    )
]

RECORDED = """
def converts(y):
    with torch.profiler.record_function("kernel"):
        return codes(y, 0.5, 0)
on_output(converts)
"""

UNASKED = "fbgemm/nn.ConvTranspose2d/static-quint8/ptq/unasked/contexts@fbgemm"
THREE_KERNELS = """
def three(x):
    y = torch.quantize_per_tensor(x, 0.5, 0, torch.quint8)
    for _ in range(3):
        y = torch.ops.quantized.add(y, y, 0.5, 0)
    return y.dequantize()


fx.convert_fx = lambda model, **kwargs: three
"""

KERNELS = [
    Claim(LINEAR, RanInFloat("lowered", ("aten.add",)), "on_output(lambda y: y + 0)"),
    Claim(DYNAMIC, RanInFloat("lowered", ("aten.add",)), "on_output(lambda y: y + 0)"),
    Claim(DYNAMIC, NoQuantizedKernel("lowered"), "fx.convert_fx = lambda model, **kwargs: lambda x: x + 0"),
    Claim(
        LINEAR,
        LeftQuantized("lowered", (0,)),
        "on_output(lambda y: torch.quantize_per_tensor(y, 0.5, 0, torch.quint8))",
    ),
    Claim(LINEAR, ConvertsInside("lowered", ("kernel > aten.dequantize",)), RECORDED),
    Claim(UNASKED, QuantizedUnasked("asked", ("quantized.add",)), THREE_KERNELS),
]

PER_CHANNEL = "torch.quantize_per_channel(y, torch.ones(len(y)), torch.zeros(len(y)), 0, torch.quint8).dequantize()"
SHIFTED = f"codes(y.flip(0) + 9 * {SCALE}, {SCALE}, {ZERO_POINT})"


def compared(check: str, on: Callable[[str], str]) -> list[Claim]:
    """Findings about the outputs of the engine, or of the reference model, against the golden."""
    qparams = (0.5, 0, "quint8", SCALE, ZERO_POINT, "quint8")
    return [
        Claim(LINEAR, OutputCount(check, 2, 1), on("(y, y)")),
        Claim(LINEAR, OutputShape(check, 0, (1,), SHAPE), on("y.flatten()")),
        Claim(LINEAR, OutputKind(check, 0, quantized=False), on("y + 0")),
        Claim(DYNAMIC, OutputKind(check, 0, quantized=True), on("codes(y, 0.5, 0)")),
        Claim(LINEAR, OutputScheme(check, 0, "per_channel_affine"), on(PER_CHANNEL)),
        Claim(LINEAR, OutputQparams(check, 0, *qparams), on(f"codes(y, {SCALE * 2}, {ZERO_POINT})")),
        Claim(LINEAR, CodesDiffer(check, 0, 1, 9, 1, elements(LINEAR)), on(SHIFTED)),
        Claim(DYNAMIC, ValuesDiffer(check, 0, 1, 9, 1.0, elements(DYNAMIC)), on("y + 1")),
    ]


def of_engine(change: str) -> str:
    return f"on_output(lambda y: {change})"


OUTPUTS = [
    *compared("numerics", of_engine),
    *compared("reference", of_reference),
    Claim(DYNAMIC, InSevenBits("numerics", 0, 1, 9, 1.0, elements(DYNAMIC)), of_engine("y + 1")),
    Claim(DYNAMIC, QuantizedByPart("numerics", 0, 1, 9, 1.0, elements(DYNAMIC), "row"), of_engine("y + 1")),
    Claim(LINEAR, CodesVary("numerics", 0), of_engine(SHIFTED)),
    Claim(LINEAR, FloatShape("accuracy", (1,), SHAPE), of_engine("y.flatten()")),
    Claim(LINEAR, NotFinite("accuracy"), of_engine("y * float('inf')")),
    Claim(LINEAR, NotFinite("accuracy"), of_engine("y * float('nan')")),
    Claim(
        LINEAR,
        NoiseWithoutSignal("accuracy"),
        "linear = nn.Linear.forward\nnn.Linear.forward = lambda self, x: 0 * linear(self, x)\n" + of_engine("y + 1"),
    ),
    Claim(LINEAR, LowSqnr("accuracy", 1.0, 20.0), of_engine("y.flip(0) + 1")),
    Claim(LINEAR, LowSqnr("accuracy", None, 20.0), of_engine("y.flip(0) + 1")),
]

UNDECLARED = """
library = torch.library.Library("lie", "DEF")
library.define("writes(Tensor x) -> Tensor")
library.impl("writes", writes, "CPU")
on_call(lambda lying, inputs, y: (torch.ops.lie.writes(inputs[0]), y)[1])
"""

STABILITY = [
    Claim(LINEAR, WritesToInput("stable", "lie.writes", 0), UNDECLARED),
    Claim(LINEAR, WritesToInput("stable", None, 0), "on_call(lambda lying, inputs, y: (inputs[0].add_(1), y)[1])"),
    Claim(LINEAR, RepetitionValues("stable", "second run", 1, 9), "on_call(lambda lying, inputs, y: y + lying.calls)"),
    Claim(LINEAR, RepetitionValues("stable", "second run", None, None), "on_call(lambda lying, _, y: y + lying.calls)"),
    Claim(LINEAR, RepetitionValues("stable", "another call", 1, 9), "on_call(overwritten)"),
    Claim(
        LINEAR,
        RepetitionValues("stable", "state_dict", 1, 9),
        "made = []\non_result('convert_fx', lambda model: (made.append(model), Lying(model, lambda lying, inputs, y, n="
        "len(made): y + n))[1])",
    ),
    Claim(
        CONV,
        RepetitionValues("stable", "channels_last", 1, 9),
        "on_call(lambda lying, inputs, y: y if inputs[0].is_contiguous() else y + 1)",
    ),
    Claim(
        LINEAR,
        RepetitionShape("stable", "second run", (1,)),
        "on_call(lambda lying, inputs, y: y if lying.calls == 1 else y.flatten())",
    ),
]

CLAIMS = [*STAGES, *STRUCTURE, *REFERENCE, *VIOLATIONS, *KERNELS, *OUTPUTS, *STABILITY]


@pytest.fixture(scope="module")
def ended() -> dict[int, tuple[Ending, Ending]]:
    """The endings of each claim's script with an honest torch and with one that lies, by the claim's number."""
    runs = {run_id: find(run_id) for run_id in {claim.run for claim in CLAIMS}}
    texts = [script(runs[claim.run], row_of(runs[claim.run], claim.finding), None) for claim in CLAIMS]
    pairs = [pair for claim, text in zip(CLAIMS, texts, strict=True) for pair in (("", text), (claim.lie, text))]
    results = endings(pairs)
    return {number: (results[2 * number], results[2 * number + 1]) for number in range(len(CLAIMS))}


@pytest.mark.parametrize("number", range(len(CLAIMS)), ids=[claim.id for claim in CLAIMS])
def test_a_script_conforms_if_the_engine_is_honest(number: int, ended: dict[int, tuple[Ending, Ending]]) -> None:
    honest, _ = ended[number]
    assert (honest.status, honest.output.splitlines()[-1:]) == (0, ["CONFORMS"]), honest.output
    if CLAIMS[number].finding.check != "crashes":
        assert "DEVIATES" not in honest.output


@pytest.mark.parametrize("number", range(len(CLAIMS)), ids=[claim.id for claim in CLAIMS])
def test_a_script_deviates_if_the_engine_lies(number: int, ended: dict[int, tuple[Ending, Ending]]) -> None:
    _, lying = ended[number]
    assert f"DEVIATES {CLAIMS[number].finding.check}: " in lying.output, lying.output
    assert "CONFORMS" not in lying.output
    assert lying.status == 1


@pytest.mark.parametrize("claim", [*KERNELS, *OUTPUTS, *STABILITY], ids=lambda claim: claim.id)
def test_a_script_has_what_the_finding_of_a_new_check_uses(claim: Claim) -> None:
    run = find(claim.run)
    row = row_of(run, replace(claim.finding, check="unheard_of"))
    assert free(script(run, row, None)) <= {"__class__"}  # `super` reads it


def test_every_kind_has_blocks() -> None:
    # the findings of an audit are reproduced by the scripts of its reductions
    # and those of modules that are quantized in place by scripts that check all of them
    others = {kind for kind in KINDS.values() if kind.__module__ in (layers.__name__, weights.__name__)}
    # that of the inputs changes those of a script and has no block of its own
    assert {KINDS[kind] for kind in kinds()} == set(KINDS.values()) - others - {*INPUTS}


def test_every_kind_that_the_checks_find_has_a_script_here() -> None:
    modules = ("constraints", "stages", "structure", "values", "stability", "memory")
    kinds = {
        kind
        for kind in KINDS.values()
        if kind.__module__.rpartition(".")[2] in modules
        and (kind.__module__.rpartition(".")[2] != "constraints" or kind is ConstraintViolated)
    }
    assert {type(claim.finding) for claim in CLAIMS} == kinds - {*INPUTS}
