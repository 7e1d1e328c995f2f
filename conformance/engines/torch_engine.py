"""Engines whose programs are ordinary torch modules: the base class for engines of third parties."""

import io
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any
from zipfile import ZipFile

import torch
from torch import Tensor, nn
from torch.ao.quantization.backend_config import BackendConfig
from torch.fx import GraphModule

from conformance.errors import brief
from conformance.host.poison import fresh_memory_holds
from conformance.models import fx, trace
from conformance.models.build import tensors
from conformance.models.trace import Execution, Kernel, Output

from .protocol import Program

Grids = tuple[tuple[float, int, torch.dtype] | None, ...]
"""Scale, zero point and dtype of each output of a model; None for a float one."""


@dataclass(frozen=True)
class TorchProgram:
    """A function on a device, called with tensors on the CPU. `grids` are those of its outputs if `torch.compile` made it,
    because a compiled function does not show the codes behind its outputs."""

    function: Callable[..., Any]
    device: str
    grids: Grids = ()

    def __call__(self, *inputs: Tensor) -> list[Tensor]:
        return [output.cpu() for output in tensors(self.function(*self.moved(inputs)))]

    def moved(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        return [x.to(self.device) for x in inputs]

    def output(self, index: int, values: Tensor) -> Output:
        """An output with its codes, where it has a grid and its values are on it."""
        grid = self.grids[index] if index < len(self.grids) else None
        if values.is_quantized or grid is None:
            return Output(values.dequantize(), values, True) if values.is_quantized else Output(values)
        codes = torch.quantize_per_tensor(values, *grid)
        return Output(values, codes if torch.equal(codes.dequantize(), values) else None)


class TorchEngine:
    """Executes converted models on a device, through a lowering function or with a backend of `torch.compile`.

    A subclass sets the attributes in which it differs, and overrides `lower` if it has a lowering of its own. As it is, an
    engine runs torch's own lowering (`torch.ao.quantization.quantize_fx.convert_fx`) on the CPU.

    Attributes:
        name: the name in run ids; letters, digits and `_.-`.
        device: the device on which programs run, such as `"cpu"` or the name of a PrivateUse1 backend. Inputs are copied to
            it, and outputs from it.
        compiler: the backend of `torch.compile`, as a name or a function; None runs modules as they are.
        quantized_engine: the value of `torch.backends.quantized.engine` during conversion and execution; None leaves it.
        reference: whether models are converted to reference modules (`convert_to_reference_fx`) for `lower` to lower.
        fixed_shapes: whether a program accepts only the shapes and memory formats that it was compiled for.
        reduced_range: whether activations have 7 bits, as kernels need that add pairs of products in int16.
        ahead_of_time: whether lowering a model takes long. Then only the core variants of a claim are run by default.
    """

    name = ""
    device = "cpu"
    compiler: str | Callable[..., Any] | None = None
    quantized_engine: str | None = None
    reference = False
    fixed_shapes = False
    reduced_range = False
    ahead_of_time = False

    def lower(self, model: GraphModule) -> Program:
        """Return what executes a converted model on the device. By default it is the model."""
        return model

    def kernels(self, program: Program) -> Sequence[Kernel] | None:
        """Return the kernels of a program, for an engine whose calls torch does not see; None has them observed."""
        return None

    def warm_up(self) -> None:
        """Do nothing: torch needs no warm-up of an engine."""

    def unavailable(self) -> str | None:
        """Return why the engine cannot run on this host, or None if a small operator has run on its device."""
        try:
            with self.scope(), torch.no_grad():
                relu = nn.ReLU() if self.compiler is None else self._compiled(nn.ReLU())
                relu(torch.ones(2, 2).to(self.device)).cpu()
        except Exception as error:
            return brief(error)
        return None

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Select the quantized engine, process-wide. Raises RuntimeError if torch was built without it."""
        before = torch.backends.quantized.engine
        torch.backends.quantized.engine = self.quantized_engine or before
        try:
            yield
        finally:
            torch.backends.quantized.engine = before

    def convert(self, prepared: GraphModule, config: BackendConfig) -> GraphModule:
        return fx.reference(prepared, config) if self.reference else fx.lower(prepared, config)

    def compile(self, model: GraphModule, inputs: Sequence[Tensor]) -> Program:
        function = self.lower(model.to(self.device))
        if self.compiler is None:
            return function if self.device == "cpu" else TorchProgram(function, self.device)
        moved = [x.to(self.device) for x in inputs]
        program = TorchProgram(self._compiled(function), self.device, _grids(function, moved))
        with torch.no_grad():
            program(*inputs)  # torch.compile compiles at the first call
        return program

    def execute(self, program: Program, inputs: Sequence[Tensor]) -> Execution:
        if not isinstance(program, TorchProgram):
            program = TorchProgram(program, self.device)
        kernels, moved = self.kernels(program.function), program.moved(inputs)
        if kernels is None and self.compiler is None:
            return _on_cpu(trace.execute(program.function, moved))
        if kernels is None:
            # under a dispatch trace, dynamo runs the original module
            outputs, kernels = trace.profiled(program.function, moved)
        else:
            with torch.no_grad():
                outputs = tensors(program.function(*moved))
        executed = tuple(program.output(index, values) for index, values in enumerate(outputs))
        return _on_cpu(Execution(tuple(kernels), executed, ahead_of_time=True))

    def execute_again(self, program: Program, inputs: Sequence[Tensor]) -> tuple[list[Tensor], tuple[str, ...]]:
        return trace.nested_kernels(program, inputs)

    def weight_bytes(self, program: Program) -> int:
        torch.save(self._module(program).state_dict(), saved := io.BytesIO())
        with ZipFile(saved) as archive:  # every storage is a file of its own
            return sum(member.file_size for member in archive.infolist() if "/data/" in member.filename)

    def reload(self, program: Program, blank: GraphModule, config: BackendConfig) -> Program:
        """Save the state of a program and load it into a newly converted model."""
        other = self.lower(self.convert(blank, config).to(self.device))
        if isinstance(program, TorchProgram):
            function = other if self.compiler is None else self._compiled(other)
            other = replace(program, function=function)
        saved = io.BytesIO()
        with fresh_memory_holds(0xAA):  # so that a weight that the engine fails to unpack has wrong values
            torch.save(self._module(program).state_dict(), saved)
        saved.seek(0)
        self._module(other).load_state_dict(torch.load(saved, weights_only=False))
        return other

    def _compiled(self, function: Callable[..., Any]) -> Callable[..., Any]:
        backend: Any = getattr(self.compiler, "__func__", self.compiler)  # a function in a class body is a method
        compiled: Callable[..., Any] = torch.compile(function, backend=backend)
        return compiled

    def _module(self, program: Program) -> nn.Module:
        """The module that a program runs. Raises TypeError for another one, which needs methods of its own."""
        function = program.function if isinstance(program, TorchProgram) else program
        if not isinstance(function, nn.Module):
            raise TypeError(f"lower returns no module: override weight_bytes and reload of {type(self).__name__}")
        return function


def _on_cpu(execution: Execution) -> Execution:
    if all(one.values.is_cpu for one in execution.outputs):
        return execution
    outputs = tuple(
        replace(one, values=one.values.cpu(), quantized=None if one.quantized is None else one.quantized.cpu())
        for one in execution.outputs
    )
    quantized = tuple((source.cpu(), result.cpu()) for source, result in execution.quantized)
    return replace(execution, outputs=outputs, quantized=quantized)


def _grids(program: Program, inputs: Sequence[Tensor]) -> Grids:
    """The grids of a program's outputs, as one execution of it shows."""
    outputs = (output.quantized for output in trace.execute(program, inputs).outputs)
    return tuple(
        (one.q_scale(), one.q_zero_point(), one.dtype)
        if one is not None and one.qscheme() == torch.per_tensor_affine
        else None
        for one in outputs
    )
