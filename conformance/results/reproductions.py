"""The least scripts of known findings, and what each printed when it was last run."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from conformance.errors import UsageError
from conformance.paths import SCRIPTS

from .jsonl import replacing

OUTPUTS = "outputs.json"
"""The file with the outputs, beside the scripts."""


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


def recorded(finding: str, folder: Path = SCRIPTS) -> Reproduced:
    """The script of a finding with what it printed. Raises UsageError if there is none."""
    script = script_of(finding, folder)
    outputs = json.loads((folder / OUTPUTS).read_text(encoding="utf-8")) if (folder / OUTPUTS).exists() else {}
    if script is None or finding not in outputs:
        raise UsageError(f"{finding}: no least script: tox -e least -- --write ROWS…")
    return Reproduced(script, outputs[finding]["output"], tuple(outputs[finding]["versions"]))


def record(reproduced: Mapping[str, Reproduced], folder: Path = SCRIPTS) -> None:
    """Write the scripts of findings, by id, with what they printed. Those of other findings stay."""
    folder.mkdir(exist_ok=True)
    path = folder / OUTPUTS
    outputs = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    for name, one in reproduced.items():
        with replacing(folder / f"{name}.py") as beside:
            beside.write_text(one.script, encoding="utf-8")
        outputs[name] = {"output": one.output, "versions": list(one.versions)}
    kept = {name: output for name, output in sorted(outputs.items()) if (folder / f"{name}.py").exists()}
    with replacing(path) as beside:
        beside.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
