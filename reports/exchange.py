"""Export of timings as pytest-benchmark's JSON, and import from it. `extra_info` of each benchmark is the whole timing."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pytest_benchmark import __version__
from pytest_benchmark.stats import Stats

from conformance.bench.results import HEADER, Timing, TimingsFile, Writer, timing_of
from conformance.errors import UsageError
from conformance.results.jsonl import opened, parse, replacing


def exported(file: TimingsFile) -> dict[str, Any]:
    """The JSON that pytest-benchmark saves: a benchmark for each pass, with its rounds as data."""
    head = file.header
    cpu = {"brand_raw": head["cpu"], "count": head["cores"]}
    return {
        "machine_info": {"machine": head["arch"], "python_version": head["python"], "cpu": cpu, HEADER: dict(head)},
        "commit_info": {"id": head["git"] or "unversioned"},
        "benchmarks": [_benchmark(timing) for timing in file.timings],
        "datetime": file.finished,
        "version": __version__,
    }


def save(file: TimingsFile, out: Path) -> None:
    """Write timings as pytest-benchmark saves them. Raises UsageError if the file cannot be written."""
    with opened(out, "-o"):
        out.parent.mkdir(parents=True, exist_ok=True)
        with replacing(out) as beside:
            beside.write_text(json.dumps(exported(file)), encoding="utf-8")


def _benchmark(timing: Timing) -> dict[str, Any]:
    stats: Any = Stats()  # type: ignore[no-untyped-call]
    for seconds in timing.new.quantized:
        stats.update(seconds)
    name = f"{timing.case}#{timing.number}"
    return {
        "group": timing.id.rpartition("/")[0],
        "name": f"test_latency[{name}]",
        "fullname": f"conformance/test_benchmarks.py::test_latency[{name}]",
        "params": {"item": name},
        "param": name,
        "extra_info": asdict(timing),
        "options": {"disable_gc": True, "timer": "perf_counter", "warmup": False},
        "stats": {**stats.as_dict(), "iterations": 1, "data": stats.data},
    }


def imported(path: Path, to: Path) -> None:
    """Write the file of timings that a JSON file of pytest-benchmark was exported from.

    Raises UsageError naming the JSON file if it is damaged or of other benchmarks.
    """
    try:
        with opened(path):
            saved = parse(path.read_text(encoding="utf-8"))
        benchmarks, machine, finished = saved["benchmarks"], saved["machine_info"], saved["datetime"]
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(
            f"{path}: not what pytest-benchmark saves with --benchmark-json, or damaged: {error}"
        ) from error
    if not isinstance(machine, dict) or not isinstance(machine.get(HEADER), dict):
        raise UsageError(
            f"{path}: benchmarks of something else: its machine_info has no {HEADER!r}, which this suite adds"
        )
    timings = [_timing(path, benchmark) for benchmark in benchmarks]
    head = {name: value for name, value in machine[HEADER].items() if name != "schema"}
    writer = Writer(to, head)
    for timing in timings:
        writer.add(timing)
    writer.finish(finished)


def _timing(path: Path, benchmark: Mapping[str, Any]) -> Timing:
    try:
        return timing_of(benchmark["extra_info"])
    except (TypeError, KeyError, AttributeError) as error:
        name = benchmark.get("name") if isinstance(benchmark, dict) else benchmark
        raise UsageError(f"{path}: {name}: no timing of this suite, or damaged: {error}") from error
