"""Shards are written I/N, and units are dealt to them evenly and always alike."""

import random

import pytest

from conformance.results.shards import Shard, Unit, deal, selects_by_rows


@pytest.mark.parametrize(("text", "shard"), [("1/1", Shard(1, 1)), ("3/4", Shard(3, 4)), ("12/12", Shard(12, 12))])
def test_a_shard_is_read_as_it_is_written(text: str, shard: Shard) -> None:
    assert Shard.parse(text) == shard
    assert str(shard) == text


@pytest.mark.parametrize(
    "text", ["", "1", "0/4", "5/4", "1/0", "-1/4", "1/4/4", "1 / 4", "a/b", "1.5/4", "١/٤", "1/9999999"]
)
def test_other_texts_are_no_shards(text: str) -> None:
    with pytest.raises(ValueError, match="not I/N with 1 <= I <= N"):
        Shard.parse(text)


def test_the_heaviest_unit_goes_first_to_the_shard_that_has_least() -> None:
    weights = {"a": 7, "b": 6, "c": 5, "d": 4, "e": 1}
    assert deal([Unit(*unit) for unit in weights.items()], 2) == {"a": 1, "b": 2, "c": 2, "d": 1, "e": 1}


def test_units_of_a_lower_order_are_dealt_first() -> None:
    assert deal([Unit("heavy", 9, 1), Unit("a", 1), Unit("b", 2)], 2) == {"b": 1, "a": 2, "heavy": 2}


def test_neither_the_order_of_units_nor_equal_weights_change_the_shards() -> None:
    units = [Unit(f"{number}", number % 3) for number in range(40)]
    dealt = deal(units, 7)
    assert deal(random.Random(0).sample(units, len(units)), 7) == dealt
    assert {*dealt.values()} == {*range(1, 8)}


def test_more_shards_than_units_leave_shards_empty() -> None:
    assert deal([Unit("a", 0), Unit("b", 0)], 999_999) == {"a": 1, "b": 2}
    assert deal([], 3) == {}


@pytest.mark.parametrize(
    ("header", "by_rows"),
    [({}, False), ({"since": "0"}, False), ({"shard": "1/2"}, True), ({"only_since": True}, True)],
)
def test_a_shard_and_what_failed_or_is_new_are_selected_by_rows(header: dict[str, object], by_rows: bool) -> None:
    assert selects_by_rows(header) is by_rows
