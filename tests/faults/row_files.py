"""Faults of rows files, which the reader must refuse."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from conformance.errors import UsageError
from conformance.results import rows
from conformance.results.rows import Writer

from .fault import Alarms, Fault, case
from .ledgers import judged

RUNS = (case("nn.Linear"), case("torch.add", "alpha_2"), case("nn.ReLU"))
Lines = list[str]


def written(path: Path) -> Lines:
    """Write a valid rows file and return its lines."""
    writer = Writer(path, {"suite": "1", "engines": {}, "backends": ["fbgemm"]})
    for row in judged():
        if row.id in RUNS:
            writer.add(row)
    writer.finish({"seconds": 1.0, "torch_seconds": 1.0})
    assert rows.read(path).footer["rows"] == len(RUNS)
    return path.read_text(encoding="utf-8").splitlines()


def damaged(name: str, caught: str, change: Callable[[Lines], Lines]) -> Fault:
    def alarms(folder: Path) -> Alarms:
        path = folder / "rows.jsonl"
        lines = written(path)
        changed = change(lines)
        assert changed != lines
        path.write_text("".join(line + "\n" for line in changed), encoding="utf-8")
        try:
            rows.read(path)
        except UsageError:
            return Alarms({"rows"})
        return Alarms()

    return Fault("rows", name, caught, alarms, RUNS)


def edited(place: int, change: Callable[[dict[str, Any]], object]) -> Callable[[Lines], Lines]:
    """Change the fields of the line at an index."""

    def edit(lines: Lines) -> Lines:
        values = json.loads(lines[place])
        change(values)
        changed = [*lines]
        changed[place] = json.dumps(values)
        return changed

    return edit


def field(place: int, **values: Any) -> Callable[[Lines], Lines]:
    return edited(place, lambda line: line.update(values))


def without(place: int) -> Callable[[Lines], Lines]:
    return lambda lines: [line for line in lines if line is not lines[place]]


FAULTS = [
    damaged("the file is empty", "rows", lambda lines: []),
    damaged("the file is not JSON", "rows", lambda lines: ["<html>"]),
    damaged("the file is cut within a line", "rows", lambda lines: [*lines[:-2], lines[-2][:40]]),
    damaged("the footer is missing", "rows", without(-1)),
    damaged("the header is missing", "rows", without(0)),
    damaged("a row is missing", "rows", without(2)),
    damaged("a row is duplicated", "rows", lambda lines: [*lines[:2], *lines[1:-1], lines[-1]]),
    damaged("a row replaces another", "rows", lambda lines: [*lines[:2], lines[1], *lines[3:]]),
    damaged("two files are in one", "rows", lambda lines: [*lines, *lines]),
    damaged("a second header", "rows", lambda lines: [lines[0], *lines]),
    damaged("a second footer", "rows", lambda lines: [*lines, lines[-1]]),
    damaged("the header is at the end", "rows", lambda lines: [*lines[1:], lines[0]]),
    damaged("the schema is newer", "rows", field(0, schema=rows.FORMAT.schemas[-1] + 1)),
    damaged("the schema is missing", "rows", edited(0, lambda line: line.pop("schema"))),
    damaged("a line has another kind", "rows", field(1, kind="note")),
    damaged("a line is not an object", "rows", lambda lines: [lines[0], "[1, 2]", *lines[1:]]),
    damaged("a line is blank", "rows", lambda lines: [lines[0], "", *lines[1:]]),
    damaged("a row has an unknown field", "rows", field(1, colour="red")),
    damaged("a row has no id", "rows", edited(1, lambda line: line.pop("id"))),
    damaged("a row has no verdict", "rows", edited(1, lambda line: line.pop("verdict"))),
    damaged("a row has no kernels", "rows", edited(1, lambda line: line.pop("kernels"))),
    damaged("a row has no checks", "rows", edited(1, lambda line: line.pop("checks"))),
    damaged("a row lacks a check", "rows", edited(1, lambda line: line["checks"].pop("numerics"))),
    damaged("a row's verdict is unknown", "rows", field(1, verdict="passes")),
    damaged("a row's check is unknown", "rows", edited(1, lambda line: line["checks"].update(speed="pass"))),
    damaged(
        "a row's check has an unknown outcome", "rows", edited(1, lambda line: line["checks"].update(numerics="maybe"))
    ),
    damaged(
        "a row conforms with a check that fails",
        "rows",
        edited(1, lambda line: (line["checks"].update(numerics="fail"), line.update(verdict="conforms"))),
    ),
    damaged(
        "a row deviates with no check that fails",
        "rows",
        edited(1, lambda line: line.update(checks={}, verdict="deviates")),
    ),
    damaged("a row crashes with checks that pass", "rows", field(1, verdict="crashes")),
    damaged("a row's number is NaN", "rows", field(1, sqnr_db=float("nan"))),
    damaged("a row's number is a string", "rows", field(1, seconds="soon")),
    damaged("a row's engine is not its id's", "rows", field(1, engine="x86")),
    damaged("the footer has another total", "rows", field(-1, rows=7)),
    damaged("the footer counts other verdicts", "rows", edited(-1, lambda line: line["verdicts"].update(conforms=9))),
    damaged("the footer counts other checks", "rows", edited(-1, lambda line: line["checks"].update(numerics=9))),
]
