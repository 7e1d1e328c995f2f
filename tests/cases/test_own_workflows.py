"""Workflows of a library of someone else, which `--backend-config` names."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from invoking import cases, invoke

from conformance.__main__ import main
from conformance.cases.claims import third_party
from conformance.cases.families import families
from conformance.cases.runs import benchmarks
from conformance.configs.engines import IN_PLACE, WORKFLOW_ENGINES
from conformance.errors import UsageError
from conformance.repro import execution
from conformance.results.where import Where

LIBRARY = """
from dataclasses import dataclass
import torch
from torch import nn

@dataclass
class Rows:
    greatest: int

def quantize_(model, config):
    scale = model.op.weight.detach().abs().amax(-1, keepdim=True) / config.greatest
    scale = scale.clamp(min=torch.finfo(scale.dtype).smallest_normal)
    qdata = torch.round(model.op.weight.detach() / scale)
    model.op.weight = nn.Parameter(qdata * scale)
    model.op.weight.qdata, model.op.weight.scale = qdata, scale
"""
DECLARED = """
import torch
from torch import nn
from conformance.configs.codes import Codes
from conformance.configs.workflows import Workflow, WorkflowConfig

NAMES = {"Rows": "their_library", "quantize_": "their_library"}

def config(source="Rows(127)", names=NAMES, pattern=nn.Linear, **options):
    weight = Codes(-127, 127)
    return WorkflowConfig("theirs", names, [
        Workflow(pattern, "rows", source, weight, dequantizes=True, dtypes=[torch.float32], **options)
    ])

def wrong():
    return config("Rows(63)")

def misspelled():
    return config("Row(127)")

def without_quantize():
    return config(names={"Rows": "their_library"})

def not_installed():
    return config(names={**NAMES, "Rows": "no_such_library"})

def not_there():
    return config(names={**NAMES, "Rows": "torch"})

def of_volumes():
    return config(pattern=nn.Conv3d)

def of_another_device():
    return config("Rows(1 / 0)", needs="an accelerator")
"""
DEFAULT = "theirs/nn.Linear/rows-float32/ptq/default"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of someone else's library and declarations, in which the suite is called."""
    (tmp_path / "their_library.py").write_text(LIBRARY)
    (tmp_path / "their_workflows.py").write_text(DECLARED)
    monkeypatch.chdir(tmp_path)
    before = dict(WORKFLOW_ENGINES)
    third_party.cache_clear()
    yield tmp_path
    third_party.cache_clear()
    for name in ("their_library", "their_workflows"):
        sys.modules.pop(name, None)
    for name in WORKFLOW_ENGINES.keys() - before.keys():
        del WORKFLOW_ENGINES[name]


def test_they_run_as_they_are_and_compiled_but_not_exported(folder: Path) -> None:
    invocation = invoke(folder, "--backend-config", "their_workflows:config", *cases(f"{DEFAULT}/*"))
    assert {run_id: row.verdict for run_id, row in invocation.rows.items()} == dict.fromkeys(
        (f"{DEFAULT}/typical@torch-eager", *(f"{DEFAULT}/exact@{engine}" for engine in IN_PLACE[:3])), "conforms"
    )
    assert invocation.status == 0, invocation.output


@pytest.mark.parametrize(
    ("attribute", "status", "shown"),
    [("config", 0, "CONFORMS\n"), ("wrong", 1, "DEVIATES annotated: the scales are not those of the blocks\n")],
)
def test_a_script_needs_torch_and_the_library_alone(
    attribute: str, status: int, shown: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_id = f"{DEFAULT}/exact@torch-eager"
    assert main(["repro", run_id, "--backend-config", f"their_workflows:{attribute}"]) == 0
    text = capsys.readouterr().out
    assert "from their_library import Rows, quantize_\n" in text
    assert not {"conformance", "torchao"} & {*text.replace(run_id, "").replace(".", " ").split()}
    process = execution.run(text, importing=True)
    assert (process.returncode, shown in process.stdout) == (status, True), process.stderr


@pytest.mark.parametrize(
    ("attribute", "message"),
    [
        ("misspelled", "workflow 'rows' raises NameError: name 'Row' is not defined; its names have to be among"),
        ("without_quantize", "its names have no 'quantize_', which runs call: add it with its module"),
        ("not_installed", "ModuleNotFoundError: No module named 'no_such_library'; install the library, or correct"),
        ("not_there", "AttributeError: module 'torch' has no attribute 'Rows'; install the library, or correct"),
        ("of_volumes", "workflow 'rows' is of <class 'torch.nn.modules.conv.Conv3d'>: the suite has sizes of nn."),
    ],
)
def test_what_no_run_can_use_is_refused_with_the_fix(attribute: str, message: str, folder: Path) -> None:
    with pytest.raises(UsageError) as raised:
        third_party(f"their_workflows:{attribute}")
    assert str(raised.value).startswith(f"--backend-config 'their_workflows:{attribute}': ")
    assert message in str(raised.value)


def test_what_needs_another_device_is_a_claim_that_is_not_evaluated(folder: Path) -> None:
    (claim,) = third_party("their_workflows:of_another_device").claims
    assert claim.id == "theirs/nn.Linear/rows-float32"


def test_a_condition_has_to_name_them(folder: Path) -> None:
    assert third_party("their_workflows:config").engines == IN_PLACE
    run_id = f"{DEFAULT}/exact@torch-eager"
    assert not Where.of({"pattern": "nn.Linear", "flow": "ptq"}).matches(run_id)
    assert Where.of({"backend": "theirs", "pattern": "nn.Linear"}).matches(run_id)


def test_nothing_of_them_is_drawn_or_timed(folder: Path) -> None:
    claims = third_party("their_workflows:config")
    assert [*families(claims, slow=True), *benchmarks(claims)] == []


@pytest.mark.parametrize(
    "command",
    [
        ["lint", "their_workflows:config"],
        ["audit", "their_library:Rows", "--backend-config", "their_workflows:config"],
        ["trusted", "--backend-config", "their_workflows:config", "--engine", "x86", "rows.jsonl", "-o", "trusted.py"],
    ],
)
def test_a_command_about_converted_models_refuses_them(
    command: list[str], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(command) == 2
    error = capsys.readouterr().err
    assert "has to be a BackendConfig" in error or "needs a config that converts models" in error
