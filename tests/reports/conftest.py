"""Fixtures of tests of reports."""

from pathlib import Path

import pytest
from invocation import LEDGER


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    """A folder with a ledger."""
    folder = tmp_path / "known"
    folder.mkdir()
    (folder / "known.toml").write_text(LEDGER)
    return folder
