"""torch's own engines, the values of `torch.backends.quantized.engine`."""

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from zipfile import ZipFile

import torch
from torch import Tensor
from torch.ao.quantization.backend_config import BackendConfig
from torch.fx import GraphModule

from conformance.configs.engines import ENGINE_TABLE
from conformance.host.poison import fresh_memory_holds
from conformance.models import fx

from . import trace
from .protocol import Program
from .trace import Execution


class NativeEngine:
    """One value of `torch.backends.quantized.engine`. Its programs are the converted models themselves."""

    fixed_shapes = False

    def __init__(self, name: str) -> None:
        self.name = name

    def warm_up(self) -> None:
        """Do nothing: torch needs no warm-up of an engine."""

    def unavailable(self) -> str | None:
        """Return why the engine cannot run on this host, or None if a small operator has run on it.

        `torch.backends.quantized.supported_engines` is not reliable, because it lists the engines that were compiled in. The
        result of the operator does not matter here; the checks judge results.
        """
        try:
            with self.scope():
                x = torch.quantize_per_tensor(torch.ones(1, 4), 1.0, 0, torch.quint8)
                weight = torch.quantize_per_tensor(torch.ones(2, 4), 1.0, 0, torch.qint8)
                packed = torch.ops.quantized.linear_prepack(weight, None)
                torch.ops.quantized.linear(x, packed, 1.0, 0)
        except RuntimeError as error:
            return str(error).splitlines()[0]
        return None

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Select the engine, process-wide. Raises RuntimeError if torch was built without it."""
        before = torch.backends.quantized.engine
        torch.backends.quantized.engine = self.name
        try:
            yield
        finally:
            torch.backends.quantized.engine = before

    def convert(self, prepared: GraphModule, config: BackendConfig) -> GraphModule:
        return fx.lower(prepared, config)

    def compile(self, model: GraphModule, inputs: Sequence[Tensor]) -> Program:
        return model

    def execute(self, program: Program, inputs: Sequence[Tensor]) -> Execution:
        return trace.execute(program, inputs)

    def execute_again(self, program: Program, inputs: Sequence[Tensor]) -> tuple[list[Tensor], tuple[str, ...]]:
        return trace.nested_kernels(program, inputs)

    def weight_bytes(self, program: Program) -> int:
        assert isinstance(program, GraphModule)
        torch.save(program.state_dict(), saved := io.BytesIO())
        with ZipFile(saved) as archive:  # every storage is a file of its own
            return sum(member.file_size for member in archive.infolist() if "/data/" in member.filename)

    def reload(self, program: Program, blank: GraphModule, config: BackendConfig) -> Program:
        """Save the state of a program and load it into a newly converted model."""
        assert isinstance(program, GraphModule)
        other = self.convert(blank, config)
        saved = io.BytesIO()
        with fresh_memory_holds(0xAA):  # so that a weight that the engine fails to unpack has wrong values
            torch.save(program.state_dict(), saved)
        saved.seek(0)
        other.load_state_dict(torch.load(saved, weights_only=False))
        return other


NATIVE = {name: NativeEngine(name) for name, spec in ENGINE_TABLE.items() if spec.native}
