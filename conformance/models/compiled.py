"""Converted models as inductor compiles them: while the process runs, or ahead of time to a package."""

import copy
import os
import re
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn

from .pt2e import EXPORT
from .trace import Kernel


@dataclass(frozen=True)
class Compiled:
    """A program of torch.compile, and what its first call returned, at which it was compiled."""

    function: Callable[..., Any]
    first: Any

    def __call__(self, *inputs: Tensor) -> Any:
        return self.function(*inputs)


def compiled(model: nn.Module, inputs: Sequence[Tensor], *, freezing: bool) -> Compiled:
    """Return a converted model as torch.compile compiles it, with or without frozen weights. `model` is not changed.

    The program is not compiled anew if it runs on another number of threads."""
    import torch._inductor.config

    torch.compiler.reset()  # no limit on the number of programs of one function
    program: Callable[..., Any] = torch.compile(copy.deepcopy(model), options={"guard_filter_fn": _but_for_state})
    # a pool of processes that compile would not survive a fork
    config = torch._inductor.config.patch(freezing=freezing, compile_threads=1)
    with torch.no_grad(), config, _code_of_this_instruction_set():
        return Compiled(program, program(*map(_copied, inputs)))


def _but_for_state(guards: Sequence[Any]) -> list[bool]:
    """Which guards of a program to check: all but that of torch's state, of which the number of threads is a part."""
    return [guard.guard_type != "GLOBAL_STATE" for guard in guards]


def _copied(x: Tensor) -> Tensor:
    """A copy of a tensor with its strides, which decide whether torch.compile compiles again."""
    storage = x.untyped_storage().clone()  # type: ignore[no-untyped-call]
    return torch.empty(0, dtype=x.dtype).set_(storage, x.storage_offset(), x.size(), x.stride())


@dataclass(frozen=True)
class Packaged:
    """A program of AOTInductor, and the operators of torch that its code calls, in order."""

    function: Callable[..., Any]
    calls: tuple[str, ...]

    def __call__(self, *inputs: Tensor) -> Any:
        return self.function(*inputs)

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """The operators as kernels; no profiler sees them."""
        return tuple(
            Kernel(f"{'onednn' if one.startswith('q') else 'aten'}.{one}", one.startswith("q"), not one.startswith("q"))
            for one in self.calls
        )


CALLED = re.compile(r"ERROR_CODE_CHECK\(aoti_torch_cpu_+(\w+?)(?:_out|_tensor)?\(")
"""What the code of AOTInductor has where it calls an operator of torch."""


def packaged(model: nn.Module, inputs: Sequence[Tensor], *, freezing: bool) -> Packaged:
    """Return a model as AOTInductor compiles it, with or without frozen weights."""
    import torch._inductor

    options = {"freezing": freezing, "compile_threads": 1}
    with torch.no_grad(), tempfile.TemporaryDirectory() as folder, _code_of_this_instruction_set():
        path = torch._inductor.aoti_compile_and_package(
            EXPORT(model, tuple(inputs)), package_path=os.path.join(folder, "model.pt2"), inductor_configs=options
        )
        with zipfile.ZipFile(path) as package:
            written = [package.read(name).decode() for name in package.namelist() if name.endswith(".wrapper.cpp")]
        calls = CALLED.findall("".join(written))
        return Packaged(torch._inductor.aoti_load_package(path), tuple(calls))


@contextmanager
def _code_of_this_instruction_set() -> Iterator[None]:
    """Have inductor keep its code in a folder of its own for each instruction set of torch: the keys of its cache do not
    contain it, and code for AVX-512 gives wrong numbers in a process that is limited to AVX2."""
    from torch._inductor.runtime.cache_dir_utils import cache_dir

    own = os.path.join(cache_dir(), torch.backends.cpu.get_cpu_capability().lower())
    with patch.dict(os.environ, TORCHINDUCTOR_CACHE_DIR=own):
        yield
