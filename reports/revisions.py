"""The commits between two revisions."""

import subprocess
from pathlib import Path


def commits(before: str, after: str, repository: Path) -> list[str]:
    """One line for each commit after one revision up to another; empty if the repository lacks a revision."""
    if not before or not after or before == after:
        return []
    command = ["git", "-C", str(repository), "log", "--oneline", "--no-decorate"]
    command.append(f"{before.removesuffix('-dirty')}..{after.removesuffix('-dirty')}")
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    except (OSError, subprocess.CalledProcessError):
        return []
