"""Checks that repeating the execution does not change its outputs."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from conformance.models.trace import Output
from conformance.results.findings import Finding
from conformance.results.findings.stability import RepetitionShape, RepetitionValues, WritesToInput

from .comparison import differ, float32_error
from .evidence import Evidence, Outcome, outcome, skip
from .numerics import wrong_shape
from .tolerances import rounds

CHECK = "stable"

REPETITIONS = ("second run", "another call", "state_dict", "torch.jit", "channels_last")
"""Repetitions that must not change the outputs. `another call` compares the first outputs again after a call with other
inputs, which may have overwritten them."""


def stable(evidence: Evidence) -> Outcome:
    """Two runs agree bit for bit; a state_dict round trip, TorchScript and the memory format change nothing. No kernel writes
    to its arguments unless its schema declares it, and another call leaves earlier outputs unchanged."""
    execution = evidence.back.execution
    if execution is None:
        return skip("not executed")
    if wrong_shape(evidence):
        return skip("the output has the wrong shape")
    findings: list[Finding] = [
        WritesToInput(CHECK, write.kernel, write.argument) for write in dict.fromkeys(execution.writes)
    ]
    for name in REPETITIONS:
        findings += evidence.raises(CHECK, name)
    for name, outputs in evidence.back.repetitions.items():
        findings += _first_change(evidence, execution.outputs, name, outputs)
    return outcome(findings)


def _first_change(
    evidence: Evidence, outputs: Sequence[Output], name: str, repeated: Sequence[Tensor]
) -> Iterator[Finding]:
    """Yield the finding about the first output that a repetition changes, if any."""
    for number, (output, again) in enumerate(zip(outputs, repeated, strict=True)):
        first, again = output.values, again.dequantize() if again.is_quantized else again
        if first.shape != again.shape:
            yield RepetitionShape(CHECK, name, tuple(again.shape))
            return
        changed = differ(first, again)
        if output.quantized is None and rounds(evidence.run.claim):
            changed &= ~_close(first, again)
        if name == "channels_last" and bool(changed.any()):
            changed &= ~_tied(evidence, number, first, again)
        if bool(changed.any()):
            yield RepetitionValues(CHECK, name, int(changed.sum()), first.numel())
            return


def _close(first: Tensor, again: Tensor) -> Tensor:
    """Mask (bool) of the float numbers that differ by no more than the rounding of float32."""
    return (again - first).abs() <= float32_error(first)


def _tied(evidence: Evidence, number: int, first: Tensor, again: Tensor) -> Tensor:
    """Mask (bool) of the elements that are one step off at a tie, or float numbers that differ by the rounding of float32.

    Another memory order moves elements between the vector loop of a kernel and its scalar tail, which may round differently.
    """
    golden = evidence.expectation.golden
    expected = golden.outputs[number] if golden is not None else None
    if expected is None or expected.low.shape != first.shape:
        return torch.tensor(False)
    if not expected.quantized:
        return _close(first, again)
    return (expected.low != expected.high) & ((again - first).abs() <= 1.001 * expected.scale)
