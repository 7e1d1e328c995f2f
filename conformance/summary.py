"""The lines that close an invocation, from its rows."""

from collections.abc import Iterator, Sequence

from .rows import VERDICTS, Row, Writer

SHOWN = 20
"""New deviations shown; the rows file has all of them."""


def lines(writer: Writer, unexpected: Sequence[Row]) -> Iterator[str]:
    """Yield runs by verdict for every engine, then what is new with the command that reproduces it."""
    rows = list(writer.rows.values())
    for engine in sorted({row.engine for row in rows}):
        mine = [row for row in rows if row.engine == engine]
        claims = {(row.backend, row.pattern, row.dtype_config) for row in mine}
        verdicts = ", ".join(
            f"{sum(r.verdict == v for r in mine)} {v}" for v in VERDICTS if any(r.verdict == v for r in mine)
        )
        known = sum(row.known is not None for row in mine)
        yield f"{engine}: {len(claims)} claims, {len(mine)} runs: {verdicts}; {known} in the ledger"
    for row in sorted(unexpected, key=lambda row: row.id)[:SHOWN]:
        yield f"new: {row.id}"
        yield f"     python -m conformance repro '{row.id}'"
    if len(unexpected) > SHOWN:
        yield f"… and {len(unexpected) - SHOWN} more in the rows file"
    if rows and all(row.verdict == "unavailable" for row in rows):
        yield f"nothing was executed: {rows[0].detail}"
    yield f"rows: {writer.path}"
