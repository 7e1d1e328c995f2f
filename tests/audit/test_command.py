"""The command `audit`: files, exit status, progress, and errors for what cannot be audited."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from conformance.__main__ import main
from conformance.results.audits import from_json

SHAPE = ("--shape", "2,3,12,12")


def test_it_prints_the_audit_and_writes_it_as_json_and_as_a_page(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    files = tmp_path / "audits.json", tmp_path / "audits.html"
    options = ("--engine", "x86", "--engine", "fbgemm", "--json", str(files[0]), "-o", str(files[1]))
    assert main(["audit", "audited_networks:residual", *SHAPE, *options]) == 0
    out, err = capfd.readouterr()
    assert "audited_networks:residual on x86, config fbgemm" in out
    assert max(map(len, out.splitlines())) <= 100
    audits = [from_json(values) for values in json.loads(files[0].read_text())]
    assert [(one.engine, one.holds) for one in audits] == [("x86", True), ("fbgemm", True)]
    assert "audited_networks:residual" in files[1].read_text()
    assert [line for line in err.splitlines() if line.startswith("x86: ")][:3] == [
        "x86: prepare",
        "x86: calibrate",
        "x86: convert",
    ]


def test_the_exit_status_is_1_if_the_engine_is_to_blame(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", "audited_networks:relu6", *SHAPE, "--engine", "qnnpack"]) == 1
    out = capfd.readouterr().out
    assert "1 layer to blame" in out
    assert "# --- reproduction: 1 on qnnpack" in out


def test_the_reproduction_deviates_with_torch_alone(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    main(["audit", "audited_networks:relu6", *SHAPE, "--engine", "qnnpack"])
    script = tmp_path / "reproduction.py"
    script.write_text(capfd.readouterr().out.partition("# --- reproduction: 1 on qnnpack\n")[2])
    done = subprocess.run([sys.executable, "-I", script], capture_output=True, text=True)
    assert done.stdout.startswith("DEVIATES numerics: "), done.stderr
    assert done.returncode == 1


def test_a_network_may_be_named_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.py").write_text("from torch import nn\nNETWORK = nn.Sequential(nn.Linear(8, 4)).eval()\n")
    monkeypatch.chdir(tmp_path)
    assert main(["audit", "mine:NETWORK", "--shape", "4,8"]) == 0


def test_inputs_come_from_a_callable(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", "audited_networks:residual", "--inputs", "audited_networks:images"]) == 0
    assert "nothing to blame" in capfd.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["audited_networks", *SHAPE], "audit 'audited_networks': write it as module:attribute"),
        (["audited_networks:nothing", *SHAPE], "has no attribute 'nothing'; it has to be importable from here"),
        (["nowhere.at_all:model", *SHAPE], "ModuleNotFoundError: No module named 'nowhere'"),
        (["audited_networks:raising", *SHAPE], "raises RuntimeError: no weights; it is called without arguments"),
        (["audited_networks:not_callable", *SHAPE], "is of type int, which cannot be called: name a function"),
        (["audited_networks:no_network", *SHAPE], "returned a str: it has to return a torch.nn.Module in eval mode"),
        (["audited_networks:training", *SHAPE], "is in training mode"),
        (["audited_networks:residual"], "no inputs: give either --inputs module:callable or --shape"),
        (
            ["audited_networks:residual", *SHAPE, "--inputs", "audited_networks:images"],
            "both --inputs and --shape: give",
        ),
        (["audited_networks:residual", "--shape", "2,3"], "inputs of shape (2, 3): give inputs that it accepts"),
        (["audited_networks:residual", "--shape", "2,x"], "--shape '2,x': write positive sizes separated by commas"),
        (
            ["audited_networks:residual", "--inputs", "audited_networks:one_batch"],
            "a list of 1: give a sequence of at least 2",
        ),
        (
            ["audited_networks:residual", "--inputs", "audited_networks:numbers"],
            "batch 1 of the inputs is a float: give",
        ),
        (
            ["audited_networks:residual", "--inputs", "audited_networks:narrow"],
            "batch 1, inputs of shape (2, 2, 12, 12)",
        ),
        (["audited_networks:residual", *SHAPE, "--engine", "x68"], "unknown engine 'x68': did you mean x86?"),
        (
            ["audited_networks:residual", *SHAPE, "--mapping", "audited_networks:residual"],
            "it has to return a QConfigMapping",
        ),
        (
            ["audited_networks:residual", *SHAPE, "--engine", "executorch"],
            "converts: add --quantizer xnnpack, or audit one",
        ),
        (["audited_networks:residual", *SHAPE, "--qat"], "--qat is for quantizers of PT2E: add --quantizer, such as"),
        (
            ["audited_networks:residual", *SHAPE, "--quantizer", "xnpack"],
            "unknown quantizer 'xnpack': did you mean xnnpack",
        ),
        (
            ["audited_networks:residual", *SHAPE, "--quantizer", "audited_networks:residual"],
            "has no annotate and no validate: give a Quantizer of PT2E",
        ),
        (
            ["audited_networks:residual", *SHAPE, "--quantizer", "xnnpack", "--mapping", "audited_networks:residual"],
            "--mapping is FX's: configure the quantizer in its place",
        ),
        (["audited_networks:residual", *SHAPE, "--json", "/proc/nothing/a.json"], "--json /proc/nothing/a.json: "),
    ],
)
def test_wrong_input_gets_one_line_with_the_fix(
    arguments: list[str], message: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["audit", *arguments]) == 2
    (line,) = [line for line in capfd.readouterr().err.splitlines() if not line.startswith("x86: ")]
    assert line.startswith("conformance: error: ")
    assert message in line


def test_the_fixture_audits_a_network_of_ones_own(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["conformance.plugin.auditing"]\n')
    (tmp_path / "test_mine.py").write_text(
        "import torch\nfrom torch import nn\n\n"
        "def test_mine(audit):\n"
        "    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU()).eval()\n"
        "    audited = audit(model, [torch.ones(2, 4), torch.zeros(2, 4)], 'x86')\n"
        "    assert audited.integer_share > 0.95 and not audited.blamed\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2])
    assert "1 passed" in done.stdout, done.stdout
