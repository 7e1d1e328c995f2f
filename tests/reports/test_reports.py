"""What is made of rows files: who stands where, what is new, what changed; and that no text of theirs does anything."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest
from invocation import HOSTILE, LEDGER, offsets, row, seen, write

from conformance.__main__ import main
from conformance.errors import UsageError
from conformance.markdown import code, escaped, fenced, plain
from conformance.reports import ci, difference, findings, html
from conformance.reports.gathered import Gathered, family, labels
from conformance.reports.merging import merge
from conformance.results import diagnostics, rows

CONFORMS, WRONG, DIES = row("nn.ReLU"), row("nn.Linear", fails=["numerics"]), row("nn.GRU", verdict="crashes")


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    folder = tmp_path / "known"
    folder.mkdir()
    (folder / "known.toml").write_text(LEDGER)
    return folder


def gathered(ledger: Path, *paths: Path) -> Gathered:
    return Gathered(paths, [ledger])


def test_claims_stand_by_backend_engine_and_environment(ledger: Path, tmp_path: Path) -> None:
    x86 = [replace(WRONG, engine="x86", id=WRONG.id.replace("@fbgemm", "@x86"))]
    one = write(tmp_path / "one.jsonl", [CONFORMS, WRONG, DIES, *x86])
    other = write(tmp_path / "other.jsonl", [CONFORMS, row("nn.Linear", verdict="unavailable")], {"isa": "avx512_vnni"})
    found = gathered(ledger, one, other)
    assert [(c.engine, c.environment.isa, s.verdicts, s.checks, s.new) for c, s in found.standings.items()] == [
        ("fbgemm", "avx2", {"conforms": 1, "deviates": 1, "crashes": 1, "unavailable": 0}, {"numerics": 1}, 1),
        ("fbgemm", "avx512_vnni", {"conforms": 1, "deviates": 0, "crashes": 0, "unavailable": 1}, {}, 0),
        ("x86", "avx2", {"conforms": 0, "deviates": 1, "crashes": 0, "unavailable": 0}, {"numerics": 1}, 1),
    ]
    assert [*found.labels.values()] == ["x86_64 avx2", "x86_64 avx512_vnni"]


def test_a_claim_of_which_one_run_deviates_is_not_kept(ledger: Path, tmp_path: Path) -> None:
    path = write(tmp_path / "rows.jsonl", [row("nn.ReLU"), row("nn.ReLU", variant="large", fails=["lowered"])])
    (standing,) = gathered(ledger, path).standings.values()
    assert standing.verdicts["deviates"] == standing.claims == 1


def test_environments_are_told_apart_by_no_more_than_it_takes(tmp_path: Path) -> None:
    paths = [
        write(tmp_path / f"{n}.jsonl", [CONFORMS], h)
        for n, h in enumerate([{}, {"torch": "2.14.0+cpu"}, {"cpu": "another"}])
    ]
    found = Gathered(paths)
    assert [*labels(part.environment for part in found.parts).values()] == [
        "x86_64 avx2, torch 2.13.0, a CPU",
        "x86_64 avx2, torch 2.14.0, a CPU",
        "x86_64 avx2, torch 2.13.0, another",
    ]


def test_a_patterns_family_is_that_of_the_operator_it_begins_with() -> None:
    assert family("nn.ReLU(operator.add(*,nn.BatchNorm2d(nn.Conv2d)))") == "convolution"
    assert family("F.linear+F.relu") == "linear"


def test_each_file_is_held_to_the_ledger_that_it_names(ledger: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "other.toml").write_text(
        LEDGER.replace("linear-is-off", "mine").replace("nn.Linear", "nn.GRU").replace("numerics", "crashes")
    )
    one = write(tmp_path / "one.jsonl", [replace(WRONG, known="linear-is-off")])
    two = write(tmp_path / "two.jsonl", [replace(DIES, known="mine"), row("nn.Linear")], {"arch": "aarch64"})
    assert Gathered([one, two], [ledger, other]).new == []


BAD: dict[str, tuple[Callable[[str], str], str]] = {
    "truncated": (lambda text: text.rpartition('{"kind": "footer"')[0], "truncated.*run it again"),
    "damaged": (lambda text: text.replace('"verdict": "conforms"', '"verdict": "fine"'), "damaged row"),
    "empty": (lambda text: "", "empty.*run it again"),
    "of a later schema": (lambda text: text.replace('"schema": 1', '"schema": 7'), "schema 7; this version reads 1.*run it"),
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
@pytest.mark.parametrize("what", BAD)
def test_every_command_refuses_a_bad_file_by_name(
    what: str, command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change, message = BAD[what]
    path = write(tmp_path / "bad.jsonl", [CONFORMS])
    path.write_text(change(path.read_text()))
    out = str(tmp_path / "out")
    given = {
        "report": ["report", str(path), "-o", out],
        "findings": ["findings", str(path)],
        "merge": ["merge", str(path), "-o", out],
        "diff": ["diff", str(path), str(path)],
        "ci": ["ci", "summary", str(path)],
    }[command]
    assert main(given) == 2
    said = capsys.readouterr().err
    assert re.search(rf"^conformance: error: {re.escape(str(path))}.*{message}", said)
    assert not Path(out).exists()


def test_the_same_run_twice_is_refused_with_both_names(tmp_path: Path) -> None:
    one, other = (write(tmp_path / f"{name}.jsonl", [CONFORMS]) for name in ("one", "other"))
    with pytest.raises(UsageError, match=r"other\.jsonl: duplicate: fbgemm/nn\.ReLU/.* stands in .*one\.jsonl too"):
        merge([one, other], tmp_path / "merged.jsonl")
    assert not (tmp_path / "merged.jsonl").exists()


def test_merged_files_are_read_as_what_they_were(tmp_path: Path) -> None:
    one = write(tmp_path / "one.jsonl", [CONFORMS, WRONG], found=[seen(WRONG, offsets(1))])
    other = write(tmp_path / "other.jsonl", [CONFORMS], {"arch": "aarch64"})
    out = tmp_path / "merged.jsonl"
    merge([one, other], out)
    assert out.read_text() == one.read_text() + other.read_text()
    assert rows.read_all(out) == (*rows.read_all(one), *rows.read_all(other))
    assert [[*part] for part in diagnostics.read(out, rows.read_all(out))] == [[WRONG.id], []]
    merge([out, write(tmp_path / "third.jsonl", [CONFORMS], {"torch": "2.14.0"})], out)
    assert len(rows.read_all(out)) == 3
    with pytest.raises(UsageError, match="merged from 3 rows files"):
        rows.read(out)


def test_a_merged_file_that_lost_a_footer_is_truncated(tmp_path: Path) -> None:
    one, other = write(tmp_path / "one.jsonl", [CONFORMS]), write(tmp_path / "other.jsonl", [CONFORMS], {"isa": "avx"})
    lines = [*one.read_text().splitlines(keepends=True)[:-1], *other.read_text().splitlines(keepends=True)]
    one.write_text("".join(lines))
    with pytest.raises(UsageError, match=r"one\.jsonl: truncated"):
        rows.read_all(one)


def changed(tmp_path: Path, before: Any, after: Any, **header: Any) -> difference.Difference:
    """The difference of two files; rows may come with what was seen of them."""
    paths = []
    for name, of, head in (("before", before, {}), ("after", after, header)):
        pairs = [one if isinstance(one, tuple) else (one, None) for one in of]
        found = [other for _, other in pairs if other is not None]
        paths.append(write(tmp_path / f"{name}.jsonl", [one for one, _ in pairs], head, found or None))
    return difference.compare(*paths)


def test_no_change_is_none(tmp_path: Path) -> None:
    found = changed(tmp_path, [CONFORMS, WRONG], [CONFORMS, WRONG], torch="2.14.0")
    assert found.changes == ()
    assert not found.worse
    assert found.pairs == ("x86_64 avx2, torch 2.13.0 → x86_64 avx2, torch 2.14.0",)


CHANGES: dict[str, tuple[Any, Any, str, bool, str]] = {
    "a run that breaks": (row(), row(fails=["numerics"]), "verdict", True, "conforms → deviates (numerics)"),
    "a run that is mended": (row(fails=["numerics"]), row(), "verdict", False, "deviates (numerics) → conforms"),
    "a run that dies": (row(), row(verdict="crashes"), "verdict", True, "conforms → crashes"),
    "a run that is not executed": (row(), row(verdict="unavailable"), "verdict", True, "conforms → unavailable"),
    "a check more": (row(fails=["stable"]), row(fails=["stable", "lowered"]), "checks", True, "(lowered, stable)"),
    "a check fewer": (row(fails=["stable", "lowered"]), row(fails=["stable"]), "checks", False, "deviates (stable)"),
    "another kernel": (row(), row(kernels=("quantized.x",)), "kernels", False, "quantized.relu → quantized.x"),
    "more elements off": (
        row(fails=["numerics"]), row(fails=["numerics"], mismatched=4),
        "integers", True, "3 off, 1 tied of 8, by up to 2 steps → 4 off",
    ),
    "further off": (
        row(fails=["numerics"]), row(fails=["numerics"], steps_max=9), "integers", True, "by up to 9 steps",
    ),
    "another side of a tie": (
        (row(), seen(row(), offsets(0, 1))), (row(), seen(row(), offsets(0, 0, 0, -1))),
        "integers", False, "2 moved, by up to 1 steps",
    ),
    "integers that moved as far in all": (
        (row(), seen(row(), offsets(2, 0))), (row(), seen(row(), offsets(0, 2))),
        "integers", False, "2 moved, by up to 2 steps",
    ),
    "what was left out": (
        (row(), seen(row(), offsets(5, 0, differing=9))), (row(), seen(row(), offsets(7, 1))),
        "integers", False, "at least 1 moved, by up to 2",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", CHANGES)
def test_each_change_is_told(what: str, tmp_path: Path) -> None:
    before, after, kind, worse, words = CHANGES[what]
    found = changed(tmp_path, [before], [after])
    assert kind in [change.kind for change in found.changes]
    assert found.worse is worse
    assert any(words in change.words for change in found.changes)


def test_claims_that_come_and_go_are_told_and_those_not_selected_are_not(tmp_path: Path) -> None:
    found = changed(tmp_path, [row("nn.ReLU"), row("nn.GRU")], [row("nn.ReLU"), row("nn.ELU")])
    assert [(change.kind, change.id, change.worse) for change in found.changes] == [
        ("gone claim", "fbgemm/nn.GRU/static-quint8@fbgemm", True),
        ("new claim", "fbgemm/nn.ELU/static-quint8@fbgemm", False),
    ]
    selected = changed(tmp_path, [row("nn.ReLU"), row("nn.GRU")], [row("nn.ReLU")], selection=["*/nn.ReLU/*"])
    assert selected.changes == ()
    unasked = changed(tmp_path, [row("nn.ReLU"), row("nn.GRU")], [row("nn.ReLU")], not_asked_for=[row("nn.GRU").id])
    assert unasked.changes == ()


def test_environments_that_cannot_be_paired_are_refused(tmp_path: Path) -> None:
    one = write(tmp_path / "one.jsonl", [CONFORMS])
    other = write(tmp_path / "other.jsonl", [CONFORMS], {"arch": "aarch64", "torch": "2.12.0"})
    third = write(tmp_path / "third.jsonl", [CONFORMS], {"arch": "s390x", "torch": "2.11.0"})
    merge([one, other], tmp_path / "both.jsonl")
    with pytest.raises(UsageError, match="name files of one environment each"):
        difference.compare(tmp_path / "both.jsonl", third)
    assert difference.compare(tmp_path / "both.jsonl", other).unpaired == ("x86_64 avx2, torch 2.13.0",)


def test_the_exit_status_says_whether_anything_got_worse(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good, bad = write(tmp_path / "good.jsonl", [row()]), write(tmp_path / "bad.jsonl", [row(fails=["stable"])])
    assert main(["diff", str(good), str(bad)]) == 1
    assert main(["diff", str(bad), str(good), "--format", "markdown"]) == 0
    capsys.readouterr()
    assert main(["diff", str(good), str(bad), "--format", "json"]) == 1
    said = json.loads(capsys.readouterr().out)
    assert said["worse"] is True
    assert said["changes"][0]["kind"] == "verdict"


def test_findings_group_entries_by_cause_and_show_the_reproduction(ledger: Path, tmp_path: Path) -> None:
    path = write(tmp_path / "rows.jsonl", [CONFORMS, WRONG, DIES], found=[seen(WRONG)])
    text = "\n".join(findings.document(gathered(ledger, path)))
    assert "## New: 1 run not as the ledger says" in text
    assert "### The kernel is off." in text
    assert "[pytorch/pytorch&#35;1](https://github.com/pytorch/pytorch/issues/1)" in text
    assert "```python\nprint('DEVIATES')\n```" in text


def test_a_summary_has_what_is_new_first_and_is_cut_with_a_note(ledger: Path, tmp_path: Path) -> None:
    known = [row("nn.Linear", variant=f"v{number}", fails=["numerics"]) for number in range(500)]
    path = write(tmp_path / "rows.jsonl", [*known, DIES])
    whole = ci.summary(gathered(ledger, path))
    assert whole.index("nn.GRU") < whole.index("linear-is-off") < whole.index("/v499/")
    cut = ci.summary(gathered(ledger, path), 10_000)
    assert len(cut.encode()) <= 10_000
    assert "nn.GRU" in cut
    assert re.search(r"… and \d+ lines more: the rows files have everything\.\n$", cut)


def test_annotations_name_what_is_new_and_say_how_many_more(ledger: Path, tmp_path: Path) -> None:
    path = write(tmp_path / "rows.jsonl", [row(variant=f"v{number}", fails=["stable"]) for number in range(12)])
    lines = [*ci.annotations(gathered(ledger, path))]
    assert lines[0].startswith("::error title=fbgemm/nn.ReLU/static-quint8/ptq/v0/exact@fbgemm::stable: it is wrong")
    assert lines[10:] == ["::notice::and 2 more: the job summary has all"]


@pytest.mark.parametrize(
    ("of", "message", "color"),
    [
        ([CONFORMS], "1 of 1 claims kept", "brightgreen"),
        ([CONFORMS, WRONG], "1 of 2 claims kept", "green"),
        ([CONFORMS, DIES], "1 of 2 claims kept, 1 runs new", "red"),
        ([row(verdict="unavailable")], "nothing executed", "lightgrey"),
    ],
)
def test_a_badge_says_what_is_kept(of: Any, message: str, color: str, ledger: Path, tmp_path: Path) -> None:
    made = ci.badge(gathered(ledger, write(tmp_path / "rows.jsonl", of)))
    assert made == {"schemaVersion": 1, "label": "conformance", "message": message, "color": color}


def test_schemas_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    for of, schema in (("rows", rows.schema()), ("details", diagnostics.schema())):
        assert main(["schema", of]) == 0
        assert json.loads(capsys.readouterr().out) == schema
        jsonschema.Draft202012Validator.check_schema(schema)


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """A rows file whose every text does what it can."""
    name = HOSTILE.replace("/", "╱")
    one = row(name, variant=name, fails=["numerics"], detail=f"numerics: {HOSTILE}", kernels=(HOSTILE,))
    two = row("nn.Linear", fails=["numerics"], detail=f"numerics: {HOSTILE}")
    header = {
        "cpu": HOSTILE,
        "torch": "2.13.0" + HOSTILE,
        "git": HOSTILE,
        "cpu_flags": [HOSTILE],
        "engines": {"fbgemm": HOSTILE},
    }
    shown = [seen(one, offsets(1, output=HOSTILE), text=HOSTILE), replace(seen(two), reproduction=HOSTILE)]
    made: Path = write(tmp_path / "rows.jsonl", [one, two], header, shown)
    return made


def test_hostile_text_is_inert_on_terminals_and_in_workflow_commands(
    hostile: Path, ledger: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    clean = write(tmp_path / "clean.jsonl", [row("nn.Linear")])
    for command in (
        ["diff", str(clean), str(hostile)],
        ["diff", str(clean), str(hostile), "--format", "markdown"],
        ["diff", str(clean), str(hostile), "--format", "json"],
        ["findings", str(hostile), "--ledger", str(ledger)],
        ["ci", "summary", str(hostile), "--ledger", str(ledger)],
        ["ci", "annotations", str(hostile), "--ledger", str(ledger)],
        ["ci", "badge", str(hostile), "--ledger", str(ledger)],
    ):
        main(command)
        out = capsys.readouterr().out
        assert "\x1b" not in out, command
        assert "\u202e" not in out, command
        assert "\u2028" not in out, command
        assert not re.search(r"^::(?!error title=fbgemm)", out, re.M), command


def test_hostile_text_makes_no_markup_in_markdown(hostile: Path, ledger: Path) -> None:
    found = gathered(ledger, hostile)
    for text in ("\n".join(findings.document(found)), ci.summary(found)):
        fences = re.sub(r"^(`{3,})\w*\n.*?^\1$", "", text, flags=re.M | re.S)
        outside = re.sub(r"`[^`\n]+`", "", fences)
        assert not re.search(r"<(?!/?(code|details|summary)>)", outside)
        assert "](https://example" not in outside
        assert "@someone" not in outside
        for line in outside.splitlines():
            if line.startswith("| fbgemm"):
                assert len(re.findall(r"(?<!\\)\|", line)) == 11


def test_hostile_text_is_text_in_html(hostile: Path, ledger: Path, tmp_path: Path) -> None:
    found = gathered(ledger, hostile)
    html.write(found, tmp_path / "report")
    for page in (tmp_path / "report").glob("*.html"):
        text = page.read_text(encoding="utf-8")
        assert "<script>document" not in text
        assert "<img" not in text
        assert "{{ 49 }}" not in text
        assert "\x1b" not in text
    for script in (tmp_path / "report" / "data").glob("*.js"):
        assert script.read_bytes().isascii()


def test_a_folder_of_somebodys_own_is_left_alone(ledger: Path, tmp_path: Path) -> None:
    found = gathered(ledger, write(tmp_path / "rows.jsonl", [CONFORMS]))
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("mine")
    with pytest.raises(UsageError, match="not empty, and no report"):
        html.write(found, tmp_path / "mine")
    first = html.write(found, tmp_path / "report")
    (tmp_path / "report" / "data" / "99.js").write_text("old")
    assert html.write(found, tmp_path / "report") == first
    assert not (tmp_path / "report" / "data" / "99.js").exists()


def test_text_in_markdown_stays_what_it_is() -> None:
    assert escaped("x86_64: 3 of 8 codes differ (37%)") == "x86_64: 3 of 8 codes differ (37%)"
    assert escaped("a|b <b> *c* _d_ [e](f)") == r"a\|b &lt;b&gt; \*c\* \_d\_ \[e\](f)"
    assert code("a`b|c") == r"<code>a&#96;b\|c</code>"
    assert plain("a\x1b[31m\nb") == "a\\u001b[31m b"
    assert next(fenced("```\nx", "python")) == "````python"
