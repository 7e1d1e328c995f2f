"""All shards of a selection are the part of one whole invocation; what is missing is named."""

from pathlib import Path
from typing import Any

import pytest
from invocation import CONFORMS, DIES, HEADER, WRONG, details_of, offsets, row, write

from conformance.__main__ import main
from conformance.errors import UsageError
from conformance.reports import diff
from conformance.reports.merge import merge
from conformance.reports.parts import missing, parts_of
from conformance.results import diagnostics, rows
from conformance.results.rows import Row

ROWS = [CONFORMS, DIES, WRONG, row("nn.ELU")]
DETAILS = {WRONG.id: details_of(WRONG, offsets(1)), CONFORMS.id: details_of(CONFORMS)}


def shards(folder: Path, of: int = 2, name: str = "shard", *, details: bool = False, **header: Any) -> list[Path]:
    """The files of all shards of a selection."""
    paths = []
    for number in range(1, of + 1):
        mine = ROWS[number - 1 :: of]
        paths.append(
            write(
                folder / f"{name}-{number}.jsonl", mine, {**header, "shard": f"{number}/{of}"},
                [DETAILS[row.id] for row in mine if row.id in DETAILS] if details else None,
            )
        )  # fmt: skip
    return paths


def timeless(path: Path) -> str:
    """The text of a rows file of shards or of a whole invocation, whose footers have other sums of seconds."""
    lines = path.read_text().splitlines()
    return "\n".join([*lines[:-1], lines[-1].partition('"seconds"')[0].partition('"torch_seconds"')[0]])


@pytest.mark.parametrize("of", [1, 2, 6])
def test_merged_shards_are_the_file_of_a_whole_invocation(of: int, tmp_path: Path) -> None:
    whole = write(tmp_path / "whole.jsonl", ROWS, details=DETAILS.values())
    merge(shards(tmp_path, of, details=True)[::-1], tmp_path / "merged.jsonl")
    assert timeless(tmp_path / "merged.jsonl") == timeless(whole)
    merged, one = (rows.read(path) for path in (tmp_path / "merged.jsonl", whole))
    assert (merged.header, merged.rows) == (one.header, one.rows)
    assert merged.footer["seconds"] == of * one.footer["seconds"]
    assert diagnostics.read(tmp_path / "merged.jsonl", [merged]) == diagnostics.read(whole, [one])


def test_every_command_takes_shards_for_the_whole(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = write(tmp_path / "whole.jsonl", ROWS)
    paths = shards(tmp_path, 3)
    assert [
        *map(len, (part.file.rows for part in parts_of([*paths, *shards(tmp_path, arch="aarch64", name="arm")])))
    ] == [4, 4]
    for command in (["findings"], ["ci", "summary"], ["ci", "annotations"], ["ci", "badge"]):
        main([*command, str(whole)])
        of_whole = capsys.readouterr()
        main([*command, *map(str, paths)])
        assert capsys.readouterr() == of_whole


def test_missing_shards_are_an_error_unless_it_is_said_that_some_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second, third = shards(tmp_path, 3)
    out = tmp_path / "merged.jsonl"
    lost = f"{second}: shards of this selection are missing: 1/3, 3/3"
    assert main(["merge", str(second), "-o", str(out)]) == 2
    assert f"{lost}: give them too, or merge what there is with --incomplete" in capsys.readouterr().err
    assert not out.exists()
    assert main(["merge", str(second), "-o", str(out), "--incomplete"]) == 0
    assert f"incomplete: {lost}\n" in capsys.readouterr().err
    assert out.read_text() == second.read_text()
    # the others may be merged with it later
    assert main(["merge", str(out), str(third), str(first), "-o", str(out)]) == 0
    assert capsys.readouterr() == (f"{out}: 4 rows of 1 invocations\n", "")


def test_a_lone_shard_and_what_is_new_are_no_whole_selection(tmp_path: Path) -> None:
    whole = write(tmp_path / "whole.jsonl", ROWS)
    lone, other = shards(tmp_path)
    new = write(tmp_path / "new.jsonl", ROWS[:1], {"since": "0" * 64, "only_since": True})
    for part in (lone, new):
        assert diff.compare(whole, part).changes == diff.compare(part, whole).changes == ()
    assert len(diff.compare(whole, write(tmp_path / "some.jsonl", ROWS[:2])).changes) == 2
    merge([lone, other], tmp_path / "merged.jsonl")
    both = diff.compare(write(tmp_path / "more.jsonl", [*ROWS, row("nn.Tanh")]), tmp_path / "merged.jsonl")
    assert [change.kind for change in both.changes] == ["gone claim"]


def test_shards_of_machines_that_the_ledger_does_not_tell_apart_are_joined(tmp_path: Path) -> None:
    first, _ = shards(tmp_path, cpu_flags=["avx2", "fma", "amx"])
    _, second = shards(tmp_path, name="other", cpu="another CPU", os="Linux 7", cpu_flags=["amx", "avx2"])
    (part,) = parts_of([second, first])
    assert part.environment.cpu == "a CPU / another CPU"
    assert (part.environment.os, part.environment.python) == ("Linux / Linux 7", "3.12.1")
    assert part.file.header["cpu_flags"] == ["avx2", "amx"]
    assert part.shard is None


@pytest.mark.parametrize("other", [{"isa": "avx512"}, {"engines": {"fbgemm": "not built", "x86": "available"}}])
def test_shards_of_machines_that_the_ledger_tells_apart_are_not_joined(other: dict[str, Any], tmp_path: Path) -> None:
    paths = [shards(tmp_path)[0], shards(tmp_path, name="other", **other)[1]]
    parts = parts_of(paths)
    assert [str(part.shard) for part in parts] == ["1/2", "2/2"]
    assert missing(parts) == []


def test_shards_of_different_platforms_are_refused_with_their_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two halves that no report can compare; a whole selection of each platform can be merged."""
    first, second = shards(tmp_path)[0], shards(tmp_path, name="other", isa="avx512_vnni")[1]
    assert main(["merge", str(first), str(second), "-o", str(tmp_path / "merged.jsonl")]) == 2
    message = capsys.readouterr().err
    assert (
        f"{first} on x86_64 avx2, {second} on x86_64 avx512_vnni: the shards of one selection ran on different"
        in message
    )
    assert "run all of them with one --isa" in message
    assert not (tmp_path / "merged.jsonl").exists()
    merge([*shards(tmp_path), *shards(tmp_path, name="other", isa="avx512_vnni")], tmp_path / "merged.jsonl")


def test_each_machine_may_have_run_all_shards(tmp_path: Path) -> None:
    paths = [*shards(tmp_path), *shards(tmp_path, name="other", cpu="another CPU")]
    assert [(part.environment.cpu, len(part.file.rows)) for part in parts_of(paths)] == [
        ("a CPU", 4),
        ("another CPU", 4),
    ]


@pytest.mark.parametrize("other", [{"git": "other"}, {"torch": "2.14.0"}, {"selection": ["*"]}, {"isa_limit": "avx2"}])
def test_shards_of_different_selections_do_not_complete_each_other(other: dict[str, Any], tmp_path: Path) -> None:
    parts = parts_of([shards(tmp_path)[0], shards(tmp_path, name="other", **other)[1]])
    assert [line.rpartition(": ")[2] for line in missing(parts)] == ["2/2", "1/2"]


def test_joined_shards_finished_when_the_last_of_them_did(tmp_path: Path) -> None:
    times = [f"2026-01-0{day}T02:30:00+00:00" for day in (2, 3, 1)]
    paths = [
        write(tmp_path / f"{number}.jsonl", [ROWS[number]], {"shard": f"{number}/3"}, finished=times[number - 1])
        for number in (1, 2, 3)
    ]
    (part,) = parts_of(paths)
    assert part.file.finished == times[1]


def test_shards_that_were_cut_differently_are_refused(tmp_path: Path) -> None:
    first, _ = shards(tmp_path, since="0" * 64)
    _, second = shards(tmp_path, name="other", since="1" * 64)
    with pytest.raises(UsageError, match=r"shards 1/2 and 2/2 of one selection were balanced by different rows"):
        parts_of([first, second])
    _, whole = shards(tmp_path, name="unbalanced")
    with pytest.raises(UsageError, match="run all of them with the same --since"):
        parts_of([whole, first])


def test_shards_that_overlap_are_refused(tmp_path: Path) -> None:
    def shard(number: int, content: list[Row], cpu: str) -> Path:
        path: Path = write(tmp_path / f"{number}.jsonl", content, {"shard": f"{number}/2", "cpu": cpu})
        return path

    with pytest.raises(UsageError, match=r"1\.jsonl and the other shards of its selection overlap"):
        parts_of([shard(1, ROWS[:2], "a CPU"), shard(2, ROWS[1:], "another CPU")])


@pytest.mark.parametrize(("field", "value"), [("shard", "3/2"), ("shard", 1), ("since", 0), ("only_since", "yes")])
def test_a_damaged_header_is_named(field: str, value: object, tmp_path: Path) -> None:
    path = write(tmp_path / "rows.jsonl", [CONFORMS], {**HEADER, field: value})
    with pytest.raises(UsageError, match=rf"rows\.jsonl: damaged: {field} of its header is {value!r}"):
        parts_of([path])
