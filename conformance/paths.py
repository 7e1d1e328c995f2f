"""Folders of data that come with the suite."""

from pathlib import Path

HERE = Path(__file__).parent
KNOWN = HERE / "known"
"""The ledger."""
GOLDEN = (HERE / "golden").resolve()
"""The stored goldens; in a checkout `conformance/golden` is a link to `golden/`."""
