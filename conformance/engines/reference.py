"""An engine for configs that no engine here lowers: it runs torch's reference models as they are."""

from collections.abc import Sequence
from dataclasses import replace

from torch import Tensor

from conformance.models import trace
from conformance.models.trace import Execution, Kernel

from .protocol import Program
from .torch_engine import TorchEngine

KERNEL = Kernel("reference", takes_quantized=True, takes_float=False)
"""What stands for the operators of a reference model."""


class ReferenceEngine(TorchEngine):
    """Runs what `convert_to_reference_fx` returns: quantize and dequantize calls around float operators.

    Its results are those that a backend has to reproduce whose lowering starts from these models. They say whether a config
    matches, observes and quantizes what it promises, and nothing about kernels.
    """

    name = "reference"
    reference = True
    quantized_engine = "qnnpack"  # on torch's engines for x86, conversion reduces the range of dynamic quantization

    def execute(self, program: Program, inputs: Sequence[Tensor]) -> Execution:
        return replace(trace.execute(program, inputs), kernels=(KERNEL,))

    def execute_again(self, program: Program, inputs: Sequence[Tensor]) -> tuple[list[Tensor], tuple[str, ...]]:
        return trace.nested_kernels(program, inputs)[0], ()
