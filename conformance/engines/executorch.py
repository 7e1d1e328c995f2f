"""The ExecuTorch runtime: known by name, not executed yet."""

from contextlib import AbstractContextManager, nullcontext


class ExecuTorchEngine:
    name = "executorch"

    def unavailable(self) -> str | None:
        return "running programs on the ExecuTorch runtime is not supported yet"

    def scope(self) -> AbstractContextManager[None]:
        return nullcontext()


EXECUTORCH = ExecuTorchEngine()
