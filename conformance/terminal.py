"""The lines that close an invocation, from its rows."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType

from conformance.checks.tolerances import Tolerance
from conformance.results.rows import VERDICTS, Row, Writer, repro_command, worst

SHOWN = 20
"""New deviations shown; the rows file has all of them."""


def elements(rows: Iterable[Row]) -> Iterator[str]:
    """Yield, for every engine and profile, how the elements that numerics compared outside of the ledger came out."""
    rows = [row for row in rows if row.known is None and row.total]
    for engine, profile in sorted({(row.engine, row.profile) for row in rows}):
        mine = [row for row in rows if (row.engine, row.profile) == (engine, profile)]
        total, wrong, tied, near = (
            sum(getattr(row, name) or 0 for row in mine) for name in ("total", "mismatched", "ties", "tolerated")
        )
        equal = total - wrong - tied - near
        parts = {"equal": equal, "tied": tied, "within a tolerance": near, "wrong": wrong}
        shares = ", ".join(f"{100 * count / total:.3f}% {name}" for name, count in parts.items())
        yield f"{engine} {profile}: {total} elements compared outside the ledger: {shares}"


def counted(verdicts: Iterable[str]) -> str:
    """How many there are of each verdict."""
    counts = Counter(verdicts)
    return ", ".join(f"{counts[verdict]} {verdict}" for verdict in VERDICTS if counts[verdict])


def lines(
    writer: Writer,
    unexpected: Sequence[Row],
    unneeded: Sequence[Tolerance] = (),
    not_asked_for: Mapping[str, int] = MappingProxyType({}),
) -> Iterator[str]:
    """Yield claims and runs by verdict and elements for every engine, how many more runs an engine has if asked, what is new
    with the command that reproduces it, and the tolerances that nothing needs.
    """
    rows = list(writer.rows.values())
    for engine in sorted({row.engine for row in rows}):
        mine = [row for row in rows if row.engine == engine]
        claims: dict[str, list[Row]] = {}
        for row in mine:
            claims.setdefault(row.claim, []).append(row)
        known = sum(row.known is not None for row in mine)
        yield f"{engine}: {len(claims)} claims: {counted(map(worst, claims.values()))}"
        yield f"{engine}: {len(mine)} runs: {counted(row.verdict for row in mine)}; {known} in the ledger"
    for engine, count in not_asked_for.items():
        yield f"{engine}: {count} more runs if they are asked for: --case '*@{engine}'"
    yield from elements(rows)
    for tolerance in unneeded:
        yield f"tolerance for {tolerance.operator} on {tolerance.engine}: no run needs it any more: remove it"
    for row in sorted(unexpected, key=lambda row: row.id)[:SHOWN]:
        yield f"new: {row.id}"
        yield f"     {repro_command(row.id)}"
    if len(unexpected) > SHOWN:
        yield f"… and {len(unexpected) - SHOWN} more in the rows file"
    if rows and all(row.verdict == "unavailable" for row in rows):
        yield f"nothing was executed: {rows[0].detail}"
    yield f"rows: {writer.path}"


def drawn(searches: Sequence[Sequence[int]]) -> str:
    """The line that closes searches, from what each counted: cases tried, those without a certain answer, those new."""
    tried, beyond, new = map(sum, zip(*searches, strict=True))
    return (
        f"{tried} drawn cases tried in {len(searches)} searches: {new} new; "
        f"{beyond} have no certain answer, of which only numerics is not held"
    )
