"""A fixture with a folder of goldens."""

from pathlib import Path

import pytest

from conformance.goldens.golden import name_of
from conformance.goldens.store import Store
from tests.goldens.golden_runs import (
    DYNAMIC,
    LINEAR,
    PER_CHANNEL,
    RELU,
    computed,
)
from tests.runs_by_id import run


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """A store with the goldens of four runs, newly opened."""
    folder = tmp_path / "golden"
    Store(folder).write({name_of(run(run_id)): computed(run_id) for run_id in (LINEAR, PER_CHANNEL, RELU, DYNAMIC)})
    return Store(folder)
