"""Reproductions hold what they need and nothing else, and come to the finding of the run that they are of."""

import ast
import builtins
import re
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from conformance.cases.claims import backend
from conformance.cases.runs import Run, describe, runs
from conformance.commands.runs import find
from conformance.configs.registry import BACKENDS
from conformance.execution.batch import Judged, judge_runs
from conformance.models import data
from conformance.models.build import operand
from conformance.models.fx import without
from conformance.repro import inline
from conformance.repro import script as script_module
from conformance.repro.script import BLOCKS, findings, operand_source, pattern_source, script
from conformance.results.ledger import load
from conformance.results.profiles import CHECKS
from conformance.results.rows import Row

sys.path.insert(0, str(Path(__file__).parent))

from run_reproductions import Reproduction, reproduce

LINEAR = "qnnpack/nn.Linear/static-quint8/ptq/default/exact@qnnpack"
REASON, UPSTREAM = "it rounds down", "pytorch/pytorch#1"

DETAILS = {
    "matched": (
        "the pattern cannot occur: the float model raises AttributeError: none",
        "without this claim in the config the observed and the lowered model are the same",
    ),
    "observed": (
        "prepare raises ValueError: none",
        "the observed model raises ValueError: none",
        "input x is not observed; the output is not observed",
        "input x is observed as qint8, not quint8; the output is observed as qint8, not quint8",
        "the observer of input x is not dynamic; the output of a dynamic claim is observed",
        "input and output share an observer, against OUTPUT_USE_DIFFERENT_OBSERVER_AS_INPUT",
        "input and output do not share an observer, against OUTPUT_SHARE_OBSERVER_WITH_INPUT",
        "2 observers inside of the pattern; no LinearReLU in the ptq model",
        "activation_post_process_0 observes an activation as qint8; only weights are quantized",
        "op.weight_fake_quant observes the codes -128 to 126, not -128 to 127",
        "activation_post_process_0 does not fake-quantize; op.weight_fake_quant does not observe",
    ),
    "reference": (
        "convert_to_reference raises ValueError: none",
        "the reference model raises ValueError: none",
        "no Conv2d in the reference model; weight quantized to quint8, not qint8",
        "quantize_per_tensor quantizes to qint8",
        "the reference model quantizes nothing",
    ),
    "constraints": (
        "output scale 0.1 is below 0.5; output scale 0.1 is above 0.01; engine's output scale is 0.1, not 0.5",
        "weight has code -128, below quant_min -127; weight has code 127, above quant_max 126",
        "engine's output zero point is 0, not 128",
    ),
    "lowered": (
        "lower raises ValueError: none",
        "execute raises ValueError: none",
        "ran in float: aten.add",
        "ran in float: aten.add; no quantized kernel ran",
        "converts to float inside of the kernel: quantized.matmul > aten.dequantize",
        "output 0 is left quantized, the float model gives float",
    ),
    "numerics": (
        "1 outputs, expected 2",
        "shape (1, 2), expected (2, 1)",
        "the engine gives codes, the reference does not",
        "per_channel_affine, golden per_tensor_affine",
        "scale 0.5, zero point 0, quint8; expected 0.25, 0, quint8",
        "3 of 32 codes differ (9.4%), worst 1 steps at (0, 0): got 1, expected 2 (exact 2.0)",
        "3 of 32 values differ, worst by 1 at (0, 0): got 1, expected 2",
    ),
    "accuracy": (
        "SQNR 10.0 dB is below 20 dB",
        "shape (1, 2), the float model gives (2, 1)",
        "the output is not a number, or noise where zero is due",
    ),
    "stable": (
        "second run changes 2 of 32 values",
        "another call changes 2 of 32 values",
        "another call raises ValueError: none",
        "quantized.conv2d_add writes to its tensor 1; second run changes 2 of 32 values",
        "state_dict raises ValueError: none; channels_last changes 2 of 32 values",
        "state_dict changes 2 of 32 values; channels_last raises ValueError: none",
    ),
}
"""Everything that the checks can say, in their words."""


def made(run: Run, check: str = "", detail: str = "") -> Row:
    """A row of a run that deviates in one check, or that crashes, or that conforms."""
    checks = dict.fromkeys(CHECKS, "pass") | ({check: "fail"} if check in CHECKS else {})
    verdict = "crashes" if check == "crashes" else "deviates" if check else "conforms"
    identity = describe(run)
    return Row(
        identity["id"], identity["backend"], identity["pattern"], identity["dtype_config"], identity["flow"],
        identity["variant"], identity["profile"], identity["engine"], verdict, {} if check == "crashes" else checks,
        f"{check}: {detail}" if check else "",
    )  # fmt: skip


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


def test_every_check_has_a_block() -> None:
    assert tuple(BLOCKS) == CHECKS
    assert tuple(DETAILS) == CHECKS


@pytest.mark.parametrize(("check", "detail"), [(c, d) for c, details in DETAILS.items() for d in details])
def test_whatever_a_check_says_is_shown(check: str, detail: str) -> None:
    text = script(find(LINEAR), made(find(LINEAR), check, detail), None)
    compile(text, "script.py", "exec")
    assert not unbound(text)
    told = [part for part in detail.split("; ") if not part.startswith(("expected", "only"))]
    assert text.count(f'deviates("{check}", ') == len(told)


def test_details_are_told_apart_by_check() -> None:
    detail = "reference: the reference model raises A: b; c: d; lowered: execute raises E: f; stable: g"
    row = made(find(LINEAR), "reference")
    row = Row(**{**row.to_json(), "checks": {**row.checks, "lowered": "fail"}, "detail": detail})
    assert findings(row) == {
        "reference": "the reference model raises A: b; c: d",
        "lowered": "execute raises E: f",
    }


def test_a_script_says_where_it_comes_from_and_what_is_known(tmp_path: Path) -> None:
    run = find(LINEAR)
    (tmp_path / "known.toml").write_text(
        f'[[deviation]]\nid = "here"\nmatch = "*"\ncheck = "numerics"\nreason = "{REASON}"\nupstream = "{UPSTREAM}"\n'
    )
    (entry,) = load(tmp_path)
    text = script(run, made(run, "numerics", "shape (1, 2), expected (2, 1)"), entry)
    assert ast.get_docstring(ast.parse(text)) == (
        f"{LINEAR}\n\nnumerics: shape (1, 2), expected (2, 1)\n\n{REASON}\nUpstream: {UPSTREAM}"
    )


def test_a_script_holds_only_the_definitions_that_it_uses() -> None:
    lowering = script(find(LINEAR), made(find(LINEAR), "lowered", "lower raises ValueError: none"), None)
    assert sorted(defined(lowering)) == [
        "Model", "PowerOfTwoObserver", "deviates", "fill", "grid", "inputs", "integers", "rounded_up",
    ]  # fmt: skip
    run = find("fbgemm/nn.Dropout/static-quint8/ptq/default/exact@x86")
    assert "fill" not in defined(script(run, made(run, "lowered", "lower raises ValueError: none"), None))


def test_a_script_of_a_limited_run_sets_the_limit_before_torch() -> None:
    text = script(find(LINEAR), made(find(LINEAR)), None, isa="avx2")
    assert 0 < text.index("os.environ.update(") < text.index("import torch")


def test_a_third_partys_config_is_imported_from_where_it_is() -> None:
    path = "torch.ao.quantization.backend_config.native:get_native_backend_config"
    run = find("native/nn.Linear/static-quint8/ptq/default/exact@x86", path)
    text = script(run, made(run), None)
    assert "from torch.ao.quantization.backend_config.native import get_native_backend_config\n" in text
    assert "backend_config = get_native_backend_config()\n" in text


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
    scope = {**vars(script_module), "torch": torch}
    for statement in inline.IMPORTS.values():
        if not statement.startswith("from executorch."):
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
    """What the scripts of these runs come to, in an interpreter without this project."""
    folder = tmp_path_factory.mktemp("scripts")

    judged = {}
    for run_id in REAL:
        (outcome,) = judge_runs([find(run_id)], lambda _: None)
        assert isinstance(outcome, Judged)
        judged[run_id] = outcome.row

    def one(number: int) -> Reproduction:
        row = judged[[*REAL][number]]
        path = folder / f"{number}.py"
        path.write_text(script(find(row.id), row, None))
        return reproduce(row, path, sys.executable)

    with ThreadPoolExecutor(2) as pool:
        return dict(zip(REAL, pool.map(one, range(len(REAL))), strict=True))


@pytest.mark.parametrize("run_id", REAL)
def test_a_script_shows_what_its_run_showed(run_id: str, reproduced: dict[str, Reproduction]) -> None:
    one = reproduced[run_id]
    assert one.failed == REAL[run_id]
    assert one.showed == REAL[run_id], one.said


@pytest.mark.parametrize(
    ("text", "showed"),
    [
        ("print('CONFORMS')", frozenset()),
        ("print('DEVIATES stable: x'); raise SystemExit(1)", frozenset({"stable"})),
        ("print('DEVIATES stable: x')", None),
        ("raise ValueError", None),
        ("print('DEVIATES crashes: x', flush=True); import os; os.abort()", frozenset({"crashes"})),
        ("print('DEVIATES crashes: x', flush=True)", None),
    ],
)
def test_a_script_has_to_end_as_it_says(text: str, showed: frozenset[str] | None, tmp_path: Path) -> None:
    path = tmp_path / "script.py"
    path.write_text(text)
    assert reproduce(made(find(LINEAR)), path, sys.executable).showed == showed


def test_no_script_reaches_this_project(tmp_path: Path) -> None:
    path = tmp_path / "script.py"
    path.write_text("import conformance")
    one = reproduce(made(find(LINEAR)), path, sys.executable)
    assert re.search("No module named 'conformance'", one.said)
