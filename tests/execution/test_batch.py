"""An invocation: what it selects, where its rows go, which engines there are, and what becomes of every run."""

import faulthandler
import os
import platform
import signal
from collections import Counter
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import pytest
import torch

import conformance
from conformance import selection as selection_module
from conformance.cases.claims import backend
from conformance.cases.runs import Run, describe, runs, usual
from conformance.checks.evidence import Evidence
from conformance.checks.judge import Judge
from conformance.configs.registry import BACKENDS
from conformance.engines import availability
from conformance.engines.availability import probe
from conformance.engines.registry import engine as real_engine
from conformance.errors import UsageError
from conformance.execution import batch
from conformance.execution.batch import Judged, judge_runs
from conformance.host import cpu
from conformance.host.isolation import Raised
from conformance.models import fx
from conformance.results.ledger import Host
from conformance.results.profiles import CHECKS
from conformance.results.rows import Row
from conformance.results.verdicts import Verdict
from conformance.selection import Selection


def test_without_options_everything_that_the_registry_promises_is_selected() -> None:
    selection = Selection()
    assert [one.name for one in selection.claims] == list(BACKENDS)
    every = [run.id for name in BACKENDS for run in runs(backend(name))]
    assert [run.id for run in selection.possible] == every
    assert {*every} - {run.id for run in selection.runs} == {run.id for run in selection.possible if not usual(run)}


def test_runs_that_nobody_asked_for_are_counted() -> None:
    selection = Selection(backends=["qnnpack", "executorch"])
    left = len(selection.possible) - len(selection.runs)
    assert left > 1000
    assert Counter(run.engine for run in selection.not_asked_for) == {"executorch": left}
    assert Selection(backends=["executorch"], globs=["executorch/nn.ReLU/*"]).not_asked_for == []
    selection.__dict__["unavailable"] = {}
    assert {*selection.header()["not_asked_for"]} == {run.id for run in {*selection.possible} - {*selection.runs}}


def test_backends_engines_and_globs_narrow_the_selection() -> None:
    selection = Selection(backends=["fbgemm"], engines=["x86", "onednn"], globs=["*/nn.ReLU/*/default/*"])
    assert [run.id for run in selection.runs] == [
        f"fbgemm/nn.ReLU/static-quint8/ptq/default/{profile}@{engine}"
        for profile in ("exact", "typical")
        for engine in ("x86", "onednn")
    ]


@pytest.mark.parametrize(
    ("selection", "message"),
    [
        (Selection(backends=["tensorrt"]), "unknown backend 'tensorrt'"),
        (Selection(engines=["tensorrt"]), "unknown engine 'tensorrt'"),
        (Selection(backends=["fbgemm"], globs=["qnnpack/*"]), "no run matches 'qnnpack/*'"),
        (Selection(backend_config="nowhere"), "--backend-config 'nowhere': write it as module:callable"),
        (Selection(backends=["fbgemm"], backend_config="a:b"), "--backend and --backend-config exclude each other"),
    ],
)
def test_an_option_that_makes_no_sense_is_one_line(selection: Selection, message: str) -> None:
    with pytest.raises(UsageError) as raised:
        _ = selection.runs
    assert str(raised.value).startswith(message)
    assert "\n" not in str(raised.value)


def test_another_config_is_selected_alone() -> None:
    path = "torch.ao.quantization.backend_config.native:get_native_backend_config"
    selection = Selection(backend_config=path)
    assert {run.engine for run in selection.runs} == {"x86"}
    assert {run.claim.backend for run in selection.runs} == {selection.claims[0].name}
    assert len(selection.claims) == 1


def test_rows_go_where_they_are_told() -> None:
    assert Selection(results=Path("here.jsonl")).results_path == Path("here.jsonl")


@pytest.mark.parametrize(
    ("selection", "name"),
    [
        (Selection(backends=["fbgemm"]), "fbgemm-{}.jsonl"),
        (Selection(backends=["fbgemm", "qnnpack"]), "fbgemm+qnnpack-{}.jsonl"),
        (Selection(backends=["fbgemm"], globs=["fbgemm/nn.ReLU/*"]), "fbgemm-{}-selection.jsonl"),
    ],
)
def test_rows_go_into_the_reports_by_default_and_a_part_never_in_the_place_of_the_whole(
    selection: Selection, name: str
) -> None:
    assert selection.results_path == Path("reports/out") / name.format(platform.machine())


def test_the_header_says_what_ran_with_what_and_where() -> None:
    selection = Selection(backends=["fbgemm"], globs=["fbgemm/nn.ReLU/*"], isa_limit="avx2")
    selection.__dict__["unavailable"] = {"fbgemm": None, "x86": "not built"}
    header = selection.header()
    assert header["suite"] == conformance.__version__
    assert header["torch"] == torch.__version__
    assert header["python"] == platform.python_version()
    assert header["arch"] == platform.machine()
    assert (header["isa_limit"], header["isa"]) == ("avx2", "avx2")
    assert header["engines"] == {"fbgemm": "available", "x86": "not built"}
    assert (header["backends"], header["selection"]) == (["fbgemm"], ["fbgemm/nn.ReLU/*"])
    assert header["not_asked_for"] == []
    assert set(header) == {
        *("suite", "torch", "python", "os", "arch", "cpu", "cpu_flags", "isa_limit", "isa", "engines", "git"),
        *("backends", "selection", "not_asked_for"),
    }


def test_the_host_is_what_the_ledger_is_held_against() -> None:
    assert Selection(isa_limit="avx2").host == Host(torch.__version__, platform.machine(), "avx2")


@pytest.mark.parametrize(
    ("flags", "widest"),
    [
        (("amx_int8", "amx_tile", "avx2", "avx512_vnni", "avx512f"), "avx512_vnni+amx"),
        (("avx", "avx2", "avx512_vnni", "avx512f"), "avx512_vnni"),
        (("avx2", "avx_vnni"), "avx_vnni"),
        (("avx2", "avx512f"), "avx512f"),
        (("avx", "avx2"), "avx2"),
        (("sse2",), "baseline"),
    ],
)
def test_the_instruction_set_is_the_widest_for_products_of_8_bits(
    flags: tuple[str, ...], widest: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpu, "cpu", lambda: ("a CPU", flags))
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    assert cpu.isa(None) == widest
    assert cpu.isa("avx2") == "avx2"


def test_other_architectures_have_one_instruction_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    assert cpu.isa(None) == "aarch64"


class FakeEngine:
    """An engine whose probe does as it is told."""

    def __init__(self, name: str) -> None:
        self.name = name

    def warm_up(self) -> None:
        """There is nothing to warm up."""

    def scope(self) -> AbstractContextManager[None]:
        return nullcontext()

    def unavailable(self) -> str | None:
        if self.name == "crashing":
            os.kill(os.getpid(), signal.SIGILL)
        if self.name == "raising":
            raise OSError("no such library")
        return "not built" if self.name == "missing" else None


@pytest.mark.parametrize(
    ("name", "reason"),
    [("there", None), ("missing", "not built"), ("crashing", "SIGILL"), ("raising", "OSError: no such library")],
)
def test_an_engine_is_available_when_a_small_operation_has_run_on_it(
    name: str, reason: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fake(name: str) -> FakeEngine:
        import faulthandler

        faulthandler.disable()
        return FakeEngine(name)

    monkeypatch.setattr(availability, "engine", fake)
    assert probe(name) == reason


def test_engines_are_probed_once_each_and_only_those_selected(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(selection_module, "probe", lambda name: asked.append(name))
    selection = Selection(backends=["fbgemm"], globs=["fbgemm/nn.ReLU/*"])
    assert selection.unavailable == {"fbgemm": None, "x86": None}
    assert selection.unavailable is selection.unavailable
    assert asked == ["fbgemm", "x86"]


def test_an_engine_that_torch_was_built_without_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    missing = type(real_engine("fbgemm"))("mkl")  # type: ignore[call-arg]
    monkeypatch.setattr(availability, "engine", lambda name: missing)
    before = torch.backends.quantized.engine
    assert probe("mkl")
    assert torch.backends.quantized.engine == before


def test_an_engines_scope_ends_even_when_it_is_left_by_an_error() -> None:
    before = torch.backends.quantized.engine
    for name in set(torch.backends.quantized.supported_engines) & {"fbgemm", "onednn", "qnnpack", "x86"}:
        scope = real_engine(name).scope()
        scope.__enter__()
        assert torch.backends.quantized.engine == name
        assert not scope.__exit__(LookupError, LookupError(), None)
        assert torch.backends.quantized.engine == before


def run(name: str) -> Run:
    return next(one for one in Selection(globs=[name]).runs if one.id == name)


RELU = "fbgemm/nn.ReLU/static-quint8/ptq/default/exact@fbgemm"
LINEAR = "fbgemm/nn.Linear/static-quint8/ptq/default/exact@fbgemm"
SIGMOID = "fbgemm/nn.Sigmoid/static-quint8/ptq/default/exact@fbgemm"


def rows_of(outcomes: list[Judged | Raised]) -> list[Row]:
    assert not any(isinstance(outcome, Raised) for outcome in outcomes), outcomes
    return [outcome.row for outcome in outcomes if isinstance(outcome, Judged)]


def test_a_run_becomes_a_row_with_every_check() -> None:
    if real_engine("fbgemm").unavailable():
        pytest.skip("no fbgemm here")
    (row,) = rows_of(judge_runs([run(LINEAR)], lambda name: None))
    assert (row.id, row.verdict, row.detail) == (LINEAR, "conforms", "")
    assert (row.backend, row.pattern, row.dtype_config) == ("fbgemm", "nn.Linear", "static-quint8")
    assert (row.flow, row.variant, row.profile, row.engine) == ("ptq", "default", "exact", "fbgemm")
    assert row.checks == dict.fromkeys(CHECKS, "pass")
    assert row.kernels == ("quantized.linear",)
    assert (row.steps_max, row.mismatched, row.total, row.known) == (0, 0, 32, None)
    assert row.sqnr_db is not None
    assert row.sqnr_db > 20


def test_a_run_twice_becomes_the_same_row_but_for_its_seconds() -> None:
    if real_engine("fbgemm").unavailable():
        pytest.skip("no fbgemm here")
    first, second = (rows_of(judge_runs([run(LINEAR)], lambda name: None))[0] for _ in range(2))
    assert {**first.to_json(), "seconds": 0} == {**second.to_json(), "seconds": 0}


def test_runs_in_a_row_have_the_results_that_they_have_alone() -> None:
    several = [run(LINEAR), run(LINEAR.replace("@fbgemm", "@x86")), run(RELU), run(LINEAR)]
    if any(real_engine(one.engine).unavailable() for one in several):
        pytest.skip("no fbgemm here")
    together = rows_of(judge_runs(several, lambda name: None))
    apart = [row for one in several for row in rows_of(judge_runs([one], lambda name: None))]
    assert [{**row.to_json(), "seconds": 0} for row in together] == [{**row.to_json(), "seconds": 0} for row in apart]


def conforming(one: Run) -> Row:
    return Row(**describe(one), verdict=Verdict.CONFORMS)


def test_an_engine_that_is_missing_gives_unavailable_rows_in_their_places(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Judge, "judged", lambda self, one: (Evidence(one), conforming(one)))
    batch = [run(RELU), run(RELU.replace("@fbgemm", "@x86")), run(SIGMOID)]
    rows = rows_of(judge_runs(batch, {"x86": "not built"}.get))
    assert [(row.id, row.verdict, row.detail) for row in rows] == [
        (RELU, "conforms", ""),
        (batch[1].id, "unavailable", "engine x86: not built"),
        (SIGMOID, "conforms", ""),
    ]


def test_a_run_that_dies_crashes_and_one_on_which_the_suite_fails_is_our_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    def judged(self: Judge, one: Run) -> tuple[Evidence, Row]:
        import faulthandler

        faulthandler.disable()
        if one.id == RELU:
            os.kill(os.getpid(), signal.SIGSEGV)
        if one.id == SIGMOID:
            raise LookupError("a bug of the suite")
        return Evidence(one), conforming(one)

    monkeypatch.setattr(Judge, "judged", judged)
    conforms, crashes, raised = judge_runs([run(LINEAR), run(RELU), run(SIGMOID)], lambda name: None)
    assert isinstance(conforms, Judged)
    assert conforms.row.verdict == "conforms"
    assert isinstance(crashes, Judged)
    assert crashes.row.verdict == "crashes"
    assert crashes.row.failed == {"crashes"}
    assert "SIGSEGV" in crashes.row.detail
    assert isinstance(raised, Raised)
    assert "LookupError: a bug of the suite" in raised.traceback


def test_a_claim_without_an_operator_in_the_tables_is_unavailable_and_says_where_to_add_it() -> None:
    bare = run(RELU)
    lacking = Run(bare.backend, bare.claim, "ptq", None, "exact", "fbgemm")
    (row,) = rows_of(judge_runs([lacking], lambda name: None))
    assert (row.verdict, row.variant) == ("unavailable", "not-covered")
    assert row.detail == "not covered: no entry for nn.ReLU in conformance/cases/operators/"


LEDGER = """
[[deviation]]
id = "{0}"
match = "{0}/nn.Lineer/*"
check = "numerics"
reason = "a typo"
upstream = "unreported"
"""


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    for name in ("fbgemm", "qnnpack", "fbgem", "theirs"):
        (tmp_path / f"{name}.toml").write_text(LEDGER.format(name))
    return tmp_path


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, ["fbgem", "fbgemm", "qnnpack", "theirs"]),
        ({"backends": ["fbgemm"]}, ["fbgem", "fbgemm", "theirs"]),
        ({"globs": ["fbgemm/nn.ReLU/*"]}, []),
        ({"backend_config": "torch.ao.quantization.backend_config.native:get_native_backend_config"}, []),
    ],
)
def test_entries_have_to_match_where_their_whole_backend_is_selected_or_is_no_backend(
    options: dict[str, object], expected: list[str], ledger: Path
) -> None:
    selection = Selection(ledger=ledger, **options)  # type: ignore[arg-type]
    assert [entry.id for entry in selection.ledger_to_check] == expected


def test_entries_are_held_against_every_promised_run_whatever_is_selected() -> None:
    assert Selection(backends=["fbgemm"], engines=["x86"]).every_id == [run.id for run in Selection().possible]


def test_the_parent_starts_no_threads_of_onednn(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bool] = []
    monkeypatch.setattr(fx, "calibrate", lambda *_: seen.append(torch._C._get_mkldnn_enabled()))
    batch.warm_up.__wrapped__()
    assert seen == [False]
    assert torch._C._get_mkldnn_enabled()


def test_an_allocation_that_fails_is_a_damaged_heap(monkeypatch: pytest.MonkeyPatch) -> None:
    def allocation_fails(*_: object) -> None:
        faulthandler.disable()
        raise MemoryError

    monkeypatch.setattr("conformance.checks.judge.execute", allocation_fails)
    (judged,) = judge_runs([run(RELU)], lambda name: None)
    assert isinstance(judged, Judged)
    assert judged.row.failed == {"crashes"}
    assert "memory fault" in judged.row.detail
