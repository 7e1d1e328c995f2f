"""Invocations of the suite: what passes, fails, is expected to fail, is refused, and what is left in rows files."""

import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from conformance.results import diagnostics
from conformance.results.rows import Row, RowsFile, read, read_all
from conformance.results.verdicts import IN_ORDER

ROOT = Path(__file__).parent.parent
SUITE = "conformance/test_conformance.py"

CONFORMING = "qnnpack/nn.Hardswish/static-quint8/ptq/default/exact@qnnpack"
CRASHING = "qnnpack/nn.Hardswish/static-quint8/ptq/batch0/exact@qnnpack"
NEIGHBOUR = "qnnpack/nn.Hardswish/static-quint8/ptq/batch1/exact@qnnpack"
UNLISTED = "qnnpack/nn.Linear/static-quint8/ptq/called_twice/exact@qnnpack"
LISTED = "qnnpack/torch.cat/static-quint8/ptq/keyword/exact@qnnpack"
HALF_LISTED = "qnnpack/torch.stack/static-quint8/ptq/keyword/exact@qnnpack"
GONE = "qnnpack/nn.ReLU/static-quint8/ptq/default/exact@qnnpack"
SELECTED = (CONFORMING, CRASHING, NEIGHBOUR, UNLISTED, LISTED, HALF_LISTED, GONE)
NATIVE = "torch.ao.quantization.backend_config.native:get_native_backend_config"

divides_by_zero = pytest.mark.skipif(
    platform.machine() != "x86_64", reason="other processors divide by zero in silence"
)


def entry(name: str, match: str, *checks: str) -> str:
    return (
        f'[[deviation]]\nid = "{name}"\nmatch = "{match}"\ncheck = {json.dumps(checks)}\n'
        f'reason = "the reason of {name}"\nupstream = "unreported"\n'
    )


LEDGER = "\n".join(
    (
        entry("keyword", LISTED, "observed", "lowered", "reference", "numerics"),
        entry("half", HALF_LISTED, "lowered", "reference", "numerics"),
        entry("gone", GONE, "numerics"),
    )
)


@dataclass(frozen=True)
class Invocation:
    """What an invocation of the suite came to."""

    status: int
    output: str
    results: Path

    @property
    def rows(self) -> dict[str, Row]:
        return {row.id: row for row in self.file.rows}

    @property
    def file(self) -> RowsFile:
        return read(self.results)


def command(results: Path, ledger: Path, arguments: Sequence[str], suite: str = SUITE) -> list[str]:
    options = ["-p", "no:cacheprovider", "-rA", "--results", str(results), "--ledger", str(ledger)]
    return [sys.executable, "-m", "pytest", suite, *options, *arguments]


def invoke(
    folder: Path, *arguments: str, ledger: str = "", results: Path | None = None, suite: str = SUITE
) -> Invocation:
    """Run the suite in a process of its own; rows and ledger are in `folder`, and modules to import may be."""
    folder.mkdir(exist_ok=True)
    (folder / "known").mkdir()
    (folder / "known" / "known.toml").write_text(ledger)
    results = results or folder / "rows.jsonl"
    done = subprocess.run(
        command(results, folder / "known", arguments, suite), cwd=ROOT, capture_output=True, text=True, errors="replace",
        env={**os.environ, "PYTHONPATH": str(folder)}, check=False,
    )  # fmt: skip
    return Invocation(done.returncode, done.stdout + done.stderr, results)


def cases(*ids: str) -> list[str]:
    return [option for one in ids for option in ("--case", one)]


@pytest.fixture(scope="module")
def serial(tmp_path_factory: pytest.TempPathFactory) -> Invocation:
    return invoke(tmp_path_factory.mktemp("serial"), "--backend", "qnnpack", *cases(*SELECTED), ledger=LEDGER)


@pytest.fixture(scope="module")
def distributed(tmp_path_factory: pytest.TempPathFactory) -> Invocation:
    folder = tmp_path_factory.mktemp("distributed")
    return invoke(folder, "--backend", "qnnpack", "-n", "2", *cases(*SELECTED), ledger=LEDGER)


def test_what_is_seen_stands_beside_the_rows_whatever_the_workers(serial: Invocation, distributed: Invocation) -> None:
    for one in (serial, distributed):
        (seen,) = diagnostics.read(one.results, read_all(one.results))
        deviating = {row.id for row in one.file.rows if row.failed}
        assert deviating
        assert deviating <= set(seen)
        for run_id in deviating:
            assert "model" in seen[run_id].sections
            assert "DEVIATES" in seen[run_id].reproduction
        assert all(not seen[run_id].reproduction for run_id in set(seen) - deviating)


def test_junit_xml_names_runs_and_their_verdicts(tmp_path: Path) -> None:
    made = invoke(tmp_path / "one", "--backend", "qnnpack", "--junit-xml", str(tmp_path / "junit.xml"), *cases(LISTED))
    found = ElementTree.parse(tmp_path / "junit.xml").findall(".//testcase")
    said = {case.get("name"): {p.get("name"): p.get("value") for p in case.iter("property")} for case in found}
    assert said[f"test_run[{LISTED}]"]["verdict"] == made.rows[LISTED].verdict == "deviates"
    assert set((said[f"test_run[{LISTED}]"]["failed"] or "").split(", ")) == made.rows[LISTED].failed


def test_every_run_has_its_row_between_header_and_footer(serial: Invocation) -> None:
    assert [row.id for row in serial.file.rows] == sorted(SELECTED)
    assert serial.file.header["backends"] == ["qnnpack"]
    assert serial.file.header["engines"] == {"qnnpack": "available"}
    assert serial.file.header["selection"] == list(SELECTED)
    assert serial.file.footer["rows"] == len(SELECTED)
    assert not serial.results.with_name("rows.jsonl.partial").exists()


def test_a_conforming_run_passes(serial: Invocation) -> None:
    row = serial.rows[CONFORMING]
    assert f"PASSED {SUITE}::test_run[{CONFORMING}]" in serial.output
    assert (row.verdict, row.known, row.detail) == ("conforms", None, "")
    assert row.kernels == ("quantized.hardswish",)
    assert row.seconds > 0


def test_an_unlisted_deviation_fails_with_check_numbers_and_command(serial: Invocation) -> None:
    row = serial.rows[UNLISTED]
    assert (row.verdict, row.known) == ("deviates", None)
    assert row.failed == {"numerics"}
    assert f"{UNLISTED}: numerics: {row.mismatched} of 32 codes differ" in serial.output
    assert f"(not in the ledger: numerics). Reproduce: python -m conformance repro '{UNLISTED}'" in serial.output
    assert serial.status == pytest.ExitCode.TESTS_FAILED


def test_a_listed_deviation_is_expected_with_its_reason(serial: Invocation) -> None:
    assert f"XFAIL {SUITE}::test_run[{LISTED}] - keyword: the reason of keyword" in serial.output
    assert (serial.rows[LISTED].verdict, serial.rows[LISTED].known) == ("deviates", "keyword")


def test_a_listed_run_that_deviates_in_another_check_too_fails(serial: Invocation) -> None:
    assert f"FAILED {SUITE}::test_run[{HALF_LISTED}]" in serial.output
    assert "(not in the ledger: observed)" in serial.output


def test_a_listed_run_that_conforms_fails(serial: Invocation) -> None:
    assert f"{GONE}: no longer deviates in numerics: remove it from gone (known.toml#3)" in serial.output
    assert serial.rows[GONE].verdict == "conforms"


@divides_by_zero
def test_a_crash_costs_one_row(serial: Invocation) -> None:
    assert serial.rows[CRASHING].verdict == "crashes"
    assert "SIGFPE" in serial.rows[CRASHING].detail
    assert serial.rows[NEIGHBOUR].verdict == "conforms"


def test_the_summary_counts_and_names_what_is_new(serial: Invocation) -> None:
    verdicts = [row.verdict for row in serial.rows.values()]
    counted = ", ".join(f"{verdicts.count(v)} {v}" for v in IN_ORDER if v in verdicts)
    assert f"qnnpack: 7 runs: {counted}; " in serial.output
    assert "qnnpack: 5 claims: 1 conforms, 3 deviates, 1 crashes" in serial.output
    assert f"new: {UNLISTED}\n     python -m conformance repro '{UNLISTED}'" in serial.output
    assert f"new: {LISTED}" not in serial.output


def test_distributed_rows_are_those_of_one_process_but_for_the_seconds(
    serial: Invocation, distributed: Invocation
) -> None:
    def timeless(invocation: Invocation) -> list[dict[str, object]]:
        return [{**row.to_json(), "seconds": 0} for row in invocation.file.rows]

    assert timeless(distributed) == timeless(serial)
    assert distributed.file.header == serial.file.header
    timings = ("seconds", "torch_seconds")
    assert {k: v for k, v in distributed.file.footer.items() if k not in timings} == {
        k: v for k, v in serial.file.footer.items() if k not in timings
    }
    assert distributed.status == serial.status


@pytest.mark.parametrize("workers", ["0", "2"])
def test_rows_are_the_same_in_another_order(serial: Invocation, tmp_path: Path, workers: str) -> None:
    shuffled = ("--random-order", "--random-order-seed=7", "--random-order-bucket=global", "-n", workers)
    again = invoke(tmp_path, "--backend", "qnnpack", *shuffled, *cases(*SELECTED), ledger=LEDGER)
    assert [replace(row, seconds=0.0) for row in again.file.rows] == [
        replace(row, seconds=0.0) for row in serial.file.rows
    ]
    assert again.status == serial.status


def test_a_selection_runs_what_it_selects_and_skips_nothing(tmp_path: Path) -> None:
    """No search, no comparison of configs and no ledger entry belongs to a selection, and none is an empty skip."""
    claim = "fbgemm/nn.ReLU/static-quint8/ptq/"
    selected = cases(f"{claim}default/exact@x86", f"{claim}*/laws@x86")
    done = invoke(tmp_path, "--backend", "fbgemm", *selected, suite="conformance")
    assert sorted(row.profile for row in done.file.rows) == ["exact", "laws"]
    assert done.output.rstrip().rpartition("\n")[2].startswith("=")
    assert "2 passed in" in done.output
    assert done.status == 0


JOINS = """\
import torch
from torch.ao.quantization.backend_config import BackendConfig, BackendPatternConfig, DTypeConfig, ObservationType

def config():
    entry = BackendPatternConfig(torch.cat).set_observation_type(ObservationType.OUTPUT_SHARE_OBSERVER_WITH_INPUT)
    dtypes = DTypeConfig(input_dtype=torch.quint8, output_dtype=torch.quint8)
    return BackendConfig("joins").set_backend_pattern_configs([entry.add_dtype_config(dtypes)])
"""


def test_a_search_that_finds_something_fails_prints_its_reproduction_and_keeps_it(tmp_path: Path) -> None:
    (tmp_path / "joins.py").write_text(JOINS)
    options = ("--backend-config", "joins:config", "--engine", "fbgemm", "--found", str(tmp_path / "found"))
    done = invoke(tmp_path, *options, suite="conformance/test_operators.py")
    assert done.status == pytest.ExitCode.TESTS_FAILED
    assert "joins/joining@fbgemm: 1 new among " in done.output
    assert 'deviates("lowered"' in done.output
    (script,) = (tmp_path / "found").glob("joins-torch.cat-static-quint8-fbgemm-*.py")
    assert script.read_text().strip() in done.output


def test_what_the_ledger_knows_of_cases_like_those_drawn_is_not_found(tmp_path: Path) -> None:
    (tmp_path / "joins.py").write_text(JOINS)
    known = entry("everything", "joins/*", "lowered", "observed", "reference", "numerics", "stable")
    options = ("--backend-config", "joins:config", "--engine", "fbgemm", "--found", str(tmp_path / "found"))
    done = invoke(tmp_path, *options, ledger=known, suite="conformance/test_operators.py")
    assert done.status == 0
    assert "1 passed" in done.output
    assert "100 drawn cases tried in 1 searches: 0 new" in done.output
    assert not (tmp_path / "found").exists()


def test_the_profile_of_a_nightly_search_can_be_chosen(tmp_path: Path) -> None:
    asks = tmp_path / "test_settings.py"
    asks.write_text(
        "from hypothesis import settings\nimport conformance.test_operators\n\ndef test_settings():\n"
        "    print('asked for', settings().max_examples, settings().derandomize)\n"
    )
    options = ("--hypothesis-profile", "nightly", "-p", "conformance.plugin", "-c", str(ROOT / "pyproject.toml"))
    done = invoke(tmp_path, *options, suite=str(asks))
    assert "asked for 2000 False" in done.output


MALFORMED = entry("broken", "*", "numerics").replace("numerics", "numeric")
REFUSED = {
    "backend": (["--backend", "nope"], "", "unknown backend 'nope': choose from qnnpack, fbgemm, onednn, executorch"),
    "engine": (
        ["--backend", "fbgemm", "--engine", "nope", "--case", "*nn.ReLU/*"],
        "",
        "unknown engine 'nope': choose from",
    ),
    "glob": (["--backend", "fbgemm", "--case", "fbgemm/nn.Relu/*"], "", "no run matches 'fbgemm/nn.Relu/*'"),
    "config": (["--backend-config", "json:dumps"], "", "--backend-config 'json:dumps': TypeError"),
    "both": (["--backend", "qnnpack", "--backend-config", NATIVE], "", "exclude each other"),
    "ledger": (["--backend", "qnnpack", *cases(GONE)], MALFORMED, "known.toml#1: unknown check 'numeric'"),
    "isa": (["--isa", "mmx"], "", "--isa 'mmx': choose from avx2"),
    "results": (["--backend", "qnnpack", *cases(GONE)], "", "name a file that can be written"),
}


@pytest.fixture(scope="module")
def refused(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, Invocation]]:
    """All wrong invocations, side by side."""
    folders = {name: tmp_path_factory.mktemp(f"refused-{name}") for name in REFUSED}

    def one(name: str) -> Invocation:
        arguments, ledger, _ = REFUSED[name]
        # a file cannot be a folder
        results = folders[name] / "known" / "known.toml" / "rows.jsonl" if name == "results" else None
        return invoke(folders[name], *arguments, ledger=ledger, results=results)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return {name: (folders[name], done) for name, done in zip(REFUSED, pool.map(one, REFUSED), strict=True)}


@pytest.mark.parametrize("name", REFUSED)
def test_a_wrong_invocation_is_refused_in_one_line_and_leaves_no_file(
    name: str, refused: dict[str, tuple[Path, Invocation]]
) -> None:
    folder, invocation = refused[name]
    assert invocation.status == pytest.ExitCode.USAGE_ERROR
    (error,) = [line for line in invocation.output.splitlines() if line.startswith("ERROR: ")]
    assert REFUSED[name][2] in error
    assert "Traceback" not in invocation.output
    files = {path.name for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts}
    assert files == {"known.toml"}


UNCOVERED = """\
from torch import nn
from torch.ao.quantization.backend_config import BackendConfig, BackendPatternConfig, DTypeConfig, ObservationType
import torch

def config():
    dtypes = DTypeConfig(input_dtype=torch.quint8, output_dtype=torch.quint8)
    shared = ObservationType.OUTPUT_SHARE_OBSERVER_WITH_INPUT
    return BackendConfig("mine").set_backend_pattern_configs([
        BackendPatternConfig(op).set_observation_type(shared).add_dtype_config(dtypes) for op in (nn.ReLU, nn.Fold)
    ])
"""


TOLERANT = """
from conformance.checks import tolerances
row = tolerances.Tolerance("nn.Linear", "*", "a reason", "a script", steps=1)
tolerances.TABLE = (row, tolerances.Tolerance("nn.Linear", "fbgemm", "a reason", "a script", steps=1))
"""


@pytest.fixture(scope="module")
def others(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Invocation]:
    """Invocations with third parties' configs, other engines and other limits, side by side."""
    case = "/nn.ReLU/static-quint8/ptq/default/exact@"
    arguments = {
        "native": ["--backend-config", NATIVE, "--isa", "avx2", "--golden", "none", *cases(f"native{case}x86")],
        "goldenless": ["--backend", "fbgemm", "--golden", "none", *cases(f"fbgemm{case}x86")],
        "tolerant": ["--backend", "executorch", "-p", "tolerant", "-k", "test_run and nn.Linear"],
        "uncovered": ["--backend-config", "mine:config", *cases("mine/nn.Fold/*", f"mine{case}*")],
        "absent": ["--backend", "fbgemm", "--engine", "executorch", *cases(f"fbgemm{case}executorch")],
        "entries": ["--backend", "executorch", "-k", "test_ledger_entry"],
    }
    folders = {name: tmp_path_factory.mktemp(name) for name in arguments}
    (folders["uncovered"] / "mine.py").write_text(UNCOVERED)
    (folders["tolerant"] / "tolerant.py").write_text(TOLERANT)
    ledger = entry("matches", "executorch/nn.Conv2d/*", "numerics") + entry(
        "nothing", "executorch/nn.conv2d/*", "numerics"
    )

    def one(name: str) -> Invocation:
        return invoke(folders[name], *arguments[name], ledger=ledger if name == "entries" else "")

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return dict(zip(arguments, pool.map(one, arguments), strict=True))


def test_an_entry_that_matches_no_run_fails(others: dict[str, Invocation]) -> None:
    invocation = others["entries"]
    assert "nothing (known.toml#2) matches no run: executorch/nn.conv2d/*" in invocation.output
    assert "1 failed, 1 passed" in invocation.output
    assert invocation.status == pytest.ExitCode.TESTS_FAILED


def test_a_third_partys_config_is_run_as_any_other(others: dict[str, Invocation]) -> None:
    invocation = others["native"]
    assert invocation.status == pytest.ExitCode.OK
    assert [row.verdict for row in invocation.file.rows] == ["conforms"]
    assert invocation.file.header["backends"] == ["native"]


def test_a_run_without_its_golden_fails_and_names_the_command(others: dict[str, Invocation]) -> None:
    invocation = others["goldenless"]
    (row,) = invocation.file.rows
    assert invocation.status == pytest.ExitCode.TESTS_FAILED
    assert (
        f"{row.id}: golden nn.ReLU/static-quint8/ptq/default/exact:0..127-shared is missing: run `python -m conformance "
        "golden update --case '*/nn.ReLU/static-quint8/ptq/default/exact@*'`"
    ) in invocation.output


def test_a_tolerance_that_nothing_needs_fails(others: dict[str, Invocation]) -> None:
    assert "tolerance for nn.Linear on *: no run needs it any more: remove it" in others["tolerant"].output
    assert "tolerance for nn.Linear on fbgemm" not in others["tolerant"].output
    assert others["tolerant"].status == pytest.ExitCode.TESTS_FAILED


def test_the_summary_says_how_the_elements_came_out(serial: Invocation) -> None:
    rows = [row for row in serial.rows.values() if row.known is None and row.total]
    total, wrong = sum(row.total or 0 for row in rows), sum(row.mismatched or 0 for row in rows)
    line = next(line for line in serial.output.splitlines() if line.startswith("qnnpack exact: "))
    assert line.startswith(f"qnnpack exact: {total} elements compared outside the ledger: ")
    assert line.endswith(f"0.000% within a tolerance, {100 * wrong / total:.3f}% wrong")
    assert wrong


def test_an_instruction_set_limit_stands_in_the_header(others: dict[str, Invocation]) -> None:
    header = others["native"].file.header
    assert (header["isa_limit"], header["isa"]) == ("avx2", "avx2")


def test_an_operator_that_the_tables_lack_is_named_with_what_to_do(others: dict[str, Invocation]) -> None:
    rows = others["uncovered"].file.rows
    assert [(row.id, row.verdict) for row in rows] == [
        ("mine/nn.Fold/static-quint8/ptq/not-covered/exact@x86", "unavailable"),
        ("mine/nn.ReLU/static-quint8/ptq/default/exact@x86", "conforms"),
    ]
    assert "nn.Fold" in rows[0].detail
    assert "conformance/cases/operators/" in rows[0].detail
    assert others["uncovered"].status == pytest.ExitCode.OK


def test_an_invocation_that_executes_nothing_fails_and_says_why(others: dict[str, Invocation]) -> None:
    invocation = others["absent"]
    (row,) = invocation.file.rows
    assert row.verdict == "unavailable"
    assert row.detail.startswith("engine executorch: ")
    assert f"nothing was executed: {row.detail}" in invocation.output
    assert invocation.status == pytest.ExitCode.TESTS_FAILED


@pytest.fixture
def halfway(tmp_path: Path) -> Iterator[tuple[Path, subprocess.Popen[bytes]]]:
    """An invocation that has written its first rows and has more to do."""
    results = tmp_path / "rows.jsonl"
    (tmp_path / "known").mkdir()
    arguments = command(results, tmp_path / "known", ["--backend", "qnnpack", "--case", "qnnpack/nn.Conv2d/*"])
    process = subprocess.Popen(arguments, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    partial = tmp_path / "rows.jsonl.partial"
    try:
        deadline = time.monotonic() + 60
        while process.poll() is None and time.monotonic() < deadline:
            if partial.exists() and len(partial.read_text().splitlines()) > 1:
                break
            time.sleep(0.01)
        yield results, process
    finally:
        process.kill()
        process.wait()


def test_a_killed_invocation_leaves_its_rows_aside(halfway: tuple[Path, subprocess.Popen[bytes]]) -> None:
    results, process = halfway
    process.kill()
    process.wait()
    assert not results.exists()
    lines = results.with_name("rows.jsonl.partial").read_text().splitlines()
    kinds = [json.loads(line)["kind"] for line in lines]
    assert kinds == ["header", *["row"] * (len(lines) - 1)]
    assert len(lines) > 1


def test_a_config_that_computes_as_it_is_loaded_leaves_no_threads_that_children_miss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "computing.py").write_text(
        "import torch\nfrom conformance.configs.qnnpack import get_qnnpack_backend_config\n"
        "torch.quantize_per_tensor(torch.rand(10**6), 0.1, 0, torch.quint8)\n"
        "def config():\n    return get_qnnpack_backend_config().set_name('computing')\n"
    )
    name = "computing/nn.Hardswish/static-quint8/ptq/large/laws@qnnpack"
    options = ("--backend-config", "computing:config", "--engine", "qnnpack", *cases(name))
    monkeypatch.setenv("OMP_NUM_THREADS", "2")  # as many as other machines have cores
    done = invoke(tmp_path, *options, suite="conformance/test_laws.py")
    assert done.results.exists(), done.output
    assert {row.verdict for row in done.rows.values()} == {"conforms"}, done.output
