"""Engines for models that PT2E has converted: the model as it is, or what a function lowers it to."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor
from torch.ao.quantization.backend_config import BackendConfig
from torch.fx import GraphModule

from conformance.configs.quantizer import QuantizerSpec
from conformance.errors import brief
from conformance.models import pt2e
from conformance.models.build import tensors
from conformance.models.trace import Execution

from . import decomposed
from .protocol import Program
from .reference import KERNEL
from .torch_engine import TorchEngine


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
    simulated = True
    """Whether the time of a pass says nothing of that on the hardware."""

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
        """Return the size in bytes of the constants that the converted graph takes, which torch.export saves and packed
        weights take the place of. The module still has the float weights, which its graph does not take."""
        assert isinstance(program, ConvertedProgram)
        taken = {str(node.target) for node in program.converted.graph.nodes if node.op == "get_attr"}
        constants = (attrgetter(name)(program.converted) for name in taken)
        return sum({id(x): x.nbytes for x in constants}.values())

    def reload(self, program: Program, blank: GraphModule, config: BackendConfig) -> Program:
        """Save and load the converted model as torch.export does, and lower that: a lowered model cannot be saved."""
        assert isinstance(program, ConvertedProgram)
        return self.compile(pt2e.saved_and_loaded(program.converted, program.inputs), program.inputs)


class LoweringEngine(ConvertedEngine):
    """Runs what `lower_for` lowers a converted model to. `quantizer` is the one whose models it is for."""

    quantizer: QuantizerSpec
    simulated = False

    def missing(self) -> str | None:
        """Return what the engine lacks on this host besides the quantizer, or None."""
        return None

    def warm_up(self) -> None:
        """Lower a small model before any fork, unless that fails, which `unavailable` reports."""
        _problem(self)

    def unavailable(self) -> str | None:
        """Return why the engine cannot run on this host, or None if a small model was lowered and executed."""
        return _problem(self)

    def execute(self, program: Program, inputs: Sequence[Tensor]) -> Execution:
        """Run a program once, and record the operators of torch that run. The converted model tells the outputs' codes."""
        assert isinstance(program, ConvertedProgram)
        execution = decomposed.traced(program, inputs)
        results = [one.values for one in execution.outputs]
        return replace(execution, outputs=decomposed.on_grids(program.converted, results))


@cache
def _problem(engine: LoweringEngine) -> str | None:
    if problem := pt2e.unavailable(engine.quantizer) or engine.missing():
        return problem
    inputs = [torch.ones(pt2e.SMALL_INPUT)]
    try:
        with torch.no_grad():
            engine.compile(pt2e.small(engine.quantizer), inputs)(*inputs)
    except Exception as error:
        return brief(error)
    return None
