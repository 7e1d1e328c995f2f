"""torch's own engines, the values of `torch.backends.quantized.engine`."""

import torch

from conformance.configs.engines import ENGINE_TABLE

from .torch_engine import TorchEngine


class NativeEngine(TorchEngine):
    """One value of `torch.backends.quantized.engine`. Its programs are the converted models themselves."""

    def __init__(self, name: str) -> None:
        self.name = self.quantized_engine = name

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


NATIVE = {name: NativeEngine(name) for name, spec in ENGINE_TABLE.items() if spec.native}
