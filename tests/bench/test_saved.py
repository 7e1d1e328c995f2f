"""Programs in files: a module is loaded only if this invocation has saved it."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from conformance.bench.saved import loaded, save
from conformance.bench.timings import KEY
from conformance.errors import UsageError

ROOT = Path(__file__).parents[2]


class Executes:
    """A pickle that writes a file when it is loaded."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    linear = nn.Linear(2, 3)
    save(linear, tmp_path / "linear.pt")
    assert torch.equal(loaded(tmp_path / "linear.pt").weight, linear.weight)


@pytest.mark.parametrize("damage", ["", "another key", "a changed byte", "a short file"])
def test_a_file_of_others_is_not_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str) -> None:
    path = tmp_path / "program.pt"
    save(nn.Linear(2, 3), path)
    if damage == "another key":
        monkeypatch.setenv(KEY, "00" * 32)
    elif damage == "a changed byte":
        path.write_bytes(path.read_bytes().replace(b"weight", b"height", 1))
    elif damage == "a short file":
        path.write_bytes(b"PK")
    else:
        torch.save(Executes(tmp_path / "executed"), path)
    with pytest.raises(UsageError, match=r"program\.pt was not saved by this invocation, and loading it may execute"):
        loaded(path)
    assert not (tmp_path / "executed").exists()


def test_the_footprint_of_a_file_of_others_is_not_measured(tmp_path: Path) -> None:
    torch.save(Executes(tmp_path / "executed"), tmp_path / "program.pt")
    torch.save((torch.ones(1),), tmp_path / "inputs.pt")
    command = [sys.executable, "-m", "conformance.bench.footprint", "program.pt", "--inputs", "inputs.pt"]
    environment = {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("footprint: error: program.pt was not saved by this invocation")
    assert not (tmp_path / "executed").exists()
    (tmp_path / "program.pt").unlink()
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.stderr.splitlines()[-1] == "footprint: error: program.pt: No such file or directory"
