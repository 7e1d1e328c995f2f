"""The protocol of an engine, which executes quantized models."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from torch import Tensor
from torch.ao.quantization.backend_config import BackendConfig
from torch.fx import GraphModule

from conformance.models.trace import Execution

Program = Callable[..., Any]
"""A compiled model. Called with the inputs, it returns the outputs of the model."""


class Engine(Protocol):
    """An executor of quantized models on this host.

    Attributes:
        name: the name in run ids and in `ENGINE_TABLE`.
        fixed_shapes: whether a program accepts only the shapes and memory formats that it was compiled for.
    """

    name: str
    fixed_shapes: bool

    def warm_up(self) -> None:
        """Initialize what all models share. Called once before children are forked, so that they inherit it."""

    def unavailable(self) -> str | None:
        """Return why this engine cannot run on this host, or None if a small operator has run on it."""

    def scope(self) -> AbstractContextManager[None]:
        """Select this engine for conversion and execution, and restore the previous one on exit."""

    def convert(self, prepared: GraphModule, config: BackendConfig) -> GraphModule:
        """Return the quantized model of a calibrated one, in the form that `compile` takes. `prepared` is not changed."""

    def compile(self, model: GraphModule, inputs: Sequence[Tensor]) -> Program:
        """Return the program of a converted model for inputs like these. Raises the exceptions of the engine's own tools."""

    def execute(self, program: Program, inputs: Sequence[Tensor]) -> Execution:
        """Run a program once and return its outputs with a trace of its kernels."""

    def execute_again(self, program: Program, inputs: Sequence[Tensor]) -> tuple[list[Tensor], tuple[str, ...]]:
        """Run a program again. Returns the outputs and the names of conversions to float inside of kernels."""

    def weight_bytes(self, program: Program) -> int:
        """Return the size in bytes of a program's saved weights."""

    def reload(self, program: Program, blank: GraphModule, config: BackendConfig) -> Program:
        """Save a program, load it into another one and return that.

        `blank` is a prepared model with other weights, for engines that load a state into a model.
        """
