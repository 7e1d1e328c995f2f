"""Timing: options of benchmarks, the file of timings, and the JSON that pytest-benchmark saves."""

import importlib.util
import json
import os
import sys
from pathlib import Path

import pytest

from conformance.bench.results import read

pytest_plugins = ["pytester"]
ROOT = Path(__file__).parents[2]
needs_pytest_benchmark = pytest.mark.skipif(
    importlib.util.find_spec("pytest_benchmark") is None, reason="`tox -e bench` has pytest-benchmark"
)

BENCH = [sys.executable, "-m", "pytest", "conformance/test_benchmarks.py", "-q", "-p", "no:cacheprovider"]


@needs_pytest_benchmark
def test_selected_cases_are_timed_and_saved_by_pytest_benchmark(
    tmp_path: Path, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)  # else pytest-benchmark assumes that it runs in a worker
    saved, timings = tmp_path / "saved.json", tmp_path / "timings.jsonl"
    options = [
        "--bench",
        "quick",
        "--passes",
        "1",
        "--backend",
        "fbgemm",
        "--engine",
        "x86",
        "--case",
        "*/nn.Linear+nn.ReLU/*",
    ]
    os.chdir(ROOT)
    process = pytester.run(*BENCH, *options, "--timings", timings, "--benchmark-json", saved, "--benchmark-quiet")
    assert process.ret == 0
    file = read(timings)
    (benchmark, *_) = json.loads(saved.read_text())["benchmarks"]
    (timing, *_) = [saved_timing for saved_timing in file.timings if f"{saved_timing.case}#0" == benchmark["param"]]
    assert benchmark["stats"]["data"] == pytest.approx(list(timing.new.quantized), rel=1e-6)
    assert benchmark["extra_info"]["new"]["floating"] == list(timing.new.floating)
    assert "latency: " in process.stdout.str()


def test_nothing_is_timed_without_the_option(pytester: pytest.Pytester) -> None:
    os.chdir(ROOT)
    process = pytester.run(*BENCH, "--backend", "fbgemm")
    assert process.ret == pytest.ExitCode.NO_TESTS_COLLECTED


def test_without_pytest_benchmark_the_error_names_the_environment_that_has_it(pytester: pytest.Pytester) -> None:
    os.chdir(ROOT)
    process = pytester.run(*BENCH, "--bench", "quick", "-p", "no:benchmark")
    assert process.ret == pytest.ExitCode.USAGE_ERROR
    process.stderr.fnmatch_lines(["*--bench: pytest-benchmark is not there: `tox -e bench` has it"])


def test_timing_with_workers_is_refused(pytester: pytest.Pytester) -> None:
    os.chdir(ROOT)
    process = pytester.run(*BENCH, "--bench", "quick", "-n", "2")
    assert process.ret == pytest.ExitCode.USAGE_ERROR
    process.stderr.fnmatch_lines(["*--bench: what runs side by side cannot be timed: leave -n out"])


def test_timing_a_part_is_refused(pytester: pytest.Pytester) -> None:
    os.chdir(ROOT)
    process = pytester.run(*BENCH, "--bench", "quick", "--shard", "1/2")
    assert process.ret == pytest.ExitCode.USAGE_ERROR
    process.stderr.fnmatch_lines(["*--bench: every case is timed, on one machine: leave --shard and --since out"])


@needs_pytest_benchmark
def test_a_glob_that_matches_no_timed_run_is_refused(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    os.chdir(ROOT)
    process = pytester.run(*BENCH, "--bench", "full", "--case", "*/typical@*")
    assert process.ret == pytest.ExitCode.USAGE_ERROR
    process.stderr.fnmatch_lines(["*no run matches '*/typical@*'*"])
