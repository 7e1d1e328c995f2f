"""What is slower, faster, the same or neither; how often that may be wrong; and what cannot be compared."""

import dataclasses
import json
import random
from pathlib import Path
from typing import Any

import pytest
from timed import COUNTS, HEADER, passes, write

pytest.importorskip("scipy", reason="`tox -e bench` has it")

from conformance.bench.results import TimingsFile, read
from conformance.errors import UsageError
from conformance.reports.regression import FORMATS, MARGIN, Changed, compare, counted

STEADY = [0.499, 0.5, 0.501, 0.5, 0.5]


@pytest.fixture
def file(tmp_path: Path) -> Any:
    def make(name: str, timings: list[Any], **header: Any) -> TimingsFile:
        return read(write(tmp_path / name, timings, header={**HEADER, **header}))

    return make


def scaled(by: float) -> list[float]:
    return [by * one for one in STEADY]


def test_each_verdict_and_the_change_of_the_ratio(file: Any) -> None:
    old = [
        *passes("slow", STEADY),
        *passes("fast", STEADY),
        *passes("same", STEADY),
        *passes("noisy", [0.3, 0.6, 0.4, 0.7, 0.5]),
    ]
    new = [
        *passes("slow", scaled(1.1)),
        *passes("fast", scaled(0.8)),
        *passes("same", scaled(1.01)),
        *passes("noisy", [0.7, 0.4, 0.6, 0.3, 0.9]),
    ]
    made = compare(file("old", old), file("new", new))
    by = {one.case.split("/")[1]: one for one in made.cases}
    assert {name: one.verdict for name, one in by.items()} == {
        "slow": "slower",
        "fast": "faster",
        "same": "same",
        "noisy": "inconclusive",
    }
    assert by["slow"].change == pytest.approx(0.1, abs=0.002)
    assert by["slow"].low <= by["slow"].change <= by["slow"].high
    assert (by["slow"].before, by["slow"].after) == pytest.approx((0.5, 0.55), rel=0.01)
    assert by["fast"].change == pytest.approx(-0.2, abs=0.002)
    assert made.worse
    assert counted(made) == {"slower": 1, "faster": 1, "inconclusive": 1, "same": 1}


def test_a_change_within_the_margin_is_no_slower_however_sure(file: Any) -> None:
    made = compare(file("old", passes("one", STEADY)), file("new", passes("one", scaled(1 + MARGIN / 2))))
    assert [one.verdict for one in made.cases] == ["same"]
    assert not made.worse


def test_of_many_comparisons_of_the_same_few_are_told_apart(file: Any) -> None:
    chance = random.Random(7)

    def noisy(count: int) -> list[Any]:
        return [
            one for n in range(count) for one in passes(f"op{n}", [0.5 * 1.03 ** chance.gauss(0, 1) for _ in range(5)])
        ]

    verdicts = [counted(compare(file(f"old{n}", noisy(300)), file(f"new{n}", noisy(300)))) for n in range(3)]
    assert sum(one["slower"] + one["faster"] for one in verdicts) == 0


def test_most_of_what_got_slower_by_a_tenth_is_found_among_many(file: Any) -> None:
    chance = random.Random(11)

    def noisy(of: float) -> list[float]:
        return [of * 1.01 ** chance.gauss(0, 1) for _ in range(5)]

    names = [f"op{n}" for n in range(200)]
    slow = set(names[:20])
    old = [one for name in names for one in passes(name, noisy(0.5))]
    new = [one for name in names for one in passes(name, noisy(0.55 if name in slow else 0.5))]
    made = compare(file("old", old), file("new", new))
    found = {one.case.split("/")[1] for one in made.cases if one.verdict == "slower"}
    assert len(found & slow) >= 18
    assert not found - slow


def test_two_builds_in_turns_are_compared_with_each_other(file: Any) -> None:
    timings = [
        *(one for number in range(5) for one in passes("slow", [0.5 + number / 10], base=(0.5 + number / 10) / 1.1)),
        *passes("same", [0.5, 0.7, 0.6, 0.9, 0.8], base=None),
    ]
    slow = [dataclasses.replace(one, number=number) for number, one in enumerate(timings[:5])]
    base = {"torch": "2.10.0", "python": "3.11.7"}
    made = compare(file("one", slow, against=base))
    (only,) = made.cases
    assert made.paired
    assert (made.before, made.after) == ("torch 2.10.0", "torch 2.13.0")
    assert only.verdict == "slower"
    assert only.change == pytest.approx(0.1)


def test_counts_that_changed_are_told_though_the_time_did_not(file: Any) -> None:
    more = dataclasses.replace(COUNTS, quantize=2)
    made = compare(file("old", passes("one", STEADY)), file("new", passes("one", STEADY, counts=more)))
    assert made.cases[0].counts == ("quantize: 1 → 2",)
    assert "quantize: 1 → 2" in FORMATS["text"](made)


def test_cases_that_came_or_went_are_named(file: Any) -> None:
    old = [*passes("both", STEADY), *passes("old", STEADY)]
    new = [*passes("both", STEADY), *passes("new", STEADY)]
    made = compare(file("old", old), file("new", new))
    assert [one.split("/")[1] for one in (*made.gone, *made.came)] == ["old", "new"]


@pytest.mark.parametrize(
    ("field", "value"), [("cpu", "Another"), ("isa", "avx512_vnni"), ("cores", 64), ("arch", "aarch64")]
)
def test_other_machines_are_refused_unless_told(field: str, value: Any, file: Any) -> None:
    old, new = file("old", passes("one", STEADY)), file("new", passes("one", STEADY), **{field: value})
    with pytest.raises(UsageError, match=rf"{field} is .* in one and .*{value}.* in the other.*--other-machines"):
        compare(old, new)
    assert compare(old, new, other_machines=True).cases


def test_what_cannot_be_compared_is_said(file: Any) -> None:
    one = file("one", passes("one", STEADY))
    with pytest.raises(UsageError, match=r"one: has one build: time it with --against, or name a second file"):
        compare(one)
    with pytest.raises(UsageError, match="no case was timed in both"):
        compare(one, file("two", passes("two", STEADY)))
    with pytest.raises(UsageError, match="2 passes: a comparison needs 3 at least"):
        compare(one, file("few", passes("one", STEADY[:2])))


HOSTILE = "nn.Linear|<script>`\x1b[31m"


def test_every_format_says_the_same_and_hostile_names_do_nothing(file: Any) -> None:
    old, new = ([one for name in (HOSTILE, "nn.ReLU") for one in passes(name, scaled(by))] for by in (1, 1.2))
    made = compare(file("old", old), file("new", new))
    assert [one.verdict for one in made.cases] == ["slower", "slower"]
    text, markdown, values = FORMATS["text"](made), FORMATS["markdown"](made), json.loads(FORMATS["json"](made))
    assert "2 slower, 0 faster" in text
    assert "**2** slower" in markdown
    assert values["verdicts"]["slower"] == 2
    assert [Changed(**{**one, "counts": ()}).verdict for one in values["cases"]] == ["slower", "slower"]
    assert "\x1b" not in text + markdown
    assert "<script>" not in markdown
