"""Faults of an engine as a process: crashes, hangs, nondeterminism, and dependence on threads, sizes and strides."""

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

from .fault import Fault, Replacement, case, code_fault
from .kernels import Call, Kernel, added, after, at, codes, faulty_kernel, quantized, values

LINEAR, RELU = case("nn.Linear"), case("nn.ReLU")
LARGE = case("nn.Linear", "large", profile="laws")
KERNEL = "quantized.linear"


def kernel(
    name: str,
    caught: str,
    faulty: Kernel,
    *runs: str,
    operators: str = KERNEL,
    more: tuple[Replacement, ...] = (),
    survives: str = "",
) -> Fault:
    return code_fault("engines", name, [faulty_kernel(operators, faulty), *more], runs or (LINEAR,), caught, survives)


def doing(action: Callable[[], object]) -> Kernel:
    """A kernel that executes an action before it computes."""

    def faulty(call: Call) -> Any:
        action()
        return call.original()

    return faulty


def counted(faulty: Callable[[int], Kernel]) -> Kernel:
    """A kernel that depends on the number of calls before: `faulty(count)` is the kernel of a call."""
    calls: list[int] = []

    def kernel(call: Call) -> Any:
        calls.append(1)
        return faulty(len(calls) - 1)(call)

    return kernel


def raising(error: BaseException) -> Callable[[], object]:
    def action() -> None:
        raise error

    return action


def endless_loop() -> None:
    while True:
        pass


SHORT_TIMEOUT = Replacement(batch, "run_isolated", lambda original: partial(isolation.run_isolated, seconds=0.7))


def previous_result() -> Kernel:
    """A kernel that returns the result of the call before."""
    results: list[Any] = []

    def kernel(call: Call) -> Any:
        results.append(call.original())
        return results[-2] if len(results) > 1 else quantized(results[0].int_repr() * 0, results[0])

    return kernel


def one_buffer() -> Kernel:
    """A kernel that returns the same memory at every call."""
    buffer: list[Tensor] = []

    def kernel(call: Call) -> Tensor:
        result: Tensor = call.original()
        if not buffer or buffer[0].shape != result.shape:
            buffer[:] = [result]
        return buffer[0].copy_(result)

    return kernel


def unwritten(y: Tensor) -> Tensor:
    """Leave the last code as uninitialized memory holds it."""
    result = y.int_repr()
    result.view(-1)[-1] = torch.empty(40_000, dtype=torch.uint8)[20_000]
    return quantized(result, y)


def at_random(c: Tensor) -> Tensor:
    return c + (torch.rand(c.shape) < 0.25).int()


def wrong_with_threads(call: Call) -> Any:
    return added(1, at(-1))(call) if torch.get_num_threads() > 1 else call.original()


def wrong_if_large(call: Call) -> Any:
    return added(1, at(-1))(call) if call.x.numel() > 2**13 else call.original()


def wrong_if_strided(call: Call) -> Any:
    return call.original() if call.x.is_contiguous() else values(lambda y: y * 1.5)(call)


PROCESS = [
    kernel("writes to address 0", "crashes", doing(lambda: ctypes.memset(0, 1, 1))),
    kernel("is sent SIGSEGV", "crashes", doing(lambda: os.kill(os.getpid(), signal.SIGSEGV))),
    kernel("is sent SIGILL", "crashes", doing(lambda: os.kill(os.getpid(), signal.SIGILL))),
    kernel("is sent SIGFPE", "crashes", doing(lambda: os.kill(os.getpid(), signal.SIGFPE))),
    kernel("aborts", "crashes", doing(os.abort)),
    kernel("exits with status 0", "crashes", doing(lambda: os._exit(0))),
    kernel("exits with status 1", "crashes", doing(lambda: os._exit(1))),
    kernel("hangs", "crashes", doing(lambda: time.sleep(60)), more=(SHORT_TIMEOUT,)),
    kernel("computes forever", "crashes", doing(endless_loop), more=(SHORT_TIMEOUT,)),
    kernel("raises SystemExit", "lowered", doing(sys.exit)),
    kernel("is interrupted", "crashes", doing(raising(KeyboardInterrupt()))),
    kernel("runs out of memory", "crashes", doing(raising(MemoryError()))),
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
        lambda call: doing(os.abort)(call) if len(call.x) == 33 else call.original(),
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
    kernel("every second call is one up", "numerics stable", counted(lambda count: added(count % 2, at(0)))),
    kernel("every call is one further up", "numerics stable", counted(lambda count: added(count, at(0)))),
    kernel("returns the result of the previous call", "accuracy numerics stable", previous_result()),
    kernel("returns the same memory at every call", "numerics stable", one_buffer()),
    kernel("does not write the end of its output", "accuracy numerics stable", after(unwritten)),
    kernel("is one up at random", "numerics stable", codes(at_random)),
    kernel(
        "is wrong with more than one thread",
        "stable",
        wrong_with_threads,
        LARGE,
    ),
    kernel(
        "is wrong for large inputs",
        "stable",
        wrong_if_large,
        LARGE,
    ),
    kernel(
        "is wrong for non-contiguous inputs",
        "accuracy numerics",
        wrong_if_strided,
        case("nn.Linear", "strided", dtypes="dynamic-quint8"),
        operators="quantized.linear_dynamic",
    ),
]

CHOSEN = [
    code_fault(
        "engines",
        "no engine is ever selected",
        [Replacement(native.NativeEngine, "scope", lambda original: lambda engine: nullcontext())],
        (case("nn.Linear", dtypes="dynamic-quint8", backend="onednn"), case("nn.Linear", backend="qnnpack")),
        "reference",
    ),
]

FAULTS = [*PROCESS, *CHANCE, *CHOSEN]
