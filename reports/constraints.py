"""The table of constraints from rows files, as markdown: documented, enforced at prepare, true of the converted model."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from conformance import markdown
from conformance.configs.engines import ENGINES
from conformance.errors import UsageError
from conformance.markdown import marked
from conformance.results.constraints import CONSTRAINTS, DOCUMENTED, FIELDS, SIDES, UNENFORCED, Constraint
from conformance.results.findings import text_of
from conformance.results.findings.constraints import (
    IgnoredQConfigTrainsWeight,
    SatisfyingQConfigWarned,
    ViolatingQConfigUsed,
)
from conformance.results.known import Entry
from conformance.results.rows import Row

from . import documents


def kind(row: Row) -> str:
    """The kind of the operator that prepare sees: module or function, fused or not, dynamic, QAT."""
    form = "module" if row.pattern.partition(".")[0] in ("nn", "nni", "nnqat", "nniqat") else "function"
    fused = "+" in row.pattern or row.pattern.startswith(("nni.", "nniqat."))
    dynamic = "dynamic " if row.dtype_config.startswith("dynamic") else ""
    unregistered = f" ({row.backend})" if row.backend not in ENGINES else ""
    return f"{dynamic}{'fused ' if fused else ''}{form}{', QAT' if row.flow == 'qat' else ''}{unregistered}"


def constraint_of(row: Row) -> Constraint:
    """The constraint that a row tests. It has no side if this version of the suite does not have the constraint."""
    return CONSTRAINTS.get(row.variant, Constraint("", row.variant.replace("`", "'")))


def listed(rows: Iterable[Row], check: str, entries: Sequence[Entry]) -> str:
    """The ids of the ledger's entries for the rows that fail in a check."""
    ids = dict.fromkeys(
        entry.id
        for row in rows
        if check in row.failed
        for entry in entries
        if check in entry.check
        if entry.matches(row.id)
    )
    return ", ".join(f"`{name}`" for name in ids) or "unlisted"


def _some(failing: int, total: int) -> str:
    return "no" if failing == total else f"no for {failing} of {total}"


def at_prepare(rows: Sequence[Row], entries: Sequence[Entry]) -> str:
    """Whether prepare enforces the field. Rows without findings (schema 1) count as plain failures."""
    if constraint_of(rows[0]).field in UNENFORCED:
        return "no, as documented"
    failing = [row for row in rows if "observed" in row.failed]
    if not failing:
        return "yes"
    word = (
        "but for weights in training" if all(map(_fails_in_training_only, failing)) else _some(len(failing), len(rows))
    )
    return f"{word}: {listed(failing, 'observed', entries)}"


def _fails_in_training_only(row: Row) -> bool:
    findings = [finding for finding in row.findings if finding.check == "observed"]
    return bool(findings) and all(isinstance(finding, IgnoredQConfigTrainsWeight) for finding in findings)


def _passes_on(row: Row) -> bool:
    """Whether a QConfig that prepare treats wrongly causes a violation in the converted model."""
    return any(
        isinstance(finding, ViolatingQConfigUsed | SatisfyingQConfigWarned) and finding.consequence is not None
        for finding in row.findings
    )


def converted(rows: Sequence[Row], entries: Sequence[Entry]) -> str:
    """Whether converted models satisfy the field, with QConfigs that satisfy it and those that prepare accepts."""
    failing = [row for row in rows if "constraints" in row.failed]
    if failing:
        return f"{_some(len(failing), len(rows))}: {listed(failing, 'constraints', entries)}"
    if any(row.checks.get("constraints") == "skip" for row in rows):
        return "no, as documented"
    if passed := [row for row in rows if _passes_on(row)]:
        return f"if the QConfig satisfies it, else no: {listed(passed, 'observed', entries)}"
    unknown = any("observed" in row.failed and not row.findings for row in rows)
    return "if the QConfig satisfies it, else unknown: rows of schema 1" if unknown else "yes"


def claims(rows: Iterable[Row]) -> str:
    """The number of claims of each backend in rows; several engines of a claim count once."""
    count = Counter(backend for backend, *_ in {(r.backend, r.pattern, r.dtype_config) for r in rows})
    return ", ".join(f"{name} {count[name]}" for name in sorted(count))


HEAD = ("field", "side", "operators", "claims", "documented", "enforced at prepare", "holds in the converted model")


def cells(rows: Iterable[Row], entries: Sequence[Entry]) -> Iterator[tuple[str, ...]]:
    """The cells of the table: a row for every field, side and kind of operator."""
    groups: dict[tuple[str, str, str], list[Row]] = {}
    for row in rows:
        if row.profile == "constraints":
            constraint = constraint_of(row)
            groups.setdefault((constraint.field, constraint.side, kind(row)), []).append(row)
    for (field, side, operators), members in sorted(groups.items(), key=lambda group: _place(*group[0])):
        documented = "not enforced" if field in UNENFORCED else "enforced"
        yield (
            f"`{field}`",
            side,
            operators,
            claims(members),
            documented,
            at_prepare(members, entries),
            converted(members, entries),
        )


def _place(field: str, side: str, operators: str) -> tuple[int, int, str]:
    """Sort key: field and side in their own order, then the kind of operator. Unknown fields and sides come last."""
    fields, sides = [*FIELDS, field], [*SIDES, side]
    return fields.index(field), sides.index(side), operators


def table(rows: Iterable[Row], entries: Sequence[Entry]) -> Iterator[str]:
    """The lines of the table. Raises UsageError if no row is about a constraint."""
    lines = [*cells(rows, entries)]
    if not lines:
        raise UsageError("no row is about a constraint: run conformance/test_constraints.py")
    return markdown.table(HEAD, (map(marked, line) for line in lines))


@dataclass(frozen=True)
class ShownEntry:
    """A ledger entry that rows show: the number of runs and their claims, the row with the shortest detail, the sentence of
    that row about the entry's check, and the command that reproduces it."""

    entry: Entry
    row: Row
    detail: str
    command: str
    runs: int
    claims: str


def _smallest(rows: Sequence[Row], entry: Entry) -> Row:
    """The row with the fewest failed checks beyond those of the entry, then with the shortest detail."""
    return min(rows, key=lambda row: (len(row.failed - entry.check), len(row.detail), row.id))


def shown_entries(rows: Sequence[Row], entries: Sequence[Entry], commands: Mapping[str, str]) -> Iterator[ShownEntry]:
    """Yield the ledger entries that rows show. A row without findings (schema 1) is quoted with its whole detail. `commands`
    has the command that reproduces a run by its id."""
    rows = [row for row in rows if row.profile == "constraints" and row.failed]
    for entry in entries:
        shown = [row for row in rows if entry.check <= row.failed and entry.matches(row.id)]
        if not shown:
            continue
        row = _smallest(shown, entry)
        check = min(entry.check)
        detail = text_of(finding for finding in row.findings if finding.check == check) or row.detail
        yield ShownEntry(entry, row, detail, commands[row.id], len(shown), claims(shown))


def document(rows: Sequence[Row], entries: Sequence[Entry], command: str, commands: Mapping[str, str]) -> list[str]:
    """The lines of the whole page, which `command` writes."""
    shown = shown_entries(rows, entries, commands)
    context = {"command": command, "documented": DOCUMENTED, "table": table(rows, entries), "shown_entries": shown}
    return documents.lines("constraints.md", **context)
