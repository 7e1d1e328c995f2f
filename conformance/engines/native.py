"""torch's own quantized engines: qnnpack, fbgemm, onednn and x86."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


class NativeEngine:
    """One value of `torch.backends.quantized.engine`."""

    def __init__(self, name: str) -> None:
        self.name = name

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


NATIVE = {name: NativeEngine(name) for name in ("qnnpack", "fbgemm", "onednn", "x86")}
