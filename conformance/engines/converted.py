"""Engines for models that PT2E has converted: the model as it is, or what a function lowers it to."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.ao.quantization.backend_config import BackendConfig
from torch.fx import GraphModule

from conformance.models import pt2e
from conformance.models.build import tensors

from . import decomposed
from .protocol import Program
from .reference import KERNEL
from .torch_engine import TorchEngine
from .trace import Execution


@dataclass(frozen=True)
class ConvertedProgram:
    """A function with the converted model that it was made from and the inputs that it was made for."""

    function: Callable[..., Any]
    converted: GraphModule
    inputs: tuple[Tensor, ...]

    def __call__(self, *inputs: Tensor) -> list[Tensor]:
        return tensors(self.function(*inputs))


class ConvertedEngine(TorchEngine):
    """Runs what `convert_pt2e` returns: quantize and dequantize calls around float operators.

    For quantizers whose models nothing here lowers. Its results say whether a quantizer annotates and quantizes what it
    declares, and nothing about kernels. A subclass lowers the model by `lower_for`.
    """

    name = "converted"
    fixed_shapes = True
    ahead_of_time = True

    def lower_for(self, model: GraphModule, inputs: Sequence[Tensor]) -> Callable[..., Any]:
        """Return the function that executes a converted model on inputs like these. By default it is the model."""
        return model

    def convert(self, prepared: GraphModule, config: BackendConfig) -> GraphModule:
        return pt2e.converted(prepared)

    def compile(self, model: GraphModule, inputs: Sequence[Tensor]) -> Program:
        return ConvertedProgram(self.lower_for(model, inputs), model, tuple(inputs))

    def execute(self, program: Program, inputs: Sequence[Tensor]) -> Execution:
        assert isinstance(program, ConvertedProgram)
        return replace(decomposed.execute(program.converted, inputs), kernels=(KERNEL,))

    def execute_again(self, program: Program, inputs: Sequence[Tensor]) -> tuple[list[Tensor], tuple[str, ...]]:
        """Run a program again. The graph states the dtypes of all results, so no conversion is hidden inside a kernel."""
        with torch.no_grad():
            return tensors(program(*inputs)), ()

    def weight_bytes(self, program: Program) -> int:
        """Return the size in bytes of the converted model's constants, which packed weights take the place of."""
        assert isinstance(program, ConvertedProgram)
        return sum(x.numel() * x.element_size() for x in program.converted.state_dict().values())

    def reload(self, program: Program, blank: GraphModule, config: BackendConfig) -> Program:
        """Save and load the converted model as torch.export does, and lower that: a lowered model cannot be saved."""
        assert isinstance(program, ConvertedProgram)
        return self.compile(pt2e.saved_and_loaded(program.converted, program.inputs), program.inputs)
