"""The Cortex-M engine: models that PT2E has converted, lowered to the operators for CMSIS-NN, as ExecuTorch implements these
in Python.

`executorch` is imported inside of functions only, because the suite runs without it.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule

from conformance.configs.cortexm import CORTEX_M
from conformance.errors import brief
from conformance.models import pt2e

from . import decomposed
from .converted import ConvertedEngine, ConvertedProgram
from .executorch.shortcuts import shortcuts
from .protocol import Program
from .trace import Execution


def lowered(model: GraphModule, inputs: Sequence[Tensor]) -> GraphModule:
    """Lower a converted model to the operators for CMSIS-NN. `model` is not changed. Raises the exceptions of ExecuTorch."""
    from executorch.backends.cortex_m.passes.cortex_m_pass_manager import CortexMPassManager
    from executorch.exir import EdgeCompileConfig, to_edge

    aten = torch.ops.aten
    config = EdgeCompileConfig(  # that of ExecuTorch's own tests of these operators
        preserve_ops=[
            *(aten.linear.default, aten.hardsigmoid.default, aten.hardsigmoid_.default),
            *(aten.hardswish.default, aten.hardswish_.default, aten.silu.default),
        ],
        _check_ir_validity=False,
        _core_aten_ops_exception_list=[aten.max_pool2d.default],
    )
    with torch.no_grad():
        edge = to_edge(torch.export.export(model, tuple(inputs)), compile_config=config)
        program: GraphModule = CortexMPassManager(edge.exported_program()).transform().module(check_guards=False)
    return program


class CortexMEngine(ConvertedEngine):
    """ExecuTorch's operators for CMSIS-NN in Python, which compute what the library's kernels are specified to compute."""

    name = "cortex-m"

    def lower_for(self, model: GraphModule, inputs: Sequence[Tensor]) -> Callable[..., Any]:
        with shortcuts():
            program = lowered(model, inputs)
        program.recompile()  # the shortcuts put off writing its code
        return program

    def warm_up(self) -> None:
        """Lower a small model before any fork, unless that fails, which `unavailable` reports."""
        _problem(self)

    def unavailable(self) -> str | None:
        """Return why the engine cannot run on this host, or None if a small model was lowered and executed."""
        return _problem(self)

    def execute(self, program: Program, inputs: Sequence[Tensor]) -> Execution:
        assert isinstance(program, ConvertedProgram)
        execution = decomposed.traced(program, inputs)
        results = [one.values for one in execution.outputs]
        return replace(execution, outputs=decomposed.on_grids(program.converted, results))


@cache
def _problem(engine: CortexMEngine) -> str | None:
    if missing := pt2e.unavailable(CORTEX_M):
        return missing
    inputs = [torch.ones(pt2e.SMALL_INPUT)]
    try:
        engine.compile(pt2e.small(CORTEX_M), inputs)(*inputs)
    except Exception as error:
        return brief(error)
    return None
