"""A reproduction script executed in an interpreter of its own, with the versions that it ran with."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import torch

from conformance.errors import UsageError
from conformance.host.environment import version_of
from conformance.results.reproductions import Reproduced

from .least.text import shows

TIMEOUT = 120.0
"""Limit for one script, in seconds. A script takes a few seconds, most of them for the import of torch."""


def run(script: str, python: str = sys.executable, *, importing: bool = False) -> subprocess.CompletedProcess[str]:
    """Run a script in an interpreter of its own, isolated unless `importing`. Raises subprocess.TimeoutExpired."""
    isolated = [] if importing else ["-I"]
    paths = os.pathsep.join([os.getcwd(), os.environ.get("PYTHONPATH", "")])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "reproduction.py"
        path.write_text(script, encoding="utf-8")
        return subprocess.run(
            [python, *isolated, str(path)],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=TIMEOUT,
            cwd=folder,
            env={**os.environ, "PYTHONPATH": paths},
        )


def execute(script: str, python: str = sys.executable, *, importing: bool = False) -> Reproduced:
    """Execute a script in isolation, without this project. Raises UsageError unless it says that it deviates, and exits with
    status 1 or dies.

    With `importing` it can import what the current folder and PYTHONPATH have, such as the engine of a third party.
    """
    process = run(script, python, importing=importing)
    dies = process.returncode < 0 and shows(process.stdout, "crashes")
    if not dies and ("DEVIATES" not in process.stdout or process.returncode == 0):
        said = process.stdout.strip().splitlines()[-1:] or process.stderr.strip().splitlines()[-1:]
        raise UsageError(f"the reproduction does not show it here: exit status {process.returncode}: {' '.join(said)}")
    return Reproduced(script, process.stdout, tuple(versions()))


def versions() -> Iterator[str]:
    """Yield the versions that a report names, as `torch.utils.collect_env` does."""
    from torch.utils.collect_env import get_env_info

    info = get_env_info()  # type: ignore[no-untyped-call]
    yield f"PyTorch version: {torch.__version__}"
    for package in ("torchao", "executorch"):
        if version := version_of(package):
            yield f"{package} version: {version}"
    yield f"OS: {info.os}"
    yield f"Python version: {info.python_version}"
    yield from (line for line in (info.cpu_info or "").splitlines() if line.startswith(("Architecture", "Model name")))
