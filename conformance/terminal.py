"""The summary at the end of an invocation, rendered from its rows."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType

from conformance.checks.tolerances import Tolerance
from conformance.results.rows import Row, Writer, repro_command
from conformance.results.status import sentences, statuses, tally
from conformance.results.use import MOST_UNTRIED, OF_LAYERS, Fate, Use, use_of
from conformance.results.verdicts import IN_ORDER, Verdict

PARTIAL = frozenset({"shard", "only_since"})
"""Fields of the header of an invocation of a part of the runs."""

SHOWN = 20
"""Maximum number of new deviations shown; the rows file has all of them."""


def elements(rows: Iterable[Row]) -> Iterator[str]:
    """Yield for every engine and profile the shares of equal and different elements, as `numerics` compared them. Runs in the
    ledger do not count."""
    rows = [row for row in rows if row.known is None and row.total]
    for engine, profile in sorted({(row.engine, row.profile) for row in rows}):
        group = [row for row in rows if (row.engine, row.profile) == (engine, profile)]
        total, wrong, tied, near = (
            sum(getattr(row, name) or 0 for row in group) for name in ("total", "mismatched", "ties", "tolerated")
        )
        equal = total - wrong - tied - near
        parts = {"equal": equal, "tied": tied, "within a tolerance": near, "wrong": wrong}
        shares = ", ".join(f"{100 * count / total:.3f}% {name}" for name, count in parts.items())
        yield f"{engine} {profile}: {total} elements compared outside the ledger: {shares}"


def _used(engine: str, use: Use) -> Iterator[str]:
    """Yield the shares of layers of public networks in words, unless only a selection of them was run."""
    if use.fates[Fate.UNTRIED] <= MOST_UNTRIED * use.layers:
        shares = ", ".join(f"{use.share(fate):.1%} {fate.phrase}" for fate in Fate if use.fates[fate])
        yield f"{engine}: of {use.layers:,} layers of {len(use.networks)} public networks {shares}"


def counted(verdicts: Iterable[Verdict]) -> str:
    """The number of each verdict, in words."""
    counts = Counter(verdicts)
    return ", ".join(f"{counts[verdict]} {verdict}" for verdict in IN_ORDER if counts[verdict])


def lines(
    writer: Writer,
    unexpected: Sequence[Row],
    unneeded: Sequence[Tolerance] = (),
    not_asked_for: Mapping[str, int] = MappingProxyType({}),
    unknown_platform: bool = False,
    repro_options: Sequence[str] = (),
) -> Iterator[str]:
    """Yield the lines of the summary.

    For every engine what becomes of layers of networks, its claims by status, its runs by verdict, and the runs that were
    left out because they have to be selected by name, the elements compared, and the runs whose memory is not checked; then
    tolerances that no run needs, and new deviations with the commands that reproduce them.
    """
    rows = list(writer.rows.values())
    deviating = {row.id for row in unexpected}
    for engine in sorted({row.engine for row in rows}):
        of_engine = [row for row in rows if row.engine == engine]
        known = sum(row.known is not None and row.id not in deviating for row in of_engine)
        whole = not (engine in not_asked_for or PARTIAL & writer.header.keys() or writer.header.get("selection"))
        if any(row.profile in OF_LAYERS for row in of_engine):
            yield from _used(engine, use_of(of_engine))
        yield from sentences(engine, tally(statuses(of_engine).values()), whole=whole)
        yield f"{engine}: {len(of_engine)} runs: {counted(row.verdict for row in of_engine)}; {known} in the ledger"
    for engine, count in not_asked_for.items():
        yield f"{engine}: {count} more runs if they are asked for: --case '*@{engine}'"
    yield from elements(rows)
    unchecked = Counter(row.detail for row in rows if row.checks.get("memory") == "skip" and not row.failed)
    for reason, count in unchecked.items():
        yield f"memory: {count} runs that conform are not checked: {reason}"
    for tolerance in unneeded:
        yield f"tolerance for {tolerance.operator} on {tolerance.engine}: no run needs it any more: remove it"
    for row in sorted(unexpected, key=lambda row: row.id)[:SHOWN]:
        if row.verdict is Verdict.CONFORMS:
            yield f"gone: {row.id} conforms, which the ledger does not expect"
            continue
        yield f"{'unknown platform' if unknown_platform else 'new'}: {row.id}"
        yield f"     {repro_command(row.id, repro_options)}"
    if len(unexpected) > SHOWN:
        yield f"… and {len(unexpected) - SHOWN} more in the rows file"
    if unexpected and unknown_platform and not writer.lost:
        yield "accept them, with their reproductions, into a ledger of this platform, which --ledger then names:"
        yield f"     python -m conformance accept {writer.path} --extend --ledger FOLDER --finding ID"
    if rows and not any(row.verdict.executed for row in rows):
        yield f"nothing was executed: {rows[0].detail}"
    if writer.lost:
        yield f"partial: {writer.lost} runs were not executed; {writer.path} is as it was before"
    yield f"rows: {writer.partial if writer.lost else writer.path}"


def drawn(searches: Sequence[Sequence[int]]) -> str:
    """The summary of searches, from three counts of each: cases tried, cases without a certain answer, and new deviations."""
    tried, beyond, new = map(sum, zip(*searches, strict=True))
    return (
        f"{tried} drawn cases tried in {len(searches)} searches: {new} new; "
        f"{beyond} have no certain answer, of which only numerics is not held"
    )
