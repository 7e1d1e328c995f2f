"""Folders of data that are part of the package."""

from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent
"""The checkout, where there is one."""
KNOWN = HERE / "known"
"""The ledger."""
SCRIPTS = KNOWN / "scripts"
"""The least script of each known finding."""
GOLDEN = (HERE / "golden").resolve()
"""The stored goldens. In a checkout `conformance/golden` is a symbolic link to `golden/`."""
