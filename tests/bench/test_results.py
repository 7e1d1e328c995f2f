"""Files of timings: complete, interrupted and continued, damaged, and of other kinds."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from timed import HEADER, timing, write

from conformance.bench.results import NotTimed, Writer, read
from conformance.errors import UsageError

NOT_TIMED = NotTimed("fbgemm/nn.GRU/dynamic-quint8/ptq/speech_10/bench@x86", "1", "small", "does not conform: numerics")


def test_timings_are_read_back(tmp_path: Path) -> None:
    path = write(tmp_path / "one.jsonl", [timing(number=1), timing(number=0)], [NOT_TIMED])
    file = read(path)
    assert not path.with_name("one.jsonl.partial").exists()
    assert file.timings == (timing(number=1), timing(number=0))
    assert file.not_timed == (NOT_TIMED,)
    assert file.cases == {timing().case: [timing(number=0), timing(number=1)]}
    assert file.header["torch"] == HEADER["torch"]


def test_a_case_that_failed_in_a_later_pass_is_not_timed(tmp_path: Path) -> None:
    died = NotTimed(timing().id, "1", "small", "crashes: killed by SIGSEGV")
    file = read(write(tmp_path / "one.jsonl", [timing(), timing(name="nn.ReLU")], [died]))
    assert [*file.cases] == [timing(name="nn.ReLU").case]


def test_an_interrupted_file_is_continued(tmp_path: Path) -> None:
    path = tmp_path / "one.jsonl"
    first = Writer(path, HEADER)
    first.add(timing(number=0))
    first.add(NOT_TIMED)
    first.interrupt()
    with path.with_name("one.jsonl.partial").open("a") as cut:
        cut.write('{"kind": "timing", "id": "fbgemm/')
    again = Writer(path, HEADER)
    assert again.timings == {(timing().case, 0): timing(number=0)}
    assert again.not_timed == {NOT_TIMED.case: NOT_TIMED}
    again.add(timing(number=1))
    again.finish()
    assert len(read(path).timings) == 2


def test_the_partial_file_of_another_invocation_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "one.jsonl"
    Writer(path, {**HEADER, "torch": "2.12.0"}).interrupt()
    with pytest.raises(
        UsageError, match=r"torch '2\.12\.0', where this one has '2\.13\.0': remove it, or name another"
    ):
        Writer(path, HEADER)
    assert path.with_name("one.jsonl.partial").exists()


def replaced(**changes: Any) -> Callable[[list[str]], list[str]]:
    def change(lines: list[str]) -> list[str]:
        return [json.dumps({**json.loads(lines[0]), **changes}), *lines[1:]]

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda lines: [], "empty: .*`tox -e bench`"),
        (lambda lines: ["{}"], ":1: not a line of a file of timings; .*`tox -e bench`"),
        (lambda lines: ["nonsense"], r":1: not a file of timings, or damaged"),
        (lambda lines: ["[]"], r":1: not a line of a file of timings"),
        (lambda lines: lines[1:], "has no header: not a file of timings"),
        (lambda lines: [*lines, *lines], "damaged: 2 files of timings in one"),
        (lambda lines: [*lines[:2], *lines[1:]], ":3: duplicate timing fbgemm/nn.Linear/"),
        (replaced(passes=None, engines={}), "damaged header: passes: None is not a count"),
        (lambda lines: [json.dumps({"kind": "header", "schema": 2, "engines": {}})], "its header has no passes"),
        (lambda lines: lines[:-1], "truncated: it has no footer"),
        (lambda lines: [*lines[:1], *lines[2:]], "the footer counts 1 timings, there are 0"),
        (lambda lines: [lines[0], lines[1][:40], *lines[2:]], r":2: not a file of timings, or damaged"),
        (
            lambda lines: [lines[0], lines[1].replace('"counts"', '"count"'), *lines[2:]],
            r":2: damaged timing .*: unknown field count",
        ),
        (
            lambda lines: [lines[0], lines[1].replace('"floating": [', '"floating": [0.5, '), *lines[2:]],
            r":2: damaged timing .*: builds and models have unequal numbers of rounds",
        ),
        (
            lambda lines: [lines[0], lines[1].replace("[0.001", "[-1.0"), *lines[2:]],
            r":2: damaged timing .*: new: quantized: .* is not a list of a positive",
        ),
        (lambda lines: [lines[0], lines[1].replace("[0.001", "[NaN"), *lines[2:]], r":2: .*damaged: NaN is no number"),
        (lambda lines: [lines[0], lines[1].replace('"timing"', '"row"'), *lines[2:]], r":2: not a line of a file of"),
        (replaced(schema=2), "schema 2; this version reads 1"),
        (replaced(cores="many"), "damaged header: cores: 'many' is not a count; time it again"),
    ],
)
def test_a_damaged_file_is_one_error_that_names_it(
    change: Callable[[list[str]], list[str]], message: str, tmp_path: Path
) -> None:
    path = write(tmp_path / "one.jsonl", [timing()], [NOT_TIMED])
    path.write_text("".join(line + "\n" for line in change(path.read_text().splitlines())))
    with pytest.raises(UsageError, match=message) as raised:
        read(path)
    assert str(raised.value).startswith(str(path))
    assert "\n" not in str(raised.value)


def test_a_file_that_cannot_be_written_or_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="name a file that can be written"):
        Writer(tmp_path / "file" / "one.jsonl", HEADER)
    with pytest.raises(UsageError, match=r"missing\.jsonl: No such file"):
        read(tmp_path / "missing.jsonl")
