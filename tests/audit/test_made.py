"""Audits of programs for ExecuTorch that are already made, alone and with the ETRecord of their lowering."""

import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

from conformance.__main__ import main
from conformance.audit.exported import export
from conformance.audit.made import Made
from conformance.audit.quantizers import quantization
from conformance.engines.executorch.program_file import ProgramFile
from conformance.engines.executorch.runtime import LoadedProgram
from conformance.engines.registry import engine
from conformance.errors import UsageError
from conformance.reports.audit_text import summary_line, text
from conformance.results.audits import Arithmetic, Audit
from tests.audit.exported_networks import on_executorch, subject_of

pytestmark = on_executorch


def model() -> Any:
    return subject_of("small").model


def batches() -> Any:
    return [*subject_of("small").calibration, subject_of("small").held_out]


class Files(NamedTuple):
    """A program, the ETRecord of its lowering, and the same program as the suite lowers it."""

    program: Path
    record: Path
    lowered: Any


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    """The files that somebody has who lowers the network `small` with ETRecord."""
    import executorch.kernels.quantized  # noqa: F401  (registers the out variants of quantize and dequantize)
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import to_edge_transform_and_lower

    folder = tmp_path_factory.mktemp("made")
    exported = export(subject_of("small"), quantization("xnnpack").make, lambda _: None)
    program = torch.export.export(exported.converted, exported.held_out)
    edge = to_edge_transform_and_lower(program, partitioner=[XnnpackPartitioner()], generate_etrecord=True)
    made = edge.to_executorch()
    made.save(str(folder / "small.pte"))
    made.get_etrecord().save(str(folder / "small.etr"))
    lowered = engine("executorch").compile(exported.converted, exported.held_out)
    return Files(folder / "small.pte", folder / "small.etr", lowered)


def audited(files: Files, *, record: bool) -> Audit:
    return Made(ProgramFile(files.program), files.record if record else None).audit(subject_of("small"))


def test_a_file_has_the_kernels_and_delegates_of_the_program_in_order(files: Files) -> None:
    read = ProgramFile(files.program)
    assert isinstance(files.lowered, LoadedProgram)
    assert read.kernels == files.lowered.kernels
    assert read.delegates == files.lowered.delegates == 2
    assert {step.delegate for step in read.steps} == {0, 1, None}


def test_a_program_alone_is_held_to_the_float_model_and_says_what_is_not_known(files: Files) -> None:
    found = audited(files, record=False)
    assert (found.failure, found.referenced, found.reference_db, found.usable) == ("", False, None, True)
    assert found.engine_db == pytest.approx(audited(files, record=True).engine_db)
    assert [one.name for one in found.layers if one.arithmetic is Arithmetic.FLOAT] == ["mean 1"]
    assert "--etrecord" in found.remarks[0]
    assert "no layer was compared" in summary_line(found)
    assert "no layer was compared" in text(found)
    assert "nothing to blame" not in text(found)


def test_a_record_tells_the_layers_apart(files: Files) -> None:
    found = audited(files, record=True)
    assert (found.failure, found.blamed, found.referenced) == ("", (), True)
    layers = {layer.name: layer for layer in found.layers}
    assert layers["stem.0"].pattern == "nn.Conv2d+nn.BatchNorm2d+nn.ReLU"
    assert layers["head"].arithmetic is Arithmetic.INTEGER
    assert layers["mean"].reason == "annotated, and left outside of the delegate"
    own = quantization("xnnpack").audit(subject_of("small"))
    assert [layer.pattern for layer in own.layers] == [layer.pattern for layer in found.layers]
    assert found.reference_db == pytest.approx(own.reference_db)


def test_a_program_of_another_network_is_not_usable(files: Files) -> None:
    subject = subject_of("small")
    for parameter in subject.model.parameters():
        parameter.data.normal_()
    found = Made(ProgramFile(files.program)).audit(subject)
    assert not found.usable


def test_the_command_audits_a_program(files: Files, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "audit.json"
    named = ["tests.audit.test_made:model", "--inputs", "tests.audit.test_made:batches"]
    assert main(["audit", *named, "--pte", str(files.program), "--json", str(out)]) == 0
    (written,) = json.loads(out.read_text())
    assert (written["backend"], written["referenced"]) == ("program", False)
    assert "dB against float; no layer was compared" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "No such file"),
        (b"PK\x03\x04 an archive", "is no program of ExecuTorch"),
        (b"\x00\x00\x00\x00ET12 cut off", "cannot be read"),
    ],
    ids=["missing", "archive", "cut"],
)
def test_what_is_no_program_is_said(tmp_path: Path, content: bytes | None, said: str) -> None:
    path = tmp_path / "network.pte"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UsageError, match=said):
        ProgramFile(path)


def test_a_file_that_is_no_record_is_said(files: Files) -> None:
    with pytest.raises(UsageError, match=r"small\.pte cannot be read"):
        Made(ProgramFile(files.program), files.program).audit(subject_of("small"))


def test_the_record_of_another_program_is_said(files: Files, tmp_path: Path) -> None:
    from executorch.exir import to_edge_transform_and_lower

    other = torch.export.export(torch.nn.Linear(3, 3), (torch.ones(2, 3),))
    made = to_edge_transform_and_lower(other, generate_etrecord=True).to_executorch()
    made.get_etrecord().save(str(tmp_path / "other.etr"))
    with pytest.raises(UsageError, match=r"other\.etr is of another program"):
        Made(ProgramFile(files.program), tmp_path / "other.etr").audit(subject_of("small"))


def test_inputs_that_a_program_does_not_take_are_said(files: Files) -> None:
    with pytest.raises(UsageError, match=r"it takes 2x3x\d+x\d+ float32, and is given \d+x"):
        Made(ProgramFile(files.program)).audit(subject_of("attention"))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--etrecord", "small.etr"], "add --pte"),
        (["--pte", "small.pte", "--quantizer", "xnnpack"], "--quantizer says how to quantize"),
        (["--pte", "small.pte", "--engine", "x86"], "--engine says how to quantize"),
        (["--pte", "small.pte", "--qat"], "--qat says how to quantize"),
    ],
)
def test_options_that_say_how_to_quantize_do_not_go_with_a_program(
    options: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["audit", "tests.audit.test_made:model", "--shape", "2,3,8,8", *options]) == 2
    assert said in capsys.readouterr().err
