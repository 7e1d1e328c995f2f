"""The least scripts of known findings."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from conformance.paths import SCRIPTS

from .jsonl import replacing


@dataclass(frozen=True)
class Reproduced:
    """A script, what it printed, and the versions that it ran with, each as `name: value`."""

    script: str
    output: str
    versions: tuple[str, ...]


def script_of(finding: str, folder: Path = SCRIPTS) -> str | None:
    """The script of a finding, None if there is none."""
    path = folder / f"{finding}.py"
    return path.read_text(encoding="utf-8") if path.exists() else None


def record(scripts: Mapping[str, str], folder: Path = SCRIPTS) -> None:
    """Write the scripts of findings, by id. Those of other findings stay."""
    folder.mkdir(exist_ok=True)
    for name, script in scripts.items():
        with replacing(folder / f"{name}.py") as beside:
            beside.write_text(script, encoding="utf-8")
