"""The table of constraints from rows files, as markdown: what is documented, enforced, and kept in the converted model."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from conformance.configs.engines import ENGINES
from conformance.errors import UsageError
from conformance.markdown import code, escaped, marked
from conformance.results.constraints import DOCUMENTED, FIELDS, SIDES, UNENFORCED
from conformance.results.ledger import Entry
from conformance.results.rows import Row, repro_command


def kind(row: Row) -> str:
    """What the operator of a row is for prepare: where its weights are, and how many operators it takes as one."""
    what = "module" if row.pattern.startswith(("nn.", "nni.", "nnqat.", "nniqat.")) else "function"
    fused = "+" in row.pattern or row.pattern.startswith(("nni.", "nniqat."))
    dynamic = "dynamic " if row.dtype_config.startswith("dynamic") else ""
    unregistered = f" ({row.backend})" if row.backend not in ENGINES else ""
    return f"{dynamic}{'fused ' if fused else ''}{what}{', QAT' if row.flow == 'qat' else ''}{unregistered}"


def about(variant: str) -> tuple[str, str]:
    """Side and field that a run is about, by the name of its variant."""
    side, _, field = variant.replace("`", "'").partition(".")  # the table has what it names between backticks
    return side, field


def listed(rows: Iterable[Row], check: str, entries: Sequence[Entry]) -> str:
    """The ledger's entries of the rows that fail in a check."""
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
    if about(rows[0].variant)[1] in UNENFORCED:
        return "no, as documented"
    failing = [row for row in rows if "observed" in row.failed]
    if not failing:
        return "yes"
    trained = all("observed: it is ignored, and its weight is" in row.detail for row in failing)
    word = "but for weights in training" if trained else _some(len(failing), len(rows))
    return f"{word}: {listed(failing, 'observed', entries)}"


def converted(rows: Sequence[Row], entries: Sequence[Entry]) -> str:
    """Whether the field holds in converted models: with QConfigs that satisfy it, and with those that prepare lets pass."""
    failing = [row for row in rows if "constraints" in row.failed]
    if failing:
        return f"{_some(len(failing), len(rows))}: {listed(failing, 'constraints', entries)}"
    if any(row.checks.get("constraints") == "skip" for row in rows):
        return "no, as documented"
    passed = [row for row in rows if "; then " in row.detail]
    return f"if the QConfig satisfies it, else no: {listed(passed, 'observed', entries)}" if passed else "yes"


def claims(rows: Iterable[Row]) -> str:
    """How many claims of each backend rows are about; engines do not count twice."""
    count = Counter(backend for backend, *_ in {(r.backend, r.pattern, r.dtype_config) for r in rows})
    return ", ".join(f"{name} {count[name]}" for name in sorted(count))


HEAD = ("field", "side", "operators", "claims", "documented", "enforced at prepare", "holds in the converted model")


def cells(rows: Iterable[Row], entries: Sequence[Entry]) -> Iterator[tuple[str, ...]]:
    """The cells of the table: a row for every field, side and kind of operator."""
    groups: dict[tuple[str, str, str], list[Row]] = {}
    for row in rows:
        if row.profile == "constraints":
            side, field = about(row.variant)
            groups.setdefault((field, side, kind(row)), []).append(row)
    for (field, side, what), found in sorted(groups.items(), key=lambda group: _place(*group[0])):
        documented = "not enforced" if field in UNENFORCED else "enforced"
        yield (
            f"`{field}`",
            side,
            what,
            claims(found),
            documented,
            at_prepare(found, entries),
            converted(found, entries),
        )


def _place(field: str, side: str, what: str) -> tuple[int, int, str]:
    """Sorts by field and side in their order; what only another version of the suite knows comes last."""
    fields, sides = [*FIELDS, field], [*SIDES, side]
    return fields.index(field), sides.index(side), what


def table(rows: Iterable[Row], entries: Sequence[Entry]) -> Iterator[str]:
    """The lines of the table. Raises UsageError if no row is about a constraint."""
    lines = [*cells(rows, entries)]
    if not lines:
        raise UsageError("no row is about a constraint: run conformance/test_constraints.py")
    yield f"| {' | '.join(HEAD)} |"
    yield f"| {' | '.join(['---'] * len(HEAD))} |"
    for line in lines:
        yield f"| {' | '.join(map(marked, line))} |"


@dataclass(frozen=True)
class Gap:
    """A ledger entry that rows show: how many runs of which claims, and the smallest counterexample."""

    entry: Entry
    row: Row
    detail: str
    runs: int
    claims: str


def _smallest(rows: Sequence[Row], entry: Entry) -> Row:
    """The row whose detail is shortest, and of those the first."""
    return min(rows, key=lambda row: (len(row.failed - entry.check), len(row.detail), row.id))


def gaps(rows: Sequence[Row], entries: Sequence[Entry]) -> Iterator[Gap]:
    """A gap for each ledger entry that the rows show."""
    for entry in entries:
        shown = [
            row for row in rows if row.profile == "constraints" and entry.matches(row.id) if entry.check <= row.failed
        ]
        if not shown:
            continue
        row = _smallest(shown, entry)
        check = min(entry.check)
        said = re.split(r"(?:^|; )(?:observed|constraints): ", row.detail)
        checks: list[str] = [name for name in ("observed", "constraints") if name in row.failed]
        detail = said[1 + checks.index(check)] if check in checks and len(said) > len(checks) else row.detail
        yield Gap(entry, row, detail, len(shown), claims(shown))


def told(gap: Gap) -> Iterator[str]:
    """A gap as a paragraph."""
    yield f"### {code(gap.entry.id)}"
    yield ""
    yield f"{gap.entry.reason} Upstream: {gap.entry.upstream}. {gap.runs} runs: {escaped(gap.claims)}."
    yield ""
    yield f"> {escaped(gap.detail)}"
    yield ""
    yield code(repro_command(gap.row.id))
    yield ""


def document(rows: Sequence[Row], entries: Sequence[Entry], command: str) -> Iterator[str]:
    """The whole page."""
    yield f"<!-- {command} -->"
    yield "# Which constraints torch enforces"
    yield ""
    yield "What the documentation of `DTypeWithConstraints` says of each field:"
    yield ""
    for field, meaning in DOCUMENTED.items():
        yield f"- `{field}`: {meaning}."
    yield ""
    yield (
        "A QConfig is *enforced at prepare* if it is used exactly where it satisfies the field, which the inserted observers"
        " tell, and a warning says so where it is ignored. The field *holds in the converted model* if every scale, zero"
        " point and code of the reference model, and of the packed weights where the engine is at hand, satisfies it for"
        " whatever is observed: ordinary, constant, tiny, denormal, huge and infinite data, or none."
    )
    yield ""
    yield from table(rows, entries)
    yield ""
    yield (
        "Left open by the documentation, and not held against torch: an observer without `eps`, `quant_min` or `quant_max`"
        " (torch ignores such a QConfig with a warning); data with NaN; a dtype that differs, of which no warning is"
        " promised; observers of one's own that do not keep to the `eps` they have. Not tried: data whose span float32 does"
        " not hold, such as ±3e38, of which `HistogramObserver` makes a scale that is NaN."
    )
    yield ""
    yield "## Gaps"
    yield ""
    for gap in gaps(rows, entries):
        yield from told(gap)
