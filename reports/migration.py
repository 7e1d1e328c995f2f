"""What became of the claims of backend configs through PT2E: tables, and the answer for one operator."""

import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from conformance.configs.engines import SUCCESSORS
from conformance.markdown import code, escaped, table
from conformance.results.jsonl import replacing
from conformance.results.migrations import LOST, Migrated, Outcome, write

from . import documents
from .load import family, with_operator

RECORDED = Path(__file__).parent / "migration.jsonl"
"""The committed file, which `migrate OPERATOR` reads."""
PAGE = Path("docs") / "migration.md"

Place = tuple[str, str]
"""A backend and the engine that runs its config."""


def places(items: Iterable[Migrated]) -> list[Place]:
    """The backends with their engines, in order."""
    return [*dict.fromkeys((_backend(one), one.fx_engine) for one in items)]


def _backend(one: Migrated) -> str:
    return one.claim.partition("/")[0]


def _pattern(one: Migrated) -> str:
    return one.claim.partition("/")[2].rpartition("/")[0]


def _dtypes(one: Migrated) -> str:
    return one.claim.rpartition("/")[2]


def document(header: Mapping[str, Any], items: Sequence[Migrated]) -> list[str]:
    """The lines of the page: counts by outcome, then a table for each family."""
    found = {one.outcome for one in items}
    columns = places(items)
    return documents.lines(
        "migration.md",
        versions=", ".join(f"{name} {header[name]}" for name in ("torch", "torchao", "executorch") if header.get(name)),
        platform=header["platform"],
        counts=_counts(items),
        outcomes={outcome: MEANINGS[outcome] for outcome in Outcome if outcome in found},
        tables={name: _family(rows, columns) for name, rows in by_family(items).items()},
    )


MEANINGS = {
    Outcome.KEPT: "both work, and every element has the code that FX gives it, ties aside; where PT2E leaves the output in "
    "float, its value rounds to that code.",
    Outcome.OTHER: "both work, each as exact arithmetic says for its own scales, and these differ: by the codes of "
    "activations (7 bits on FBGEMM and x86), or by how a dynamic range is chosen.",
    Outcome.GAINED: "FX deviates in default use, and PT2E works.",
    Outcome.FLOAT: "the quantizer annotates the pattern, and the engine computes it in float.",
    Outcome.NOT_ANNOTATED: "the quantizer leaves the pattern, or a part of it, in float.",
    Outcome.REFUSES: "a stage raises.",
    Outcome.WRONG: "wrong numbers, or results that depend on what must not matter.",
    Outcome.NOT_OFFERED: "the quantizer has no quantization of weights alone, and none to float16.",
    Outcome.NEITHER: "both deviate.",
    Outcome.UNAVAILABLE: "the claim could not be executed.",
}
"""What each outcome says."""


def _counts(items: Sequence[Migrated]) -> Iterator[str]:
    """The table of counts: a line for each outcome, a column for each backend and engine."""
    columns = {place: [one for one in items if (_backend(one), one.fx_engine) == place] for place in places(items)}
    heads = [f"{backend} on {used} → {SUCCESSORS[backend][1]}" for backend, used in columns]
    counts = [Counter(one.outcome for one in members) for members in columns.values()]
    rows: list[list[object]] = [
        [f"{outcome.symbol} {outcome.phrase}", *(count[outcome] for count in counts)]
        for outcome in Outcome
        if any(count[outcome] for count in counts)
    ]
    rows.append(["**lost in all**", *(sum(count[outcome] for outcome in LOST) for count in counts)])
    rows.append(["**claims**", *map(len, columns.values())])
    ratios = [[one.ratio for one in members if one.ratio is not None] for members in columns.values()]
    medians = (f"{statistics.median(found):.2f} ({len(found)})" if found else "" for found in ratios)
    rows.append(["latency, PT2E / FX: median (claims)", *medians])
    return table(["outcome", *map(escaped, heads)], rows, range(1, len(heads) + 1))


Rows = Mapping[tuple[str, str], Mapping[Place, Migrated]]
"""The claims of each pattern with its dtypes, by place."""


def by_family(items: Iterable[Migrated]) -> Mapping[str, Rows]:
    """The rows of each family of operators, both in the order of their names."""
    families: dict[str, dict[tuple[str, str], dict[Place, Migrated]]] = {}
    for one in sorted(items, key=lambda one: (family(_pattern(one)), _pattern(one), _dtypes(one))):
        rows = families.setdefault(family(_pattern(one)), {})
        rows.setdefault((_pattern(one), _dtypes(one)), {})[_backend(one), one.fx_engine] = one
    return families


def of_backends(items: Iterable[Migrated], backends: Iterable[str]) -> list[Migrated]:
    """The claims of these backends."""
    wanted = {*backends}
    return [one for one in items if _backend(one) in wanted]


def _family(rows: Rows, columns: Sequence[Place]) -> Iterator[str]:
    used = [place for place in columns if any(place in cells for cells in rows.values())]
    heads = (escaped(f"{backend} on {engine}") for backend, engine in used)
    cells = ([code(pattern), dtypes, *map(_cell, map(claims.get, used))] for (pattern, dtypes), claims in rows.items())
    return table(["pattern", "dtypes", *heads], cells)


def _cell(one: Migrated | None) -> str:
    if one is None:
        return ""
    text = f"{one.outcome.symbol} {one.outcome.value}"
    if one.outcome is Outcome.OTHER:
        text += f", {apart(one)}"
    return escaped(text) + (f" ({one.ratio:.2f}×)" if one.ratio is not None else "")


def apart(one: Migrated) -> str:
    """How far the results of a claim are apart, in words."""
    assert one.distance is not None
    if one.distance.steps is None:
        return f"{one.distance.relative:.1%} of the greatest value"
    return f"{one.distance.steps:g} steps in {one.distance.mismatched} of {one.distance.total}"


def answer(items: Sequence[Migrated], operator: str) -> Iterator[str]:
    """Yield lines for a terminal about one operator. Raises UsageError if no pattern has it."""
    patterns = with_operator(operator, set(map(_pattern, items)))
    for one in (one for one in items if _pattern(one) in patterns):
        promise = "" if one.promised else ", which does not declare it"
        yield f"{one.claim}@{one.fx_engine}"
        yield f"    {one.outcome.symbol} {one.outcome.phrase}, by {one.quantizer} on {one.engine}{promise}"
        if one.distance is not None and one.outcome in (Outcome.KEPT, Outcome.OTHER):
            in_float = "; the output stays in float" if one.distance.in_float else ""
            distance = apart(one) if one.distance.mismatched else "every element the same, ties aside"
            yield f"        {distance}{in_float}"
        if one.ratio is not None:
            yield f"        latency: {one.ratio:.2f} times that through FX, on a layer of a network"
        for side, text in (("FX", one.fx), ("PT2E", one.pt2e)):
            if text:
                yield f"        {side}: {text}"


def record(header: Mapping[str, Any], items: Sequence[Migrated], root: Path) -> Iterator[Path]:
    """Write the committed file and its page, and yield their paths."""
    write(RECORDED, header, items)
    page = root / PAGE
    with replacing(page) as beside:
        beside.write_text("\n".join(document(header, items)).rstrip() + "\n", encoding="utf-8")
    yield RECORDED
    yield page
