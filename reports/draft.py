"""Reports for upstream: what is wrong, a reproduction, and what was tried, in the form of pytorch's issue template."""

from collections.abc import Iterator, Mapping

from conformance.errors import UsageError
from conformance.markdown import table
from conformance.results.known import KnownFinding
from conformance.results.reproductions import Reproduced
from conformance.results.severity import Severity

from . import documents
from .support import Cause, Place, Table

CLAIMS_SHOWN = 6
"""Maximum number of claims that are named for a place."""


def shows(made: Table, finding: str) -> dict[Place, list[tuple[str, str, Cause]]]:
    """Where a finding shows: for each place the pattern and dtypes of the claims, and the finding there."""
    found: dict[Place, list[tuple[str, str, Cause]]] = {}
    for (pattern, dtypes), by_place in sorted(made.cells.items()):
        for place, cell in by_place.items():
            found.setdefault(place, [])
            found[place] += [(pattern, dtypes, cause) for cause in cell.causes if cause.finding == finding]
    return found


def severity_of(places: Mapping[Place, list[tuple[str, str, Cause]]]) -> Severity:
    """The worst severity of a finding in any claim."""
    return Severity.worst(cause.severity for claims in places.values() for _, _, cause in claims)


def severe(made: Table) -> list[str]:
    """The unreported findings of severity *wrong numbers, silently* or worse, sorted: those that are worth a report."""
    named = {cause.finding for by_place in made.cells.values() for cell in by_place.values() for cause in cell.causes}
    unreported = [name for name in named if made.findings[name].upstream == "unreported"]
    limit = [*Severity].index(Severity.WRONG)
    return sorted(name for name in unreported if [*Severity].index(severity_of(shows(made, name))) <= limit)


def listed(made: Table) -> Iterator[str]:
    """Yield a line for each finding that is worth a report: its severity, id and title."""
    for name in severe(made):
        yield f"{severity_of(shows(made, name)).phrase}: {name}: {made.findings[name].title}"


def draft(made: Table, finding: KnownFinding, reproduced: Reproduced) -> str:
    """The report of a finding. Raises UsageError if no claim of the table shows it."""
    places = shows(made, finding.id)
    if not any(places.values()):
        raise UsageError(f"{finding.id}: no claim of the support table shows it: write the table from rows that do")
    rows = ((place.engine, place.platform, place.torch, _claims(claims)) for place, claims in places.items())
    lines = documents.lines(
        "draft.md",
        finding=finding,
        severity=severity_of(places),
        reproduced=reproduced,
        tried=table(("engine", "platform", "torch", "shows it in"), rows),
    )
    return "\n".join(lines) + "\n"


def _claims(claims: list[tuple[str, str, Cause]]) -> str:
    if not claims:
        return "none"
    named = [f"`{pattern}` ({dtypes}) {cause.where}" for pattern, dtypes, cause in claims[:CLAIMS_SHOWN]]
    more = len(claims) - CLAIMS_SHOWN
    return "; ".join(named).replace("|", "\\|") + (f"; and {more} more" if more > 0 else "")
