"""Shards: parts of a selection that several machines run, each without knowing of the others."""

import heapq
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Shard:
    """One part of `of` parts of a selection, by its number from 1."""

    number: int
    of: int

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"

    @classmethod
    def parse(cls, text: str) -> "Shard":
        """The shard of a text such as `1/4`. Raises ValueError for any other text."""
        numbers = re.fullmatch(r"(\d{1,6})/(\d{1,6})", text, re.ASCII)
        shard = cls(*map(int, numbers.groups())) if numbers else None
        if shard is None or not 1 <= shard.number <= shard.of:
            raise ValueError("not I/N with 1 <= I <= N")
        return shard


@dataclass(frozen=True)
class Unit:
    """What a shard has as a whole or not at all. `weight` is its duration, an integer: the same sum on every machine. Units
    of a lower `order` are dealt first."""

    name: str
    weight: int
    order: int = 0


def deal(units: Iterable[Unit], of: int) -> dict[str, int]:
    """The number of the shard of each unit, by name: the heaviest unit first, each to the shard that has the least so far."""
    units = sorted(units, key=lambda unit: (unit.order, -unit.weight, unit.name))
    # shards beyond the number of units get none; of equal loads the lowest number is first
    loads = [(0, number) for number in range(1, min(of, len(units)) + 1)]
    dealt: dict[str, int] = {}
    for unit in units:
        load, dealt[unit.name] = loads[0]
        heapq.heapreplace(loads, (load + max(unit.weight, 1), dealt[unit.name]))
    return dealt


def selects_by_rows(header: Mapping[str, Any]) -> bool:
    """Whether an invocation ran a part of its selection that only its rows tell: a shard, or what failed or was new."""
    return bool(header.get("shard") or header.get("only_since"))
