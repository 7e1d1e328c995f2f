"""torch's inductor on x86: models that PT2E has converted, lowered to oneDNN's kernels or compiled to code."""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch.fx import GraphModule

from conformance.configs.x86inductor import X86
from conformance.errors import brief
from conformance.models import pt2e
from conformance.shortcuts import enabled

from . import decomposed, trace
from .converted import ConvertedEngine, ConvertedProgram
from .decompositions import tables_once
from .mutation import overwritten
from .protocol import Program
from .trace import Execution


class LoweredEngine(ConvertedEngine):
    """`lower_pt2e_quantized_to_x86`: a graph of oneDNN's quantized kernels, which torch interprets."""

    name = "x86-inductor"

    def lower_for(self, model: GraphModule, inputs: Sequence[Tensor]) -> Callable[..., Any]:
        if not enabled("decompositions"):
            return pt2e.lowered_to_x86(model, inputs)
        with tables_once(), patch.object(torch.export, "export", pt2e.untraced_export):
            return pt2e.lowered_to_x86(model, inputs)

    def warm_up(self) -> None:
        """Lower a small model before any fork, unless that fails, which `unavailable` reports."""
        _problem(self)

    def unavailable(self) -> str | None:
        """Return why the engine cannot run on this host, or None if a small model was lowered and executed."""
        return _problem(self)

    def execute(self, program: Program, inputs: Sequence[Tensor]) -> Execution:
        return decomposed.traced(program, inputs)


class CompiledEngine(LoweredEngine):
    """`torch.compile` with inductor and frozen weights, as users of the quantizer run a model."""

    name = "x86-compiled"

    def lower_for(self, model: GraphModule, inputs: Sequence[Tensor]) -> Callable[..., Any]:
        return pt2e.compiled(model, inputs)

    def execute(self, program: Program, inputs: Sequence[Tensor]) -> Execution:
        """Run a program once. Generated code is no operator: the kernels are those of libraries."""
        assert isinstance(program, ConvertedProgram)
        before = [x.clone() for x in inputs]
        outputs, kernels = trace.profiled(program, inputs)
        executed, writes = decomposed.on_grids(program.converted, outputs), overwritten(before, inputs)
        return Execution(tuple(kernels), executed, writes=writes, ahead_of_time=True)


@cache
def _problem(engine: LoweredEngine) -> str | None:
    if missing := pt2e.unavailable(X86):
        return missing
    if "onednn" not in torch.backends.quantized.supported_engines:
        return "torch was built without oneDNN"
    inputs = [torch.ones(pt2e.SMALL_INPUT)]
    try:
        with torch.no_grad():
            engine.compile(pt2e.small(X86), inputs)(*inputs)
    except Exception as error:
        return brief(error)
    return None


LOWERED, COMPILED = LoweredEngine(), CompiledEngine()
