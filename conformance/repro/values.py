"""Renderers of findings about outputs: against the golden's elements, and against the float model."""

import math
from collections.abc import Iterator

from conformance.checks.tolerances import tolerance
from conformance.results.findings import Finding
from conformance.results.findings.values import (
    CodesDiffer,
    CodesVary,
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

from .case import Case, Once, Renderer

NOISE = Once(
    "signal = sum(float(y.double().square().sum()) for y in ideal)\n"
    "noise = sum(float((a.double() - b.double()).square().sum()) for a, b in zip(outputs, ideal))\n"
)


def _outputs(finding: Finding) -> tuple[str, str]:
    """Names in the script: the list of outputs that a finding is about, and the trace of their execution."""
    return ("expected", "reference_trace") if finding.check == "reference" else ("outputs", "trace")


def _count(case: Case, finding: OutputCount) -> Iterator[str]:
    outputs, _ = _outputs(finding)
    yield (
        f"if len({outputs}) != {finding.expected}:\n"
        f'    deviates("{finding.check}", f"{{len({outputs})}} outputs, not {finding.expected}")\n'
    )


def _shape(case: Case, finding: OutputShape) -> Iterator[str]:
    output = f"{_outputs(finding)[0]}[{finding.output}]"
    yield (
        f"if tuple({output}.shape) != {finding.expected}:\n"
        f'    deviates("{finding.check}", f"shape {{tuple({output}.shape)}}, not {finding.expected}")\n'
    )


def _kind(case: Case, finding: OutputKind) -> Iterator[str]:
    outputs, trace = _outputs(finding)
    yield (
        f"if ({trace}.source({outputs}[{finding.output}]) is None) is {not finding.quantized}:\n"
        f'    deviates("{finding.check}", "the output is{" not" if finding.quantized else ""} float")\n'
    )


def _scheme(case: Case, finding: OutputScheme) -> Iterator[str]:
    outputs, trace = _outputs(finding)
    yield (
        f"q = {trace}.source({outputs}[{finding.output}])\nif q.qscheme() != torch.per_tensor_affine:\n"
        f'    deviates("{finding.check}", f"{{q.qscheme()}}, not per_tensor_affine")\n'
    )


def _qparams(case: Case, finding: OutputQparams) -> Iterator[str]:
    outputs, trace = _outputs(finding)
    scale, zero_point = repr(finding.expected_scale), finding.expected_zero_point
    yield (
        f"q = {trace}.source({outputs}[{finding.output}])\nqparams = (q.q_scale(), q.q_zero_point(), q.dtype)\n"
        f"if qparams != ({scale}, {zero_point}, torch.{finding.expected_dtype}):\n"
        f'    deviates("{finding.check}", f"qparams {{qparams}}, not {scale}, {zero_point}")\n'
    )


def _number(value: float) -> str:
    return repr(value) if math.isfinite(value) else f'float("{value}")'


def _elements(case: Case, finding: CodesDiffer | ValuesDiffer) -> Iterator[str]:
    """Hold the finding's elements to the golden's, within the tolerance of the run."""
    outputs, trace = _outputs(finding)
    output = f"{outputs}[{finding.output}]"
    if isinstance(finding, CodesDiffer):
        exactly = {one.index: str(int(one.golden)) for one in finding.elements}
        values, allowed = f"{trace}.source({output}).int_repr()", str(tolerance(case.run).anywhere)
    else:
        exactly = {one.index: _number(one.golden) for one in finding.elements}
        values, allowed = output, "abs(value) * 2**-20"
    yield (
        f"exactly = {{{', '.join(f'{i}: {v}' for i, v in exactly.items())}}}  # what exact arithmetic gives, by index\n"
        f"values = {values}\n"
        "got = {index: values[index].item() for index in exactly}\n"
        f"if not all(abs(got[index] - value) <= {allowed} for index, value in exactly.items()):\n"
        f'    deviates("{finding.check}", f"{{got}} where exact arithmetic gives {{exactly}}")\n'
    )


def _codes_vary(case: Case, finding: CodesVary) -> Iterator[str]:
    yield (
        "for got, wanted in zip(outputs, expected):\n    if not torch.equal(got, wanted):\n"
        f'        deviates("{finding.check}", "the output is not that of the reference model")\n'
    )


def _float_shape(case: Case, finding: FloatShape) -> Iterator[str]:
    yield (
        "for got, wanted in zip(outputs, ideal):\n    if got.shape != wanted.shape:\n"
        f'        deviates("{finding.check}", '
        'f"shape {tuple(got.shape)}, the float model gives {tuple(wanted.shape)}")\n'
    )


def _not_finite(case: Case, finding: NotFinite) -> Iterator[str]:
    yield NOISE
    yield f'if not math.isfinite(noise):\n    deviates("{finding.check}", f"noise {{noise}}, signal {{signal}}")\n'


def _noise(case: Case, finding: NoiseWithoutSignal) -> Iterator[str]:
    yield NOISE
    yield f'if noise and not signal:\n    deviates("{finding.check}", f"noise {{noise}}, signal {{signal}}")\n'


def _low_sqnr(case: Case, finding: LowSqnr) -> Iterator[str]:
    yield NOISE
    yield (
        "sqnr = 10 * math.log10(signal / noise) if signal and noise else math.inf\n"
        f"if sqnr < {finding.floor:g}:\n"
        f'    deviates("{finding.check}", f"SQNR {{sqnr:.1f}} dB against the float model")\n'
    )


RENDERERS: dict[type[Finding], Renderer] = {
    OutputCount: _count,
    OutputShape: _shape,
    OutputKind: _kind,
    OutputScheme: _scheme,
    OutputQparams: _qparams,
    CodesDiffer: _elements,
    ValuesDiffer: _elements,
    InSevenBits: _elements,
    QuantizedByPart: _elements,
    CodesVary: _codes_vary,
    FloatShape: _float_shape,
    NotFinite: _not_finite,
    NoiseWithoutSignal: _noise,
    LowSqnr: _low_sqnr,
}
"""Renderers of findings about outputs."""
