"""Executions of a model under a dispatch trace: the kernels that ran and the quantized tensors behind the outputs."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch._C import _autograd, _profiler

from .build import tensors
from .mutation import Watching, Write, Writes

CONVERSIONS = frozenset(
    {
        *(
            "aten.quantize_per_tensor",
            "aten.quantize_per_channel",
            "aten.quantize_per_tensor_dynamic",
            "aten.dequantize",
        ),
        *("aten.item", "aten._local_scalar_dense", "xnnpack.Convert"),
        *(
            f"{library}.{name}"
            for library in ("quantized_decomposed", "portable.quantized_decomposed", "cortex_m")
            for name in (
                *("quantize_per_tensor", "quantize_per_channel", "dequantize_per_tensor", "dequantize_per_channel"),
                "choose_qparams",
            )
        ),
    }
)
"""Operators that convert between float and quantized: evidence neither for nor against quantized execution."""

VIEWS = frozenset(
    {
        "aten.clone",
        "aten.detach",
        "aten.alias",
        "aten._to_copy",
        "aten.view",
        "aten._unsafe_view",
        "aten.transpose",
        "aten.t",
        "aten.permute",
        "aten.select",
        "aten.slice",
        "aten.unbind",
        "aten.squeeze",
        "aten.unsqueeze",
        "aten.expand",
        "aten.as_strided",
        "aten.copy_",
        "aten.split",
        "aten.lift_fresh",
        "aten.zeros_like",
        "aten.empty_like",
        "xnnpack.StaticReshape",
        "xnnpack.StaticTranspose",
    }
)
"""Operators that copy or view tensors and compute nothing. A dynamic or weight-only model may apply them to float tensors;
in a statically quantized pattern they have to run on integers too."""


@dataclass(frozen=True)
class Kernel:
    """One operator call: its name, and whether some tensor argument is quantized or float."""

    name: str
    takes_quantized: bool
    takes_float: bool

    @property
    def quantized(self) -> bool:
        return any(part in self.name for part in ("quantized", "_fp16")) or self.takes_quantized

    @property
    def in_float(self) -> bool:
        """Whether the call takes float tensors and is no conversion; copies and views count."""
        return self.takes_float and not self.quantized and self.name not in CONVERSIONS

    @property
    def computes_in_float(self) -> bool:
        return self.in_float and self.name not in VIEWS


@dataclass(frozen=True)
class Output:
    """One output tensor: its values (float) and, where known, the quantized tensor that they were dequantized from.

    `left_quantized` is true where the model returns the quantized tensor itself, without a dequantize call.
    """

    values: Tensor
    quantized: Tensor | None = None
    left_quantized: bool = False

    @property
    def raw(self) -> Tensor:
        """The tensor that the engine wrote: the quantized one if there is one, else the values."""
        return self.values if self.quantized is None else self.quantized

    def copied(self) -> "Output":
        """A copy in its own memory, which later calls cannot overwrite."""
        return replace(
            self, values=self.values.clone(), quantized=None if self.quantized is None else self.quantized.clone()
        )


def qparams_of(tensor: Tensor) -> tuple[Tensor, Tensor]:
    """Scales and zero points (float64) of a quantized tensor: one, or one for each index of its axis."""
    if tensor.qscheme() in (torch.per_tensor_affine, torch.per_tensor_symmetric):
        return torch.tensor([tensor.q_scale()]).double(), torch.tensor([tensor.q_zero_point()]).double()
    return tensor.q_per_channel_scales().double(), tensor.q_per_channel_zero_points().double()


@dataclass(frozen=True)
class Execution:
    """One execution of a model.

    `kernels` are in order of execution. `quantized` has the argument and the result of each quantize call. `nested` has the
    conversions that kernels make inside of themselves, as `outer > inner`; `writes` the undeclared writes to arguments.
    `ahead_of_time` means that the kernels were read from a compiled program and not observed while they ran.
    """

    kernels: tuple[Kernel, ...]
    outputs: tuple[Output, ...]
    quantized: tuple[tuple[Tensor, Tensor], ...] = ()
    nested: tuple[str, ...] = ()
    writes: tuple[Write, ...] = ()
    ahead_of_time: bool = False

    def names(self) -> list[str]:
        """Names of the quantized kernels that compute, in order."""
        return [kernel.name for kernel in self.kernels if kernel.quantized and kernel.name not in CONVERSIONS]

    def listed(self) -> list[str]:
        """Names of the kernels for a row. Of a program that was lowered ahead of time, float kernels are listed as well: they
        show which operators the delegate took and which were left to other kernels."""
        if not self.ahead_of_time:
            return self.names()
        return [kernel.name for kernel in self.kernels if kernel.name not in CONVERSIONS]


class Recorder(Watching):  # type: ignore[no-untyped-call]
    """Records every operator call, and in `writes`, if there is one, what it writes. `sources` has the argument and the
    result of each quantize and dequantize call by the id of the result."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.writes: Writes | None = None  # called from here, because a mode of its own takes as long as this one
        self.kernels: list[Kernel] = []
        self.sources: dict[int, tuple[Tensor, Tensor]] = {}

    def is_quantized(self, x: Tensor) -> bool:
        """Whether a tensor has the integers of a quantized one."""
        return x.is_quantized

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {})) if self.writes is None else self.writes.call(func, args, kwargs or {})
        name = f"{func.namespace}.{func.overloadpacket.__name__}"
        arguments = tensors([*args, *(kwargs or {}).values()])
        floating = any(not x.is_quantized and x.is_floating_point() for x in arguments)
        self.kernels.append(Kernel(name, any(map(self.is_quantized, arguments)), floating))
        if name.startswith(("aten.quantize_per", "aten.dequantize")):
            for out in tensors(result):
                # keeping the result alive keeps its id from being reused for another tensor
                self.sources[id(out)] = (arguments[0], out)
        for argument, value in zip(func._schema.arguments, args, strict=False):
            if argument.alias_info is not None and argument.alias_info.is_write:
                self.sources.pop(id(value), None)  # the call has overwritten the converted values
        return result


def execute(model: Callable[..., Any], inputs: Sequence[Tensor], recorder: Recorder | None = None) -> Execution:
    """Run `model` once without gradients and record the execution."""
    recorder = recorder or Recorder()
    recorder.writes = writes = Writes()
    with torch.no_grad(), recorder:
        results = tensors(model(*inputs))
    outputs = []
    for values in results:
        quantized = values if values.is_quantized else recorder.sources.get(id(values), (None, None))[0]
        if quantized is not None and not quantized.is_quantized:
            quantized = None
        left_quantized = values.is_quantized
        outputs.append(Output(values.dequantize() if left_quantized else values, quantized, left_quantized))
    quantize_calls = tuple(call for call in recorder.sources.values() if call[1].is_quantized)
    return Execution(tuple(recorder.kernels), tuple(outputs), quantize_calls, writes=tuple(writes.found))


def nested_kernels(model: Callable[..., Any], inputs: Sequence[Tensor]) -> tuple[list[Tensor], tuple[str, ...]]:
    """Run `model` once under torch's profiler, which also records the operators that kernels call.

    Returns the outputs and, as `outer > inner`, each conversion to or from float that a kernel makes inside of itself.
    """
    with torch.no_grad(), conversions_inside() as inside:
        outputs = tensors(model(*inputs))
    operators = (([name for name in around if "::" in name], inner) for around, inner in inside)
    return outputs, tuple(inner_conversion(around[0], inner) for around, inner in operators if around)


def profiled(model: Callable[..., Any], inputs: Sequence[Tensor]) -> tuple[list[Tensor], list[Kernel]]:
    """Run `model` once under torch's profiler. Returns the outputs and the outermost operators that ran.

    For what a dispatch trace would not see as it is: `torch.compile` runs the original function under one.
    """
    with torch.no_grad(), torch.autograd.profiler.profile(record_shapes=True) as profile:
        outputs = tensors(model(*inputs))
    assert profile.kineto_results is not None
    kernels, end = [], 0
    for event in profile.kineto_results.events():
        if "::" in event.name() and event.start_ns() >= end:
            end = event.start_ns() + event.duration_ns()
            dtypes = event.dtypes()
            quantized = any("::q" in dtype or dtype in ("signed char", "unsigned char") for dtype in dtypes)
            floating = any(dtype in ("float", "double", "c10::Half", "c10::BFloat16") for dtype in dtypes)
            kernels.append(Kernel(event.name().replace("::", "."), quantized, floating))
    return outputs, kernels


@contextmanager
def conversions_inside() -> Iterator[list[tuple[list[str], str]]]:
    """Fill a list with each conversion to or from float that a call makes inside of itself: the names of the calls around it,
    the outermost first, and its own.

    These are recorded by torch's legacy profiler, which takes a fifth of the time of the other one for a small model.
    """
    found: list[tuple[list[str], str]] = []
    _autograd._enable_profiler_legacy(_CALLS)
    try:
        yield found
    finally:
        threads = _autograd._disable_profiler_legacy()
    for records in threads:
        around: list[str] = []
        for record in records:
            if str(record.kind()) == "push":
                if around and record.name() in ("aten::dequantize", "aten::quantize_per_tensor"):
                    found.append(([*around], record.name()))
                around.append(record.name())
            elif str(record.kind()) == "pop":
                around.pop()


_CALLS = _profiler.ProfilerConfig(
    _profiler.ProfilerState.CPU, False, False, False, False, False, _profiler._ExperimentalConfig()
)
"""Records calls on the CPU without shapes, memory, stacks, operations and modules."""


def inner_conversion(outer: str, inner: str) -> str:
    """A conversion inside of a kernel, as `outer > inner`."""
    return f"{outer} > {inner}".replace("::", ".")
