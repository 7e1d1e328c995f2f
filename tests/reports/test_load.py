"""Claims are counted by environment, and environments have short labels."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from invocation import CONFORMS, DIES, LEDGER, WRONG, row, write

from conformance.__main__ import main
from conformance.reports.load import Report, family, labels
from conformance.results.severity import Severity
from conformance.results.status import Support


def test_claims_are_counted_by_backend_engine_and_environment(ledger: Path, tmp_path: Path) -> None:
    x86 = [replace(WRONG, engine="x86", id=WRONG.id.replace("@fbgemm", "@x86"))]
    avx2 = write(tmp_path / "one.jsonl", [CONFORMS, WRONG, DIES, *x86])
    avx512 = write(
        tmp_path / "other.jsonl", [CONFORMS, row("nn.Linear", verdict="unavailable")], {"isa": "avx512_vnni"}
    )
    report = Report([avx2, avx512], [ledger])
    counted = [
        (column.engine, column.environment.isa, {status: n for status, n in counts.statuses.items() if n})
        for column, counts in report.tallies.items()
    ]
    assert counted == [
        ("fbgemm", "avx2", {Support.WORKS: 1, Severity.REFUSES: 1, Severity.CRASHES: 1}),
        ("fbgemm", "avx512_vnni", {Support.WORKS: 1, Support.UNAVAILABLE: 1}),
        ("x86", "avx2", {Severity.REFUSES: 1}),
    ]
    assert [report.new_by_column[column] for column in report.tallies] == [1, 0, 1]
    assert [*report.labels.values()] == ["x86_64 avx2", "x86_64 avx512_vnni"]


def test_a_claim_that_deviates_under_an_option_alone_works_in_default_use(ledger: Path, tmp_path: Path) -> None:
    path = write(tmp_path / "rows.jsonl", [row("nn.ReLU"), row("nn.ReLU", variant="large", fails=["lowered"])])
    (counts,) = Report([path], [ledger]).tallies.values()
    assert (counts.claims, counts.works, counts.in_every_form) == (1, 1, 0)
    assert counts.exceptions[Severity.REFUSES] == 1


def test_labels_have_only_the_fields_that_distinguish_environments(tmp_path: Path) -> None:
    paths = [
        write(tmp_path / f"{n}.jsonl", [CONFORMS], h)
        for n, h in enumerate([{}, {"torch": "2.14.0+cpu"}, {"cpu": "another"}])
    ]
    report = Report(paths)
    assert [*labels(part.environment for part in report.parts).values()] == [
        "x86_64 avx2, torch 2.13.0, a CPU",
        "x86_64 avx2, torch 2.14.0, a CPU",
        "x86_64 avx2, torch 2.13.0, another",
    ]


def test_a_patterns_family_is_that_of_its_first_operator() -> None:
    assert family("nn.ReLU(operator.add(*,nn.BatchNorm2d(nn.Conv2d)))") == "convolution"
    assert family("F.linear+F.relu") == "linear"


def test_each_file_is_compared_with_the_ledger_that_its_rows_name(ledger: Path, tmp_path: Path) -> None:
    folder = tmp_path / "other"
    folder.mkdir()
    (folder / "other.toml").write_text(
        LEDGER.replace("linear-is-off", "mine").replace("nn.Linear", "nn.GRU").replace("numerics", "crashes")
    )
    first = write(tmp_path / "one.jsonl", [replace(WRONG, known="linear-is-off")])
    second = write(tmp_path / "two.jsonl", [replace(DIES, known="mine"), row("nn.Linear")], {"arch": "aarch64"})
    assert Report([first, second], [ledger, folder]).new == []


BAD: dict[str, tuple[Callable[[str], str], str]] = {
    "truncated": (lambda text: text.rpartition('{"kind": "footer"')[0], "truncated.*run it again"),
    "damaged": (lambda text: text.replace('"verdict": "conforms"', '"verdict": "fine"'), "damaged row"),
    "empty": (lambda text: "", "empty.*run it again"),
    "of a later schema": (
        lambda text: text.replace('"schema": 3', '"schema": 7'),
        "schema 7; this version reads 1, 2, 3.*run",
    ),
    "without a torch": (lambda text: text.replace('"torch": "2.13.0", ', ""), "torch of its header is None"),
    "with a text for its engines": (
        lambda text: text.replace('"engines": {"fbgemm": "av', '"engines": "all", "more": {"fbgemm": "av'),
        "engines of its header is 'all'",
    ),
    "with a row twice": (
        lambda text: "".join(2 * line if '"row"' in line else line for line in text.splitlines(True)), "duplicate row",
    ),
}  # fmt: skip


@pytest.mark.parametrize("command", ["report", "findings", "merge", "diff", "ci"])
@pytest.mark.parametrize("fault", BAD)
def test_every_command_refuses_a_bad_file_by_name(
    fault: str, command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change, message = BAD[fault]
    path = write(tmp_path / "bad.jsonl", [CONFORMS])
    path.write_text(change(path.read_text()))
    out = str(tmp_path / "out")
    arguments = {
        "report": ["report", str(path), "-o", out],
        "findings": ["findings", str(path)],
        "merge": ["merge", str(path), "-o", out],
        "diff": ["diff", str(path), str(path)],
        "ci": ["ci", "summary", str(path)],
    }[command]
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert re.search(rf"^conformance: error: {re.escape(str(path))}.*{message}", error)
    assert not Path(out).exists()
