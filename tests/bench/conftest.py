"""What a worker of benchmarks changes in its process is undone in the tests' own."""

from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(autouse=True)
def denormals() -> Iterator[None]:
    """Hypothesis refuses to draw floats in a process that flushes denormals."""
    yield
    torch.set_flush_denormal(False)
