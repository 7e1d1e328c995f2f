"""The ExecuTorch engine: programs are lowered to the XNNPACK delegate, serialized, loaded and executed.

`executorch` is imported inside of functions only, because the suite runs without it.
"""

import importlib.util
import io
import os
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import AbstractContextManager, contextmanager, redirect_stderr, suppress
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.ao.quantization.backend_config import BackendConfig
from torch.fx import GraphModule, Node

from conformance.configs.quantizer import QuantizerConfig
from conformance.engines.decomposed import Grid, grids
from conformance.engines.native import NATIVE
from conformance.engines.protocol import Program
from conformance.errors import not_installed
from conformance.models import build, fx, pt2e
from conformance.models.mutation import overwritten
from conformance.models.trace import Execution, Kernel, Output

from .bridge import with_integer_weights
from .shortcuts import shortcuts

BACKEND = "XnnpackBackend"
INTEGERS = {torch.int8: torch.qint8, torch.uint8: torch.quint8}
"""torch's quantized dtype for each integer dtype."""


HOST_LOG = "[cpuinfo_utils.cpp"
"""What lines of the runtime's log begin with that are about the host."""


class Refused(Exception):
    """A stage of ExecuTorch raised. The message consists of the stage, the error, and the runtime's first log line."""


class RuntimeLog(io.StringIO):
    """A copy of the log that native code writes to Python's stderr.

    The log is forwarded to file descriptor 2 at once, because the cause of a crash is read from there.
    """

    def write(self, text: str) -> int:
        os.write(2, text.encode(errors="replace"))
        return super().write(text)

    @property
    def first(self) -> str:
        """The first line of the log about the program, which names the cause. Later lines only name callers."""
        lines = (
            line for line in self.getvalue().splitlines() if line.startswith("[") and not line.startswith(HOST_LOG)
        )
        return next((f" {line}" for line in lines), "")


@contextmanager
def stage(name: str) -> Iterator[None]:
    """Raise Refused, with the stage and the runtime's log, for any exception in this scope."""
    log = RuntimeLog()
    try:
        with redirect_stderr(log):
            yield
    except Exception as error:
        lines = str(error).strip().splitlines() or [""]
        raise Refused(f"{name}: {type(error).__name__}: {lines[0]}{log.first}") from error


@contextmanager
def delegated() -> Iterator[dict[bytes, Any]]:
    """Collect the graphs that are delegated to XNNPACK in this scope, by their serialized form."""
    from executorch.backends.xnnpack import xnnpack_preprocess

    graphs: dict[bytes, Any] = {}
    serialize = xnnpack_preprocess.serialize_xnnpack_binary

    def collecting(graph: Any, constants: bytearray) -> bytes:
        serialized: bytes = serialize(graph, constants)
        graphs[serialized] = graph
        return serialized

    xnnpack_preprocess.serialize_xnnpack_binary = collecting
    try:
        yield graphs
    finally:
        xnnpack_preprocess.serialize_xnnpack_binary = serialize


def xnnpack_kernels(graph: Any) -> Iterator[Kernel]:
    """Yield the nodes of a delegated graph, in order, with the kinds of their inputs."""
    dtypes: dict[int, str] = {}
    for value in graph.xvalues:
        tensor = getattr(value.xvalue_union, "tensor_value", value.xvalue_union)
        dtypes[tensor.id_out] = tensor.datatype.name
    for node in graph.xnodes:
        yield xnnpack_kernel(type(node.xnode_union).__name__, vars(node.xnode_union), dtypes)


def xnnpack_kernel(kind: str, fields: Mapping[str, Any], dtypes: Mapping[int, str]) -> Kernel:
    """A node of XNNPACK, such as XNNConv2d, with its fields, of which the inputs are numbers of values with `dtypes`."""
    numbers = [number for name, number in fields.items() if name.startswith("input") and number in dtypes]
    inputs = [dtypes[number].removeprefix("xnn_datatype_") for number in numbers]
    takes_float = any(dtype.startswith(("f", "bf")) for dtype in inputs)
    return Kernel(f"xnnpack.{kind.removeprefix('XNN')}", any(dtype.startswith("q") for dtype in inputs), takes_float)


def portable_kernel(operator: str, dtypes: Set[torch.dtype]) -> Kernel:
    """A kernel outside of a delegate, such as that of aten::add, with the dtypes of its operands."""
    floating = any(dtype.is_floating_point for dtype in dtypes)
    return Kernel(f"portable.{operator.replace('::', '.')}", bool(dtypes & INTEGERS.keys()), floating)


def is_delegate(node: Node) -> bool:
    """Whether a node of a program calls a delegate."""
    return node.op == "call_function" and "executorch_call_delegate" in str(node.target)


def kernels(program: GraphModule, graphs: Mapping[bytes, Any]) -> Iterator[Kernel]:
    """Yield the kernels of a program, in order: XNNPACK's nodes for a delegate call, portable kernels for any other."""
    for node in program.graph.nodes:
        if node.op != "call_function":
            continue
        if is_delegate(node):
            lowered: Any = program.get_submodule(str(node.args[0].target))
            yield from xnnpack_kernels(graphs[lowered.processed_bytes])
        elif isinstance(node.target, torch._ops.OpOverload):
            out = node.kwargs.get("out")
            specs = [source.meta.get("spec") for source in node.all_input_nodes if source is not out]
            dtypes = {spec.dtype for spec in specs if hasattr(spec, "dtype")}
            yield portable_kernel(node.target._schema.name, dtypes)


class LoadedProgram:
    """A program in the runtime, with its serialized form, its kernels, the number of its delegates and the grids of its
    outputs."""

    def __init__(
        self, serialized: bytes, kernels: Sequence[Kernel], delegates: int, grids: Sequence[Grid | None]
    ) -> None:
        from executorch.runtime import Runtime

        self.serialized, self.kernels, self.grids = serialized, tuple(kernels), tuple(grids)
        self.delegates = delegates
        with stage("load"):
            self._program = Runtime.get().load_program(serialized)
            method = self._program.load_method("forward")
        assert method is not None
        self._method = method

    def __call__(self, *inputs: Tensor) -> list[Tensor]:
        with stage("execute"):
            return build.tensors(self._method.execute(inputs))

    def again(self) -> "LoadedProgram":
        return LoadedProgram(self.serialized, self.kernels, self.delegates, self.grids)


class Lowered(NamedTuple):
    """A serialized program, its kernels in order, and the number of its delegates."""

    serialized: bytes
    kernels: list[Kernel]
    delegates: int


def lowered(model: nn.Module, inputs: Sequence[Tensor]) -> Lowered:
    """Lower a model to the XNNPACK delegate. Raises Refused."""
    import executorch.kernels.quantized  # noqa: F401  (registers the out variants of quantize and dequantize)
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import ExecutorchBackendConfig, to_edge_transform_and_lower

    with stage("torch.export"), torch.no_grad():
        exported = torch.export.export(model, tuple(inputs))
    with shortcuts(), delegated() as graphs:
        with stage("to_edge_transform_and_lower"):
            edge = to_edge_transform_and_lower(exported, partitioner=[XnnpackPartitioner()])
        # without this pass, which concerns undelegated operators, an embedding dequantizes its whole table at every call
        fuses = any("embedding" in str(node.target) for node in edge.exported_program().graph.nodes)
        with stage("to_executorch"):
            program = edge.to_executorch(ExecutorchBackendConfig(do_quant_fusion_and_const_prop=fuses))
        graph = program.exported_program().graph_module
        return Lowered(program.buffer, [*kernels(graph, graphs)], sum(map(is_delegate, graph.graph.nodes)))


class ExecuTorchEngine:
    """The ExecuTorch runtime with the XNNPACK delegate."""

    name = "executorch"
    fixed_shapes = True

    def warm_up(self) -> None:
        with suppress(Exception):  # `unavailable` reports it
            if self._missing() is None:
                _small_program()

    @staticmethod
    def _missing() -> str | None:
        if importlib.util.find_spec("executorch") is None:
            return str(not_installed("executorch", "executorch", "executorch"))
        return None

    def unavailable(self) -> str | None:
        """Return why the engine cannot run on this host, or None if a small program was lowered, loaded and executed."""
        if missing := self._missing():
            return missing
        try:
            from executorch.runtime import Runtime

            if not Runtime.get().backend_registry.is_available(BACKEND):
                return f"this build of executorch has no {BACKEND}"
            LoadedProgram(*_small_program(), ())(torch.ones(1, 4))
        except Exception as error:
            return f"{type(error).__name__}: {str(error).splitlines()[0]}"
        return None

    def scope(self) -> AbstractContextManager[None]:
        """Select qnnpack: torch's observers of dynamic activations read the range from the selected engine."""
        return NATIVE["qnnpack"].scope()

    def convert(self, prepared: GraphModule, config: BackendConfig) -> GraphModule:
        if isinstance(config, QuantizerConfig):
            return pt2e.converted(prepared)
        return with_integer_weights(fx.decomposed(prepared, config))

    def compile(self, model: GraphModule, inputs: Sequence[Tensor]) -> Program:
        return LoadedProgram(*lowered(model, inputs), grids(model))

    def execute(self, program: Program, inputs: Sequence[Tensor]) -> Execution:
        """Run a program. Its kernels are known ahead of time, because the runtime executes all of them."""
        assert isinstance(program, LoadedProgram)
        before = [x.clone() for x in inputs]
        results = program(*inputs)
        outputs = []
        for number, values in enumerate(results):
            grid = program.grids[number] if number < len(program.grids) else None
            outputs.append(Output(values, None if grid is None else grid.codes(values)))
        return Execution(program.kernels, tuple(outputs), writes=overwritten(before, inputs), ahead_of_time=True)

    def execute_again(self, program: Program, inputs: Sequence[Tensor]) -> tuple[list[Tensor], tuple[str, ...]]:
        """Run a program again. The graph of a delegate states all dtypes, so no conversion is hidden inside a kernel."""
        return build.tensors(program(*inputs)), ()

    def weight_bytes(self, program: Program) -> int:
        """Return the size of the whole program, because XNNPACK's format does not separate the weights."""
        assert isinstance(program, LoadedProgram)
        return len(program.serialized)

    def reload(self, program: Program, blank: GraphModule, config: BackendConfig) -> Program:
        """Load the serialized program again. `blank` is not needed."""
        assert isinstance(program, LoadedProgram)
        return program.again()


@cache
def _small_program() -> Lowered:
    return lowered(nn.ReLU(), (torch.ones(1, 4),))


EXECUTORCH = ExecuTorchEngine()
