"""torch's own quantized engines: qnnpack, fbgemm, onednn and x86."""

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from zipfile import ZipFile

import torch
from torch import Tensor
from torch.ao.quantization.backend_config import BackendConfig
from torch.fx import GraphModule

from conformance.host.poison import fresh_memory_holds
from conformance.models import fx

from . import trace
from .protocol import Program
from .trace import Execution


class NativeEngine:
    """One value of `torch.backends.quantized.engine`. Its programs are converted models as they are."""

    fixed_shapes = False

    def __init__(self, name: str) -> None:
        self.name = name

    def warm_up(self) -> None:
        """What there is to warm up is torch's own."""

    def unavailable(self) -> str | None:
        """Return why the engine cannot run here. `supported_engines` is not asked: it lists what was compiled in.

        What the small operator gives is not asked either: whether that is right is for the checks to say.
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
        with ZipFile(saved) as parts:  # in which every tensor's bytes are a file
            return sum(part.file_size for part in parts.infolist() if "/data/" in part.filename)

    def reload(self, program: Program, blank: GraphModule, config: BackendConfig) -> Program:
        """Take the state of one model to another by way of a file."""
        assert isinstance(program, GraphModule)
        other = self.convert(blank, config)
        saved = io.BytesIO()
        with fresh_memory_holds(0xAA):  # which is what a weight is that the engine does not unpack
            torch.save(program.state_dict(), saved)
        saved.seek(0)
        other.load_state_dict(torch.load(saved, weights_only=False))
        return other


NATIVE = {name: NativeEngine(name) for name in ("qnnpack", "fbgemm", "onednn", "x86")}
