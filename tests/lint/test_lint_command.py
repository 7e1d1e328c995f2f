"""The command `lint`: lines for problems, a summary, the exit status, and errors for what is no declaration."""

from pathlib import Path

import pytest

from conformance.__main__ import main

THEIRS = """
from torch import nn
from torch.ao.quantization.backend_config import BackendConfig, BackendPatternConfig, DTypeConfig
import torch

clean = BackendPatternConfig(nn.ReLU).set_dtype_configs([DTypeConfig(torch.quint8, torch.quint8)])
CLEAN = BackendConfig("clean").set_backend_pattern_configs([clean])
ENTRIES = [clean, BackendPatternConfig((nn.ReLU,)).set_dtype_configs([DTypeConfig(torch.quint8, torch.quint8)])]

class Registry:
    config = CLEAN

def raising():
    raise KeyError("lost")
"""


@pytest.fixture(autouse=True)
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "their_lint.py").write_text(THEIRS)
    monkeypatch.chdir(tmp_path)


def test_a_declaration_without_mistakes_has_status_0(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lint", "their_lint:Registry.config"]) == 0
    assert capsys.readouterr().out == "clean: 1 entries, 0 errors, 0 warnings\n"


def test_what_torch_refuses_to_put_into_a_config_is_linted_in_a_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lint", "their_lint:ENTRIES", "their_lint:CLEAN"]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "their_lint:ENTRIES: error pattern-length: entry 2, nn.ReLU: its sequence has 1 operators",
        "their_lint:ENTRIES: 2 entries, 1 errors, 0 warnings",
        "clean: 1 entries, 0 errors, 0 warnings",
    ]


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("their_lint", "lint 'their_lint': write it as module:attribute"),
        ("their_lint:nothing", "AttributeError: module 'their_lint' has no attribute 'nothing'"),
        ("their_lint:raising", "raises KeyError: 'lost'"),
        ("their_lint:THEIRS", "has no attribute 'THEIRS'"),
        ("json:__name__", "is of type str; it has to be a BackendConfig or a list of BackendPatternConfigs"),
    ],
)
def test_what_is_no_declaration_is_an_error_of_one_line(
    path: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["lint", path]) == 2
    errors = capsys.readouterr().err
    assert message in errors
    assert errors.count("\n") == 1


def test_without_a_declaration_the_backends_are_linted(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lint"]) == 1
    summaries = [line for line in capsys.readouterr().out.splitlines() if " entries, " in line]
    assert [line.partition(":")[0] for line in summaries] == ["qnnpack", "fbgemm", "onednn", "executorch"]


def test_every_rule_is_described_with_a_reason_and_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lint", "--rules"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) % 3 == 0
    assert "pattern-missing (error)" in lines
    assert all(line.startswith("    ") and line.strip() for number, line in enumerate(lines) if number % 3)
