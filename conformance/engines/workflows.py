"""Executions of modules that were quantized in place: as they are, compiled, with frozen weights, and ahead of time."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor, nn

from conformance.models import trace
from conformance.models.build import tensors
from conformance.models.compiled import Packaged, compiled, packaged
from conformance.models.trace import Execution, Output

from .protocol import Program


class WorkflowEngine:
    """Runs a module as it is. Torch dispatches to whatever its weights say."""

    fixed_shapes = True
    source = "model"
    """The expression of a script for the program of `model` for `x`."""

    def __init__(self, name: str) -> None:
        self.name = name

    def warm_up(self) -> None:
        """Do nothing: a library that quantizes is imported by what needs it."""

    def unavailable(self) -> str | None:
        """Return None: the CPU runs any module."""
        return None

    def scope(self) -> AbstractContextManager[None]:
        """Select nothing."""
        return nullcontext()

    def compile(self, model: nn.Module, inputs: Sequence[Tensor]) -> Program:
        """Return the program of a module for inputs like these."""
        return model

    def execute(self, program: Program, inputs: Sequence[Tensor]) -> Execution:
        """Run a program once and return its outputs with the outermost operators that ran."""
        outputs, kernels = trace.profiled(program, inputs)
        return Execution(tuple(kernels), tuple(map(Output, outputs)), ahead_of_time=True)


class CompiledWorkflowEngine(WorkflowEngine):
    """`torch.compile`, which replaces products with kernels for integers where it knows the weights to be constant."""

    def __init__(self, name: str, *, freezing: bool) -> None:
        super().__init__(name)
        self.freezing = freezing
        self.source = f'torch.compile(model, options={{"freezing": {freezing}}})'

    def compile(self, model: nn.Module, inputs: Sequence[Tensor]) -> Program:
        return compiled(model, inputs, freezing=self.freezing)


class PackagedWorkflowEngine(WorkflowEngine):
    """AOTInductor, which compiles an exported module to a package."""

    source = (
        "torch._inductor.aoti_load_package(torch._inductor.aoti_compile_and_package(torch.export.export(model, (x,))))"
    )

    def compile(self, model: nn.Module, inputs: Sequence[Tensor]) -> Program:
        return packaged(model, inputs, freezing=False)

    def execute(self, program: Program, inputs: Sequence[Tensor]) -> Execution:
        """Run a program once. Its kernels are those that its code calls."""
        assert isinstance(program, Packaged)
        with torch.no_grad():
            outputs = program(*inputs)
        return Execution(program.kernels, tuple(map(Output, tensors(outputs))), ahead_of_time=True)


EAGER = WorkflowEngine("torch-eager")
COMPILED = CompiledWorkflowEngine("torch-compiled", freezing=False)
FROZEN = CompiledWorkflowEngine("torch-frozen", freezing=True)
PACKAGED = PackagedWorkflowEngine("torch-packaged")
