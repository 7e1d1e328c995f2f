"""Code of a user is executed on one thread, and whatever it raises is one line."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from conformance.__main__ import main
from conformance.errors import UsageError
from conformance.host.callables import attribute_of, module_of, result_of

THREADED = """
import torch

def threads():
    count = torch.get_num_threads()
    torch.set_num_threads(3)
    return count

COUNT = threads()
"""
LEAVING = {
    "import sys\nsys.exit(0)": "SystemExit: 0",
    "raise SystemExit('no device\\nat all')": "SystemExit: no device",
    "import pytest\npytest.skip('no device', allow_module_level=True)": "Skipped: no device",
    "raise OSError('no device')": "OSError: no device",
    "import sys\nsys.path.clear()\nraise OSError('no device')": "OSError: no device",
}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A current folder with modules that are forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield tmp_path
    for name in ("threaded", "leaving"):
        sys.modules.pop(name, None)
    torch.set_num_threads(1)


def test_torch_has_one_thread_while_code_of_a_user_is_executed_and_afterwards(folder: Path) -> None:
    (folder / "threaded.py").write_text(THREADED)
    torch.set_num_threads(2)
    assert attribute_of("--backend-config", "threaded:COUNT") == 1
    assert torch.get_num_threads() == 1
    torch.set_num_threads(2)
    assert result_of("--backend-config", "threaded:threads") == 1
    assert torch.get_num_threads() == 1


def test_code_of_a_user_neither_prints_on_stdout_nor_changes_the_default_dtype(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "threaded.py").write_text("import torch\nprint('hello')\ntorch.set_default_dtype(torch.float64)\nX = 1\n")
    assert attribute_of("--backend-config", "threaded:X") == 1
    assert torch.get_default_dtype() is torch.float32
    assert capsys.readouterr() == ("", "hello\n")


@pytest.mark.parametrize("text", LEAVING)
def test_a_module_that_ends_the_process_is_named_with_what_it_raises(folder: Path, text: str) -> None:
    (folder / "leaving.py").write_text(text)
    for load in (module_of, lambda option, path: attribute_of(option, f"{path}:NAME")):
        with pytest.raises(UsageError, match=f"^--operators 'leaving.*': {LEAVING[text]}; it has to be importable"):
            load("--operators", "leaving")


def test_a_function_that_ends_the_process_is_named(folder: Path) -> None:
    (folder / "leaving.py").write_text("import sys\ndef config():\n    sys.exit(3)\n")
    with pytest.raises(UsageError, match="'leaving:config' raises SystemExit: 3; it is called without arguments"):
        result_of("--backend-config", "leaving:config")


@pytest.mark.parametrize(
    "arguments", [["show", "leaving/*", "--backend-config"], ["lint"], ["claims", "--backend-config"]]
)
def test_commands_refuse_a_config_that_ends_the_process(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    (folder / "leaving.py").write_text("import sys\nsys.exit(0)")
    assert main([*arguments, "leaving:CONFIG"]) == 2
    assert "SystemExit: 0; it has to be importable from here" in capsys.readouterr().err
