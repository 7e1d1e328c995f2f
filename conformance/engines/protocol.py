"""What executes a quantized model: the protocol and the table of engines."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from torch import Tensor
from torch.ao.quantization.backend_config import BackendConfig
from torch.fx import GraphModule

from .trace import Execution

Program = Callable[..., Any]
"""What an engine made of a model: called with the inputs, it gives what the model gives."""


class Engine(Protocol):
    """Something that executes quantized models on this host, or says why it cannot.

    `fixed_shapes` says whether a program takes inputs of those shapes and memory formats alone that it was compiled for.
    """

    name: str
    fixed_shapes: bool

    def warm_up(self) -> None:
        """Do what takes long the first time and is the same for every model, before children are forked."""

    def unavailable(self) -> str | None:
        """Return why this engine cannot run here, or None if a small op has run on it."""

    def scope(self) -> AbstractContextManager[None]:
        """Make this the engine that convert and execution use, and restore what was before on leaving."""

    def convert(self, prepared: GraphModule, config: BackendConfig) -> GraphModule:
        """Return the quantized model of a calibrated one as this engine takes it. `prepared` is not changed."""

    def compile(self, model: GraphModule, inputs: Sequence[Tensor]) -> Program:
        """Return the program of a converted model, for inputs like these. Raises what the engine's own tools raise."""

    def execute(self, program: Program, inputs: Sequence[Tensor]) -> Execution:
        """Run a program once and say which kernels ran."""

    def execute_again(self, program: Program, inputs: Sequence[Tensor]) -> tuple[list[Tensor], tuple[str, ...]]:
        """Run a program once more. Returns the outputs and the conversions to float that kernels made inside."""

    def weight_bytes(self, program: Program) -> int:
        """Return how many bytes a program's weights take where they are saved."""

    def reload(self, program: Program, blank: GraphModule, config: BackendConfig) -> Program:
        """Return another program with what `program` holds, saved and loaded; `blank` is prepared, with other weights."""
