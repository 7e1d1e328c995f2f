"""The schedule of benchmarks: passes, worker processes and their deaths, interrupted invocations, the summary."""

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from timed import HEADER

from conformance.bench import schedule
from conformance.bench.results import NotTimed, Timing, Writer, read
from conformance.bench.schedule import TURNS, Bench, Died, Item, Worker, header, hello, items
from conformance.bench.timer import ROUNDS
from conformance.cases.claims import backend
from conformance.cases.runs import benchmarks as timed_runs
from conformance.errors import UsageError
from conformance.selection import Selection

ROOT = Path(__file__).parents[2]
COUNTS = {"kernels": ["quantized.linear"], "quantize": 1, "dequantize": 1, "weight_bytes": 9, "instructions": None}


def case(pattern: str = "nn.Linear", threads: str = "1") -> tuple[Any, str, str]:
    runs = timed_runs(backend("fbgemm"), ["x86"], ["small"])
    return next(run for run in runs if run.claim.pattern == pattern), "small", threads


class FakeWorker:
    """A worker that records its requests, and answers them as `answers` does, or else with fixed values."""

    started: list["FakeWorker"]
    answers: Callable[[dict[str, Any]], dict[str, Any] | None]

    def __init__(self, python: str, threads: str, backend_config: str | None = None) -> None:
        self.python, self.threads, self.backend_config = python, threads, backend_config
        self.asked: list[dict[str, Any]] = []
        self.ended = False
        self.started.append(self)

    def ask(self, **request: Any) -> dict[str, Any]:
        self.asked.append(request)
        ASKED.append((self.python, request))
        answer = type(self).answers(request)
        if answer is not None:
            return answer
        if request["do"] == "open":
            return {"counts": dict(COUNTS)}
        if request["do"] == "hello":
            return {"torch": "2.13.0", "python": "3.11.7"}
        return {"quantized": [0.001] * request["rounds"], "floating": [0.002] * request["rounds"], "disturbed": 3}

    def end(self) -> None:
        self.ended = True


ASKED: list[tuple[str, dict[str, Any]]] = []


@pytest.fixture
def workers(monkeypatch: pytest.MonkeyPatch) -> type[FakeWorker]:
    ASKED.clear()
    FakeWorker.started = []
    FakeWorker.answers = staticmethod(lambda request: None)
    monkeypatch.setattr(schedule, "Worker", FakeWorker)
    return FakeWorker


def bench(tmp_path: Path, **options: Any) -> Bench:
    return Bench(Writer(tmp_path / "timings.jsonl", HEADER), python="this", **options)


def time_all(benchmarks: Bench, scheduled: Sequence[Item]) -> list[Timing | NotTimed]:
    timings = [benchmarks.timing(item) for item in scheduled]
    benchmarks.close(scheduled)
    return timings


def test_each_pass_has_every_case_in_its_own_order() -> None:
    cases = [case(pattern) for pattern in ("nn.Linear", "nn.ReLU", "nn.Conv2d", "torch.add", "nn.ELU", "F.relu")]
    scheduled = [*items(cases, 3)]
    passes = [[item.case for item in scheduled if item.number == number] for number in range(3)]
    assert [item.number for item in scheduled] == sorted(item.number for item in scheduled)
    assert {frozenset(order) for order in passes} == {frozenset(f"{run.id}#1" for run, *_ in cases)}
    assert len({tuple(order) for order in passes}) == 3
    assert [*items(cases, 3)] == scheduled


def test_each_pass_has_its_own_process_and_the_first_pass_judges(tmp_path: Path, workers: type[FakeWorker]) -> None:
    scheduled = [*items([case(), case("nn.ReLU")], 3)]
    timings = time_all(bench(tmp_path), scheduled)
    assert len(workers.started) == 3
    assert all(worker.ended for worker in workers.started)
    judged = [[request["judged"] for request in worker.asked if request["do"] == "open"] for worker in workers.started]
    assert judged == [[True, True], [False, False], [False, False]]
    assert all(isinstance(timing, Timing) and timing.base is None for timing in timings)
    assert len(read(tmp_path / "timings.jsonl").timings) == 6


def test_a_process_has_one_number_of_threads(tmp_path: Path, workers: type[FakeWorker]) -> None:
    scheduled = [*items([case(), case(threads="all"), case("nn.ReLU"), case("nn.ReLU", threads="all")], 2)]
    time_all(bench(tmp_path), scheduled)
    assert sorted(worker.threads for worker in workers.started) == ["1", "1", "all", "all"]
    assert [len([request for request in worker.asked if request["do"] == "open"]) for worker in workers.started] == [
        2
    ] * 4


def test_two_interpreters_take_turns_and_each_is_first_equally_often(tmp_path: Path, workers: type[FakeWorker]) -> None:
    (timing,) = time_all(bench(tmp_path, against="other"), [*items([case()], 1)])
    assert isinstance(timing, Timing)
    assert timing.base is not None
    assert len(timing.base.quantized) == len(timing.new.quantized) == ROUNDS
    turns = [python for python, request in ASKED if request["do"] == "time"]
    assert turns == ["this", "other", "other", "this"] * (TURNS // 2)


def test_a_run_that_deviates_is_not_timed_in_any_pass(tmp_path: Path, workers: type[FakeWorker]) -> None:
    workers.answers = staticmethod(lambda request: {"reason": "does not conform: numerics"})
    scheduled = [*items([case()], 3)]
    timings = time_all(bench(tmp_path), scheduled)
    assert {type(timing) for timing in timings} == {NotTimed}
    assert len(ASKED) == 1
    file = read(tmp_path / "timings.jsonl")
    assert [case.reason for case in file.not_timed] == ["does not conform: numerics"]


def test_the_death_of_a_worker_loses_one_case(tmp_path: Path, workers: type[FakeWorker]) -> None:
    def dies(request: dict[str, Any]) -> None:
        if "nn.ReLU/" in request.get("id", ""):
            raise Died("killed by SIGSEGV")

    workers.answers = staticmethod(dies)
    scheduled = [*items([case(), case("nn.ReLU"), case("nn.ELU")], 1)]
    timings = {
        item.run.claim.pattern: timing
        for item, timing in zip(scheduled, time_all(bench(tmp_path), scheduled), strict=True)
    }
    assert isinstance(timings["nn.ReLU"], NotTimed)
    assert timings["nn.ReLU"].reason == "crashes: killed by SIGSEGV"
    assert {type(timings[name]) for name in ("nn.Linear", "nn.ELU")} == {Timing}


def test_an_interrupted_invocation_is_continued_without_timing_an_item_twice(
    tmp_path: Path, workers: type[FakeWorker]
) -> None:
    scheduled = [*items([case(), case("nn.ReLU")], 2)]
    first = bench(tmp_path)
    first.timing(scheduled[0])
    first.close(scheduled)
    assert not (tmp_path / "timings.jsonl").exists()
    assert any("3 of 4 passes are left" in line for line in first.summary(scheduled))
    ASKED.clear()
    again = bench(tmp_path)
    assert "of which 1 passes are done" in again.estimate(scheduled)
    time_all(again, scheduled)
    opened = [request["id"] for _, request in ASKED if request["do"] == "open"]
    assert sorted(opened) == sorted(item.run.id for item in scheduled[1:])
    assert len(read(tmp_path / "timings.jsonl").timings) == 4


def test_the_estimate_is_based_on_a_sample(tmp_path: Path, workers: type[FakeWorker]) -> None:
    times = iter([0.0, 300.0, 300.0, 360.0])
    scheduled = [*items([case(), case("nn.ReLU"), case("nn.ELU")], 8)]
    estimate = bench(tmp_path).estimate(scheduled, clock=lambda: next(times))
    # the first pass is in the sample; the two later items of the sample took 30 seconds each, and 18 are left
    assert estimate == "latency: 3 cases, 24 passes over one: about 9 minutes"


def test_the_summary_counts_reasons(tmp_path: Path, workers: type[FakeWorker]) -> None:
    workers.answers = staticmethod(
        lambda request: (
            {"reason": "does not conform: numerics: 3 of 9"} if "nn.ReLU/" in request.get("id", "") else None
        )
    )
    scheduled = [*items([case(), case("nn.ReLU")], 1)]
    benchmarks = bench(tmp_path)
    time_all(benchmarks, scheduled)
    assert [*benchmarks.summary(scheduled)] == [
        "1 cases timed, 1 not:",
        "     1 does not conform: numerics",
        f"timings: {tmp_path / 'timings.jsonl'}",
    ]


def test_a_real_worker_times_a_run_and_gives_reasons_for_others() -> None:
    worker = Worker(sys.executable, "1")
    try:
        assert worker.ask(do="hello")["python"] == sys.version.split()[0]
        answer = worker.ask(do="open", id=case()[0].id, judged=True)
        assert answer["counts"]["kernels"] == ["quantized.linear"]
        rounds = worker.ask(do="time", rounds=3)
        assert [len(rounds[name]) for name in ("quantized", "floating")] == [3, 3]
        transposed = case("nn.ConvTranspose2d")[0].id
        assert worker.ask(do="open", id=transposed, judged=True)["reason"].startswith("does not conform: ")
        missing = case()[0].id.replace("nn.Linear", "nn.Nonsense")
        assert "KeyError" in worker.ask(do="open", id=missing, judged=True)["reason"]
        worker._process.kill()
        with pytest.raises(Died, match="killed by SIGKILL"):
            worker.ask(do="hello")
    finally:
        worker.end()


def test_an_interpreter_that_cannot_time_models_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"--against .*missing: No such file"):
        hello(str(tmp_path / "missing"))
    broken = tmp_path / "broken"
    broken.write_text("#!/bin/sh\nexit 3\n")
    broken.chmod(0o755)
    with pytest.raises(UsageError, match=r"broken: ended with status 3: it needs torch"):
        hello(str(broken))


def test_the_header_has_the_fields_that_comparisons_read() -> None:
    rows = {**HEADER, "cpu_flags": ["a"], "engines": {}}
    fields = header(rows, "full", 5, {"torch": "2.10.0"})
    assert (fields["form"], fields["passes"], fields["against"], fields["cores"]) == (
        "full",
        5,
        {"torch": "2.10.0"},
        os.cpu_count(),
    )
    assert "cpu_flags" not in fields


def test_a_selection_may_be_one_layer_or_an_operator_without_every_extent() -> None:
    extents = ("small", "medium", "large")
    recurrent = Selection(backends=["fbgemm"], engines=["x86"], globs=["*/nn.LSTM/dynamic-quint8/*"]).timed(extents)
    assert [(run.variant.name, extent) for run, extent in recurrent if run.variant] == [
        ("speech_320", "small"),
        ("speech_640", "large"),
    ]
    streamed = Selection(backends=["fbgemm"], engines=["x86"], globs=["*/nn.LSTM/*/speech_640/*"]).timed(extents)
    assert {extent for _, extent in streamed} == {"large"}
