"""One thread of torch in the tests' own process, so that it can fork children that compute, and the shortcuts of children."""

import pytest
import torch

# before any test module is imported: what those compute as they are collected must not start a pool of threads either
torch.set_num_threads(1)


@pytest.fixture(scope="session", autouse=True)
def _shortcuts() -> None:
    """Have torch as the suite's children have it: tests judge runs in their own process too."""
    from conformance.models.taken import take_shortcuts

    take_shortcuts()
