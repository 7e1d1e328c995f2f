"""Running cases: passes, failures, expected failures, rows files, batches and workers."""

import json
import platform
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from invoking import ROOT, SUITE, Invocation, cases, entry, invoke, options_of, where

from conformance.__main__ import main
from conformance.errors import UsageError
from conformance.results import diagnostics
from conformance.results.jsonl import partial_path
from conformance.results.ledger_file import extends
from conformance.results.rows import read_all
from conformance.results.verdicts import Verdict

CONFORMING = "qnnpack/nn.Hardswish/static-quint8/ptq/default/exact@qnnpack"
CRASHING = "qnnpack/nn.Hardswish/static-quint8/ptq/batch0/exact@qnnpack"
NEIGHBOUR = "qnnpack/nn.Hardswish/static-quint8/ptq/batch1/exact@qnnpack"
UNLISTED = "qnnpack/nn.Linear/static-quint8/ptq/called_twice/exact@qnnpack"
LISTED = "qnnpack/torch.cat/static-quint8/ptq/keyword/exact@qnnpack"
HALF_LISTED = "qnnpack/torch.stack/static-quint8/ptq/keyword/exact@qnnpack"
GONE = "qnnpack/nn.ReLU/static-quint8/ptq/default/exact@qnnpack"
SELECTED = (CONFORMING, CRASHING, NEIGHBOUR, UNLISTED, LISTED, HALF_LISTED, GONE)

pytestmark = pytest.mark.xdist_group("running")  # one worker: its fixtures take seconds
divides_by_zero = pytest.mark.skipif(
    platform.machine() != "x86_64", reason="other processors raise no signal for a division by zero"
)

LEDGER = "\n".join(
    (
        entry("keyword", LISTED, "observed", "lowered", "reference", "numerics"),
        entry("half", HALF_LISTED, "lowered", "reference", "numerics"),
        entry("gone", GONE, "numerics"),
    )
)


@pytest.fixture(scope="module")
def serial(tmp_path_factory: pytest.TempPathFactory) -> Invocation:
    return invoke(tmp_path_factory.mktemp("serial"), "--backend", "qnnpack", *cases(*SELECTED), ledger=LEDGER)


@pytest.fixture(scope="module")
def distributed(tmp_path_factory: pytest.TempPathFactory) -> Invocation:
    folder = tmp_path_factory.mktemp("distributed")
    return invoke(folder, "--backend", "qnnpack", "-n", "2", *cases(*SELECTED), ledger=LEDGER)


def test_a_run_whose_outcome_is_undefined_may_crash_deviate_or_conform(tmp_path: Path) -> None:
    ids = (CRASHING, UNLISTED, GONE)
    wheres = ", ".join(str(where(run_id)) for run_id in ids)
    place = f'{{ where = [{wheres}], undefined = "race" }}'
    finding = f'[[finding]]\nid = "chance"\ntitle = "chance"\nreason = "chance"\nshows = [{place}]\n'
    invocation = invoke(tmp_path, "--backend", "qnnpack", *cases(*ids), ledger=finding)
    assert invocation.status == pytest.ExitCode.OK, invocation.output
    rows = [invocation.rows[run_id] for run_id in ids]
    assert {(row.verdict, row.known, row.detail, len(row.checks)) for row in rows} == {
        (Verdict.UNDEFINED, "chance", "undefined: threads write the same memory in any order", 0)
    }
    assert "3 undefined" in invocation.output


def test_deviations_on_an_unknown_platform_are_accepted_into_a_ledger_of_it(tmp_path: Path) -> None:
    elsewhere = f'platforms = ["elsewhere none"]\n{entry("listed", GONE, "numerics")}'
    first = invoke(tmp_path, "--backend", "qnnpack", *cases(GONE, UNLISTED), ledger=elsewhere)
    assert first.status == pytest.ExitCode.TESTS_FAILED
    sentence = f"unknown platform: the ledger was not written on {platform.machine()} "
    assert first.output.index(sentence) < first.output.index(" [100%]") < first.output.rindex(sentence)
    assert f"unknown platform: {UNLISTED}" in first.output
    assert first.rows[GONE].verdict is Verdict.CONFORMS
    (command,) = re.findall(r"python -m conformance (accept .+)", first.output)
    own = tmp_path / "own"
    assert main(command.replace("FOLDER", str(own)).replace("--extend ", "").replace(" ID", " of-this").split()) == 0
    (accepted,) = own.glob("*.toml")
    ledger = f"{elsewhere}\n{accepted.read_text()}"
    again = invoke(tmp_path / "again", "--backend", "qnnpack", *cases(GONE, UNLISTED), ledger=ledger)
    assert again.status == pytest.ExitCode.OK, again.output
    assert again.rows[UNLISTED].known == "of-this"


def test_a_ledger_of_a_platform_extends_that_of_the_suite(serial: Invocation, tmp_path: Path) -> None:
    options = ["accept", str(serial.results), "--case", LISTED, "--finding", "none", "--ledger", str(tmp_path / "own")]
    assert main([*options, "--extend"]) == 2
    assert extends(tmp_path / "own")


def test_details_are_saved_beside_the_rows_with_and_without_workers(
    serial: Invocation, distributed: Invocation
) -> None:
    for invocation in (serial, distributed):
        (details,) = diagnostics.read(invocation.results, read_all(invocation.results))
        deviating = {row.id for row in invocation.file.rows if row.failed}
        assert deviating
        assert deviating <= set(details)
        for run_id in deviating:
            assert "model" in details[run_id].sections
            assert "DEVIATES" in details[run_id].reproduction
        assert all(not details[run_id].reproduction for run_id in set(details) - deviating)


def test_junit_xml_names_runs_and_their_verdicts(tmp_path: Path) -> None:
    invocation = invoke(
        tmp_path / "one", "--backend", "qnnpack", "--junit-xml", str(tmp_path / "junit.xml"), *cases(LISTED)
    )
    tests = ElementTree.parse(tmp_path / "junit.xml").findall(".//testcase")
    properties = {test.get("name"): {p.get("name"): p.get("value") for p in test.iter("property")} for test in tests}
    assert properties[f"test_run[{LISTED}]"]["verdict"] == invocation.rows[LISTED].verdict == "deviates"
    assert set((properties[f"test_run[{LISTED}]"]["failed"] or "").split(", ")) == invocation.rows[LISTED].failed


def test_a_worker_reports_the_setup_of_a_run_with_its_call(tmp_path: Path) -> None:
    junit = tmp_path / "junit.xml"
    options = ("-n", "1", "--durations", "0", "-vv", "--junit-xml", str(junit))
    invocation = invoke(tmp_path, "--backend", "qnnpack", *options, *cases(LISTED, HALF_LISTED))
    phases = re.findall(r"s (setup|call|teardown) +\S+::test_run", invocation.output)
    assert sorted(phases) == ["call"] * 2 + ["teardown"] * 2
    tests = ElementTree.parse(junit).findall(".//testcase")
    judged = max(row.seconds for row in invocation.rows.values())
    assert max(float(test.get("time") or 0) for test in tests) > judged
    assert all(test.find("properties") is not None for test in tests)


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
    assert "(not in the ledger: numerics) (inputs: x " in serial.output
    assert f"Reproduce: python -m conformance repro '{UNLISTED}'" in serial.output
    assert serial.status == pytest.ExitCode.TESTS_FAILED


def test_a_listed_deviation_is_expected_with_its_reason(serial: Invocation) -> None:
    assert f"XFAIL {SUITE}::test_run[{LISTED}] - keyword: the title of keyword" in serial.output
    assert (serial.rows[LISTED].verdict, serial.rows[LISTED].known) == ("deviates", "keyword")


def test_a_listed_run_that_deviates_in_another_check_too_fails(serial: Invocation) -> None:
    assert f"FAILED {SUITE}::test_run[{HALF_LISTED}]" in serial.output
    assert "(not in the ledger: observed)" in serial.output


def test_a_listed_run_that_conforms_fails(serial: Invocation) -> None:
    assert f"{GONE}: no longer deviates in numerics: remove it from gone (known.toml#3, shows 1)" in serial.output
    assert serial.rows[GONE].verdict == "conforms"


@divides_by_zero
def test_a_crash_costs_one_row(serial: Invocation) -> None:
    assert serial.rows[CRASHING].verdict == "crashes"
    assert "SIGFPE" in serial.rows[CRASHING].detail
    assert serial.rows[NEIGHBOUR].verdict == "conforms"


def test_the_summary_counts_verdicts_and_names_new_deviations(serial: Invocation) -> None:
    verdicts = [row.verdict for row in serial.rows.values()]
    counted = ", ".join(f"{verdicts.count(v)} {v}" for v in ("conforms", "deviates", "crashes") if v in verdicts)
    assert f"qnnpack: 7 runs: {counted}; " in serial.output
    assert "qnnpack: 2 of 5 claims work in default use, 1 in every form that ran" in serial.output
    assert "qnnpack: in default use: not executed: 3" in serial.output
    assert "qnnpack: under some option: crashes or corrupts memory: 1; wrong numbers, silently: 1" in serial.output
    assert f"new: {UNLISTED}\n     python -m conformance repro '{UNLISTED}'" in serial.output
    assert f"new: {LISTED}" not in serial.output


def test_rows_of_several_workers_equal_those_of_one_process_except_seconds(
    serial: Invocation, distributed: Invocation
) -> None:
    def timeless(invocation: Invocation) -> list[dict[str, object]]:
        return [{**row.to_json(), "seconds": 0} for row in invocation.file.rows]

    assert timeless(distributed) == timeless(serial)
    assert distributed.file.header == serial.file.header
    timings = ("seconds", "torch_seconds", "finished")
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


def test_the_summary_has_the_shares_of_equal_tied_and_wrong_elements(serial: Invocation) -> None:
    rows = [row for row in serial.rows.values() if row.known is None and row.total]
    total, wrong = sum(row.total or 0 for row in rows), sum(row.mismatched or 0 for row in rows)
    line = next(line for line in serial.output.splitlines() if line.startswith("qnnpack exact: "))
    assert line.startswith(f"qnnpack exact: {total} elements compared outside the ledger: ")
    assert line.endswith(f"0.000% within a tolerance, {100 * wrong / total:.3f}% wrong")
    assert wrong


def heed_interrupts() -> None:
    """Have this process end at SIGINT, which shells without job control have the processes in their background ignore."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def halfway(tmp_path: Path) -> Iterator[tuple[Path, subprocess.Popen[bytes]]]:
    """The rows file and process of an invocation that has written its first rows and has more to write."""
    results = tmp_path / "rows.jsonl"
    (tmp_path / "known").mkdir()
    options = options_of(results, tmp_path / "known", ["--backend", "qnnpack", "--case", "qnnpack/nn.Conv2d/*"])
    command = [sys.executable, "-m", "pytest", *options]
    process = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, preexec_fn=heed_interrupts
    )
    partial = tmp_path / "rows.jsonl.partial"
    try:
        deadline = time.monotonic() + 600
        while process.poll() is None and time.monotonic() < deadline:
            if partial.exists() and len(partial.read_text().splitlines()) > 1:
                break
            time.sleep(0.01)
        yield results, process
    finally:
        process.kill()
        process.wait()


def test_a_killed_invocation_leaves_a_partial_file(halfway: tuple[Path, subprocess.Popen[bytes]]) -> None:
    results, process = halfway
    process.kill()
    process.wait()
    assert not results.exists()
    text = results.with_name("rows.jsonl.partial").read_text()
    lines = text[: text.rindex("\n")].splitlines()  # it may be killed while it writes a row
    kinds = [json.loads(line)["kind"] for line in lines]
    assert kinds == ["header", *["row"] * (len(lines) - 1)]
    assert len(lines) > 1


def test_ctrl_c_leaves_the_complete_file_and_a_partial_one_that_says_so(
    halfway: tuple[Path, subprocess.Popen[bytes]],
) -> None:
    results, process = halfway
    results.write_text("what was there")
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == pytest.ExitCode.INTERRUPTED
    assert results.read_text() == "what was there"
    with pytest.raises(
        UsageError, match=r"rows\.jsonl\.partial: partial: its invocation ended after \d+ of \d+ runs, so"
    ):
        read_all(partial_path(results))


def test_ctrl_c_ends_an_invocation_where_its_exception_is_lost(tmp_path: Path) -> None:
    (tmp_path / "losing.py").write_text(
        "import contextlib, signal\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "def pytest_runtest_setup():\n"
        "    with contextlib.suppress(KeyboardInterrupt):\n"
        "        signal.raise_signal(signal.SIGINT)\n"
    )
    invocation = invoke(tmp_path, "-p", "losing", "--backend", "qnnpack", *cases(CONFORMING, UNLISTED))
    assert invocation.status == pytest.ExitCode.INTERRUPTED, invocation.output
    with pytest.raises(UsageError, match=r"partial: its invocation ended after 1 of 2 runs"):
        read_all(partial_path(invocation.results))


def test_a_second_invocation_with_the_same_rows_file_is_refused_before_it_runs_anything(
    halfway: tuple[Path, subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    results, process = halfway
    process.send_signal(signal.SIGSTOP)  # it must not end meanwhile
    for workers in ("0", "1"):
        options = ("--backend", "qnnpack", "-n", workers, *cases(CONFORMING))
        second = invoke(tmp_path / workers, *options, results=results)
        assert second.status == pytest.ExitCode.USAGE_ERROR, second.output
        assert f"{results}: another process is writing it: wait for its end, or name another file with --results" in (
            second.output
        )
        assert "PASSED" not in second.output
        assert "Traceback" not in second.output
    process.send_signal(signal.SIGCONT)
    assert process.wait() == pytest.ExitCode.TESTS_FAILED
    assert read_all(results)


@pytest.mark.parametrize("workers", ["0", "1"])
def test_an_invocation_that_stops_at_a_failure_leaves_the_complete_file(tmp_path: Path, workers: str) -> None:
    results = tmp_path / "rows.jsonl"
    results.write_text("what was there")
    options = ("--backend", "qnnpack", "-x", "-n", workers, *cases(UNLISTED, "qnnpack/nn.Linear/*"))
    stopped = invoke(tmp_path, *options)
    assert results.read_text() == "what was there"
    assert "runs were not executed" in stopped.output
    assert f"rows: {partial_path(results)}" in stopped.output
    with pytest.raises(UsageError, match="partial: its invocation ended after"):
        read_all(partial_path(results))


def test_an_invocation_whose_last_run_fails_with_x_is_complete(tmp_path: Path) -> None:
    stopped = invoke(tmp_path, "--backend", "qnnpack", "-x", *cases(UNLISTED))
    assert stopped.rows.keys() == {UNLISTED}


@pytest.mark.parametrize("workers", ["0", "1"])
def test_a_full_disk_is_one_line_that_names_the_file(tmp_path: Path, workers: str) -> None:
    (tmp_path / "small_files.py").write_text(
        "import resource\n"
        "def pytest_configure():\n"
        "    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)\n"
        "    resource.setrlimit(resource.RLIMIT_FSIZE, (20000, hard))\n"
    )
    results = tmp_path / "rows.jsonl"
    results.write_text("what was there")
    ended = invoke(tmp_path, "-p", "small_files", "--backend", "qnnpack", "-n", workers, *cases("qnnpack/nn.Linear/*"))
    assert ended.status == pytest.ExitCode.USAGE_ERROR, ended.output
    *_, last = ended.output.strip().splitlines()
    assert last.endswith(f"ERROR: --results {results}: File too large: name a file that can be written"), ended.output
    assert "Traceback" not in ended.output
    assert results.read_text() == "what was there"


def test_a_config_that_computes_at_import_starts_no_threads_that_forked_children_miss(
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
    invocation = invoke(tmp_path, *options, suite="conformance/test_laws.py", sets_what_torch_reads=True)
    assert invocation.results.exists(), invocation.output
    assert {row.verdict for row in invocation.rows.values()} == {"conforms"}, invocation.output


def test_a_failure_is_printed_with_its_inputs_when_it_happens(serial: Invocation, distributed: Invocation) -> None:
    for invocation in (serial, distributed):
        message = next(line for line in invocation.output.splitlines() if line.startswith(f"{UNLISTED}: "))
        assert "(inputs: x " in message
        assert invocation.output.index(message) < invocation.output.index("= FAILURES =")
        assert invocation.output.count(message) == 2  # and where pytest lists failures


def test_what_deviates_in_the_same_way_is_told_from_what_conforms(tmp_path: Path) -> None:
    transposed = "fbgemm/nn.ConvTranspose2d/static-quint8/ptq/*/{}@fbgemm"
    selected = cases(*(transposed.format(profile) for profile in ("exact", "pairs")))
    invocation = invoke(tmp_path, "--backend", "fbgemm", *selected, ledger="")
    (line,) = (line for line in invocation.output.splitlines() if line.startswith("all "))
    assert re.fullmatch(
        r"all 3 new of nn.ConvTranspose2d on fbgemm \(lowered raises\): .*rank3; of \d+ that conform 0 too", line
    )
