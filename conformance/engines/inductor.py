"""torch's inductor: models that PT2E has converted, lowered to oneDNN's kernels or compiled to code."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch.fx import GraphModule

from conformance.configs.arminductor import ARM
from conformance.configs.quantizer import QuantizerSpec
from conformance.configs.x86inductor import X86
from conformance.models import pt2e, trace
from conformance.models.compiled import Packaged, compiled, packaged
from conformance.models.mutation import overwritten
from conformance.models.trace import Execution
from conformance.shortcuts import enabled

from . import decomposed
from .converted import ConvertedProgram, LoweringEngine
from .decompositions import tables_once
from .protocol import Program


class LoweredEngine(LoweringEngine):
    """`lower_pt2e_quantized_to_x86`: a graph of oneDNN's quantized kernels, which torch interprets.

    Its passes are the same on every machine, and so are the names of the kernels.
    """

    def __init__(self, name: str, quantizer: QuantizerSpec) -> None:
        self.name, self.quantizer = name, quantizer

    def missing(self) -> str | None:
        return None if "onednn" in torch.backends.quantized.supported_engines else "torch was built without oneDNN"

    def lower_for(self, model: GraphModule, inputs: Sequence[Tensor]) -> Callable[..., Any]:
        if not enabled("decompositions"):
            return pt2e.lowered_to_x86(model, inputs)
        with tables_once(), patch.object(torch.export, "export", pt2e.untraced_export):
            return pt2e.lowered_to_x86(model, inputs)

    def execute(self, program: Program, inputs: Sequence[Tensor]) -> Execution:
        """Run a program once. The kernels that dequantize its results tell their codes."""
        assert isinstance(program, ConvertedProgram)
        execution = decomposed.traced(program, inputs)
        return replace(execution, outputs=decomposed.with_copied(program.converted, execution.outputs))


class CompiledEngine(LoweredEngine):
    """`torch.compile` with inductor, which has fused kernels for frozen weights alone, and generates code for the rest."""

    generates_code = True

    def __init__(self, name: str, quantizer: QuantizerSpec, *, freezing: bool = True) -> None:
        super().__init__(name, quantizer)
        self.freezing = freezing
        self.in_float = "" if freezing else "inductor fuses integer kernels for frozen weights alone"

    def lower_for(self, model: GraphModule, inputs: Sequence[Tensor]) -> Callable[..., Any]:
        return compiled(model, inputs, freezing=self.freezing)

    def execute(self, program: Program, inputs: Sequence[Tensor]) -> Execution:
        """Run a program once. Generated code is no operator: the kernels are those of libraries."""
        assert isinstance(program, ConvertedProgram)
        before = [x.clone() for x in inputs]
        outputs, kernels = trace.profiled(program, inputs)
        executed, writes = decomposed.on_grids(program.converted, outputs), overwritten(before, inputs)
        return Execution(tuple(kernels), executed, writes=writes, ahead_of_time=True)


class PackagedEngine(CompiledEngine):
    """AOTInductor, `aoti_compile_and_package`, which has fused kernels for frozen weights alone, too."""

    def lower_for(self, model: GraphModule, inputs: Sequence[Tensor]) -> Callable[..., Any]:
        return packaged(model, inputs, freezing=self.freezing)

    def execute(self, program: Program, inputs: Sequence[Tensor]) -> Execution:
        """Run a program once. Its kernels are those that its code calls."""
        assert isinstance(program, ConvertedProgram)
        before = [x.clone() for x in inputs]
        outputs = program(*inputs)
        assert isinstance(program.function, Packaged)
        executed, writes = decomposed.on_grids(program.converted, outputs), overwritten(before, inputs)
        return Execution(program.function.kernels, executed, writes=writes, ahead_of_time=True)


LOWERED, COMPILED = LoweredEngine("x86-inductor", X86), CompiledEngine("x86-compiled", X86)
UNFROZEN = CompiledEngine("x86-unfrozen", X86, freezing=False)
PACKAGED, PACKAGED_UNFROZEN = PackagedEngine("x86-aot", X86), PackagedEngine("x86-aot-unfrozen", X86, freezing=False)
ARM_LOWERED, ARM_COMPILED = LoweredEngine("arm-inductor", ARM), CompiledEngine("arm-compiled", ARM)
