"""The Cortex-M engine: models that PT2E has converted, lowered to the operators for CMSIS-NN, as ExecuTorch implements these
in Python.

`executorch` is imported inside of functions only, because the suite runs without it.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule

from conformance.configs.cortexm import CORTEX_M

from .converted import LoweringEngine
from .executorch.shortcuts import shortcuts


def lower_to_cortex_m(model: GraphModule, inputs: Sequence[Tensor]) -> GraphModule:
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


class CortexMEngine(LoweringEngine):
    """ExecuTorch's operators for CMSIS-NN in Python, which compute what the library's kernels are specified to compute."""

    name = "cortex-m"
    quantizer = CORTEX_M
    simulated = True

    def lower_for(self, model: GraphModule, inputs: Sequence[Tensor]) -> Callable[..., Any]:
        with shortcuts():
            program = lower_to_cortex_m(model, inputs)
        program.recompile()  # the shortcuts put off writing its code
        return program
