"""The ExecuTorch runtime with its XNNPACK delegate: programs are lowered ahead of time, serialized, loaded and executed.

`executorch` is imported inside of functions alone: the suite runs without it, and this engine then says how to get it.
"""

import importlib.util
import io
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, redirect_stderr, suppress
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.ao.quantization.backend_config import BackendConfig
from torch.fx import GraphModule, Node
from torch.utils._pytree import tree_leaves

from conformance.engines.mutation import Write
from conformance.engines.native import NATIVE
from conformance.engines.protocol import Program
from conformance.engines.trace import Execution, Kernel, Output
from conformance.models import build, fx

from .bridge import with_integer_weights
from .shortcuts import shortcuts

BACKEND = "XnnpackBackend"
INTEGERS = {torch.int8: torch.qint8, torch.uint8: torch.quint8}
"""The quantized dtype that torch has for integers."""


class Refused(Exception):
    """A stage of ExecuTorch that raised: the message names the stage and has the stack's own words."""


@dataclass(frozen=True)
class Grid:
    """With what a model dequantizes an output."""

    scale: float
    zero_point: int
    low: int
    high: int
    dtype: torch.dtype

    def codes(self, values: Tensor) -> Tensor | None:
        """The quantized tensor of which `values` (float32) are the dequantized, or None if there is none such."""
        codes = (values.double() / self.scale).round() + self.zero_point
        if not bool(((codes >= self.low) & (codes <= self.high)).all()):
            return None
        if not torch.equal((codes - self.zero_point).float() * self.scale, values):
            return None
        return torch._make_per_tensor_quantized_tensor(codes.to(self.dtype), self.scale, self.zero_point)


class Said(io.StringIO):
    """What native code says by way of Python's stderr. It goes on to the process' own, which a death is told from."""

    def write(self, text: str) -> int:
        os.write(2, text.encode(errors="replace"))
        return super().write(text)

    @property
    def first(self) -> str:
        """The first line of the runtime's log, which names the cause; those after it tell who passed it on."""
        return next((f" {line}" for line in self.getvalue().splitlines() if line.startswith("[")), "")


@contextmanager
def stage(name: str) -> Iterator[None]:
    """Say of what is raised in which stage it was, and what the runtime logged."""
    said = Said()
    try:
        with redirect_stderr(said):
            yield
    except Exception as error:
        words = str(error).strip().splitlines() or [""]
        raise Refused(f"{name}: {type(error).__name__}: {words[0]}{said.first}") from error


@contextmanager
def delegated() -> Iterator[dict[bytes, Any]]:
    """Keep the graphs that XNNPACK is given in this scope, by their serialized form: what it runs, with which dtypes."""
    from executorch.backends.xnnpack import xnnpack_preprocess

    graphs: dict[bytes, Any] = {}
    serialize = xnnpack_preprocess.serialize_xnnpack_binary

    def kept(graph: Any, constants: bytearray) -> bytes:
        made: bytes = serialize(graph, constants)
        graphs[made] = graph
        return made

    xnnpack_preprocess.serialize_xnnpack_binary = kept
    try:
        yield graphs
    finally:
        xnnpack_preprocess.serialize_xnnpack_binary = serialize


def xnnpack_kernels(graph: Any) -> Iterator[Kernel]:
    """The nodes of a graph that XNNPACK is given, in order. Activations tell whether a node computes with integers."""
    dtypes: dict[int, str] = {}
    for value in graph.xvalues:
        tensor = getattr(value.xvalue_union, "tensor_value", value.xvalue_union)
        dtypes[tensor.id_out] = tensor.datatype.name.removeprefix("xnn_datatype_")
    for node in graph.xnodes:
        fields = vars(node.xnode_union).items()
        taken = [dtypes[number] for name, number in fields if name.startswith("input") and number in dtypes]
        name = f"xnnpack.{type(node.xnode_union).__name__.removeprefix('XNN')}"
        yield Kernel(name, any(one.startswith("q") for one in taken), any(one.startswith(("f", "bf")) for one in taken))


def kernels(program: GraphModule, graphs: Mapping[bytes, Any]) -> Iterator[Kernel]:
    """What a program runs, in order: XNNPACK's nodes where it calls the delegate, portable kernels elsewhere."""
    for node in program.graph.nodes:
        if node.op != "call_function":
            continue
        if "executorch_call_delegate" in str(node.target):
            lowered: Any = program.get_submodule(str(node.args[0].target))
            yield from xnnpack_kernels(graphs[lowered.processed_bytes])
        elif isinstance(node.target, torch._ops.OpOverload):
            out = node.kwargs.get("out")
            given = [one for one in node.all_input_nodes if one is not out]
            dtypes = {one.meta["spec"].dtype for one in given if hasattr(one.meta.get("spec"), "dtype")}
            name = node.target._schema.name.replace("::", ".")
            floating = any(dtype.is_floating_point for dtype in dtypes)
            yield Kernel(f"portable.{name}", bool(dtypes & INTEGERS.keys()), floating)


def grids(model: GraphModule) -> list[Grid | None]:
    """The grids of a decomposed model's outputs, in order; None for one that no dequantize gives."""
    (output,) = (node for node in model.graph.nodes if node.op == "output")
    return [_grid(node) for node in tree_leaves(output.args[0])]


def _grid(node: Any) -> Grid | None:
    if isinstance(node, Node) and node.target is torch.ops.quantized_decomposed.dequantize_per_tensor.default:
        arguments: tuple[Any, ...] = node.args[1:]
        return Grid(*arguments)
    return None


class LoadedProgram:
    """A serialized program in the runtime: its bytes, what it runs, and the grids of its outputs."""

    def __init__(self, serialized: bytes, kernels: Sequence[Kernel], grids: Sequence[Grid | None]) -> None:
        from executorch.runtime import Runtime

        self.serialized, self.kernels, self.grids = serialized, tuple(kernels), tuple(grids)
        with stage("load"):
            self._program = Runtime.get().load_program(serialized)
            method = self._program.load_method("forward")
        assert method is not None
        self._method = method

    def __call__(self, *inputs: Tensor) -> list[Tensor]:
        with stage("execute"):
            return build.tensors(self._method.execute(inputs))

    def again(self) -> "LoadedProgram":
        return LoadedProgram(self.serialized, self.kernels, self.grids)


def lowered(model: nn.Module, inputs: Sequence[Tensor]) -> tuple[bytes, list[Kernel]]:
    """Lower a model to the XNNPACK delegate. Returns the serialized program and what it runs. Raises Refused."""
    import executorch.kernels.quantized  # noqa: F401  (registers the out variants of quantize and dequantize)
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import ExecutorchBackendConfig, to_edge_transform_and_lower

    with stage("torch.export"), torch.no_grad():
        exported = torch.export.export(model, tuple(inputs))
    with shortcuts(), delegated() as graphs:
        with stage("to_edge_transform_and_lower"):
            edge = to_edge_transform_and_lower(exported, partitioner=[XnnpackPartitioner()])
        # without this pass, which is for what no delegate takes, an embedding's whole table is dequantized at every call
        fuses = any("embedding" in str(node.target) for node in edge.exported_program().graph.nodes)
        with stage("to_executorch"):
            made = edge.to_executorch(ExecutorchBackendConfig(do_quant_fusion_and_const_prop=fuses))
            return made.buffer, [*kernels(made.exported_program().graph_module, graphs)]


class ExecuTorchEngine:
    name = "executorch"
    fixed_shapes = True

    def warm_up(self) -> None:
        with suppress(Exception):  # what fails here is what `unavailable` says
            if self._missing() is None:
                _small_program()

    @staticmethod
    def _missing() -> str | None:
        if importlib.util.find_spec("executorch") is None:
            return "executorch is not installed: `tox -e executorch` has it, or `pip install executorch==1.4.1`"
        return None

    def unavailable(self) -> str | None:
        """Return why programs cannot be lowered, loaded and executed here, or None if a small one was."""
        if missing := self._missing():
            return missing
        try:
            from executorch.runtime import Runtime

            if not Runtime.get().backend_registry.is_available(BACKEND):
                return f"this build of executorch has no {BACKEND}"
            serialized, kernels = _small_program()
            LoadedProgram(serialized, kernels, ())(torch.ones(1, 4))
        except Exception as error:
            return f"{type(error).__name__}: {str(error).splitlines()[0]}"
        return None

    def scope(self) -> AbstractContextManager[None]:
        """torch asks its own engine for the range of dynamic activations, and has one that ends in XNNPACK too."""
        return NATIVE["qnnpack"].scope()

    def convert(self, prepared: GraphModule, config: BackendConfig) -> GraphModule:
        return with_integer_weights(fx.decomposed(prepared, config))

    def compile(self, model: GraphModule, inputs: Sequence[Tensor]) -> Program:
        return LoadedProgram(*lowered(model, inputs), grids(model))

    def execute(self, program: Program, inputs: Sequence[Tensor]) -> Execution:
        """The kernels are those that the program lists: the runtime runs all of it."""
        assert isinstance(program, LoadedProgram)
        before = [x.clone() for x in inputs]
        made = program(*inputs)
        outputs = []
        for number, values in enumerate(made):
            grid = program.grids[number] if number < len(program.grids) else None
            outputs.append(Output(values, None if grid is None else grid.codes(values)))
        writes = tuple(
            Write(None, number)
            for number, (x, was) in enumerate(zip(inputs, before, strict=True))
            if not torch.equal(x, was)
        )
        return Execution(program.kernels, tuple(outputs), writes=writes, ahead_of_time=True)

    def execute_again(self, program: Program, inputs: Sequence[Tensor]) -> tuple[list[Tensor], tuple[str, ...]]:
        """XNNPACK's graph says what is float in it, so that there is nothing more to see of what kernels do inside."""
        return build.tensors(program(*inputs)), ()

    def weight_bytes(self, program: Program) -> int:
        """The whole program's: where its weights stand in it is XNNPACK's own affair."""
        assert isinstance(program, LoadedProgram)
        return len(program.serialized)

    def reload(self, program: Program, blank: GraphModule, config: BackendConfig) -> Program:
        """A program is saved as it is: all that there is to load it into is the runtime."""
        assert isinstance(program, LoadedProgram)
        return program.again()


@cache
def _small_program() -> tuple[bytes, list[Kernel]]:
    return lowered(nn.ReLU(), (torch.ones(1, 4),))


EXECUTORCH = ExecuTorchEngine()
