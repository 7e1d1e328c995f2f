"""Files of migrations: written, read, and refused."""

from pathlib import Path

import pytest

from conformance.errors import UsageError
from conformance.results.migrations import Distance, Migrated, Outcome, read, write

HEADER = {"platform": "x86_64", "torch": "2.13.0"}
ITEMS = [
    Migrated(
        "fbgemm/nn.Conv2d/static-quint8", "x86", "nn.Conv2d", "ptq", "x86inductor", "x86-inductor", True, Outcome.KEPT
    ),
    Migrated(
        *(
            "fbgemm/nn.Linear/static-quint8",
            "x86",
            "nn.Linear",
            "ptq",
            "x86inductor",
            "x86-inductor",
            True,
            Outcome.OTHER,
        ),
        distance=Distance(8, 2, 1.5, 0.25, in_float=True),
        ratio=2.5,
    ),
]


def test_a_file_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "below" / "migrations.jsonl"
    write(path, HEADER, ITEMS)
    header, items = read(path)
    assert header.items() >= HEADER.items()
    assert [*items] == ITEMS
    assert [*path.parent.iterdir()] == [path]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda text: "", "empty"),
        (lambda text: text.rpartition('{"kind":"footer"')[0], "truncated"),
        (lambda text: text.replace('"kept"', '"held"'), "damaged migrated"),
        (lambda text: text.replace('"schema":1', '"schema":9'), "schema 9"),
        (lambda text: text.replace('"kind":"migrated"', '"kind":"row"'), "not a line of a file of migrations"),
        (lambda text: text.replace('"claims":2', '"claims":3'), "counts 3 claims, there are 2"),
    ],
)
def test_a_damaged_file_is_refused(tmp_path: Path, change: object, message: str) -> None:
    path = tmp_path / "migrations.jsonl"
    write(path, HEADER, ITEMS)
    path.write_text(change(path.read_text()))  # type: ignore[operator]
    with pytest.raises(UsageError, match=message):
        read(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"none\.jsonl"):
        read(tmp_path / "none.jsonl")
