"""A network as one program of an engine, beside the network in float."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from conformance.engines.protocol import Engine
from conformance.host.poison import fresh_memory_holds
from conformance.results.audits import Audit, Stability

from .agreement import apart, decibels, joined
from .costs import size_ratio, time_ratio
from .network import Network, copied, tensors_of
from .stability import same, skipped


@dataclass(frozen=True)
class Whole:
    """A program of an engine that is made of a network, with the outputs of its first execution on the held-out batch."""

    engine: Engine
    program: Any
    subject: Network
    outputs: list[Tensor]

    @classmethod
    def executed(cls, engine: Engine, program: Any, subject: Network) -> "Whole":
        """Execute a program. Raises the exceptions of the engine."""
        return cls(engine, program, subject, _outputs(engine, program, subject, 0x00))

    @cached_property
    def in_float(self) -> list[Tensor]:
        """The outputs of the network in float."""
        with torch.no_grad():
            return tensors_of(self.subject.model(*copied(self.subject.held_out)))

    def measured(self, result: Audit) -> Audit:
        """An audit with what the program alone tells: its output beside float, whether that repeats, time and size."""
        timed = not getattr(self.engine, "simulated", False)
        model, batch = self.subject.model, self.subject.held_out
        size, remarks = size_ratio(self.engine, self.program, model)
        return replace(
            result,
            engine_db=decibels(joined(self.outputs), joined(self.in_float)),
            outputs_db=tuple(apart(self.outputs, self.in_float)),
            stability=self._stability(),
            size_ratio=size,
            remarks=(*result.remarks, *remarks),
            time_ratio=time_ratio(lambda inputs: self.program(*tensors_of(inputs)), model, batch) if timed else None,
            delegates=getattr(self.program, "delegates", None),
        )

    def _stability(self) -> tuple[Stability, ...]:
        """Repeat the program with other contents of fresh memory. It takes no other formats and sizes."""
        again = _outputs(self.engine, self.program, self.subject, 0xAA)
        return (
            same("repeatable", self.outputs, again, "a second run, with other contents of fresh memory,"),
            *skipped("the program is made for one form of inputs")[1:],
        )


def _outputs(engine: Engine, program: Any, subject: Network, byte: int) -> list[Tensor]:
    """The outputs of an execution, with fresh memory that holds a byte."""
    with fresh_memory_holds(byte):
        execution = engine.execute(program, tensors_of(copied(subject.held_out)))
    return [one.values for one in execution.outputs]
