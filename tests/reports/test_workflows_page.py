"""The page of torchao's workflows: its cells and lines from rows, and the committed page."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from invocation import row, write

from conformance.__main__ import main
from conformance.commands.reports import workflow_promises
from conformance.errors import UsageError
from conformance.markdown import escaped
from conformance.paths import ROOT
from conformance.reports import workflows
from conformance.reports.load import Report
from conformance.reports.workflows import ENGINES, Promise
from conformance.results.ledger_file import load
from conformance.results.rows import Row

EAGER, COMPILED, *_ = ENGINES
LEDGER = """
[[finding]]
id = "scales-are-off"
title = "Scales are off"
reason = "They are rounded."
shows = [{ where = { backend = "torchao", config = "one-float16" }, must = "annotated" }]

[[finding]]
id = "no-rows"
title = "An empty batch raises"
reason = "There is no greatest element."
shows = [{ where = { backend = "torchao", variant = "batch0" }, must = "lowered" }]
"""
PROMISES = [
    Promise("nn.Linear", f"one-{dtype}", "OneConfig(granularity=PerRow())", dtype, "stable: H100")
    for dtype in ("float32", "float16")
]


def integers(bits: int, mark: str = "stable: edge") -> Promise:
    source = f"IntConfig(weight_dtype=torch.int{bits}, group_size=32)"
    return Promise("nn.Linear", f"int{bits}-float32", source, "float32", mark)


def run(config: str, engine: str = EAGER, variant: str = "default", **changes: Any) -> Row:
    made: Row = row("nn.Linear", backend="torchao", dtype_config=config, engine=engine, variant=variant, **changes)
    return made


def fails(config: str, check: str, finding: str, **changes: Any) -> Row:
    return run(config, fails=[check], known=finding, **changes)


def table(tmp_path: Path, rows: Sequence[Row], promises: Sequence[Promise]) -> list[list[str]]:
    """The cells of each line of the tables of workflows."""
    (tmp_path / "known.toml").write_text(LEDGER)
    lines = workflows.page(Report([write(tmp_path / "rows.jsonl", rows)], [tmp_path]), promises)
    return [line.removeprefix("| ").removesuffix(" |").split(" | ") for line in lines if " stable: " in line]


def test_a_cell_says_what_holds_in_default_use_and_of_how_many_layers(tmp_path: Path) -> None:
    rows = [
        run("one-float32"),
        run("one-float32", variant="odd"),
        fails("one-float32", "lowered", "no-rows", variant="batch0"),
        run("one-float32", COMPILED),
        fails("one-float16", "annotated", "scales-are-off"),
        fails("one-float16", "lowered", "no-rows", variant="batch0"),
        run("one-float16", variant="odd"),
    ]
    (cells,) = table(tmp_path, rows, PROMISES)
    assert cells[:2] == ["`granularity=PerRow()`", "stable: H100"]
    # no column of an engine that ran nothing of a dtype
    assert cells[2:] == ["◐ 2 of 3: [2](#no-rows)", "✓ 1 of 1", "⊘ [1](#scales-are-off), 1 of 3: [2](#no-rows)"]


def test_a_layer_works_if_it_does_in_every_profile(tmp_path: Path) -> None:
    rows = [fails("one-float32", "numerics", ""), run("one-float32", profile="typical"), run("one-float16")]
    (cells,) = table(tmp_path, rows, PROMISES)
    assert cells[2].endswith("0 of 1")


def test_what_was_not_executed_does_not_work(tmp_path: Path) -> None:
    elsewhere = [run("one-float32", verdict="unavailable"), run("one-float32", variant="odd")]
    here = [run("one-float16"), run("one-float16", variant="odd", verdict="unavailable")]
    (cells,) = table(tmp_path, [*elsewhere, *here], PROMISES)
    assert cells[2:] == ["–", "✓ 1 of 1"]


def test_bits_with_equal_cells_and_marks_share_a_line(tmp_path: Path) -> None:
    promises = [*map(integers, (1, 2, 3, 4)), integers(8, "not stable: here")]
    rows = [run(promise.dtype_config) for promise in promises]
    rows.append(fails("int3-float32", "lowered", "no-rows", variant="batch0"))
    lines = table(tmp_path, rows, promises)
    arguments = "`weight_dtype=torch.intN, group_size=32`"
    assert [line[:3] for line in lines] == [
        [f"{arguments}, N = 1, 2, 4", "stable: edge", "✓ 1 of 1"],
        [f"{arguments}, N = 3", "stable: edge", "◐ 1 of 2: [1](#no-rows)"],
        [f"{arguments}, N = 8", "not stable: here", "✓ 1 of 1"],
    ]


def test_a_dtype_without_a_claim_has_blank_cells(tmp_path: Path) -> None:
    promises = [*PROMISES, integers(4)]
    rows = [run(promise.dtype_config) for promise in promises]
    assert table(tmp_path, rows, promises)[1][2:] == ["✓ 1 of 1", ""]


def test_rows_of_other_claims_and_environments_are_refused(tmp_path: Path) -> None:
    both = [run("one-float32"), run("one-float16")]
    with pytest.raises(UsageError, match=r"no run of torchao/nn\.Linear/one-float16 \(1 of 2 claims\): name all rows"):
        table(tmp_path, both[:1], PROMISES)
    with pytest.raises(UsageError, match=r"nn\.Linear/int4-float32 is no claim of torchao"):
        table(tmp_path, [*both, run("int4-float32")], PROMISES)
    paths = [write(tmp_path / f"{arch}.jsonl", both, {"arch": arch}) for arch in ("x86_64", "aarch64")]
    with pytest.raises(UsageError, match="rows of 2 environments"):
        workflows.page(Report(paths, [tmp_path]), PROMISES)


def test_the_command_prints_and_writes_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [
        row(one.pattern, backend="torchao", dtype_config=one.dtype_config, engine=EAGER) for one in workflow_promises()
    ]
    arguments = ["support", "--workflows", "--rows", str(write(tmp_path / "rows.jsonl", rows))]
    assert main(arguments) == 0
    printed = capsys.readouterr().out
    assert f"| `torch-eager` | {len(rows)} of {len(rows)} | {len(rows)} of {len(rows)} |" in printed
    (tmp_path / "docs").mkdir()
    monkeypatch.setattr("conformance.paths.ROOT", tmp_path)
    assert main([*arguments, "--write"]) == 0
    page = tmp_path / "docs" / "torchao-claims.md"
    assert capsys.readouterr().out == f"{page}\n"
    assert page.read_text(encoding="utf-8") == printed


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "name the rows of all workflows"),
        (["nn.Linear", "--rows", "rows.jsonl"], "leave out the operator and --format"),
        (["--format", "csv", "--rows", "rows.jsonl"], "leave out the operator and --format"),
    ],
)
def test_the_command_says_what_it_needs(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["support", "--workflows", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_the_committed_page_has_every_workflow_with_its_mark_and_the_findings_of_the_ledger() -> None:
    page = (ROOT / "docs" / "torchao-claims.md").read_text(encoding="utf-8")
    *tables, findings = page.split("\n## ")[1:]
    stated = {}
    for text in tables:
        config = text.split("`")[1]
        for line in text.splitlines():
            if line.startswith("| `"):
                first, mark, *_ = line.split(" | ")
                _, arguments, bits = first.split("`")
                for bit in bits.removeprefix(", N = ").split(", "):
                    stated[f"{config}({arguments.replace('intN', f'int{bit}')})"] = mark
    promises = [*workflow_promises()]
    advice = "python -m conformance support --workflows --write --rows ROWS…"
    assert stated == {promise.source: escaped(promise.mark) for promise in promises}, advice
    assert f"The {len(promises)} claims" in page, advice
    titles = {entry.id: entry.finding.title for entry in load()}
    for line in findings.splitlines()[2:]:
        finding = line.split('"')[1]
        assert f"</a>{escaped(titles[finding])} (`{finding}`, " in line, advice
