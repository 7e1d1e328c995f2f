"""Timing: options of benchmarks, the file of timings, and the JSON that pytest-benchmark saves."""

import importlib.util
import json
import os
from pathlib import Path

import pytest
from forking import Ending, run_module

from conformance.bench.results import read
from conformance.bench.timings import THREADS, case_name

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
    (timing,) = file.cases[benchmark["param"]]
    assert benchmark["stats"]["data"] == pytest.approx([timing.new.quantized_seconds], rel=1e-6)
    (described,) = benchmark["extra_info"]["passes"]
    assert described["new"]["floating"] == [list(rounds) for rounds in timing.new.floating]
    assert "settled for changes of 3%" in process.output


@needs_pytest_benchmark
def test_a_case_without_a_pass_within_the_budget_is_skipped(tmp_path: Path) -> None:
    selection = ["--backend", "fbgemm", "--engine", "x86", "--case", "*/nn.Linear+nn.ReLU/*", "--case", "*/nn.Conv*"]
    options = ["--bench", "quick", "--budget", "1s", "--timings", tmp_path / "timings.jsonl", "--benchmark-quiet"]
    process = timed(*selection, *options, "-rs")
    assert process.status == 0
    assert "the budget was spent before its first pass" in process.output


@needs_pytest_benchmark
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--budget", "ten"], "--budget 'ten': write a time such as 10m"),
        (["--aim", "3"], "--aim '3': write a percentage"),
        (["--budget", "1m", "--passes", "3"], "--passes and --budget: give a fixed number"),
    ],
)
def test_a_plan_that_cannot_be_read_is_refused(options: list[str], message: str) -> None:
    process = timed("--bench", "quick", *options)
    assert process.status == pytest.ExitCode.USAGE_ERROR
    assert message in process.errors


@needs_pytest_benchmark
def test_networks_are_selected_by_engine_and_by_id() -> None:
    options = ["--bench", "networks", "--engine", "fbgemm", "--case", "networks/resnet18/batch_8/*", "--collect-only"]
    process = timed(*options)
    assert process.status == 0
    collected = [line.partition("[")[2].rstrip("]") for line in process.output.splitlines() if "test_latency[" in line]
    forms = ["torchscript@float", "compile@float", "eager@fbgemm", "torchscript@fbgemm"]
    ids = [f"networks/resnet18/batch_8/{form}" for form in forms]
    assert sorted(collected) == sorted(case_name(case_id, threads) for case_id in ids for threads in THREADS)


@needs_pytest_benchmark
def test_a_glob_that_matches_no_network_is_refused() -> None:
    process = timed("--bench", "networks", "--case", "resnet19/*")
    assert process.status == pytest.ExitCode.USAGE_ERROR
    assert "no network matches 'resnet19/*': ids are such as networks/mobilenet_v2/batch_1" in process.errors
    process = timed("--bench", "networks", "--engine", "npu:Npu")
    assert "--engine 'npu:Npu': networks are timed on torch's own engines" in process.errors


def test_nothing_is_timed_without_the_option() -> None:
    process = timed("--backend", "fbgemm")
    assert process.status == pytest.ExitCode.NO_TESTS_COLLECTED


def test_without_pytest_benchmark_the_error_names_the_environment_that_has_it() -> None:
    process = timed("--bench", "quick", "-p", "no:benchmark")
    assert process.status == pytest.ExitCode.USAGE_ERROR
    assert "pytest-benchmark is not installed: `pip install 'apache-otava>=0.8,<0.9' " in process.errors


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
