"""Files of timings: complete, interrupted and continued, damaged, and of other kinds."""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from timed import HEADER, network, timing, write

from conformance.bench.results import AIM, Writer, read
from conformance.bench.timings import Builds, LayerTime, Machine, Memory, NotTimed, Repeat
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


def test_what_is_measured_beside_timings_is_read_back(tmp_path: Path) -> None:
    repeat = Repeat(timing().id, "1", 0, 1, 0, -0.7, 1e-6)
    machine = Machine("1", 1e11, 1e12, {"16384": 1e10, "65536": 5e9})
    layers = (LayerTime("layer1.0.conv1", "nn.Conv2d", ("quantized.conv2d",), 1e-4, 3e-4),)
    timed = network(memory=Memory(1, 2, 3, 4), layers=layers)
    file = read(write(tmp_path / "one.jsonl", [timed], [repeat, machine]))
    assert (file.timings, file.repeats, file.machines) == ((timed,), (repeat,), (machine,))


def test_later_passes_over_two_builds_may_lack_the_float_model(tmp_path: Path) -> None:
    alone = Builds(timing().new.quantized, ())
    paired = dataclasses.replace(timing(number=1, base=0.6), new=alone, base=alone)
    file = read(
        write(tmp_path / "one.jsonl", [timing(base=0.6), paired], header={**HEADER, "against": {"torch": "2.10.0"}})
    )
    assert [timed.beside_float for timed in file.timings] == [True, False]
    with pytest.raises(UsageError, match=r":3: damaged timing .*: the float model has no rounds"):
        read(write(tmp_path / "two.jsonl", [timing(), dataclasses.replace(timing(number=1), new=alone)]))


def of_schema_1(path: Path) -> Path:
    """Rewrite a file of one timing as the version before placements wrote it."""
    header, first, *rest = map(json.loads, path.read_text().splitlines())
    for name in ("looks", "aim", "budget"):
        del header[name]
    first["new"] = {model: [x for placed in placements for x in placed] for model, placements in first["new"].items()}
    for name in ("pace", "memory", "layers"):
        del first[name]
    for name in ("operations", "traffic"):
        del first["counts"][name]
    path.write_text("".join(json.dumps(line) + "\n" for line in ({**header, "schema": 1}, first, *rest)))
    return path


def test_a_file_of_schema_1_is_read(tmp_path: Path) -> None:
    file = read(of_schema_1(write(tmp_path / "one.jsonl", [timing()], [NOT_TIMED])))
    (timed,) = file.timings
    rounds = tuple(x for placed in timing().new.quantized for x in placed)
    assert timed.new.quantized == (rounds,)
    assert timed.new.quantized_seconds == pytest.approx(min(rounds))
    assert (timed.pace, timed.memory, timed.layers, timed.counts.operations) == (None, None, (), None)
    assert (file.header["looks"], file.header["aim"], file.header["budget"]) == ([5], AIM, None)
    assert file.not_timed == (NOT_TIMED,)


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


def test_a_file_is_continued_with_another_budget(tmp_path: Path) -> None:
    path = tmp_path / "one.jsonl"
    first = Writer(path, HEADER)
    first.add(timing(number=0))
    first.interrupt()
    longer = Writer(path, {**HEADER, "budget": 2 * HEADER["budget"]})
    longer.add(timing(number=1))
    longer.finish()
    assert (len(read(path).timings), read(path).header["budget"]) == (2, 2 * HEADER["budget"])


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
        (replaced(looks=[3, "five"]), "damaged header: looks: "),
        (lambda lines: lines[:-1], "truncated: it has no footer"),
        (lambda lines: [*lines[:1], *lines[2:]], "the footer counts 1 timings, there are 0"),
        (lambda lines: [lines[0], lines[1][:40], *lines[2:]], r":2: not a file of timings, or damaged"),
        (
            lambda lines: [lines[0], lines[1].replace('"counts"', '"count"'), *lines[2:]],
            r":2: damaged timing .*: unknown field count",
        ),
        (
            lambda lines: [lines[0], lines[1].replace('"floating": [[', '"floating": [[0.5, '), *lines[2:]],
            r":2: damaged timing .*: models have unequal numbers of rounds",
        ),
        (
            lambda lines: [lines[0], lines[1].replace("[[0.001", "[[-1.0"), *lines[2:]],
            r":2: damaged timing .*: new: quantized: .* is not a list of a list of a positive",
        ),
        (
            lambda lines: [lines[0], lines[1].replace("[[0.001", "[[NaN"), *lines[2:]],
            r":2: .*damaged: NaN is no number",
        ),
        (lambda lines: [lines[0], lines[1].replace('"timing"', '"row"'), *lines[2:]], r":2: not a line of a file of"),
        (replaced(schema=3), "schema 3; this version reads 1, 2"),
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
