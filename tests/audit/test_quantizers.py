"""What names quantizers and engines for audits through PT2E, and errors that name the fix."""

import pytest
import torch
from torch import nn
from torch.ao.quantization import QConfigMapping

from conformance.__main__ import main
from conformance.audit import audit, quantization
from conformance.errors import UsageError
from conformance.models import pt2e
from conformance.results.audits import Arithmetic
from tests.audit.exported_networks import on_x86, subject_of


@pytest.mark.parametrize(
    ("quantizer", "engine", "message"),
    [
        ("xnnpak", None, "unknown quantizer 'xnnpak'"),
        (3, None, "quantizer 'int' has no annotate and no validate: give a Quantizer of PT2E"),
        ("json:JSONDecoder", None, "has no annotate and no validate"),
        ("nowhere:made", None, "No module named 'nowhere'"),
    ],
)
def test_what_is_no_quantizer_is_refused(quantizer: object, engine: str | None, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        quantization(quantizer, engine)


@on_x86
@pytest.mark.parametrize(
    ("engine", "message"),
    [
        (
            "x86",
            "engine 'x86' does not run what quantizer x86inductor converts: give one of x86-inductor, x86-compiled",
        ),
        ("x86-inducter", "unknown engine 'x86-inducter'"),
        ("executorch", "engine 'executorch' does not run what quantizer x86inductor converts"),
    ],
)
def test_an_engine_that_does_not_run_the_models_is_refused(engine: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        quantization("x86inductor", engine)


def test_a_quantizer_that_is_not_installed_is_named_with_its_environment() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pt2e, "find_spec", lambda name: None)
        with pytest.raises(UsageError, match=r"quantizer xnnpack is unavailable here: .* use `tox -e pt2e-xnnpack`"):
            quantization("xnnpack")


def test_options_of_fx_are_refused_beside_a_quantizer() -> None:
    subject = subject_of("small")
    with pytest.raises(UsageError, match="mapping is FX's: configure the quantizer in its place"):
        audit(subject.model, subject.batches, quantizer="xnnpack", mapping=QConfigMapping())
    with pytest.raises(UsageError, match="qat is for quantizers of PT2E"):
        audit(subject.model, subject.batches, qat=True)


def test_an_engine_of_pt2e_names_the_quantizer_to_add() -> None:
    subject = subject_of("small")
    with pytest.raises(UsageError, match="engine 'executorch' runs what a quantizer of PT2E converts: add --quantizer"):
        audit(subject.model, subject.batches, "executorch")


@on_x86
def test_ways_of_inductor_are_told_apart_by_layer(capsys: pytest.CaptureFixture[str]) -> None:
    """Without frozen weights inductor fuses nothing, and what it generates code for counts as computed in float."""
    named = ["tests.audit.test_quantizers:activated", "--shape", "2,8", "--quantizer", "x86inductor", "--no-reduce"]
    assert main(["audit", *named, "--engine", "x86-inductor", "--engine", "x86-unfrozen"]) == 0
    said = capsys.readouterr().out
    assert "annotated, and inductor fuses integer kernels for frozen weights alone" in said
    assert [line.split() for line in said.splitlines()[-4:-2]] == [
        ["x86-inductor", "x86-unfrozen"],
        ["0", "int", "float"],
    ]
    found = audit(activated(), [torch.randn(2, 8) for _ in range(3)], quantizer="x86inductor", engine="x86-unfrozen")
    assert [layer.arithmetic for layer in found.layers] == [Arithmetic.FLOAT, Arithmetic.FLOAT]


def activated() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 8), nn.Softplus()).eval()
