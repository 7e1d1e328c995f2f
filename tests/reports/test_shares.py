"""Shares by use as pages, data and the README's tables."""

from pathlib import Path

import pytest
from invocation import HOSTILE, row, write

from conformance.__main__ import main
from conformance.errors import UsageError
from conformance.paths import ROOT
from conformance.reports import support, use
from conformance.reports.load import Report
from conformance.results.in_use import SHRUNK, read
from conformance.results.ledger_file import load
from conformance.results.use import Fate

LAYER = next(one for one in read(SHRUNK) if one.pattern == "nn.Linear" and one.variant and "resnet50" in one.networks)


PATTERNS = (
    "nn.Conv2d+nn.BatchNorm2d",
    "operator.add",
    "operator.mul",
    "nn.Linear",
    "torch.cat",
    "nn.ReLU",
    "nn.LayerNorm",
)
CLAIMS = {("fbgemm", "x86_64 avx2", "2.13.0"): dict(zip(use.CLAIMED, ("1 of 2", "0 of 2"), strict=True))}


@pytest.fixture
def rows(tmp_path: Path, ledger: Path) -> Path:
    wrong = row("nn.Linear", variant=LAYER.variant, profile="in_use", fails=["lowered"], known="linear-is-off")
    path: Path = write(tmp_path / "rows.jsonl", [row("nn.Linear"), wrong, row("nn.ReLU", engine="x86")])
    return path


@pytest.fixture
def made(rows: Path, ledger: Path) -> list[use.Share]:
    return use.shares(Report([rows], [ledger]))


def test_only_columns_with_layers_in_use_have_shares(made: list[use.Share]) -> None:
    (one,) = made
    assert one.place == use.Place("fbgemm", "fbgemm", "x86_64 avx2", "2.13.0")
    assert one.fates[Fate.REFUSED] == one.findings["linear-is-off"] == LAYER.occurrences
    assert one.networks["resnet50"]["refused"] == one.found["resnet50"]["linear-is-off"] == LAYER.networks["resnet50"]


def test_shares_are_the_same_after_json(made: list[use.Share], tmp_path: Path) -> None:
    (tmp_path / "use.json").write_text(use.json_text(made))
    assert use.recorded(tmp_path / "use.json") == made


def test_versions_of_packages_tell_columns_apart(tmp_path: Path, ledger: Path) -> None:
    layer = row("nn.Linear", variant=LAYER.variant, profile="in_use", backend="executorch", engine="executorch")
    paths = [
        write(tmp_path / f"{version}.jsonl", [layer], {"packages": {"executorch": version, "torchao": "0.18.0"}})
        for version in ("1.4.1", "1.5.1")
    ]
    shares = use.shares(Report(paths, [ledger]))
    assert [one.place.version for one in shares] == ["executorch 1.4.1", "executorch 1.5.1"]
    lines = use.versions_markdown(shares)
    assert len(lines) == 3  # their cells are equal
    assert lines[2].startswith("| x86_64 avx2 | executorch 1.4.1, 1.5.1 | ")


def test_shares_of_a_selection_are_of_what_was_tried(tmp_path: Path, ledger: Path) -> None:
    """Of all convolutions one was tried, and is right."""
    first = next(one for one in read(SHRUNK) if one.pattern == "nn.Conv2d" and one.variant)
    kept = [*PATTERNS, "nn.Conv2d"]
    rows = [row(name) for name in kept] + [row("nn.Conv2d", variant=first.variant, profile="in_use")]
    (one,) = use.shares(Report([write(tmp_path / "rows.jsonl", rows)], [ledger]))
    assert one.fates[Fate.UNTRIED] > 0.5 * one.layers
    (line,) = use.versions_markdown([one])[2:]
    assert line.endswith(f"| 100% · 0 · 0 of {use.percent(first.occurrences, one.layers)} tried |")


@pytest.mark.parametrize(("part", "text"), [(0, "0"), (1, "0.01%"), (50, "0.5%"), (1049, "10%"), (5000, "50%")])
def test_a_few_layers_are_not_nothing(part: int, text: str) -> None:
    assert use.percent(part, 10_000) == text


def test_one_network_is_answered_with_the_findings_that_hit_it(made: list[use.Share]) -> None:
    findings = {entry.id: entry.finding for entry in load()}
    lines = [*use.of_network(made, "resnet50", findings)]
    assert lines[0].startswith("fbgemm, x86_64 avx2, torch 2.13.0: of 72 layers ")
    assert lines[1:] == ["    1 × new (linear-is-off)"]
    with pytest.raises(UsageError, match=r"resnet5: no network of the corpus; did you mean resnet50 or"):
        [*use.of_network(made, "resnet5", findings)]


def test_rows_without_layers_in_use_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "rows.jsonl", [row("nn.Linear")])
    assert main(["use", "--rows", str(path)]) == 2
    assert "no run of these rows is of a layer in use" in capsys.readouterr().err


def test_the_readme_keeps_what_is_around_its_tables(made: list[use.Share]) -> None:
    text = use.readme(f"before\n{use.BEGIN}\nold\n{use.END}\nafter\n", made, CLAIMS)
    assert text.startswith(f"before\n{use.BEGIN}\n| engine | right |")
    assert "| 1 of 2 | 0 of 2 |" in text
    assert "\nOn x86_64 avx2 with torch 2.13.0.\n" in text
    assert text.endswith(f"{use.END}\nafter\n")
    assert "old" not in text
    with pytest.raises(UsageError, match=r"README\.md: write <!-- use -->"):
        use.readme("no place", made, {})


def test_hostile_names_make_no_markup(made: list[use.Share]) -> None:
    (one,) = made
    text = "\n".join(use.document([use.Share(one.place, one.fates, {HOSTILE: 1}, one.networks, {})], {}))
    assert "<script>" not in text
    assert "\x1b" not in text


def test_the_committed_shares_and_what_is_rendered_from_them_agree() -> None:
    made, entries = use.recorded(), load()
    findings = {entry.id: entry.finding for entry in entries}
    again = "python -m conformance use --write --rows ROWS"
    page = (ROOT / "docs" / "use.md").read_text(encoding="utf-8")
    assert page == "\n".join(use.document(made, findings)) + "\n", again
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert use.readme(readme, made, support.claims(support.recorded(entries))) == readme, again


def test_the_committed_shares_are_of_this_corpus_and_this_ledger() -> None:
    """Each share counts every layer of the table, and names findings that there are."""
    layers, ids = sum(one.occurrences for one in read()), {entry.id for entry in load()}
    for one in use.recorded():
        assert one.layers == layers
        assert sum(sum(of.values()) for of in one.networks.values()) == layers
        assert one.findings.keys() <= ids
        assert {name for of in one.found.values() for name in of} == one.findings.keys()
