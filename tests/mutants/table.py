"""docs/mutants.md, written from a file of mutants."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from .drawing import BLOCK, DRAWS, MOST_COMMON, TILES, WIDE
from .records import Record

PATH = Path(__file__).parents[2] / "docs" / "mutants.md"

INTRODUCTION = f"""\
# Random mutants that the suite notices

This page is written by `tox -q -e mutants -- --write-docs FILE` from files that `tox -e mutants` writes. A mutant
is a kernel that is off in a narrow way: an effect in a region of its result, where its call fulfils some
conditions. An ordinary run catches a mutant if a row contradicts the ledger, a search reports a deviation, or a process dies.

## How mutants are drawn

Each engine has a population of calls: those of {DRAWS["layers"].layers} layers of the networks in the corpus, in their own
sizes and the memory format that the layer before gives them, the frequent ones more likely. Candidate n of an engine depends
on the seed, on n and on the population alone:

- **kernel**: drawn with the square root of its calls in the population as weight, conversions with a fifth of that
- **call**: one of the kernel's calls, all alike; facts, region and effect are drawn from it, so that it meets them
- **conditions**: one to three that this call fulfils jointly, each of another kind: an option (35 %), a size (35 %),
  qparams (20 %), a memory format (6 %), the count of calls or of threads (4 %). They are of the kinds that kernels branch on:
  a size has a remainder by {", ".join(map(str, TILES))}, is beyond or within one of these, or is at most 4; sums
  have more than {BLOCK} products or not
- **region**: everywhere, an index or the last index of a dimension or all from an index on, one element, one lane of a
  vector, what is after the last whole vector, elements with a code of the result or of the input, lookups from an index on
- **effect**: one step more or less (of a float result the 128th of its greatest value), a neighbour's value, zero, saturation
  one step early, a wrap, or the result for changed arguments: zero points one off or ignored, an operand, the bias or the
  last input channel dropped, the neighbour's bias or weight scale, a weight one step off

`--draw samples` draws from {DRAWS["samples"].samples} drawn samples of every family of operators, by other seeds than the
ordinary run's searches, and {DRAWS["samples"].layers} layers, with one or two conditions on any facts of a call: also that a
scale, a zero point or a count has exactly some value, which no kernel asks for.

A candidate is a mutant if it changes a result in the population. Of the candidates whose conditions hold for more than
{MOST_COMMON:.0%} of their kernel's calls only {WIDE:.0%} are kept.

Reference models and goldens are made with the kernels as they are, except that a wrong conversion is wrong everywhere, as it
would be in torch. Rounding in the middle of a kernel is not mutated, and neither are kernels that pack weights.
"""


def totals(records: Sequence[Record], searched: bool) -> Iterator[str]:
    """The table of outcomes by engine."""
    yield f"| engine | mutants | caught by the ordinary run |{' by the search |' * searched} survive |"
    yield f"| --- | --: | --: |{' --: |' * searched} --: |"
    for engine in [*dict.fromkeys(record.mutant.engine for record in records), "all"]:
        of_engine = [record for record in records if engine in (record.mutant.engine, "all")]
        ordinary = sum(record.ordinary.caught for record in of_engine)
        survive = sum(record.survives for record in of_engine)
        found = f" {len(of_engine) - ordinary - survive} |" * searched
        share = f" ({survive / len(of_engine):.1%})"
        yield f"| {engine} | {len(of_engine)} | {ordinary} |{found} {survive}{share} |"


def by_cause(records: Sequence[Record]) -> Iterator[str]:
    yield "| why | survivors |"
    yield "| --- | --: |"
    causes = Counter(record.why.cause for record in records if record.survives)
    yield from (
        f"| {cause} | {count} |" for cause, count in sorted(causes.items(), key=lambda item: (-item[1], item[0]))
    )


def by_operator(records: Sequence[Record]) -> Iterator[str]:
    yield "| operator | mutants | survive | what no call has, with how many survivors need it |"
    yield "| --- | --: | --: | --- |"
    count = Counter(record.mutant.kernel for record in records)
    surviving = [record for record in records if record.survives]
    for name, survive in sorted(Counter(record.mutant.kernel for record in surviving).items()):
        facts = Counter(fact for record in surviving if record.mutant.kernel == name for fact in record.why.lacking)
        texts = (f"{fact}: {times}" for fact, times in sorted(facts.items(), key=lambda item: (-item[1], item[0])))
        yield f"| {name} | {count[name]} | {survive} | {', '.join(texts)} |"


def survivors(records: Sequence[Record]) -> Iterator[str]:
    for kernel in sorted({record.mutant.kernel for record in records if record.survives}):
        yield f"### {kernel}\n"
        yield "| mutant | engine | why |"
        yield "| --- | --- | --- |"
        for record in records:
            if record.survives and record.mutant.kernel == kernel:
                title = record.title.removeprefix(f"{kernel}: ")
                yield f"| {title} | {record.id} | {record.why.reason} |"
        yield ""


def summary(records: Sequence[Record]) -> Iterator[str]:
    """The tables that close an analysis."""
    searched = any(record.search is not None for record in records)
    yield from totals(records, searched)
    if any(record.survives for record in records):
        yield ""
        yield from by_cause(records)
        yield ""
        yield from survivors(records)


Analyzed = tuple[Mapping[str, Any], Sequence[Record]]
"""The header and the records of a file of mutants."""


def outcome(header: Mapping[str, Any], records: Sequence[Record]) -> Iterator[str]:
    """What an analysis was made with, and its table of outcomes."""
    searched = any(record.search is not None for record in records)
    search = f", and a search with {header['samples']} samples of each family on each engine" if searched else ""
    yield (
        f"Drawn from {header.get('draw')}, seed {header['seed']}, torch {header.get('torch')}, {header.get('arch')}: "
        f"{len(records)} mutants on the ordinary run of {', '.join(header.get('backends', ()))}{search}, in "
        f"{header.get('seconds', 0) / 60:.0f} minutes.\n"
    )
    yield from totals(records, searched)
    yield ""


def text(first: Analyzed, *others: Analyzed) -> str:
    """The page: the first analysis with its survivors, and the outcomes of others."""
    _, records = first
    lines = [INTRODUCTION, "## Outcome\n", *(line for one in (first, *others) for line in outcome(*one))]
    if any(record.survives for record in records):
        lines += ["## Why mutants survive\n", *by_cause(records), "", *by_operator(records), ""]
        lines += ["## Survivors\n", *survivors(records)]
    return "\n".join(lines).rstrip() + "\n"
