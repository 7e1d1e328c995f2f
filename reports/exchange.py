"""Timings as pytest-benchmark's own JSON, and from it: what stands there beside its figures is a timing, word for word."""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pytest_benchmark import __version__
from pytest_benchmark.stats import Stats

from conformance.bench.results import HEADER, Timing, TimingsFile, Writer, timing_of
from conformance.errors import UsageError


def exported(file: TimingsFile) -> dict[str, Any]:
    """What pytest-benchmark saves: a benchmark for each pass, with its rounds as data."""
    head = file.header
    cpu = {"brand_raw": head["cpu"], "count": head["cores"]}
    return {
        "machine_info": {"machine": head["arch"], "python_version": head["python"], "cpu": cpu, HEADER: dict(head)},
        "commit_info": {"id": head["git"] or "unversioned"},
        "benchmarks": [_benchmark(one) for one in file.timings],
        "datetime": file.finished,
        "version": __version__,
    }


def save(file: TimingsFile, out: Path) -> None:
    """Write what pytest-benchmark saves. Raises UsageError if it cannot be written."""
    aside = out.with_name(f"{out.name}.{os.getpid()}")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        aside.write_text(json.dumps(exported(file)), encoding="utf-8")
        aside.replace(out)
    except OSError as error:
        raise UsageError(f"-o {out}: {error.strerror}: name a file that can be written") from error


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
    """Write the file of timings that a JSON of pytest-benchmark was made from.

    Raises UsageError naming the file if it is no such JSON, or one of other benchmarks.
    """
    try:
        saved = json.loads(path.read_text(encoding="utf-8"))
        benchmarks, machine, finished = saved["benchmarks"], saved["machine_info"], saved["datetime"]
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise UsageError(
            f"{path}: not what pytest-benchmark saves with --benchmark-json, or damaged: {error}"
        ) from error
    if not isinstance(machine, dict) or not isinstance(machine.get(HEADER), dict):
        raise UsageError(
            f"{path}: benchmarks of something else: its machine_info has no {HEADER!r}, which this suite adds"
        )
    found = [_timing(path, one) for one in benchmarks]
    head = {name: value for name, value in machine[HEADER].items() if name != "schema"}
    writer = Writer(to, head)
    for one in found:
        writer.add(one)
    writer.finish(finished)


def _timing(path: Path, benchmark: Mapping[str, Any]) -> Timing:
    try:
        return timing_of(benchmark["extra_info"])
    except (TypeError, KeyError, ValueError, AttributeError) as error:
        name = benchmark.get("name") if isinstance(benchmark, dict) else benchmark
        raise UsageError(f"{path}: {name}: no timing of this suite, or damaged: {error}") from error
