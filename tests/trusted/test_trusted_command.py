"""`trusted`: a module that needs torch alone, made of rows of one torch and one platform."""

import subprocess
import sys
from dataclasses import replace
from importlib.machinery import SourceFileLoader
from pathlib import Path

import pytest
import torch
from audited_networks import images, residual
from torch import nn
from torch.ao.quantization.backend_config import BackendConfig, BackendPatternConfig

from conformance.__main__ import main
from conformance.audit.auditing import claims_for
from conformance.audit.network import network
from conformance.cases.claims import BackendClaims, claims_of, third_party
from conformance.configs.lone import get_lone_backend_config
from conformance.errors import UsageError
from conformance.paths import ROOT
from conformance.results.ledger_file import load
from conformance.results.rows import Row, read
from conformance.trusted.promises import trusted
from conformance.trusted.written import module
from tests.invocation import LEDGER, row, write
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


def test_the_module_of_another_config_imports_it(tmp_path: Path) -> None:
    lone = "conformance.configs.lone:get_lone_backend_config"
    claims = third_party(lone).claims
    assert claims
    found = [
        row(claim.pattern, backend="lone", dtype_config=claim.dtype_config, engine="x86")
        for claim in claims
        if claim.tree
    ]
    path, out = write(tmp_path / "rows.jsonl", found, TORCH), tmp_path / "trusted_lone.py"
    assert main(["trusted", "--backend-config", lone, "--engine", "x86", str(path), "-o", str(out)]) == 0
    made = SourceFileLoader("trusted_lone", str(out)).load_module()
    assert "import conformance.configs.lone\n" in out.read_text()
    assert len(made.backend_config().configs) == len(get_lone_backend_config().configs)


def test_another_ledger_explains_what_it_knows(tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text(LEDGER, encoding="utf-8")
    found = [replace(one, known="linear-is-off") for one in rows("fbgemm", **{"nn.Linear": ["numerics"]})]
    status, out = run(tmp_path, "--ledger", str(tmp_path), found=found)
    assert status == 0
    assert "# linear-is-off (pytorch/pytorch#1): Linear is off" in out.read_text()
    assert "quantized-without-qconfig" in out.read_text()


def test_an_operator_that_cannot_be_imported_is_an_error(tmp_path: Path) -> None:
    claim = claims_for("fbgemm").claims[0]
    local = BackendPatternConfig(type("Local", (nn.Module,), {})).add_dtype_config(claim.dtypes)
    config = BackendConfig("own").set_backend_pattern_configs([claim.entry, local])
    claims = BackendClaims("own", config, ("x86",), claims_of("own", config), "")
    found = [row(claim.pattern, backend="own", dtype_config=claim.dtype_config, engine="x86")]
    made = trusted(found, claims, "x86", load(), HOST)
    with pytest.raises(
        UsageError, match=r"the module cannot name an operator of the config: .*Local cannot be imported"
    ):
        module(made, {entry.id: entry.finding for entry in load()}, path=tmp_path / "t.py", date="2026-01-01")


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
