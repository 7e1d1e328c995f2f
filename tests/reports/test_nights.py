"""Nights of a history: the night before each, series of nights, and filters that match nothing."""

from collections.abc import Sequence
from dataclasses import astuple, replace
from pathlib import Path

import pytest
from invocation import CONFORMS, DIES, WRONG, row, store_night

pytest.importorskip("duckdb", reason="`tox -e history` has it")

import duckdb

from conformance.__main__ import main
from conformance.reports.nights import KEYS, NIGHTS, Filter, Night, loaded

Capture = pytest.CaptureFixture[str]
NIGHT = Night("", "2.13.0", "x86_64", "avx2", "fbgemm")


def nights(*names: str) -> list[Night]:
    """Nights on one platform, each from a day and a version of torch."""
    return [replace(NIGHT, date=name.split()[0], torch=name.split()[1]) for name in names]


def linked(nights: Sequence[Night]) -> tuple[list[int | None], list[list[int]]]:
    """For each night the index of the night before it, and the indexes of the nights of each series, the last one first."""
    with duckdb.connect() as database:
        database.execute(f"CREATE TABLE found ({KEYS.replace(',', ' VARCHAR,')} VARCHAR)")
        database.executemany("INSERT INTO found VALUES (?, ?, ?, ?, ?)", [astuple(night) for night in nights])
        database.execute(NIGHTS)
        found = database.execute(f"SELECT night, before, {KEYS} FROM nights").fetchall()
        series = database.execute("SELECT list(night ORDER BY night DESC) FROM series GROUP BY series ORDER BY series")
        index = {number: nights.index(Night(*key)) for number, _, *key in found}
        before = {index[number]: None if earlier is None else index[earlier] for number, earlier, *_ in found}
        return [before[number] for number in range(len(nights))], [
            [index[n] for n in of] for (of,) in series.fetchall()
        ]


def nights_before(nights: Sequence[Night]) -> list[int | None]:
    return linked(nights)[0]


@pytest.fixture
def history(tmp_path: Path) -> Path:
    folder = tmp_path / "history"
    onednn = row("nn.Linear", backend="onednn", engine="onednn")
    store_night(folder, 2, [CONFORMS, DIES, onednn])
    store_night(folder, 3, [WRONG, onednn], arch="aarch64")
    return folder


def test_the_night_before_is_the_last_one_with_the_same_torch() -> None:
    assert nights_before(nights("1 2.13.0", "2 2.13.0", "5 2.13.0")) == [None, 0, 1]
    assert nights_before(nights("5 2.13.0", "2 2.13.0", "1 2.13.0")) == [1, 2, None], "in any order"
    two = nights("1 2.10.0", "1 2.13.0", "2 2.10.0", "2 2.13.0", "3 2.13.0", "4 2.10.0")
    assert nights_before(two) == [None, None, 0, 1, 3, 2]


def test_before_the_first_night_with_a_torch_is_the_last_one_with_another() -> None:
    assert nights_before(nights("1 2.12.0", "2 2.12.0", "3 2.13.0")) == [None, 0, 1]
    assert nights_before(nights("1 2.9.0", "1 2.13.0", "1 2.11.0", "2 2.12.0")) == [None, None, None, 2]
    assert nights_before(nights("1 2.9.0", "1 2.13.0", "2 2.14.0")) == [None, None, 1]
    assert nights_before(nights("1 2.14.0.dev20260101", "1 2.13.0", "2 2.14.0.dev20260102")) == [None, None, 0]
    assert nights_before(nights("1 2.14.0", "2 2.13.0")) == [None, 0]


def test_platforms_and_backends_have_nights_of_their_own() -> None:
    first, second = nights("1 2.13.0", "2 2.13.0")
    for other in ({"arch": "aarch64"}, {"isa": "avx512"}, {"backend": "onednn"}):
        assert nights_before([first, replace(second, **other)]) == [None, None]


def test_a_series_has_a_night_that_is_before_no_other_and_all_before_it() -> None:
    assert linked(nights("1 2.13.0", "2 2.13.0", "3 2.13.0"))[1] == [[2, 1, 0]]
    # two versions of torch, from a night with one
    assert linked(nights("1 2.13.0", "2 2.13.0", "2 2.14.0"))[1] == [[1, 0], [2, 0]]


def test_of_several_invocations_of_a_night_the_last_counts(tmp_path: Path) -> None:
    history = tmp_path / "history"
    again = replace(WRONG, verdict=row("nn.Linear").verdict, checks=row().checks, findings=(), detail="")
    store_night(history, 2, [again], hour=4)
    store_night(history, 2, [WRONG, CONFORMS], hour=3)
    with loaded(str(history), Filter()) as database:
        found = database.execute(f"SELECT {KEYS} FROM nights").fetchall()
        assert found == [astuple(replace(NIGHT, date="2026-01-02"))]
        assert database.execute("SELECT id, verdict FROM results ORDER BY ALL").fetchall() == [
            (WRONG.id, "conforms"),
            (CONFORMS.id, "conforms"),
        ]


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (Filter(), ["2 fbgemm", "2 onednn", "3 fbgemm", "3 onednn"]),
        (Filter(backend=["onednn"]), ["2 onednn", "3 onednn"]),
        (Filter(backend=["onednn", "fbgemm"], engine=["fbgemm"]), ["2 fbgemm", "3 fbgemm"]),
        (Filter(arch=["aarch64"]), ["3 fbgemm", "3 onednn"]),
        (Filter(globs=["*/nn.GRU/*", "onednn/*"]), ["2 fbgemm", "2 onednn", "3 onednn"]),
        (Filter(globs=[DIES.id]), ["2 fbgemm"]),
        (Filter(first="2026-01-03"), ["3 fbgemm", "3 onednn"]),
        (Filter(last="2026-01-02"), ["2 fbgemm", "2 onednn"]),
        (Filter(first="2026-01-03", last="2026-01-03", backend=["fbgemm"]), ["3 fbgemm"]),
    ],
)
def test_a_filter_selects_nights(wanted: Filter, found: list[str], history: Path) -> None:
    with loaded(str(history), wanted) as database:
        selected = database.execute("SELECT date[-1:] || ' ' || backend FROM nights ORDER BY night").fetchall()
        assert [night for (night,) in selected] == found


def test_an_id_with_an_asterisk_is_an_id_before_it_is_a_glob(tmp_path: Path) -> None:
    history = tmp_path / "history"
    wildcard, other = row("torch.add(*,nn.Conv2d)"), row("torch.add(nn.ReLU,nn.Conv2d)")
    store_night(history, 1, [wildcard, other])
    with loaded(str(history), Filter(globs=[wildcard.id])) as database:
        assert database.execute("SELECT id FROM results").fetchall() == [(wildcard.id,)]
    with loaded(str(history), Filter(globs=["*/torch.add(*,nn.Conv2d)/*"])) as database:
        assert database.execute("SELECT count(*) FROM results").fetchone() == (2,)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["trend", "--backend", "fbgem"], "unknown backend 'fbgem': did you mean fbgemm? Choose from fbgemm, onednn"),
        (["trend", "--engine", "x86"], "unknown engine 'x86': choose from fbgemm, onednn"),
        (["first-bad", "--arch", "arm64"], "unknown arch 'arm64': did you mean aarch64? Choose from aarch64, x86_64"),
        (["since", WRONG.id.replace("near", "ner")], f"@fbgemm': did you mean {WRONG.id} or "),
        (["trend", "--case", "zzz*"], "no run matches 'zzz*'\n"),
        (["first-bad", "--case", "*/nn.GRUs/*"], "no run matches '*/nn.GRUs/*'"),
        (["trend", "--from", "2026-02-01"], "no such rows in these nights: it has nights from 2026-01-02 to 2026-01-03"),
        (["trend", "--backend", "fbgemm", "--engine", "onednn"], "no such rows in these nights"),
        (["trend", "--to", "soon"], "argument --to: 'soon' is no date: write YYYY-MM-DD"),
    ],
)  # fmt: skip
def test_what_matches_nothing_is_one_error_with_suggestions(
    arguments: list[str], message: str, history: Path, capsys: Capture
) -> None:
    assert main([*arguments, "--history", str(history)]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert message in err
