"""A script contains only the definitions that it needs, and shows the findings of its run."""

import ast
import builtins
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from conformance.cases.claims import backend
from conformance.cases.runs import Run, runs
from conformance.commands.runs import find
from conformance.configs.registry import BACKENDS
from conformance.execution.batch import Judged, judge_runs
from conformance.models import data
from conformance.models.build import operand
from conformance.models.fx import without
from conformance.repro import checks, configs, inline
from conformance.repro.case import NothingToCheck, operand_source
from conformance.repro.configs import pattern_source
from conformance.repro.script import script
from conformance.results.findings.stability import RepetitionValues
from conformance.results.findings.stages import Raises
from conformance.results.findings.structure import (
    InnerObservers,
    NoQuantizedKernel,
    NotObserved,
    RanInFloat,
    WeightDtype,
)
from conformance.results.findings.values import LowSqnr, NotFinite, OutputShape
from conformance.results.ledger_file import load
from conformance.results.rows import Row
from tests.saturation import VNNI

sys.path.insert(0, str(Path(__file__).parents[1]))

from fabricated import row_of
from run_reproductions import Reproduction, reproduce
from run_reproductions import reproduced as run_scripts

LINEAR = "qnnpack/nn.Linear/static-quint8/ptq/default/exact@qnnpack"
REFUSED = Raises("lowered", "lower", "ValueError", "none")
TITLE, REASON, UPSTREAM = "It is off", "it rounds down", "pytorch/pytorch#1"


def unbound(text: str) -> set[str]:
    """Names that a script reads and binds nowhere."""
    nodes = [*ast.walk(ast.parse(text))]
    bound = {node.id for node in nodes if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)}
    bound |= {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    bound |= {node.arg for node in nodes if isinstance(node, ast.arg)}
    bound |= {node.name for node in nodes if isinstance(node, ast.ExceptHandler) and node.name}
    for node in nodes:
        if isinstance(node, ast.Import | ast.ImportFrom):
            bound |= {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
    read = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    return read - bound - set(vars(builtins))


def defined(text: str) -> list[str]:
    return [node.name for node in ast.parse(text).body if isinstance(node, ast.FunctionDef | ast.ClassDef)]


def test_a_script_of_several_findings_checks_each_and_binds_every_name() -> None:
    findings = (
        NotObserved("observed", None),
        InnerObservers("observed", 2),
        WeightDtype("reference", "quint8", "qint8"),
        RanInFloat("lowered", ("aten.add",)),
        NoQuantizedKernel("lowered"),
        OutputShape("numerics", 0, (1, 2), (2, 1)),
        LowSqnr("accuracy", 10.0, 20.0),
        NotFinite("accuracy"),
        RepetitionValues("stable", "second run", 2, 32),
        RepetitionValues("stable", "state_dict", 2, 32),
    )
    text = script(find(LINEAR), row_of(find(LINEAR), *findings), None)
    compile(text, "script.py", "exec")
    assert not unbound(text)
    for check in {finding.check for finding in findings}:
        expected = sum(finding.check == check for finding in findings)
        assert text.count(f'deviates("{check}", ') == expected, check
    assert text.count("noise = sum(") == text.count("conversions = {") == 1


def test_a_script_says_where_it_comes_from_and_what_is_known(tmp_path: Path) -> None:
    run = find(LINEAR)
    (tmp_path / "known.toml").write_text(
        f'[[finding]]\nid = "here"\ntitle = "{TITLE}"\nreason = "{REASON}"\nupstream = "{UPSTREAM}"\n'
        'shows = [{ where = { pattern = "*" }, must = "numerics" }]\n'
    )
    (entry,) = load(tmp_path)
    text = script(run, row_of(run, OutputShape("numerics", 0, (1, 2), (2, 1))), entry)
    assert ast.get_docstring(ast.parse(text)) == (
        f"{LINEAR}\n\nnumerics: shape (1, 2), golden (2, 1)\n\n{TITLE}\n{REASON}\nUpstream: {UPSTREAM}"
    )


def test_a_script_holds_only_the_definitions_that_it_uses() -> None:
    lowering = script(find(LINEAR), row_of(find(LINEAR), REFUSED), None)
    assert sorted(defined(lowering)) == [
        "Model", "PowerOfTwoObserver", "deviates", "fill", "grid", "inputs", "integers", "rounded_up",
    ]  # fmt: skip
    run = find("fbgemm/nn.Dropout/static-quint8/ptq/default/exact@x86")
    assert "fill" not in defined(script(run, row_of(run, REFUSED), None))


def test_a_script_of_a_limited_run_sets_the_limit_before_torch() -> None:
    text = script(find(LINEAR), row_of(find(LINEAR)), None, isa="avx2")
    assert 0 < text.index("os.environ.update(") < text.index("import torch")


def test_a_third_partys_config_is_imported_from_where_it_is() -> None:
    path = "torch.ao.quantization.backend_config.native:get_native_backend_config"
    run = find("native/nn.Linear/static-quint8/ptq/default/exact@x86", path)
    text = script(run, row_of(run), None)
    assert "import torch.ao.quantization.backend_config.native\n" in text
    assert "backend_config = torch.ao.quantization.backend_config.native.get_native_backend_config()\n" in text


def covered() -> list[Run]:
    return [run for name in BACKENDS for run in runs(backend(name)) if run.variant is not None]


def test_the_data_of_scripts_are_those_of_runs() -> None:
    seen: dict[str, Callable[[], torch.Tensor]] = {}
    for run in covered():
        for name, spec in run.model.operands:
            for executed in (False, True):
                source = f"key = {run.key!r}; {operand_source(run, name, spec, executed=executed)}"
                seen[source] = lambda a=(run, name, spec), e=executed: operand(*a, executed=e)  # type: ignore[misc]
    chosen = sorted(seen)[::40] + [source for source in seen if "torch.cat" in source or "1, 4, -1" in source]
    assert len(chosen) > 100
    for source in chosen:
        key, _, expression = source.partition("; ")
        scope = {**vars(data), "torch": torch, "key": ast.literal_eval(key[6:])}
        assert torch.equal(eval(expression, scope), seen[source]()), source


@pytest.mark.parametrize("name", BACKENDS)
def test_a_pattern_in_a_script_is_the_claims_own(name: str) -> None:
    scope = {**vars(configs), "torch": torch}
    for statement in inline.IMPORTS.values():
        if not statement.startswith(("from executorch.", "from torchao.", "import tosa")):
            exec(statement, scope)
    for claim in backend(name).claims:
        pattern = claim.entry._pattern_complex_format or claim.entry.pattern
        assert eval(pattern_source(pattern), scope) == pattern


def test_ablation_leaves_the_claims_entry_out() -> None:
    run = find(LINEAR)
    *_, rest = without(run.backend.config, run)
    assert len(rest.configs) == len(run.backend.config.configs) - 1


REAL = {
    "qnnpack/nn.Linear/static-quint8/ptq/called_twice/exact@qnnpack": frozenset({"numerics"}),
    "qnnpack/torch.cat/static-quint8/ptq/keyword/exact@qnnpack": frozenset(
        {"observed", "lowered", "reference", "numerics"}
    ),
    "qnnpack/F.hardtanh_/static-qint8/ptq/keyword/exact@qnnpack": frozenset(
        {"observed", "lowered", "reference", "numerics"}
    ),
    "qnnpack/Tensor.hardsigmoid/static-quint8/ptq/default/exact@qnnpack": frozenset({"matched"}),
    "fbgemm/nn.Embedding/weight-quint4x2/ptq/odd_width/exact@fbgemm": frozenset({"numerics", "accuracy"}),
    "fbgemm/nn.Hardswish/static-quint8/ptq/default/exact@x86": frozenset(),
    "fbgemm/nn.ConvTranspose2d/static-quint8/ptq/default/exact@x86": frozenset({"numerics", "accuracy"}),
    "fbgemm/nn.ConvTranspose2d/static-quint8/ptq/default/typical@x86": frozenset({"numerics", "accuracy"}),
    "fbgemm/nn.Conv2d/static-quint8/ptq/padding_reflect/exact@fbgemm": frozenset({"reference"}),
    "fbgemm/nn.LSTM/dynamic-quint8/ptq/default/exact@fbgemm": frozenset({"reference"}),
    "fbgemm/nn.LSTM/dynamic-float16/ptq/default/typical@fbgemm": frozenset({"reference"}),
    "fbgemm/nn.Embedding/weight-quint4x2/ptq/default/typical@fbgemm": frozenset({"reference"}),
    "fbgemm/operator.add/static-quint8/ptq/scalar/exact@fbgemm": frozenset({"numerics"}),
    "fbgemm/nni.ConvBn2d/static-quint8/ptq/default/exact@fbgemm": frozenset({"reference", "lowered", "numerics"}),
    "fbgemm/nni.ConvBn2d/static-quint8/ptq/default/typical@fbgemm": frozenset({"reference", "lowered", "numerics"}),
    "onednn/nn.ConvTranspose2d/static-quint8/ptq/default/typical@onednn": frozenset({"observed"}),
}


@pytest.fixture(scope="module")
def reproduced(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Reproduction]:
    """The results of these runs' scripts, in an interpreter without this project."""
    rows, texts = [], {}
    for run_id in REAL:
        run = find(run_id)
        (outcome,) = judge_runs([run], lambda _: None)
        assert isinstance(outcome, Judged)
        rows.append(outcome.row)
        texts[run_id] = script(run, outcome.row, None)
    folder = tmp_path_factory.mktemp("scripts")
    return dict(zip(REAL, run_scripts(rows, texts, folder, "script", sys.executable), strict=True))


@pytest.mark.xdist_group("scripts")  # one worker: the fixture takes a minute
@pytest.mark.parametrize("run_id", REAL)
def test_a_script_shows_what_its_run_showed(run_id: str, reproduced: dict[str, Reproduction]) -> None:
    if not VNNI and "ConvTranspose2d" in run_id and run_id.endswith("@x86"):
        pytest.skip("without VNNI the engine x86 is FBGEMM, which computes it right")
    reproduction = reproduced[run_id]
    assert reproduction.failed == REAL[run_id]
    assert reproduction.showed == REAL[run_id], reproduction.output


@pytest.mark.parametrize(
    ("text", "showed"),
    [
        ("print('CONFORMS')", frozenset()),
        ("print('DEVIATES stable: x'); raise SystemExit(1)", frozenset({"stable"})),
        ("print('DEVIATES stable: x')", None),
        ("raise ValueError", None),
        ("print('DEVIATES crashes: x', flush=True); import os; os.abort()", None),
        ("print('DEVIATES crashes: x', flush=True)", None),
    ],
)
def test_a_script_has_to_end_as_it_says(text: str, showed: frozenset[str] | None, tmp_path: Path) -> None:
    path = tmp_path / "script.py"
    path.write_text(text)
    assert reproduce(row_of(find(LINEAR)), path, sys.executable).showed == showed


def test_no_script_reaches_this_project(tmp_path: Path) -> None:
    path = tmp_path / "script.py"
    path.write_text("import conformance")
    reproduction = reproduce(row_of(find(LINEAR)), path, sys.executable)
    assert re.search("No module named 'conformance'", reproduction.output)


def test_a_finding_whose_blocks_check_nothing_has_no_script(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "blocks", lambda case, finding: ["print(outputs)\n"])
    with pytest.raises(NothingToCheck, match=f"{LINEAR}: .*not-finite.* accuracy"):
        script(find(LINEAR), row_of(find(LINEAR), NotFinite("accuracy")), None)


def test_a_finding_without_blocks_has_no_script(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "blocks", lambda case, finding: [])
    with pytest.raises(NothingToCheck, match=f"{LINEAR}: .*not-finite"):
        script(find(LINEAR), row_of(find(LINEAR), NotFinite("accuracy")), None)


def test_a_failed_check_without_a_finding_has_no_script() -> None:
    row = row_of(find(LINEAR), NotFinite("accuracy"))
    partial = Row(**{**row.to_json(), "checks": {**row.checks, "numerics": "fail"}, "findings": row.findings})
    with pytest.raises(NothingToCheck, match=f"{LINEAR}: .*findings of numerics.*run it again"):
        script(find(LINEAR), partial, None)
    with pytest.raises(NothingToCheck, match="accuracy"):
        script(find(LINEAR), Row(**{**row.to_json(), "findings": ()}), None)


@pytest.mark.parametrize("variant", ["norm_no_statistics", "norm_no_affine"])
def test_a_stage_before_lowering_that_raises_fails_the_check_of_its_row_and_ends_the_script(variant: str) -> None:
    flow = "ptq" if variant == "norm_no_statistics" else "qat"
    run_id = f"qnnpack/nn.Conv1d+nn.BatchNorm1d+F.relu/static-quint8/{flow}/{variant}/pairs@qnnpack"
    run = find(run_id)
    (judged,) = judge_runs([run], lambda engine: None)
    assert isinstance(judged, Judged)
    row = judged.row
    assert row.failed == {"lowered"}
    text = script(run, row, None)
    assert 'deviates("lowered", f"prepare raises' in text
    assert "convert_fx(" not in text
