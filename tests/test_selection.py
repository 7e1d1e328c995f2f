"""The runs that options select, the file that their rows go to, and the header of that file."""

import platform
from collections import Counter
from pathlib import Path

import pytest
import torch

import conformance
from conformance import selection as selection_module
from conformance.cases.claims import backend
from conformance.cases.runs import runs, usual
from conformance.configs.registry import BACKENDS, BY_NAME
from conformance.errors import UsageError
from conformance.host.cpu import cpu
from conformance.host.environment import installed
from conformance.results.rows import repro_command
from conformance.selection import Selection

EARLIER = Path(__file__).parent / "results" / "schema1.jsonl"


def test_without_options_every_promised_run_is_selected() -> None:
    selection = Selection()
    assert [one.name for one in selection.claims] == list(BACKENDS)
    every = [run.id for name in BACKENDS for run in runs(backend(name))]
    assert [run.id for run in selection.possible] == every
    assert {*every} - {run.id for run in selection.runs} == {run.id for run in selection.possible if not usual(run)}


def test_runs_that_were_not_selected_by_name_are_counted() -> None:
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


def test_a_backend_or_an_engine_that_is_named_twice_is_selected_once() -> None:
    once = Selection(backends=["fbgemm"], engines=["x86"], globs=["*/nn.ReLU/*"])
    twice = Selection(backends=["fbgemm"] * 2, engines=["x86"] * 2, globs=["*/nn.ReLU/*"] * 2)
    assert [run.id for run in twice.runs] == [run.id for run in once.runs]


@pytest.mark.parametrize(
    ("selection", "message"),
    [
        (Selection(backends=["tensorrt"]), "unknown backend 'tensorrt'"),
        (Selection(engines=["tensorrt"]), "unknown engine 'tensorrt'"),
        (Selection(backends=["fbgemm"], globs=["qnnpack/*"]), "no run matches 'qnnpack/*'"),
        (Selection(backend_configs=["nowhere"]), "--backend-config 'nowhere': write it as module:attribute"),
        (Selection(backends=["fbgemm"], backend_configs=["a:b"]), "--backend and --backend-config exclude each other"),
        (Selection(shard="5/4"), "--shard '5/4': not I/N with 1 <= I <= N: write 1/4 for the first of four parts"),
        (
            Selection(since=Path("nowhere")),
            "--since nowhere: no such file: name the rows file of an earlier invocation",
        ),
        (
            Selection(backends=["qnnpack"], since=EARLIER, only_since=True, results=EARLIER),
            f"--results {EARLIER}: these rows would replace those of --since: name another file",
        ),
        (Selection(only_since=True), "--only-since: name the rows file of an earlier invocation with --since"),
    ],
)
def test_an_unusable_option_is_an_error_of_one_line(selection: Selection, message: str) -> None:
    with pytest.raises(UsageError) as raised:
        _ = selection.runs
    assert str(raised.value).startswith(message)
    assert "\n" not in str(raised.value)


def test_the_command_that_reproduces_a_run_has_what_is_not_in_its_id() -> None:
    options = Selection(engines=["mine:Engine", "x86"], backend_configs=["mine:CONFIG"], isa_limit="avx2").repro_options
    assert options == ["--backend-config", "mine:CONFIG", "--engine", "mine:Engine", "--isa", "avx2"]
    command = "python -m conformance repro --engine 'mine.a b:E' 'id'"
    assert repro_command("id", Selection(engines=["mine.a b:E"]).repro_options) == command


def test_a_third_party_config_is_selected_alone() -> None:
    path = "torch.ao.quantization.backend_config.native:get_native_backend_config"
    selection = Selection(backend_configs=[path])
    assert {run.engine for run in selection.runs} == {"x86"}
    assert {run.claim.backend for run in selection.runs} == {selection.claims[0].name}
    assert len(selection.claims) == 1


def test_results_names_the_file_of_the_rows() -> None:
    assert Selection(results=Path("here.jsonl")).results_path == Path("here.jsonl")


@pytest.mark.parametrize(
    ("selection", "name"),
    [
        (Selection(backends=["fbgemm"]), "fbgemm-{}.jsonl"),
        (Selection(backends=["fbgemm", "qnnpack"]), "fbgemm+qnnpack-{}.jsonl"),
        (Selection(backends=["fbgemm"], globs=["fbgemm/nn.ReLU/*"]), "fbgemm-{}-selection.jsonl"),
        (Selection(backends=["fbgemm"], only_since=True), "fbgemm-{}-selection.jsonl"),
        (Selection(backends=["fbgemm"], shard="1/4"), "fbgemm-{}-shard-1-of-4.jsonl"),
        (Selection(backends=["fbgemm"], shard="02/4", isa_limit="avx2"), "fbgemm-{}-avx2-shard-2-of-4.jsonl"),
    ],
)
def test_rows_go_to_the_reports_by_default_and_a_selection_has_a_file_of_its_own(
    selection: Selection, name: str
) -> None:
    assert selection.results_path == Path("reports/out") / name.format(platform.machine())


def test_the_header_has_versions_host_and_selection() -> None:
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
        *(
            "suite",
            "torch",
            "packages",
            "python",
            "os",
            "arch",
            "cpu",
            "cpu_flags",
            "isa_limit",
            "isa",
            "engines",
            "git",
        ),
        *("backends", "selection", "not_asked_for"),
    }


def test_the_host_of_the_ledger_has_the_limited_instruction_set() -> None:
    found = Selection(isa_limit="avx2").host
    assert (found.torch, found.arch, found.isa) == (torch.__version__, platform.machine(), "avx2")
    assert (found.flags, found.packages) == (
        cpu()[1],
        installed(),
    )


def test_each_selected_engine_is_probed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(selection_module, "probe", lambda name: asked.append(name))
    selection = Selection(backends=["fbgemm"], globs=["fbgemm/nn.ReLU/*"])
    assert selection.unavailable == {"fbgemm": None, "x86": None}
    assert selection.unavailable is selection.unavailable
    assert asked == ["fbgemm", "x86"]


LEDGER = """
[[finding]]
id = "{0}"
title = "A typo"
reason = "a typo"
shows = [{{ where = {{ backend = "{0}", pattern = "nn.Lineer" }}, must = "numerics" }}]
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
        ({"backend_configs": ["torch.ao.quantization.backend_config.native:get_native_backend_config"]}, []),
    ],
)
def test_entries_must_match_if_their_whole_backend_is_selected_or_unknown(
    options: dict[str, object], expected: list[str], ledger: Path
) -> None:
    selection = Selection(ledger=ledger, **options)  # type: ignore[arg-type]
    assert [entry.id for entry in selection.ledger_to_check] == expected


def test_entries_are_matched_with_every_promised_run_whatever_is_selected() -> None:
    assert Selection(backends=["fbgemm"], engines=["x86"]).every_id == [run.id for run in Selection().possible]


@pytest.mark.parametrize("name", BY_NAME)
def test_no_entry_about_a_quantizer_or_a_workflow_is_useless(name: str) -> None:
    selection = Selection(backends=[name])
    assert selection.useless.keys().isdisjoint(entry.name for entry in selection.ledger_to_check)
