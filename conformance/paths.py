"""Folders of data that are part of the package."""

from pathlib import Path

HERE = Path(__file__).parent
KNOWN = HERE / "known"
"""The ledger."""
GOLDEN = (HERE / "golden").resolve()
"""The stored goldens. In a checkout `conformance/golden` is a symbolic link to `golden/`."""
