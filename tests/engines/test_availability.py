"""An engine is available when a small operator has run on it, and its scope ends."""

import faulthandler
import os
import signal
from contextlib import AbstractContextManager, nullcontext

import pytest
import torch

from conformance.engines import availability
from conformance.engines.availability import probe
from conformance.engines.registry import engine as real_engine


class FakeEngine:
    """An engine whose name determines the outcome of its probe."""

    def __init__(self, name: str) -> None:
        self.name = name

    def warm_up(self) -> None:
        """Do nothing."""

    def scope(self) -> AbstractContextManager[None]:
        return nullcontext()

    def unavailable(self) -> str | None:
        if self.name == "crashing":
            os.kill(os.getpid(), signal.SIGILL)
        if self.name == "raising":
            raise OSError("no such library")
        return "not built" if self.name == "missing" else None


@pytest.mark.parametrize(
    ("name", "reason"),
    [("there", None), ("missing", "not built"), ("crashing", "SIGILL"), ("raising", "OSError: no such library")],
)
def test_an_engine_is_available_if_a_small_operator_runs_on_it(
    name: str, reason: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fake(name: str) -> FakeEngine:

        faulthandler.disable()
        return FakeEngine(name)

    monkeypatch.setattr(availability, "engine", fake)
    assert probe(name) == reason


def test_an_engine_that_torch_was_built_without_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    missing = type(real_engine("fbgemm"))("mkl")  # type: ignore[call-arg]
    monkeypatch.setattr(availability, "engine", lambda name: missing)
    before = torch.backends.quantized.engine
    assert probe("mkl")
    assert torch.backends.quantized.engine == before


def test_the_scope_of_an_engine_ends_after_an_error() -> None:
    before = torch.backends.quantized.engine
    for name in set(torch.backends.quantized.supported_engines) & {"fbgemm", "onednn", "qnnpack", "x86"}:
        scope = real_engine(name).scope()
        scope.__enter__()
        assert torch.backends.quantized.engine == name
        assert not scope.__exit__(LookupError, LookupError(), None)
        assert torch.backends.quantized.engine == before
