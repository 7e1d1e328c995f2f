"""The support table: from rows to cells, its renderings, and the committed table."""

import csv
import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
from invocation import CONFORMS, DIES, HOSTILE, LEDGER, row, write

from conformance.__main__ import main
from conformance.errors import UsageError
from conformance.paths import ROOT
from conformance.reports import support, use
from conformance.reports.load import Report
from conformance.results.in_use import SHRUNK, occurrences_by_pattern, read
from conformance.results.ledger_file import load
from conformance.results.severity import Severity
from conformance.results.status import Support

OFF = row("nn.Linear", variant="alpha_2", fails=["numerics"], known="linear-is-off", form="alpha=2")
SLOW = [row("nn.Linear", variant=f"v{number}", fails=["numerics"], form=f"size={number}") for number in range(7)]
X86 = replace(CONFORMS, engine="x86", id=CONFORMS.id.replace("@fbgemm", "@x86"))


@pytest.fixture
def made(ledger: Path, tmp_path: Path) -> support.Table:
    rows = [CONFORMS, row("nn.Linear"), OFF, *SLOW, DIES, X86, row("nn.ELU", verdict="unavailable")]
    return support.table(Report([write(tmp_path / "rows.jsonl", rows)], [ledger]))


def cell(made: support.Table, pattern: str, engine: str = "fbgemm") -> support.Cell:
    (found,) = [cell for place, cell in made.cells[pattern, "static-quint8"].items() if place.engine == engine]
    return found


def test_a_cell_has_the_status_and_the_findings_with_their_forms(made: support.Table) -> None:
    assert cell(made, "nn.ReLU").status is Support.WORKS
    assert cell(made, "nn.GRU").status is Severity.CRASHES
    assert cell(made, "nn.ELU").status is Support.UNAVAILABLE
    linear = cell(made, "nn.Linear")
    assert linear.status is Support.EXCEPT
    (cause,) = linear.causes
    assert (cause.finding, cause.severity) == ("linear-is-off", Severity.REFUSES)
    assert cause.where == "with size=0; size=1; size=2; size=3; and 4 more"


def test_a_finding_in_default_use_needs_no_form(ledger: Path, tmp_path: Path) -> None:
    path = write(tmp_path / "rows.jsonl", [row("nn.Linear", fails=["numerics"]), OFF])
    (cause,) = cell(support.table(Report([path], [ledger])), "nn.Linear").causes
    assert cause.where == "in default use"


def test_what_a_config_does_not_promise_has_no_cell(made: support.Table) -> None:
    assert [place.engine for place in made.cells["nn.Linear", "static-quint8"]] == ["fbgemm"]
    assert [place.engine for place in made.cells["nn.ReLU", "static-quint8"]] == ["fbgemm", "x86"]


def test_the_table_is_the_same_after_json(made: support.Table) -> None:
    again = support.from_json(json.loads(support.json_text(made)), made.findings)
    assert again == made
    assert support.json_text(again) == support.json_text(made)


def test_a_table_whose_finding_the_ledger_lacks_is_refused(made: support.Table) -> None:
    with pytest.raises(UsageError, match="the ledger has no finding 'linear-is-off': write the table again"):
        support.from_json(json.loads(support.json_text(made)), {})


def test_csv_has_a_line_for_each_claim_and_place(made: support.Table) -> None:
    lines = [*csv.DictReader(io.StringIO(support.as_csv(made)))]
    assert len(lines) == sum(map(len, made.cells.values()))
    (linear,) = [line for line in lines if line["pattern"] == "nn.Linear"]
    assert (linear["status"], linear["findings"], linear["family"]) == ("except", "linear-is-off", "linear")


def test_markdown_has_a_footnote_for_each_finding(made: support.Table) -> None:
    text = support.FORMATS["markdown"](made)
    assert "| `nn.Linear` | static-quint8 | ◐ ⊘ [1](#linear-is-off) |  |" in text
    assert '1. <a id="linear-is-off"></a>Linear is off (`linear-is-off`, ' in text


def test_families_count_claims_that_work_in_default_use(made: support.Table) -> None:
    lines = [*support.families_markdown(made)]
    assert "| linear | 1 of 1 |  |" in lines
    assert "| recurrent | 0 of 1 |  |" in lines
    assert lines[0] == "| family | fbgemm | x86 |"
    assert lines[-4:] == [
        "| **all** | 2 of 3 | 1 of 1 |",
        "| **all, in every form** | 1 of 3 | 1 of 1 |",
        "",
        "On x86_64 avx2 with torch 2.13.0.",
    ]


def test_columns_of_several_platforms_are_named_in_full(ledger: Path, tmp_path: Path) -> None:
    paths = [write(tmp_path / "one.jsonl", [CONFORMS]), write(tmp_path / "two.jsonl", [CONFORMS], {"arch": "aarch64"})]
    heads, common = support.headings(support.table(Report(paths, [ledger])))
    assert (heads, common) == (["fbgemm, aarch64 avx2, torch 2.13.0", "fbgemm, x86_64 avx2, torch 2.13.0"], "")


def test_layers_count_for_the_dtypes_that_a_default_mapping_asks_for(ledger: Path, tmp_path: Path) -> None:
    rows = [
        row("nn.Linear"),
        row("nn.Linear", dtype_config="dynamic-qint8"),
        row("nn.Linear", dtype_config="weight-float16"),
    ]
    made = support.table(Report([write(tmp_path / "rows.jsonl", rows)], [ledger]))
    assert made.layers == {("nn.Linear", "static-quint8"): occurrences_by_pattern()["nn.Linear"]}


def test_one_operator_is_answered_with_reasons(made: support.Table) -> None:
    assert [*support.answer(made, "nn.Linear")] == [
        f"nn.Linear  static-quint8  ({made.layers['nn.Linear', 'static-quint8']} layers of networks)",
        "    ◐ fbgemm, x86_64 avx2, torch 2.13.0: works, except for some options",
        "        refuses with size=0; size=1; size=2; size=3; and 4 more: Linear is off (linear-is-off)",
    ]
    with pytest.raises(UsageError, match=r"nn\.Lineer: no pattern of these configs has it; did you mean nn\.Linear\?"):
        [*support.answer(made, "nn.Lineer")]


def test_a_pattern_is_answered_as_pages_print_it(ledger: Path, tmp_path: Path) -> None:
    rows = [row("nn.Linear"), row("nn.Linear+nn.ReLU")]
    made = support.table(Report([write(tmp_path / "rows.jsonl", rows)], [ledger]))
    assert [line.split("  ")[0] for line in support.answer(made, "nn.Linear+nn.ReLU") if line[0] != " "] == [
        "nn.Linear+nn.ReLU"
    ]
    assert len([line for line in support.answer(made, "nn.Linear") if line[0] != " "]) == 2


def test_exceptions_have_three_levels_and_name_the_option_that_most_layers_have(ledger: Path, tmp_path: Path) -> None:
    layers = [one for one in read(SHRUNK) if one.pattern == "nn.Linear" and one.variant and not one.run_as]
    rare, often = sorted(layers, key=lambda one: one.occurrences)[:: len(layers) - 1]
    fails = {"fails": ["numerics"], "known": "linear-is-off"}
    rows = [
        row("nn.Linear"),
        row("nn.Linear", variant=rare.variant, profile="in_use", form="a", **fails),
        row("nn.Linear", variant=often.variant, profile="in_use", form="much longer", **fails),
        row("nn.ReLU", variant="empty", form="an empty batch", fails=["numerics"]),
    ]
    (tmp_path / "known.toml").write_text(LEDGER.replace('pattern = "nn.Linear"', 'pattern = "*"'))
    made = support.table(Report([write(tmp_path / "rows.jsonl", rows)], [tmp_path]))
    (cause,) = cell(made, "nn.Linear").levels[support.Level.REFUSES]
    assert (cause.option, cause.layers) == ("much longer", rare.occurrences + often.occurrences)
    assert [*cell(made, "nn.ReLU").levels] == [support.Level.CORNER]


def test_hostile_names_make_no_markup(tmp_path: Path) -> None:
    (tmp_path / "known.toml").write_text(LEDGER)
    path = write(tmp_path / "rows.jsonl", [row(HOSTILE.replace("/", "╱"), fails=["numerics"])])
    text = support.FORMATS["markdown"](support.table(Report([path], [tmp_path])))
    assert "<script>" not in text
    assert "\x1b" not in text
    assert "\u202e" not in text


def test_writing_replaces_what_is_stale(made: support.Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(support, "RECORDED", tmp_path / "support.json")
    (tmp_path / "README.md").write_text(f"{use.BEGIN}\nstale\n{use.END}\n")
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "support.md").write_text("stale")
    written = [*support.write(made, tmp_path)]
    assert [path.name for path in written] == ["support.json", "support.md", "README.md"]
    assert "stale" not in "".join(path.read_text(encoding="utf-8") for path in written)


def test_the_committed_table_and_its_page_are_those_of_the_ledger() -> None:
    made = support.recorded(load())
    page = (ROOT / "docs" / "support.md").read_text(encoding="utf-8")
    assert page == support.FORMATS["markdown"](made), "python -m conformance support --write"


def test_the_command_answers_from_rows_and_from_the_committed_table(
    ledger: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(write(tmp_path / "rows.jsonl", [row("nn.Linear"), OFF]))
    arguments = ["--rows", path, "--ledger", str(ledger)]
    assert main(["support", "nn.Linear", *arguments]) == 0
    assert "works, except for some options" in capsys.readouterr().out
    assert main(["support", "--format", "csv", *arguments]) == 0
    assert capsys.readouterr().out.startswith("pattern,dtypes,family")
    assert main(["support", "nn.ConvTranspose2d"]) == 0
    assert "nn.ConvTranspose2d  static-quint8" in capsys.readouterr().out
    assert main(["support", "nn.Nothing"]) == 2
    assert "no pattern of these configs has it" in capsys.readouterr().err


def test_a_claim_that_crashes_under_an_option_is_told_from_others() -> None:
    works = support.Cell(Support.EXCEPT, (support.Cause("one", Severity.WRONG, ("an option",)),))
    crashes = replace(works, causes=(*works.causes, support.Cause("other", Severity.CRASHES, ("another",))))
    assert (works.crashes, crashes.crashes) == (False, True)
