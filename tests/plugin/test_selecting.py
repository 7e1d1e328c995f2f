"""Selection by options, wrong usage, third-party configs, other engines and limits."""

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from invoking import NATIVE, Invocation, cases, entry, invoke, side_by_side

from conformance.plugin.selecting import Selecting
from conformance.results.verdicts import Verdict

pytestmark = pytest.mark.xdist_group("selecting")  # one worker: its fixtures take seconds
GONE = "qnnpack/nn.ReLU/static-quint8/ptq/default/exact@qnnpack"


def test_a_selection_runs_the_selected_cases_and_skips_nothing(tmp_path: Path) -> None:
    """Searches, comparisons of configs and ledger entries are left out, not reported as skipped."""
    claim = "fbgemm/nn.ReLU/static-quint8/ptq/"
    selected = cases(f"{claim}default/exact@x86", f"{claim}*/laws@x86")
    invocation = invoke(tmp_path, "--backend", "fbgemm", *selected, suite="conformance")
    assert sorted(row.profile for row in invocation.file.rows) == ["exact", "laws"]
    assert invocation.output.rstrip().rpartition("\n")[2].startswith("=")
    assert "2 passed in" in invocation.output
    assert invocation.status == 0


@pytest.mark.parametrize("workers", ["0", "1"])
def test_names_need_not_be_ascii(workers: str, tmp_path: Path) -> None:
    (tmp_path / "named.py").write_text(
        "from conformance.configs.qnnpack import get_qnnpack_backend_config\n"
        "CONFIG = get_qnnpack_backend_config().set_name('café 中文')\n"
    )
    name = GONE.replace("qnnpack/", "café 中文/", 1)
    options = ["--backend-config", "named:CONFIG", "--engine", "qnnpack", "-n", workers, *cases(name)]
    invocation = invoke(tmp_path, *options)
    assert (invocation.status, [*invocation.rows]) == (0, [name]), invocation.output


PAIRS = "qnnpack/nn.Linear/static-quint8/ptq/features_3x5/pairs@qnnpack"


def test_memory_is_checked_in_every_run_if_it_is_asked_for(tmp_path: Path) -> None:
    selected = ["--backend", "qnnpack", *cases(GONE, PAIRS)]
    asked = invoke(tmp_path / "asked", *selected, "--memory")
    assert {run_id: row.checks["memory"] for run_id, row in asked.rows.items()} == {GONE: "pass", PAIRS: "pass"}
    assert asked.file.header["memory"] == "guarded"
    unasked = invoke(tmp_path / "unasked", *selected)
    assert {run_id: row.checks.get("memory") for run_id, row in unasked.rows.items()} == {GONE: "pass", PAIRS: None}
    assert "memory" not in unasked.file.header


def test_without_a_compiler_rows_and_header_say_that_memory_is_not_guarded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("CC", "no-such-compiler")
    invocation = invoke(tmp_path / "asked", "--backend", "qnnpack", *cases(PAIRS), "--memory")
    reason = "no C compiler (no-such-compiler): install one, or name it in CC"
    (row,) = invocation.file.rows
    assert (row.checks["memory"], row.detail) == ("skip", f"memory is not guarded: {reason}")
    assert invocation.file.header["memory"] == reason
    assert f"memory: 1 runs that conform are not checked: {row.detail}\n" in invocation.output


MALFORMED = entry("broken", "*/nn.Linear/*", "numerics").replace("numerics", "numeric")
REFUSED = {
    "misspelled": (["--backend", "fbgem"], "", "unknown backend 'fbgem': did you mean fbgemm? Choose from qnnpack, "),
    "run id": (
        ["--backend", "qnnpack", *cases(GONE.replace("default", "defalt"))],
        "",
        f"did you mean {GONE} or ",
    ),
    "backend": (
        ["--backend", "nope"],
        "",
        "unknown backend 'nope': choose from qnnpack, fbgemm, onednn, executorch, xn",
    ),
    "engine": (
        ["--backend", "fbgemm", "--engine", "nope", "--case", "*nn.ReLU/*"],
        "",
        "unknown engine 'nope': choose from",
    ),
    "glob": (["--backend", "fbgemm", "--case", "fbgemm/nn.Relu/*"], "", "no run matches 'fbgemm/nn.Relu/*'"),
    "config": (["--backend-config", "json:dumps"], "", "--backend-config 'json:dumps' raises TypeError"),
    "both": (["--backend", "qnnpack", "--backend-config", NATIVE], "", "exclude each other"),
    "ledger": (["--backend", "qnnpack", *cases(GONE)], MALFORMED, "known.toml#1, shows 1: unknown check 'numeric'"),
    "shard": (["--backend", "qnnpack", "--shard", "0/2"], "", "--shard '0/2': not I/N with 1 <= I <= N: write 1/4"),
    "since": (["--since", "nowhere.jsonl", "-n", "2"], "", "--since nowhere.jsonl: no such file: name the rows file"),
    "minutes": (["--search-minutes", "0"], "", "--search-minutes 0: give a number above 0, such as 10"),
    "isa": (["--isa", "mmx"], "", "--isa 'mmx': choose from avx2"),
    "results": (["--backend", "qnnpack", *cases(GONE)], "", "name a file that can be written"),
}


@pytest.fixture(scope="module")
def refused(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, Invocation]]:
    """The folder and the invocation of each wrong use."""
    folders = {name: tmp_path_factory.mktemp(f"refused-{name}") for name in REFUSED}

    def invocation(name: str) -> Invocation:
        arguments, ledger, _ = REFUSED[name]
        # the path runs through a file
        results = folders[name] / "known" / "known.toml" / "rows.jsonl" if name == "results" else None
        return invoke(folders[name], *arguments, ledger=ledger, results=results)

    invocations = side_by_side(REFUSED, invocation)
    return {name: (folders[name], invocations[name]) for name in REFUSED}


@pytest.mark.parametrize("name", REFUSED)
def test_wrong_usage_is_one_line_and_leaves_no_file(name: str, refused: dict[str, tuple[Path, Invocation]]) -> None:
    folder, invocation = refused[name]
    assert invocation.status == pytest.ExitCode.USAGE_ERROR
    (error,) = [line for line in invocation.output.splitlines() if line.startswith("ERROR: ")]
    assert REFUSED[name][2] in error
    assert "Traceback" not in invocation.output
    files = {path.name for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts}
    assert files == {"known.toml"}


UNCOVERED = """\
from torch import nn
from torch.ao.quantization.backend_config import BackendConfig, BackendPatternConfig, DTypeConfig, ObservationType
import torch

def config():
    dtypes = DTypeConfig(input_dtype=torch.quint8, output_dtype=torch.quint8)
    shared = ObservationType.OUTPUT_SHARE_OBSERVER_WITH_INPUT
    return BackendConfig("mine").set_backend_pattern_configs([
        BackendPatternConfig(op).set_observation_type(shared).add_dtype_config(dtypes) for op in (nn.ReLU, nn.Fold)
    ])
"""


TOLERANT = """
from conformance.checks import tolerances
row = tolerances.Tolerance("nn.Linear", "*", "a reason", "a script", steps=1)
tolerances.TABLE = (row, tolerances.Tolerance("nn.Linear", "fbgemm", "a reason", "a script", steps=1))
"""


@pytest.fixture(scope="module")
def invocations(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Invocation]:
    """Invocations with third-party configs, other engines, goldens and limits."""
    case = "/nn.ReLU/static-quint8/ptq/default/exact@"
    arguments = {
        "native": ["--backend-config", NATIVE, "--isa", "avx2", "--golden", "none", *cases(f"native{case}x86")],
        "goldenless": ["--backend", "fbgemm", "--golden", "none", *cases(f"fbgemm{case}x86")],
        "tolerant": ["--backend", "executorch", "-p", "tolerant", "-k", "test_run and nn.Linear"],
        "uncovered": ["--backend-config", "mine:config", *cases("mine/nn.Fold/*", f"mine{case}*")],
        "absent": ["--backend", "fbgemm", "--engine", "executorch", *cases(f"fbgemm{case}executorch")],
        "entries": ["--backend", "executorch", "-k", "test_ledger_entry"],
    }
    folders = {name: tmp_path_factory.mktemp(name) for name in arguments}
    (folders["uncovered"] / "mine.py").write_text(UNCOVERED)
    (folders["tolerant"] / "tolerant.py").write_text(TOLERANT)
    ledger = entry("matches", "executorch/nn.Conv2d/*", "numerics") + entry(
        "nothing", "executorch/nn.conv2d/*", "numerics"
    )

    def invocation(name: str) -> Invocation:
        return invoke(folders[name], *arguments[name], ledger=ledger if name == "entries" else "")

    invocations: Mapping[str, Invocation] = side_by_side(arguments, invocation)
    return invocations


def test_a_ledger_entry_that_matches_no_run_fails(invocations: Mapping[str, Invocation]) -> None:
    invocation = invocations["entries"]
    assert (
        'nothing (known.toml#2, shows 1) matches no run: { backend = "executorch", pattern = "nn.conv2d" }'
        in invocation.output
    )
    assert "1 failed, 1 passed" in invocation.output
    assert invocation.status == pytest.ExitCode.TESTS_FAILED


def test_a_third_party_config_is_run_like_a_registered_one(invocations: Mapping[str, Invocation]) -> None:
    invocation = invocations["native"]
    assert invocation.status == pytest.ExitCode.OK
    assert [row.verdict for row in invocation.file.rows] == ["conforms"]
    assert invocation.file.header["backends"] == ["native"]


def test_a_run_without_its_golden_fails_and_names_the_command(invocations: Mapping[str, Invocation]) -> None:
    invocation = invocations["goldenless"]
    (row,) = invocation.file.rows
    assert invocation.status == pytest.ExitCode.TESTS_FAILED
    assert (row.verdict, row.checks) == (Verdict.UNJUDGED, {})
    assert "x86: 1 runs: 1 unjudged; 0 in the ledger" in invocation.output
    assert (
        f"{row.id}: golden nn.ReLU/static-quint8/ptq/default/exact:0..127-shared is missing: run `python -m conformance "
        "golden update --case '*/nn.ReLU/static-quint8/ptq/default/exact@*'`"
    ) in invocation.output


def test_an_invocation_with_an_unneeded_tolerance_fails(invocations: Mapping[str, Invocation]) -> None:
    assert "tolerance for nn.Linear on *: no run needs it any more: remove it" in invocations["tolerant"].output
    assert "tolerance for nn.Linear on fbgemm" not in invocations["tolerant"].output
    assert invocations["tolerant"].status == pytest.ExitCode.TESTS_FAILED


def test_the_header_has_the_instruction_set_limit(invocations: Mapping[str, Invocation]) -> None:
    header = invocations["native"].file.header
    assert (header["isa_limit"], header["isa"]) == ("avx2", "avx2")


def test_an_operator_missing_from_the_tables_is_named_with_the_option_that_declares_it(
    invocations: Mapping[str, Invocation],
) -> None:
    rows = invocations["uncovered"].file.rows
    assert [(row.id, row.verdict) for row in rows] == [
        ("mine/nn.Fold/static-quint8/ptq/not-covered/exact@x86", "unavailable"),
        ("mine/nn.ReLU/static-quint8/ptq/default/exact@x86", "conforms"),
    ]
    assert "nn.Fold" in rows[0].detail
    assert rows[0].detail.endswith(": declare it with --operators")
    assert invocations["uncovered"].status == pytest.ExitCode.OK


def test_an_invocation_that_executes_nothing_fails_with_the_reason(invocations: Mapping[str, Invocation]) -> None:
    invocation = invocations["absent"]
    (row,) = invocation.file.rows
    assert row.verdict == "unavailable"
    assert row.detail.startswith("engine executorch: ")
    assert f"nothing was executed: {row.detail}" in invocation.output
    assert invocation.status == pytest.ExitCode.TESTS_FAILED


def selecting(**options: Any) -> Selecting:
    """The selection of these options in a process that starts workers."""
    given = {"backend": [], "engine": [], "case": [], "operators": [], "backend_config": [], "quantizer": [], **options}
    config: Any = SimpleNamespace(
        getoption=given.get, pluginmanager=SimpleNamespace(get_plugin=lambda _: None), stash=pytest.Stash()
    )
    return Selecting(config)


def test_what_registered_backends_select_is_enumerated_while_workers_start() -> None:
    chosen = selecting(backend=["onednn"])
    hook = chosen.pytest_sessionstart()
    next(hook)
    assert "selection" not in vars(chosen)
    with pytest.raises(StopIteration):
        next(hook)
    assert "runs" in vars(chosen.selection)


@pytest.mark.parametrize("options", [{"backend": ["onednnn"]}, {"backend": ["onednn"], "case": ["nothing"]}])
def test_what_may_be_wrong_is_refused_before_workers_start(options: dict[str, list[str]]) -> None:
    with pytest.raises(pytest.UsageError):
        next(selecting(**options).pytest_sessionstart())
