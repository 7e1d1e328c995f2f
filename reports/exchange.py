"""Export of timings as pytest-benchmark's JSON, and import from it. A benchmark is a case; `extra_info` has its passes."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pytest_benchmark import __version__
from pytest_benchmark.stats import Stats

from conformance.bench.results import HEADER, PASSES, TimingsFile, Writer, timing_of, with_defaults
from conformance.bench.timings import Timing
from conformance.errors import UsageError
from conformance.results.jsonl import opened, parse, replacing


def exported(file: TimingsFile) -> dict[str, Any]:
    """The JSON that pytest-benchmark saves: a benchmark for each case, with its passes as data."""
    head = file.header
    cpu = {"brand_raw": head["cpu"], "count": head["cores"]}
    return {
        "machine_info": {"machine": head["arch"], "python_version": head["python"], "cpu": cpu, HEADER: dict(head)},
        "commit_info": {"id": head["git"] or "unversioned"},
        "benchmarks": [_benchmark(case, passes) for case, passes in file.cases.items()],
        "datetime": file.finished,
        "version": __version__,
    }


def save(file: TimingsFile, out: Path) -> None:
    """Write timings as pytest-benchmark saves them. Raises UsageError if the file cannot be written."""
    with replacing(out, "-o") as beside:
        beside.write_text(json.dumps(exported(file)), encoding="utf-8")


def _benchmark(case: str, passes: Sequence[Timing]) -> dict[str, Any]:
    stats: Any = Stats()  # type: ignore[no-untyped-call]
    for timing in passes:
        stats.update(timing.new.quantized_seconds)
    return {
        "group": passes[0].id.rpartition("/")[0],
        "name": f"test_latency[{case}]",
        "fullname": f"conformance/test_benchmarks.py::test_latency[{case}]",
        "params": {"case": case},
        "param": case,
        "extra_info": {PASSES: [asdict(timing) for timing in passes]},
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
    header = machine[HEADER]
    timings = [timing for benchmark in benchmarks for timing in _timings(path, benchmark, header)]
    head = {name: value for name, value in with_defaults(header).items() if name != "schema"}
    writer = Writer(to, head)
    for timing in timings:
        writer.add(timing)
    writer.finish(finished)


def _timings(path: Path, benchmark: Mapping[str, Any], header: Mapping[str, Any]) -> list[Timing]:
    try:
        extra = benchmark["extra_info"]
        # with schema 1 a benchmark was a pass
        return [timing_of(values, header["schema"]) for values in extra.get(PASSES, [extra])]
    except (TypeError, KeyError, AttributeError) as error:
        name = benchmark.get("name") if isinstance(benchmark, dict) else benchmark
        raise UsageError(f"{path}: {name}: no timing of this suite, or damaged: {error}") from error
