"""Timing: options of benchmarks, the file of timings, and the JSON that pytest-benchmark saves."""

import importlib.util
import json
import os
from pathlib import Path

import pytest
from forking import Ending, run_module

from conformance.bench.results import read

ROOT = Path(__file__).parents[2]
needs_pytest_benchmark = pytest.mark.skipif(
    importlib.util.find_spec("pytest_benchmark") is None, reason="`tox -e bench` has pytest-benchmark"
)

BENCH = ["conformance/test_benchmarks.py", "-q", "-p", "no:cacheprovider"]


def timed(*options: object) -> Ending:
    """An invocation of the benchmarks, which is no worker of this one: pytest-benchmark does not time in a worker."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTEST_XDIST_WORKER"}
    return run_module("pytest", [*BENCH, *map(str, options)], ROOT, environment)


@needs_pytest_benchmark
def test_selected_cases_are_timed_and_saved_by_pytest_benchmark(tmp_path: Path) -> None:
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
    process = timed(*options, "--timings", timings, "--benchmark-json", saved, "--benchmark-quiet")
    assert process.status == 0
    file = read(timings)
    (benchmark, *_) = json.loads(saved.read_text())["benchmarks"]
    (timing, *_) = [saved_timing for saved_timing in file.timings if f"{saved_timing.case}#0" == benchmark["param"]]
    assert benchmark["stats"]["data"] == pytest.approx(list(timing.new.quantized), rel=1e-6)
    assert benchmark["extra_info"]["new"]["floating"] == list(timing.new.floating)
    assert "latency: " in process.output


def test_nothing_is_timed_without_the_option() -> None:
    process = timed("--backend", "fbgemm")
    assert process.status == pytest.ExitCode.NO_TESTS_COLLECTED


def test_without_pytest_benchmark_the_error_names_the_environment_that_has_it() -> None:
    process = timed("--bench", "quick", "-p", "no:benchmark")
    assert process.status == pytest.ExitCode.USAGE_ERROR
    assert "--bench: pytest-benchmark is not there: `tox -e bench` has it" in process.errors


def test_timing_with_workers_is_refused() -> None:
    process = timed("--bench", "quick", "-n", "2")
    assert process.status == pytest.ExitCode.USAGE_ERROR
    assert "--bench: what runs side by side cannot be timed: leave -n out" in process.errors


def test_timing_a_part_is_refused() -> None:
    process = timed("--bench", "quick", "--shard", "1/2")
    assert process.status == pytest.ExitCode.USAGE_ERROR
    assert "--bench: every case is timed, on one machine: leave --shard and --since out" in process.errors


@needs_pytest_benchmark
def test_a_glob_that_matches_no_timed_run_is_refused() -> None:
    process = timed("--bench", "full", "--case", "*/typical@*")
    assert process.status == pytest.ExitCode.USAGE_ERROR
    assert "no run matches '*/typical@*'" in process.errors
