"""A program for ExecuTorch that somebody has written to a file: what it executes, in order, read from its flatbuffers."""

import json
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from conformance.engines.decomposed import Grid
from conformance.errors import UsageError, brief
from conformance.models.trace import Kernel

from .runtime import BACKEND, EXECUTORCH, LoadedProgram, portable_kernel, stage, xnnpack_kernel

METHOD = "forward"
MAGIC = b"ET"
"""What is in a program from its fifth byte on, followed by a version."""


@dataclass(frozen=True)
class Step:
    """A kernel of a program. `delegate` is the number of the delegate that executes it, None outside of one."""

    kernel: Kernel
    delegate: int | None = None


class ProgramFile:
    """A program, its steps in order, and the number of its delegates.

    Raises UsageError if ExecuTorch is not installed, and for a file that cannot be read, is no program, has no method
    `forward`, or has delegates of others than XNNPACK.
    """

    def __init__(self, path: Path) -> None:
        if reason := EXECUTORCH.unavailable():
            raise UsageError(f"--pte needs the ExecuTorch runtime: {reason}")
        try:
            self.serialized = path.read_bytes()
        except OSError as error:
            raise UsageError(f"--pte {path}: {error.strerror}") from error
        if self.serialized[4:6] != MAGIC:
            raise UsageError(
                f"--pte {path} is no program of ExecuTorch: give the file that `to_executorch().save` wrote"
            )
        from executorch.exir._serialize._program import deserialize_pte_binary
        from executorch.runtime import Runtime

        try:
            self.program = deserialize_pte_binary(self.serialized).program
            with stage("load"):
                self._meta = Runtime.get().load_program(self.serialized).metadata
        except Exception as error:
            raise UsageError(f"--pte {path} cannot be read: {brief(error)}") from error
        plans = {plan.name: plan for plan in self.program.execution_plan}
        if METHOD not in plans:
            raise UsageError(
                f"--pte {path} has no method {METHOD!r}, only {', '.join(plans)}: export it with that name"
            )
        self.plan = plans[METHOD]
        self.delegates = len(self.plan.delegates)
        if others := {one.id for one in self.plan.delegates} - {BACKEND}:
            raise UsageError(
                f"--pte {path} has delegates of {', '.join(sorted(others))}: only those of {BACKEND} run here"
            )
        self.steps = tuple(self._steps())
        self.kernels = tuple(step.kernel for step in self.steps)

    def loaded(self, grids: Sequence[Grid | None] = ()) -> LoadedProgram:
        """The program in the runtime, whose outputs are on `grids`. Raises Refused with the runtime's log."""
        return LoadedProgram(self.serialized, self.kernels, self.delegates, grids)

    def unfit(self, inputs: Sequence[Tensor]) -> str:
        """What the program takes in place of these inputs, or an empty string if it takes them."""
        meta = self._meta(METHOD)
        taken = [meta.input_tensor_meta(number) for number in range(meta.num_inputs())]
        own = [(tuple(one.sizes()), int(one.dtype())) for one in taken]
        given = [(tuple(x.shape), SCALAR_TYPES.get(x.dtype, -1)) for x in inputs]
        if own == given:
            return ""

        def said(tensors: list[tuple[tuple[int, ...], int]]) -> str:
            return ", ".join(
                f"{'x'.join(map(str, shape))} {str(DTYPES.get(dtype, dtype)).removeprefix('torch.')}"
                for shape, dtype in tensors
            )

        return f"it takes {said(own)}, and is given {said(given)}"

    def _steps(self) -> Iterator[Step]:
        values = self.plan.values
        for chain in self.plan.chains:
            for instruction in chain.instructions:
                call = instruction.instr_args
                if hasattr(call, "delegate_index"):
                    yield from self._delegated(call.delegate_index)
                elif hasattr(call, "op_index"):
                    operands = [values[number].val for number in call.args[:-1]]
                    dtypes = {DTYPES.get(int(one.scalar_type)) for one in operands if hasattr(one, "scalar_type")}
                    name = self.plan.operators[call.op_index].name
                    yield Step(portable_kernel(name, {dtype for dtype in dtypes if dtype is not None}))

    def _delegated(self, number: int) -> Iterator[Step]:
        place = self.plan.delegates[number].processed.index
        for kernel in xnnpack_graph(bytes(self.program.backend_delegate_data[place].data)):
            yield Step(kernel, number)


SCALAR_TYPES = {
    torch.uint8: 0,
    torch.int8: 1,
    torch.int16: 2,
    torch.int32: 3,
    torch.int64: 4,
    torch.float16: 5,
    torch.float32: 6,
    torch.float64: 7,
    torch.bool: 11,
    torch.bfloat16: 15,
}
"""The number of each dtype in a program, as in c10/core/ScalarType.h."""
DTYPES = {number: dtype for dtype, number in SCALAR_TYPES.items()}


def xnnpack_graph(processed: bytes) -> Iterator[Kernel]:
    """Yield the nodes of a delegate of XNNPACK, in order, from its header and flatbuffer."""
    from executorch.backends.xnnpack.serialization import xnnpack_graph_serialize as serialization
    from executorch.exir._serialize._flatbuffer import _flatc_decompile

    header = serialization.XNNHeader.from_bytes(processed[: serialization.XNNHeader.EXPECTED_LENGTH])
    content = processed[header.flatbuffer_offset : header.flatbuffer_offset + header.flatbuffer_size]
    with tempfile.TemporaryDirectory() as folder:
        schema, binary = Path(folder) / "schema.fbs", Path(folder) / "graph.bin"
        schema.write_bytes(serialization._get_schema_bytes())
        binary.write_bytes(content)
        _flatc_decompile(folder, str(schema), str(binary), ["--raw-binary"])
        written = (Path(folder) / "graph.json").read_text("utf-8")
    graph = json.loads(re.sub(r"(?<=[ \[]-)inf\b|(?<=[ \[])inf\b", "Infinity", written))
    dtypes: dict[int, str] = {}
    for value in graph["xvalues"]:
        tensor: Mapping[str, Any] = value["xvalue_union"]
        tensor = tensor.get("tensor_value", tensor)
        dtypes[tensor["id_out"]] = tensor["datatype"]
    for node in graph["xnodes"]:
        yield xnnpack_kernel(node["xnode_union_type"], node["xnode_union"], dtypes)
