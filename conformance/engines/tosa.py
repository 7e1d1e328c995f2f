"""The TOSA engine: models that PT2E has converted, lowered to a graph of TOSA, which Arm's reference model executes.

`executorch` and `tosa_reference_model` are imported inside of functions only, because the suite runs without them.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch.fx import GraphModule, Interpreter
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_leaves

from conformance.configs.tosa import TOSA
from conformance.models.trace import Execution, Kernel

from .converted import ConvertedProgram, LoweringEngine
from .executorch.shortcuts import shortcuts
from .protocol import Program

VERSION = "TOSA-1.0+INT"
"""The specification and its profile: TOSA's integer profile has no operators on floats."""


@dataclass(frozen=True)
class Graph:
    """The part of a program that is delegated to TOSA.

    Attributes:
        serialized: the graph, serialized.
        operators: the names of its operators, in order.
        orders: of each output, the dimensions in the order in which its elements lie in memory.
    """

    serialized: bytes
    operators: tuple[str, ...]
    orders: tuple[tuple[int, ...], ...]

    def __call__(self, *inputs: Tensor) -> list[Tensor]:
        """Execute the graph. Raises RuntimeError if the reference model finds that it is no valid TOSA."""
        import tosa_reference_model

        # at each error it would have a debugger print a backtrace, which takes seconds
        os.environ.setdefault("TOSA_MODEL_NO_BACKTRACE", "1")
        with _disable_current_modes():  # what follows is no kernel
            # a graph has the dimensions of a tensor in the order in which they lie in memory
            physical = [x.permute(x.dim_order()).contiguous().numpy() for x in inputs]
            arrays, status = tosa_reference_model.run(self.serialized, physical)
            if status != tosa_reference_model.GraphStatus.TOSA_VALID:
                raise RuntimeError(f"the reference model of TOSA returns {status.name}")
            pairs = zip(arrays, self.orders, strict=True)
            return [torch.from_numpy(array).permute(logical(order)) for array, order in pairs]


def logical(order: Sequence[int]) -> list[int]:
    """The permutation that undoes one."""
    return [order.index(dimension) for dimension in range(len(order))]


class Lowered(Interpreter):
    """Runs a lowered program: the graphs that are delegated, and what is left of it in torch."""

    def __init__(self, program: GraphModule, graphs: dict[bytes, Graph]) -> None:
        super().__init__(program)
        self.graphs, self.ran = graphs, list[Kernel]()

    def __call__(self, *inputs: Tensor) -> Any:
        return self.run(*inputs)

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        if target is not torch.ops.higher_order.executorch_call_delegate:
            return super().call_function(target, args, kwargs)
        lowered, *inputs = args
        graph = self.graphs[lowered.processed_bytes]
        self.ran += [Kernel(f"tosa.{name}", takes_quantized=True, takes_float=False) for name in graph.operators]
        return graph(*inputs)


@contextmanager
def _collected() -> Iterator[list[list[str]]]:
    """Collect the names of the operators of each graph that is serialized in this scope."""
    import tosa_serializer

    graphs: list[list[str]] = []

    class Serializer(tosa_serializer.TosaSerializer):  # type: ignore[misc]
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            graphs.append([])

        def addOperator(self, operator: Any, *arguments: Any, **options: Any) -> Any:
            graphs[-1].append(tosa_serializer.Op(operator).name)
            return super().addOperator(operator, *arguments, **options)

    with patch.object(tosa_serializer, "TosaSerializer", Serializer):
        yield graphs


def lowered(model: GraphModule, inputs: Sequence[Tensor]) -> Lowered:
    """Lower a converted model to TOSA. `model` is not changed. Raises the exceptions of ExecuTorch."""
    from executorch.backends.arm.tosa.compile_spec import TosaCompileSpec
    from executorch.backends.arm.tosa.partitioner import TOSAPartitioner
    from executorch.exir import to_edge_transform_and_lower

    with torch.no_grad(), _collected() as operators:
        exported = torch.export.export(model, tuple(inputs))
        edge = to_edge_transform_and_lower(exported, partitioner=[TOSAPartitioner(TosaCompileSpec(VERSION))])
    program: Any = edge.exported_program().module(check_guards=False)
    delegated: list[Any] = [
        program.get_submodule(str(node.args[0].target))
        for node in program.graph.nodes
        if node.target is torch.ops.higher_order.executorch_call_delegate
    ]
    graphs = {}
    for one, names in zip(delegated, operators, strict=True):
        results = tree_leaves(one.original_module.graph.output_node().args)
        orders = tuple(tuple(node.meta["val"].dim_order()) for node in results)
        graphs[one.processed_bytes] = Graph(one.processed_bytes, tuple(names), orders)
    return Lowered(program, graphs)


class TosaEngine(LoweringEngine):
    """TOSA's reference model, which computes the integers that the specification prescribes."""

    name = "tosa"
    quantizer = TOSA
    simulated = True

    def missing(self) -> str | None:
        if find_spec("tosa_reference_model") is None:
            return "tosa_reference_model cannot be imported: install tosa-tools, or use `tox -e pt2e-tosa`"
        return None

    def lower_for(self, model: GraphModule, inputs: Sequence[Tensor]) -> Callable[..., Any]:
        with shortcuts():
            return lowered(model, inputs)

    def execute(self, program: Program, inputs: Sequence[Tensor]) -> Execution:
        """Run a program once. The kernels are the operators of TOSA, and what is left to torch."""
        assert isinstance(program, ConvertedProgram)
        assert isinstance(program.function, Lowered)
        program.function.ran.clear()
        left = super().execute(program, inputs)
        return replace(left, kernels=(*program.function.ran, *left.kernels))
