"""One thread of torch in the tests' own process, so that it can fork children that compute."""

import pytest
import torch


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> None:
    torch.set_num_threads(1)
