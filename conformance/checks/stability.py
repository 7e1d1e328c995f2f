"""Checks that repetitions change nothing."""

import torch
from torch import Tensor

from conformance.results.findings.stability import WritesToInput

from .comparison import differ
from .evidence import PASS, Evidence, Outcome, fail, skip
from .numerics import _wrong_shape


def _tied(evidence: Evidence, number: int, again: Tensor) -> Tensor:
    """Where an output is one step off at a tie: another memory order moves elements between the vector loop of a kernel and
    its scalar tail, and there the two may round differently."""
    expected = evidence.golden.outputs[number] if evidence.golden is not None else None
    assert evidence.execution is not None
    got = evidence.execution.outputs[number]
    if expected is None or not expected.quantized or expected.low.shape != got.values.shape:
        return torch.tensor(False)
    return (expected.low != expected.high) & ((again - got.values).abs() <= 1.001 * expected.scale)


REPETITIONS = ("second run", "another call", "state_dict", "channels_last")
"""What must not make a difference. After another call the first outputs are looked at again."""


def stable(evidence: Evidence) -> Outcome:
    """Two runs agree bit for bit; a state_dict round trip and the memory format change nothing. No kernel writes to what it
    is given unless it declares so, and another call leaves earlier outputs as they are."""
    if evidence.execution is None:
        return skip("not executed")
    if _wrong_shape(evidence):
        return skip("the output has the wrong shape")
    writes = dict.fromkeys(evidence.execution.writes)
    problems = [WritesToInput("stable", write.kernel, write.argument).text for write in writes]
    problems += [f"{name} raises {evidence.failures[name]}" for name in REPETITIONS if name in evidence.failures]
    for name, outputs in evidence.repetitions.items():
        for number, (output, again) in enumerate(zip(evidence.execution.outputs, outputs, strict=True)):
            first, again = output.values, again.dequantize() if again.is_quantized else again
            if first.shape != again.shape:
                problems.append(f"{name} changes the shape to {tuple(again.shape)}")
                break
            changed = differ(first, again)
            if name == "channels_last" and bool(changed.any()):
                changed &= ~_tied(evidence, number, again)
            if bool(changed.any()):
                problems.append(f"{name} changes {int(changed.sum())} of {first.numel()} values")
                break
    return fail("; ".join(problems)) if problems else PASS
