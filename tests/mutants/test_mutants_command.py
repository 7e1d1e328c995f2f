"""The command: wrong input ends in one line, and the file and the page of an analysis say what became of each mutant."""

from pathlib import Path

import pytest

from conformance.errors import UsageError

from . import records, table
from .command import checked, main
from .mutant import Condition, Effect, Mutant, Region
from .records import Record, Result

HEADER = {"seed": 5, "torch": "2.13.0", "arch": "x86_64", "backends": ["fbgemm"], "samples": 300, "seconds": 120}


def record(number: int, ordinary: Result, search: Result | None = None) -> Record:
    conditions = (Condition("groups", ">=", 2), Condition("stride", "==", "1x2"), Condition("bias", "==", True))
    mutant = Mutant("fbgemm", "x86", number, "quantized.conv2d", conditions, Region("last", 1), Effect("zero"), 0.25)
    return Record(mutant.id, mutant.title, mutant, ordinary, search)


CAUGHT = record(1, Result(3, 2, 1, "fbgemm/…@x86", ("numerics",)))
FOUND = record(2, Result(0, 0, 0, cause="no call has such a size"), Result(2, 1, 1, "drawn fbgemm/…@x86", ("stable",)))
UNMET = record(
    3,
    Result(0, 0, 0, cause="no call has such a size", reason="no call where x", lacking=("groups",)),
    Result(cause="no call has b"),
)
TIED = record(4, Result(cause="no call has such a size"), Result(2, 2, 2, cause="at ties", reason="at ties"))
ALL = [CAUGHT, FOUND, UNMET, TIED]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--backend", "fbgem"], "--backend 'fbgem': not one of qnnpack, fbgemm, onednn"),
        (["--backend", "executorch"], "--backend 'executorch': not one of qnnpack, fbgemm, onednn"),
        (["--mutants", "0"], "--mutants 0: ask for at least one"),
        (["--mutants", "-3"], "--mutants -3: ask for at least one"),
        (["--fuzz", "-1"], "--fuzz -1: ask for at least one sample"),
        (["--write-docs", "/nowhere/mutants.jsonl"], "/nowhere/mutants.jsonl: No such file or directory"),
    ],
)
def test_wrong_input_ends_in_one_line(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"mutants: {message}")


@pytest.mark.parametrize(
    "damage", [lambda text: text[:-40], lambda text: text.replace('"met"', '"mat"', 1), lambda text: ""]
)
def test_a_damaged_file_is_refused(damage: object, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "mutants.jsonl"
    records.write(path, HEADER, ALL)
    path.write_text(damage(path.read_text(encoding="utf-8")), encoding="utf-8")  # type: ignore[operator]
    before = table.PATH.read_bytes() if table.PATH.exists() else b""
    assert main(["--write-docs", str(path)]) == 2
    assert str(path) in capsys.readouterr().err
    assert (table.PATH.read_bytes() if table.PATH.exists() else b"") == before


def test_backends_default_to_those_of_an_ordinary_run() -> None:
    assert checked([], 1, 0) == ["qnnpack", "fbgemm", "onednn"]
    assert checked(["onednn", "onednn"], 1, 0) == ["onednn"]


def test_a_file_keeps_every_record(tmp_path: Path) -> None:
    path = tmp_path / "mutants.jsonl"
    records.write(path, HEADER, ALL)
    header, kept = records.read(path)
    assert kept == ALL
    assert header["seed"] == 5


def test_a_file_of_two_analyses_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "mutants.jsonl"
    records.write(path, HEADER, ALL)
    path.write_text(path.read_text(encoding="utf-8") * 2, encoding="utf-8")
    with pytest.raises(UsageError, match="has 2 parts"):
        records.read(path)


def test_a_mutant_survives_that_neither_stage_catches() -> None:
    assert [one.id for one in ALL if one.survives] == ["x86/3", "x86/4"]


def test_the_reason_is_the_searchs_where_the_search_met_the_mutant() -> None:
    assert (UNMET.why.cause, TIED.why.cause) == ("no call has such a size", "at ties")


def test_the_page_counts_and_lists_survivors() -> None:
    page = table.text((HEADER, ALL))
    assert "| x86 | 4 | 1 | 1 | 2 (50.0%) |" in page
    assert "| quantized.conv2d | 4 | 2 | groups: 1 |" in page
    assert "| at ties | 1 |\n| no call has such a size | 1 |" in page
    title = "zero at the last index of dimension 1, where groups is at least 2 and stride is 1x2 and bias is True"
    assert f"| {title} | x86/3 | no call where x |" in page
    assert "x86/1 |" not in page
    assert "a search with 300 samples of each family" in page


def test_the_page_without_survivors_has_no_list() -> None:
    page = table.text(({**HEADER, "samples": 0}, [CAUGHT]))
    assert "survive |" in page
    assert "## Survivors" not in page
    assert "search |" not in page


def test_the_page_has_the_outcomes_of_further_draws_alone() -> None:
    page = table.text(({**HEADER, "draw": "layers"}, [CAUGHT]), ({**HEADER, "draw": "samples"}, ALL))
    assert "Drawn from layers" in page
    assert "Drawn from samples" in page
    assert "| x86 | 4 | 1 | 1 | 2 (50.0%) |" in page
    assert "## Survivors" not in page
