"""Programs in files, which other processes of the same invocation load.

A module is saved as a pickle, which executes what it likes when it is loaded. So its file is sealed with a key that only the
processes of an invocation have, and no other file is loaded. TorchScript archives are no such pickles.
"""

import hashlib
import hmac
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.ao.nn.quantized.modules.conv import _ConvNd

from conformance.errors import UsageError

from .timings import key

TORCHSCRIPT = ".torchscript"
"""The suffix of a TorchScript archive. Other files are modules that `save` has written."""


def save(module: nn.Module, path: Path) -> None:
    """Write a module, and its seal at the end of the file, where torch ignores it."""
    torch.save(module, path)
    seal = _seal(path, path.stat().st_size)
    with path.open("ab") as file:
        file.write(seal)


def _seal(path: Path, size: int) -> bytes:
    """The seal of the first `size` bytes of a file."""
    made = hmac.new(bytes.fromhex(key()), digestmod=hashlib.sha256)
    with path.open("rb") as file:
        while size > 0 and (part := file.read(min(size, 1 << 20))):
            made.update(part)
            size -= len(part)
    return made.digest()


def loaded(path: Path) -> Any:
    """Return a saved program: a TorchScript module or any other module. Raises UsageError for a file that `save` has not
    written in this invocation."""
    if path.suffix == TORCHSCRIPT:
        return torch.jit.load(path)  # type: ignore[no-untyped-call]
    length = hashlib.sha256().digest_size
    size = path.stat().st_size - length
    with path.open("rb") as file:
        file.seek(max(0, size))
        seal = file.read(length)
    if not hmac.compare_digest(seal, _seal(path, size)):
        raise UsageError(
            f"{path} was not saved by this invocation, and loading it may execute anything: name a TorchScript archive"
        )
    with _convolutions_restored():
        return torch.load(path, weights_only=False)


@contextmanager
def _convolutions_restored() -> Iterator[None]:
    """Have quantized convolutions restore what every module has. torch's own method restores their weights and options only,
    and the loaded module raises AttributeError for its submodules and hooks."""
    own = _ConvNd.__setstate__

    def restored(self: _ConvNd, state: Any) -> None:
        nn.Module.__init__(self)
        own(self, state)

    _ConvNd.__setstate__ = restored  # type: ignore[method-assign]
    try:
        yield
    finally:
        _ConvNd.__setstate__ = own  # type: ignore[method-assign]
