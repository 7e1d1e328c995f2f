"""Writes docs/faults.md, which says of every fault what notices it: `python -m tests.faults.table`."""

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from .catalogue import EVERY, FAULTS, SURVIVORS
from .fault import Fault

PATH = Path(__file__).parents[2] / "docs" / "faults.md"

INTRODUCTION = """\
# Faults that the suite notices

Written by `python -m tests.faults.table`; `tests/faults/` puts each of these faults in, one at a time, and holds what the
suite then says to this table. What goes off is a check of a run, or

- `crashes`: the run's process ended or hung
- `golden`: a golden that a run cannot use, or `python -m conformance golden check`
- `parity`: the comparison of a config with torch's own; where it stands alone, no run notices
- `ledger`: the reader of the ledger, or an entry that matches no run
- `rows`: the reader of rows files
- `suite`: the suite raises on the run
"""


def cell(text: str) -> str:
    return text.replace("|", "\\|")


def lines() -> Iterator[str]:
    yield INTRODUCTION
    yield f"{len(EVERY)} faults: {len(FAULTS)} are noticed and {len(SURVIVORS)} are not.\n"
    yield "| group | faults | not noticed |"
    yield "| --- | --: | --: |"
    survive = Counter(fault.group for fault in SURVIVORS)
    counted = Counter(fault.group for fault in EVERY)
    yield from (f"| {name} | {count} | {survive[name]} |" for name, count in sorted(counted.items()))
    yield ""
    noticed = Counter(name for fault in FAULTS for name in fault.caught_by)
    alone = Counter(name for fault in FAULTS if len(fault.caught_by) == 1 for name in fault.caught_by)
    yield "| noticed by | faults | by it alone |"
    yield "| --- | --: | --: |"
    yield from (f"| {name} | {count} | {alone[name]} |" for name, count in sorted(noticed.items()))
    yield ""
    if SURVIVORS:
        yield "## Not noticed\n"
        yield "| fault | why |"
        yield "| --- | --- |"
        yield from (f"| {cell(fault.id)} | {cell(fault.survives)} |" for fault in ordered(SURVIVORS))
        yield ""
    yield "## Noticed\n"
    for group in sorted({fault.group for fault in FAULTS}):
        yield f"### {group}\n"
        yield "| fault | noticed by |"
        yield "| --- | --- |"
        of_group = [fault for fault in FAULTS if fault.group == group]
        yield from (f"| {cell(fault.name)} | {', '.join(sorted(fault.caught_by))} |" for fault in ordered(of_group))
        yield ""


def ordered(faults: Iterable[Fault]) -> list[Fault]:
    return sorted(faults, key=lambda fault: fault.id)


def text() -> str:
    return "\n".join(lines()).rstrip() + "\n"


if __name__ == "__main__":
    PATH.parent.mkdir(exist_ok=True)
    PATH.write_text(text(), encoding="utf-8")
