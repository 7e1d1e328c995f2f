"""A network as one program of an engine, beside the network in float."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from conformance.engines.protocol import Engine
from conformance.host.poison import fresh_memory_holds
from conformance.models.trace import Execution
from conformance.results.audits import Audit, Stability

from .agreement import apart, decibels, joined
from .costs import size_ratio, time_ratio
from .network import Network, copied, tensors_of
from .stability import same, skipped


@dataclass(frozen=True)
class Whole:
    """A program of an engine that is made of a network. Executing it raises the exceptions of the engine."""

    engine: Engine
    program: Any
    subject: Network

    def run(self, byte: int) -> Execution:
        """Execute the program, with fresh memory that holds a byte."""
        with fresh_memory_holds(byte):
            return self.engine.execute(self.program, tensors_of(copied(self.subject.held_out)))

    @cached_property
    def outputs(self) -> list[Tensor]:
        """The values of the outputs."""
        return [one.values for one in self.run(0x00).outputs]

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
        again = [one.values for one in self.run(0xAA).outputs]
        return (
            same("repeatable", self.outputs, again, "a second run, with other contents of fresh memory,"),
            *skipped("the program is made for one form of inputs")[1:],
        )
