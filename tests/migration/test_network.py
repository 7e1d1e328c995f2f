"""`migrate` of a network: FX beside PT2E. It takes one in `tox -e pt2e-x86` and `pt2e-audits` alone."""

import json
from pathlib import Path

import pytest

from conformance.__main__ import main
from conformance.models import pt2e
from conformance.results.audits import from_json
from tests.audit.exported_networks import on_x86

NETWORK = ("migrate", "audited_networks:residual", "--shape", "2,3,12,12")
ONE_ACTIVATION = """
from torch import nn

class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.relu = nn.Conv2d(4, 4, 3), nn.Conv2d(4, 4, 3), nn.ReLU()
        self.eval()

    def forward(self, x):
        return self.relu(self.second(self.relu(self.first(x))))
"""


@on_x86
def test_a_network_is_taken_through_both_flows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "audits.json"
    assert main([*NETWORK, "--quantizer", "x86inductor", "--json", str(path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["x86", "x86-inductor"], "the engine whose users move to the quantizer, and its own"
    (output,) = [line for line in lines if "output against float" in line]
    own, other = [from_json(one) for one in json.loads(path.read_text())]
    assert own.engine_db is not None
    assert f" {own.engine_db:.1f} dB " in output
    assert own.time_ratio is not None
    assert own.size_ratio is not None
    assert other.size_ratio is not None
    assert own.size_ratio < 1 > other.size_ratio, "float weights are not counted"
    assert (own.integer_share, other.integer_share) == (1.0, 0.6)
    at = lines.index("Layers that not all compute alike")
    assert [line.split() for line in lines[at + 1 : at + 3]] == [["x86", "x86-inductor"], ["pool", "int", "float"]]
    assert "nothing to blame" in lines[-1]


@on_x86
def test_the_exit_status_is_1_if_pt2e_is_to_blame(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "one_activation.py").write_text(ONE_ACTIVATION)
    monkeypatch.chdir(tmp_path)
    assert main(["migrate", "one_activation:Network", "--shape", "2,4,8,8", "--quantizer", "x86inductor"]) == 1
    shown = capsys.readouterr().out
    assert "one_activation:Network on x86: ✓" in shown
    assert "one_activation:Network on x86-inductor: ~" in shown


def test_quantizers_that_are_not_installed_are_left_out_and_one_is_needed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pt2e, "find_spec", lambda name: None)
    assert main([*NETWORK]) == 2
    error = capsys.readouterr().err
    assert "quantizer xnnpack is left out: " in error
    assert "migrate: no quantizer is available here: torchao cannot be imported: install it, or use `tox" in error


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["nn.Conv2d", "--shape", "1,2"],
            "--shape is for a network: name one as module:callable in place of nn.Conv2d",
        ),
        (["audited_networks:residual", "--quantizer", "xnnpak"], "unknown quantizer 'xnnpak': did you mean xnnpack"),
        (["audited_networks:residual", "--engine", "executorch"], "add --quantizer xnnpack"),
        (["audited_networks:residual", "--engine", "x87"], "unknown engine 'x87'"),
    ],
)
def test_wrong_use_is_one_line(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["migrate", *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
