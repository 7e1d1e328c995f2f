"""The file format: parts, damage, partial files, and atomic replacement, for any kind of lines."""

import errno
import multiprocessing
import os
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest

from conformance.errors import UsageError
from conformance.results.jsonl import Format, PartialFile, partial_path, read_text, replacing


def decode(kind: str, values: dict[str, Any], schema: int) -> str:
    if not isinstance(values.get("id"), str):
        raise TypeError("missing field id")
    return str(values["id"])


FORMAT: Format[str] = Format(
    name="a file of notes",
    kinds=("note",),
    schemas=(1, 2),
    decode=decode,
    encode=lambda note: ("note", {"id": note}),
    key=lambda note: note,
    counts=lambda notes: {"notes": len(notes)},
    unit="notes",
    again="write it again",
    mark="author",
)
HEADER = {"author": "a", "suite": "0.9"}


def written(path: Path, *notes: str) -> Path:
    file = PartialFile(FORMAT, path, HEADER, "--notes")
    for note in notes:
        file.add(note)
    file.complete(notes, {"seconds": 1})
    return path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "notes.jsonl"


def test_header_items_and_footer_are_read_back(path: Path) -> None:
    (part,) = read_text(FORMAT, written(path, "b", "a"))
    assert part.header == {"schema": 2, **HEADER}
    assert part.items == ("b", "a")
    assert part.footer == {"notes": 2, "seconds": 1}
    assert part.text == path.read_text()


def test_parts_one_after_the_other_are_read_apart(path: Path, tmp_path: Path) -> None:
    second = written(tmp_path / "other.jsonl", "a")
    texts = [written(path, "a").read_text(), second.read_text().removesuffix("\n")]
    path.write_text("".join(texts))
    assert [part.items for part in read_text(FORMAT, path)] == [("a",), ("a",)]
    assert all(part.text.endswith("\n") for part in read_text(FORMAT, path))


def test_an_incomplete_file_is_beside_its_place(path: Path) -> None:
    file = PartialFile(FORMAT, path, HEADER, "--notes")
    file.add("a")
    assert [beside.name for beside in path.parent.iterdir()] == ["notes.jsonl.partial"]
    with pytest.raises(
        UsageError, match=r"notes\.jsonl\.partial: truncated: it has no footer, so notes may be missing"
    ):
        read_text(FORMAT, file.partial)
    file.complete(["a"], {})
    assert [beside.name for beside in path.parent.iterdir()] == ["notes.jsonl"]


DAMAGES: dict[str, tuple[Callable[[list[str]], list[str]], str]] = {
    "empty": (lambda lines: [], ": empty: "),
    "no header": (lambda lines: lines[1:], ": has no header: not a file of notes, or its beginning is lost"),
    "a second part without a header": (lambda lines: [*lines, lines[1]], ":5: a note without a header: "),
    "a header within a part": (lambda lines: [lines[0], *lines], ": truncated: it has no footer"),
    "a blank line": (lambda lines: [lines[0], "", *lines[1:]], ":2: not a file of notes, or damaged: "),
    "another kind": (
        lambda lines: [line.replace('"note"', '"row"') for line in lines],
        ":2: not a line of a file of notes",
    ),
    "a list": (lambda lines: ["[1]", *lines], ":1: not a line of a file of notes"),
    "deep nesting": (lambda lines: ["[" * 100_000, *lines], ":1: not a file of notes, or damaged: nested too deeply"),
    "another format": (
        lambda lines: [line.replace("author", "writer") for line in lines],
        ": not a file of notes: its",
    ),
    "a later schema": (
        lambda lines: [line.replace('"schema": 2', '"schema": 3') for line in lines],
        ": schema 3; this version reads 1, 2: take version 0.9 of the suite, which wrote it, or write it again",
    ),
    "a damaged item": (
        lambda lines: [line.replace('"id": "a"', '"id": 1') for line in lines],
        ":2: damaged note 1: missing",
    ),
    "an item twice": (lambda lines: [*lines[:2], *lines[1:]], ":3: duplicate note a; write it again"),
    "an item lost": (
        lambda lines: [lines[0], *lines[2:]],
        ": damaged: the footer counts 2 notes, there are 1; write it",
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_one_error_that_names_the_file_and_the_fix(damage: str, path: Path) -> None:
    change, message = DAMAGES[damage]
    lines = written(path, "a", "b").read_text().splitlines()
    path.write_text("".join(f"{line}\n" for line in change(lines)))
    with pytest.raises(UsageError) as raised:
        read_text(FORMAT, path)
    assert str(raised.value).startswith(f"{path}{message}")
    assert str(raised.value).endswith("write it again")


def test_a_file_is_replaced_only_by_a_complete_one(path: Path) -> None:
    path.write_text("old")

    def fail() -> None:
        with replacing(path) as beside:
            beside.write_text("half")
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert path.read_text() == "old"
    with replacing(path) as beside:
        beside.write_text("new")
    assert path.read_text() == "new"
    assert [file.name for file in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize("name", ["pipe", "folder", "", "partial"])
def test_what_is_no_regular_file_is_not_replaced(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    os.mkfifo("partial.partial")
    Path("folder").mkdir()
    before = {path: path.stat().st_ino for path in tmp_path.iterdir()}
    refused = rf"--notes {name or '.'}: is a (device, a pipe or a socket|directory): name a file that can be written"
    with pytest.raises(UsageError, match=refused):
        PartialFile(FORMAT, Path(name), HEADER, "--notes")
    if name != "partial":
        with pytest.raises(UsageError, match=refused), replacing(Path(name), "--notes"):
            pass
    assert {path: path.stat().st_ino for path in tmp_path.iterdir()} == before


def test_a_partial_footer_is_refused(path: Path) -> None:
    path.write_text("old")
    file = PartialFile(FORMAT, path, HEADER, "--notes")
    file.add("a")
    file.end_early("it ended after 1 of 2", ["a"])
    assert path.read_text() == "old"
    path.write_text(file.partial.read_text())
    with pytest.raises(UsageError) as raised:
        read_text(FORMAT, path)
    assert str(raised.value) == f"{path}: partial: it ended after 1 of 2, so notes are missing; write it again"


def hold(path: Path, release: Connection) -> None:
    """Write the file in a process of its own until something is sent."""
    file = PartialFile(FORMAT, path, HEADER, "--notes")
    file.add("first")
    release.send(None)
    release.recv()
    file.complete(["first"], {})
    release.send(None)


@pytest.fixture
def holding(path: Path) -> tuple[BaseProcess, Connection]:
    """A process that writes the file, and the connection that releases it."""
    context = multiprocessing.get_context("fork")
    own, others = context.Pipe()
    process = context.Process(target=hold, args=(path, others))
    process.start()
    own.recv()
    return process, own


def test_a_file_that_another_process_writes_is_refused_until_it_ends(
    path: Path, holding: tuple[BaseProcess, Connection]
) -> None:
    process, own = holding
    with pytest.raises(UsageError) as raised:
        PartialFile(FORMAT, path, HEADER, "--notes")
    assert str(raised.value) == (
        f"{path}: another process is writing it: wait for its end, or name another file with --notes"
    )
    own.send(None)
    own.recv()
    process.join()
    (part,) = read_text(FORMAT, path)
    assert part.items == ("first",)
    assert written(path, "second").exists()


def test_a_process_that_was_killed_leaves_no_lock(path: Path, holding: tuple[BaseProcess, Connection]) -> None:
    process, _ = holding
    process.kill()
    process.join()
    assert partial_path(path).exists()
    (part,) = read_text(FORMAT, written(path, "a"))
    assert part.items == ("a",)


@pytest.mark.parametrize("step", ["add", "complete"])
def test_a_full_disk_is_one_error_that_names_the_file(path: Path, step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path.write_text("old")
    file = PartialFile(FORMAT, path, HEADER, "--notes")

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(file._file, "write", full)
    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(UsageError) as raised:
        file.add("a") if step == "add" else file.complete(["a"], {})
    assert str(raised.value) == f"--notes {path}: No space left on device: name a file that can be written"
    assert path.read_text() == "old"
    assert sorted(beside.name for beside in path.parent.iterdir()) == ["notes.jsonl", "notes.jsonl.partial"]
