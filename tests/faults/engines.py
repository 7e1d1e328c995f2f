"""Faults of an engine as a process: crashes, hangs, chance, and what its results should not depend on."""

import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor

from conformance.engines import native
from conformance.execution import batch
from conformance.host import isolation

from .fault import Fault, Instead, case, told
from .kernels import Call, Kernel, added, after, at, codes, lying, quantized, values

LINEAR, RELU = case("nn.Linear"), case("nn.ReLU")
LARGE = case("nn.Linear", "large", profile="laws")
KERNEL = "quantized.linear"


def kernel(
    name: str,
    caught: str,
    lie: Kernel,
    *runs: str,
    operators: str = KERNEL,
    more: tuple[Instead, ...] = (),
    survives: str = "",
) -> Fault:
    return told("engines", name, [lying(operators, lie), *more], runs or (LINEAR,), caught, survives)


def doing(action: Callable[[], object]) -> Kernel:
    """A kernel that does something else first."""

    def lie(call: Call) -> Any:
        action()
        return call.honestly()

    return lie


def counted(lie: Callable[[int], Kernel]) -> Kernel:
    """A kernel that knows how often it was called before."""
    calls: list[int] = []

    def kernel(call: Call) -> Any:
        calls.append(1)
        return lie(len(calls) - 1)(call)

    return kernel


def raising(error: BaseException) -> Callable[[], object]:
    def action() -> None:
        raise error

    return action


def without_end() -> None:
    while True:
        pass


HANGS_SOONER = Instead(batch, "run_isolated", lambda honest: partial(isolation.run_isolated, seconds=0.7))


def former() -> Kernel:
    """Gives what the call before has computed."""
    kept: list[Any] = []

    def kernel(call: Call) -> Any:
        kept.append(call.honestly())
        return kept[-2] if len(kept) > 1 else quantized(kept[0].int_repr() * 0, kept[0])

    return kernel


def one_buffer() -> Kernel:
    """Gives the same memory at every call."""
    kept: list[Tensor] = []

    def kernel(call: Call) -> Tensor:
        result: Tensor = call.honestly()
        if not kept or kept[0].shape != result.shape:
            kept[:] = [result]
        return kept[0].copy_(result)

    return kernel


def unwritten(y: Tensor) -> Tensor:
    """The last code is whatever the memory held."""
    made = y.int_repr()
    made.view(-1)[-1] = torch.empty(40_000, dtype=torch.uint8)[20_000]
    return quantized(made, y)


def by_chance(c: Tensor) -> Tensor:
    return c + (torch.rand(c.shape) < 0.25).int()


def within_threads(call: Call) -> Any:
    return added(1, at(-1))(call) if torch.get_num_threads() > 1 else call.honestly()


def for_large(call: Call) -> Any:
    return added(1, at(-1))(call) if call.x.numel() > 2**13 else call.honestly()


def for_strided(call: Call) -> Any:
    return call.honestly() if call.x.is_contiguous() else values(lambda y: y * 1.5)(call)


PROCESS = [
    kernel("writes to address 0", "crashes", doing(lambda: ctypes.memset(0, 1, 1))),
    kernel("is sent SIGSEGV", "crashes", doing(lambda: os.kill(os.getpid(), signal.SIGSEGV))),
    kernel("is sent SIGILL", "crashes", doing(lambda: os.kill(os.getpid(), signal.SIGILL))),
    kernel("is sent SIGFPE", "crashes", doing(lambda: os.kill(os.getpid(), signal.SIGFPE))),
    kernel("aborts", "crashes", doing(os.abort)),
    kernel("leaves with status 0", "crashes", doing(lambda: os._exit(0))),
    kernel("leaves with status 1", "crashes", doing(lambda: os._exit(1))),
    kernel("hangs", "crashes", doing(lambda: time.sleep(60)), more=(HANGS_SOONER,)),
    kernel("computes without end", "crashes", doing(without_end), more=(HANGS_SOONER,)),
    kernel("exits by exception", "lowered", doing(sys.exit)),
    kernel("is interrupted", "crashes", doing(raising(KeyboardInterrupt()))),
    kernel("has no memory left", "crashes", doing(raising(MemoryError()))),
    kernel("raises", "lowered", doing(raising(RuntimeError("no kernel")))),
    kernel(
        "raises in the second call",
        "stable",
        counted(lambda count: doing(raising(RuntimeError("again")) if count == 1 else int)),
    ),
    kernel("crashes in the second call", "crashes", counted(lambda count: doing(os.abort if count == 1 else int))),
    kernel(
        "crashes after a state was loaded", "crashes", counted(lambda count: doing(os.abort if count == 2 else int))
    ),
    kernel(
        "crashes for one of two runs",
        "crashes",
        lambda call: doing(os.abort)(call) if len(call.x) == 33 else call.honestly(),
        LINEAR,
        case("nn.Linear", "wide"),
    ),
    kernel(
        "raises for channels_last",
        "stable",
        lambda call: doing(int if call.x.is_contiguous() else raising(RuntimeError("format")))(call),
        RELU,
        operators="aten.relu",
    ),
    kernel(
        "raises for an empty batch",
        "lowered",
        lambda call: doing(int if len(call.x) else raising(RuntimeError("empty")))(call),
        case("nn.Linear", "batch0"),
        LINEAR,
    ),
]

CHANCE = [
    kernel("every second call is one up", "stable", counted(lambda count: added(count % 2, at(0)))),
    kernel("every call is one more up", "stable", counted(lambda count: added(count, at(0)))),
    kernel("gives what the call before has computed", "accuracy numerics stable", former()),
    kernel("gives the same memory at every call", "stable", one_buffer()),
    kernel("does not write the end of its output", "accuracy numerics stable", after(unwritten)),
    kernel("is one up by chance", "numerics stable", codes(by_chance)),
    kernel(
        "is wrong with more than one thread",
        "stable",
        within_threads,
        LARGE,
    ),
    kernel(
        "is wrong for large inputs",
        "stable",
        for_large,
        LARGE,
    ),
    kernel(
        "is wrong for inputs that are not contiguous",
        "accuracy numerics",
        for_strided,
        case("nn.Linear", "strided", dtypes="dynamic-quint8"),
        operators="quantized.linear_dynamic",
    ),
]

CHOSEN = [
    told(
        "engines",
        "no engine is ever selected",
        [Instead(native.NativeEngine, "scope", lambda honest: lambda engine: nullcontext())],
        (case("nn.Linear", dtypes="dynamic-quint8", backend="onednn"), case("nn.Linear", backend="qnnpack")),
        "reference",
    ),
]

FAULTS = [*PROCESS, *CHANCE, *CHOSEN]
