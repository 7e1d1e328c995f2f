"""Reports for upstream: what is wrong and why, a reproduction, and who shows it, in the form of pytorch's issue template."""

import ast
from collections.abc import Iterator, Mapping

from conformance.errors import UsageError
from conformance.results.known import KnownFinding
from conformance.results.reproductions import Reproduced
from conformance.results.severity import Severity

from . import documents
from .support import Cause, Place, Table

CLAIMS_SHOWN = 3
"""Maximum number of claims that are named."""
OUTPUT_SHOWN = 6
"""Maximum number of lines of what the script prints: the rest of a large tensor tells nothing more."""


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
    unreported = [
        name for name in named if made.findings[name].upstream == "unreported" and not made.findings[name].no_report
    ]
    limit = [*Severity].index(Severity.WRONG)
    return sorted(name for name in unreported if [*Severity].index(severity_of(shows(made, name))) <= limit)


def listed(made: Table) -> Iterator[str]:
    """Yield a line for each finding that is worth a report: its severity, id and title."""
    for name in severe(made):
        yield f"{severity_of(shows(made, name)).phrase}: {name}: {made.findings[name].title}"


def draft(made: Table, finding: KnownFinding, reproduced: Reproduced) -> str:
    """The report of a finding. Raises UsageError if no claim of the table shows it, or if a maintainer would close it."""
    places = shows(made, finding.id)
    if finding.no_report:
        raise UsageError(f"{finding.id}: there is nothing to report: {finding.no_report}")
    if not any(places.values()):
        raise UsageError(f"{finding.id}: no claim of the support table shows it: write the table from rows that do")
    path, _, function = finding.source.partition(": ")
    lines = documents.lines(
        "draft.md",
        finding=finding,
        severity=severity_of(places),
        path=path,
        function=function,
        script=_without_docstring(reproduced.script),
        output=_shortened(reproduced.output.rstrip().splitlines()),
        shown=_shown(places),
        versions="; ".join(reproduced.versions),
    )
    return "\n".join(lines) + "\n"


def _without_docstring(script: str) -> str:
    """A script without the docstring, which names a run of this suite."""
    parsed = ast.parse(script)
    first = parsed.body[0].end_lineno if ast.get_docstring(parsed) else 0
    return "\n".join(script.splitlines()[first:]).strip()


def _shortened(lines: list[str]) -> str:
    """What a script prints: of more than `OUTPUT_SHOWN` lines the first, and the verdict."""
    if len(lines) > OUTPUT_SHOWN:
        lines = [*lines[: OUTPUT_SHOWN - 2], f"... ({len(lines) - OUTPUT_SHOWN + 1} lines more)", lines[-1]]
    return "\n".join(lines)


def _shown(places: Mapping[Place, list[tuple[str, str, Cause]]]) -> str:
    """Which engines show a finding, in which claims, and which do not, in a sentence."""
    where = {(place.platform, place.torch) for place in places}
    several = len(where) > 1

    def named(shown: bool) -> str:
        kept = [place for place, claims in places.items() if bool(claims) is shown]
        return ", ".join(f"{one.engine} ({one.platform}, torch {one.torch})" if several else one.engine for one in kept)

    claims = dict.fromkeys((pattern, dtypes) for shown in places.values() for pattern, dtypes, _ in shown)
    first = [f"`{pattern}` ({dtypes})" for pattern, dtypes in [*claims][:CLAIMS_SHOWN]]
    more = f" and {len(claims) - len(first)} more" if len(claims) > len(first) else ""
    at = "" if several else " on {}, torch {}".format(*next(iter(where)))
    others = named(False)
    return f"Engines that show it{at}: {named(True)}{others and f'; not {others}'}. Patterns: {', '.join(first)}{more}."
