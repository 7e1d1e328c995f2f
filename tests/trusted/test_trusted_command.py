"""`trusted`: a module that needs torch alone, made of rows of one torch and one platform."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from audited_networks import images, residual

from conformance.__main__ import main
from conformance.audit.network import network
from conformance.paths import ROOT
from conformance.results.rows import Row, read
from tests.invocation import row, write
from tests.prediction.test_predicting import HOST
from tests.trusted.test_avoiding import is_theirs
from tests.trusted.test_promises import rows

TORCH = {"torch": torch.__version__}
SCRIPT = """
import sys, torch
sys.path.insert(0, sys.argv[1])
import trusted
model, batches = torch.load(sys.argv[2], weights_only=False)
quantized = trusted.quantize(model, batches[:-1])
assert not any(name.startswith("conformance") for name in sys.modules)
torch.save((len(trusted.backend_config().configs), quantized(*batches[-1])), sys.argv[3])
"""


def run(tmp_path: Path, *options: str, found: list[Row] | None = None, engine: str = "fbgemm") -> tuple[int, Path]:
    path = write(tmp_path / "rows.jsonl", rows("fbgemm") if found is None else found, TORCH)
    out = tmp_path / "trusted.py"
    return main(["trusted", "--backend", "fbgemm", "--engine", engine, str(path), "-o", str(out), *options]), out


def test_the_module_quantizes_with_torch_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out = run(tmp_path, found=rows("fbgemm", **{"nn.Linear": ["numerics"]}))
    assert status == 0
    claims = len(rows("fbgemm"))
    assert f"of {claims} claims of fbgemm hold on fbgemm" in capsys.readouterr().out
    assert "(nn.Linear, (torch.quint8, torch.quint8, torch.qint8, torch.float32, None)),  # refuses" in out.read_text()
    subject = network("residual", residual(), images())
    torch.save((torch.fx.symbolic_trace(subject.model), [*subject.batches]), tmp_path / "model.pt")
    done = subprocess.run(
        [
            sys.executable,
            "-I",
            "-W",
            "ignore",
            "-c",
            SCRIPT,
            *map(str, (tmp_path, tmp_path / "model.pt", tmp_path / "o.pt")),
        ],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    entries, output = torch.load(tmp_path / "o.pt")
    assert 150 < entries < claims
    expected = subject.model(*subject.held_out)
    assert (output - expected).norm() < 0.1 * expected.norm()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"torch": "2.9.0"}, f"the rows are of torch 2.9.0, and this is torch {torch.__version__}: run the suite with"),
        ({**TORCH, "arch": "aarch64"}, "give those of one platform"),
    ],
)
def test_rows_of_others_are_an_error(
    changes: dict[str, str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = write(tmp_path / "other.jsonl", rows("fbgemm"), changes)
    here = [str(write(tmp_path / "here.jsonl", rows("fbgemm"), TORCH))] if "arch" in changes else []
    out = tmp_path / "t.py"
    assert main(["trusted", "--backend", "fbgemm", "--engine", "fbgemm", *here, str(other), "-o", str(out)]) == 2
    assert message in capsys.readouterr().err
    assert not out.exists()


@pytest.mark.parametrize(
    ("found", "engine", "message"),
    [
        ([row()], "x86", "no row of fbgemm on x86 in default use was executed: run `python -m pytest conformance"),
        ([row(variant="groups")], "fbgemm", "no row of fbgemm on fbgemm in default use was executed"),
        ([row(verdict="unavailable")], "fbgemm", "no row of fbgemm on fbgemm in default use was executed"),
        ([row(fails=["numerics"])], "fbgemm", "no claim of fbgemm holds in default use on fbgemm"),
    ],
)
def test_rows_that_prove_nothing_are_an_error(
    found: list[Row], engine: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out = run(tmp_path, found=found, engine=engine)
    assert status == 2
    assert message in capsys.readouterr().err
    assert not out.exists()


def test_a_file_that_cannot_be_imported_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path, "-o", "no-module.py")[0] == 2
    assert "-o 'no-module.py': name a file of Python that can be imported" in capsys.readouterr().err


@pytest.mark.parametrize("engine", ["x86", "fbgemm", "onednn", "qnnpack"])
def test_no_run_of_a_trusted_config_deviates_in_default_use(engine: str, tmp_path: Path) -> None:
    if not is_theirs(engine):
        pytest.skip(f"the trusted configs are of x86_64 with AVX-512 VNNI, and this is {HOST.platform}")
    path = tmp_path / "rows.jsonl"
    config = f"conformance.configs.trusted.{engine}:backend_config"
    selection = ["--case", "*/static-quint8/ptq/default/exact@*", "--shard", "1/3"]
    options = ["--backend-config", config, "--engine", engine, *selection, "--results", str(path)]
    arguments = ["-q", "-p", "no:cacheprovider", "conformance/test_conformance.py", *options]
    done = subprocess.run([sys.executable, "-m", "pytest", *arguments], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:]
    assert {str(one.verdict) for one in read(path).rows} == {"conforms"}
