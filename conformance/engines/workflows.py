"""Executions of modules that were quantized in place: as they are, compiled by inductor, and compiled with frozen weights."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

from torch import Tensor, nn

from conformance.models import trace
from conformance.models.compiled import compiled
from conformance.models.trace import Execution, Output

from .protocol import Program


class WorkflowEngine:
    """Runs a module as it is. Torch dispatches to whatever its weights say."""

    fixed_shapes = True

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

    def compile(self, model: nn.Module, inputs: Sequence[Tensor]) -> Program:
        return compiled(model, inputs, freezing=self.freezing)


EAGER = WorkflowEngine("eager")
COMPILED = CompiledWorkflowEngine("compiled", freezing=False)
FROZEN = CompiledWorkflowEngine("frozen", freezing=True)
