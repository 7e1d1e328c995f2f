"""The schedule of benchmarks: passes until cases are settled, worker processes and their deaths, interrupted invocations."""

import os
import random
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from timed import HEADER

pytest.importorskip("scipy", reason="`tox -e bench` has it")

from conformance.bench import schedule
from conformance.bench.plan import Plan
from conformance.bench.results import Writer, read
from conformance.bench.schedule import MOST_DROPPED_OF_CASE, Bench, Case, header
from conformance.bench.timer import PLACEMENTS, ROUNDS
from conformance.bench.timings import WITH_FLOAT
from conformance.bench.workers import Died
from conformance.selection import Selection

COUNTS = {
    "kernels": ["quantized.linear"],
    "quantize": 1,
    "dequantize": 1,
    "weight_bytes": 9,
    "instructions": None,
    "operations": 100,
    "traffic": 10,
}
MACHINE = {"float_rate": 1e9, "int8_rate": 4e9, "bandwidth": {"16384": 1e9}}


def case(pattern: str = "nn.Linear", threads: str = "1") -> Case:
    return Case(f"fbgemm/{pattern}/static-quint8/ptq/layer/bench@x86", "small", threads, f"{pattern}@x86")


class FakeWorker:
    """A worker that records its requests, and answers them as `answers` does, or else with fixed values."""

    started: list["FakeWorker"]
    answers: Callable[[str, dict[str, Any]], dict[str, Any] | None]

    def __init__(self, python: str, threads: str, declared: Sequence[str] = (), cache: str = "") -> None:
        self.python, self.threads, self.declared = python, threads, declared
        self.cache = Path(cache)
        assert self.cache.is_dir()
        self.asked: list[dict[str, Any]] = []
        self.ended = False
        self.started.append(self)

    def ask(self, **request: Any) -> dict[str, Any]:
        self.asked.append(request)
        ASKED.append((self.python, request))
        if request["do"] == "open":
            self.open = request["id"]
        answer = type(self).answers(self.python, {"id": getattr(self, "open", ""), **request})
        if answer is not None:
            return answer
        if request["do"] == "open":
            return {}
        if request["do"] == "judge":
            return {"counts": dict(COUNTS)}
        if request["do"] == "hello":
            return {"torch": "2.13.0", "python": "3.11.7"}
        return dict(MACHINE) if request["do"] == "limits" else rounds(request, 0.001)

    def end(self) -> None:
        self.ended = True


def rounds(request: dict[str, Any], seconds: float) -> dict[str, Any]:
    """The answer to a request for rounds of a lowered model, which takes so many seconds, and of a float model, if asked."""
    floating = {"floating": [0.002] * request["rounds"]} if request["floating"] else {}
    quiet = {"disturbed": 3, "pace": 1e-6, "quiet": True, "probe": 6e-6}
    return {"quantized": [seconds] * request["rounds"], **floating, **quiet}


ASKED: list[tuple[str, dict[str, Any]]] = []


@pytest.fixture
def workers(monkeypatch: pytest.MonkeyPatch) -> type[FakeWorker]:
    ASKED.clear()
    FakeWorker.started = []
    FakeWorker.answers = staticmethod(lambda python, request: None)
    monkeypatch.setattr(schedule, "Worker", FakeWorker)
    monkeypatch.setattr(schedule, "SPARE", 0)
    return FakeWorker


def fixed(passes: int) -> Plan:
    return Plan((passes,))


def bench(tmp_path: Path, plan: Plan, **options: Any) -> Bench:
    return Bench(Writer(tmp_path / "timings.jsonl", HEADER), plan, python="this", **options)


def noisy(seconds: Callable[[str, str], tuple[float, float]]) -> Any:
    """Answers of workers whose rounds take `seconds`, a mean and a relative deviation, by interpreter and case."""
    chance = random.Random(5)

    def answer(python: str, request: dict[str, Any]) -> dict[str, Any] | None:
        if request["do"] != "time":
            return None
        mean, deviation = seconds(python, request["id"].split("/")[1])
        return rounds(request, mean * (1 + deviation) ** chance.gauss(0, 1))

    return staticmethod(answer)


def passes(path: Path) -> dict[str, int]:
    return {timed[0].id.split("/")[1]: len(timed) for timed in read(path).cases.values()}


def test_each_pass_has_every_case_in_its_own_order_and_process(tmp_path: Path, workers: type[FakeWorker]) -> None:
    cases = [case(pattern) for pattern in ("nn.Linear", "nn.ReLU", "nn.Conv2d", "torch.add", "nn.ELU", "F.relu")]
    bench(tmp_path, fixed(3)).run(cases)
    judging, *timing = workers.started
    assert [(request["do"], request["id"]) for request in judging.asked] == [("judge", case.id) for case in cases]
    opened = [[request for request in worker.asked if request["do"] == "open"] for worker in timing]
    first = {request["id"] for request in opened[0]}
    assert first == {case.id for case in cases}
    orders = [[*dict.fromkeys(request["id"] for request in requests)] for requests in opened]
    assert len({tuple(order) for order in orders}) == len(timing) == 3
    assert not any(request["do"] == "judge" for worker in timing for request in worker.asked)
    assert all({*order} == first for order in orders)
    assert all(worker.ended for worker in workers.started)
    (cache,) = {worker.cache for worker in workers.started}
    assert not cache.exists(), "the folder that workers share is removed at the end"
    assert len(read(tmp_path / "timings.jsonl").timings) == 18


def test_inputs_have_several_placements_in_a_pass(tmp_path: Path, workers: type[FakeWorker]) -> None:
    benchmarks = bench(tmp_path, fixed(1))
    benchmarks.run([case()])
    (timing,) = benchmarks.passes(case())
    assert [len(placed) for placed in timing.new.quantized] == [ROUNDS] * PLACEMENTS
    assert timing.pace == 1e-6
    assert timing.disturbed == 3 * PLACEMENTS


def test_a_process_has_one_number_of_threads_and_measures_its_limits_once(
    tmp_path: Path, workers: type[FakeWorker]
) -> None:
    bench(tmp_path, fixed(2)).run([case(), case(threads="all"), case("nn.ReLU"), case("nn.ReLU", threads="all")])
    assert Counter(worker.threads for worker in workers.started) == {"1": 3, "all": 2}, (
        "one for each pass, and one to judge: that does not depend on threads"
    )
    assert sum(request["do"] == "limits" for _, request in ASKED) == 2
    assert {machine.threads for machine in read(tmp_path / "timings.jsonl").machines} == {"1", "all"}


def test_a_pass_over_a_disturbed_machine_is_tried_again_unless_that_is_all_there_is(
    tmp_path: Path, workers: type[FakeWorker], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schedule, "SPARE", 1)
    disturbed = iter([True, False, *[True] * 100])

    def answer(python: str, request: dict[str, Any]) -> dict[str, Any] | None:
        if request["do"] != "time" or not next(disturbed):
            return None
        return {**rounds(request, 0.003), "quiet": False}

    workers.answers = staticmethod(answer)
    benchmarks = bench(tmp_path, fixed(3))
    benchmarks.run([case()])
    assert len(benchmarks.passes(case())) == 3
    assert 1 <= benchmarks.dropped <= 3 + 1
    assert f"3 passes ({benchmarks.dropped} disturbed ones dropped)" in "\n".join(benchmarks.summary([case()]))
    assert [timing.number for timing in benchmarks.passes(case())] == [0, 1, 2]


def test_a_case_that_is_always_disturbed_has_a_pass_before_the_budget_is_spent(
    tmp_path: Path, workers: type[FakeWorker], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schedule, "SPARE", 2 * MOST_DROPPED_OF_CASE)  # as many may be dropped in all
    workers.answers = staticmethod(
        lambda python, request: {**rounds(request, 0.003), "quiet": False} if request["do"] == "time" else None
    )
    benchmarks = bench(tmp_path, fixed(1))
    network = Case("networks/resnet18/batch_1/eager@x86", "network", "1", "networks/resnet18/batch_1")
    benchmarks.run([case(), network])
    assert [len(benchmarks.passes(one)) for one in (case(), network)] == [1, 1]
    assert benchmarks.dropped_of == {case().name: MOST_DROPPED_OF_CASE}


def test_cases_are_judged_in_parts_and_timed_before_the_next_part(
    tmp_path: Path, workers: type[FakeWorker], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schedule, "PART", 1)
    bench(tmp_path, fixed(1)).run([case(), case("nn.ReLU")])
    asked = [(request["do"], request["id"].split("/")[1]) for _, request in ASKED if request["do"] in ("judge", "open")]
    assert asked == [("judge", "nn.Linear"), ("open", "nn.Linear"), ("judge", "nn.ReLU"), ("open", "nn.ReLU")]


def test_workers_are_told_the_fastest_probe_of_earlier_ones(tmp_path: Path, workers: type[FakeWorker]) -> None:
    bench(tmp_path, fixed(2)).run([case()])
    opened = [request for _, request in ASKED if request["do"] == "open"]
    assert [request.get("probe") for request in opened] == [None, 6e-6]


def test_two_interpreters_take_turns_and_each_is_first_equally_often(tmp_path: Path, workers: type[FakeWorker]) -> None:
    benchmarks = bench(tmp_path, fixed(1), against="other")
    benchmarks.run([case()])
    (timing,) = benchmarks.passes(case())
    assert timing.base is not None
    assert len(timing.base.quantized) == len(timing.new.quantized) == PLACEMENTS
    turns = [python for python, request in ASKED if request["do"] == "time"]
    assert turns == ["this", "other", "other", "this"] * (PLACEMENTS // 2)


def test_the_float_model_is_timed_in_the_first_passes_over_two_builds(
    tmp_path: Path, workers: type[FakeWorker]
) -> None:
    benchmarks = bench(tmp_path, fixed(WITH_FLOAT + 2), against="other")
    benchmarks.run([case()])
    assert [timing.beside_float for timing in benchmarks.passes(case())] == [True] * WITH_FLOAT + [False] * 2


def test_further_passes_go_to_cases_that_are_not_settled(tmp_path: Path, workers: type[FakeWorker]) -> None:
    workers.answers = noisy(lambda python, name: (0.001, {"nn.Linear": 0.001, "nn.ReLU": 0.03}[name]))
    benchmarks = bench(tmp_path, Plan((3, 5, 10, 20, 40)), against="other")
    benchmarks.run([case(), case("nn.ReLU")])
    counts = passes(tmp_path / "timings.jsonl")
    assert counts["nn.Linear"] == 3 < counts["nn.ReLU"] <= 40
    assert not benchmarks.unsettled([case()])


def test_passes_over_one_build_depend_on_their_spread(tmp_path: Path, workers: type[FakeWorker]) -> None:
    workers.answers = noisy(lambda python, name: (0.001, {"nn.Linear": 0.001, "nn.ReLU": 0.02}[name]))
    bench(tmp_path, Plan((3, 5, 10, 20, 40))).run([case(), case("nn.ReLU")])
    counts = passes(tmp_path / "timings.jsonl")
    assert counts["nn.Linear"] == 3 < counts["nn.ReLU"]


def test_nothing_is_timed_after_the_budget(tmp_path: Path, workers: type[FakeWorker]) -> None:
    workers.answers = noisy(lambda python, name: (0.001, 0.5))
    now = iter(range(1000))
    cases = [case(pattern) for pattern in ("nn.Linear", "nn.ReLU", "nn.Conv2d")]
    benchmarks = bench(tmp_path, Plan((3, 5), budget=8), clock=lambda: float(next(now)))
    benchmarks.run(cases)
    counts = [len(benchmarks.passes(each)) for each in cases]
    assert 0 < sum(counts) < 9
    assert "0 cases are settled for changes of 3%" in "\n".join(benchmarks.summary(cases))
    assert read(tmp_path / "timings.jsonl").finished


def test_a_budget_goes_to_the_cases_that_it_can_settle(
    tmp_path: Path, workers: type[FakeWorker], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schedule, "LEAST_SWEEP", 0)
    deviations = {"nn.ReLU": 0.015, "nn.ELU": 0.015, "nn.Linear": 0.3, "nn.Conv2d": 0.3}
    workers.answers = noisy(lambda python, name: (0.001, deviations[name]))
    now = 0.0

    def clock() -> float:
        nonlocal now
        now += 0.25
        return now

    bench(tmp_path, Plan((3, 10, 60), budget=30), clock=clock).run([case(name) for name in deviations])
    counts = passes(tmp_path / "timings.jsonl")
    assert max(counts["nn.ReLU"], counts["nn.ELU"]) > 3
    assert counts["nn.Linear"] == counts["nn.Conv2d"] == 3


def test_a_run_that_deviates_is_not_timed_in_any_pass(tmp_path: Path, workers: type[FakeWorker]) -> None:
    workers.answers = staticmethod(lambda python, request: {"reason": "does not conform: numerics"})
    benchmarks = bench(tmp_path, fixed(3))
    benchmarks.run([case()])
    assert len(ASKED) == 1
    assert benchmarks.reason(case()) == "does not conform: numerics"
    assert [case.reason for case in read(tmp_path / "timings.jsonl").not_timed] == ["does not conform: numerics"]


def test_the_death_of_a_worker_loses_one_case(tmp_path: Path, workers: type[FakeWorker]) -> None:
    def dies(python: str, request: dict[str, Any]) -> None:
        if "nn.ReLU/" in request["id"]:
            raise Died("killed by SIGSEGV")

    workers.answers = staticmethod(dies)
    benchmarks = bench(tmp_path, fixed(1))
    benchmarks.run([case(), case("nn.ReLU"), case("nn.ELU")])
    assert benchmarks.reason(case("nn.ReLU")) == "crashes: killed by SIGSEGV"
    assert all(len(benchmarks.passes(case(name))) == 1 for name in ("nn.Linear", "nn.ELU"))


def test_an_interrupted_invocation_is_continued_without_timing_a_pass_twice(
    tmp_path: Path, workers: type[FakeWorker]
) -> None:
    def interrupts(python: str, request: dict[str, Any]) -> None:
        if sum(asked["do"] == "time" for _, asked in ASKED) > 3 * PLACEMENTS:
            raise KeyboardInterrupt

    cases = [case(), case("nn.ReLU")]
    workers.answers = staticmethod(interrupts)
    first = bench(tmp_path, fixed(2))
    with pytest.raises(KeyboardInterrupt):
        first.run(cases)
    assert not (tmp_path / "timings.jsonl").exists()
    assert any("interrupted: the same command goes on with" in line for line in first.summary(cases))
    ASKED.clear()
    workers.answers = staticmethod(lambda python, request: None)
    bench(tmp_path, fixed(2)).run(cases)
    assert sum(request["do"] == "time" for _, request in ASKED) == PLACEMENTS
    assert sorted(timing.number for timing in read(tmp_path / "timings.jsonl").timings) == [0, 0, 1, 1]


def test_the_summary_counts_reasons(tmp_path: Path, workers: type[FakeWorker]) -> None:
    workers.answers = staticmethod(
        lambda python, request: (
            {"reason": "does not conform: numerics: 3 of 9"} if "nn.ReLU/" in request["id"] else None
        )
    )
    cases = [case(), case("nn.ReLU")]
    benchmarks = bench(tmp_path, fixed(1))
    benchmarks.run(cases)
    assert [*benchmarks.summary(cases)] == [
        "1 cases timed, 1 not:",
        "     1 does not conform: numerics",
        "1 passes; 1 cases are settled for changes of 3%, 0 not",
        f"timings: {tmp_path / 'timings.jsonl'}",
    ]


def test_the_header_has_the_fields_that_comparisons_read() -> None:
    rows = {**HEADER, "cpu_flags": ["a"], "engines": {}}
    fields = header(rows, "full", Plan((3, 5), budget=60, aim=0.05), {"torch": "2.10.0"})
    planned = {"passes": 5, "looks": [3, 5], "budget": 60, "aim": 0.05}
    assert (
        fields.items() >= {**planned, "form": "full", "against": {"torch": "2.10.0"}, "cores": os.cpu_count()}.items()
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
