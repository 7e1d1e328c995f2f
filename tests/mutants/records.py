"""The file of an analysis: JSON Lines with each mutant and what became of it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from conformance.errors import UsageError
from conformance.results.codec import Count, decode_fields, encode
from conformance.results.jsonl import Format, PartialFile, read_text

from .mutant import Mutant


@dataclass(frozen=True)
class Result:
    """What a stage of the analysis finds out about one mutant.

    `met` counts the witnesses that make a call which fulfils its conditions, `changed` those of them whose results it
    changes, `judged` those that were judged with it. `caught_by` is the id of the first one that notices it, with its
    `alarms`. `cause` is the kind of reason for which a mutant survives, `reason` the reason; `lacking` are the facts of
    which no call has the value.
    """

    met: Count = 0
    changed: Count = 0
    judged: Count = 0
    caught_by: str = ""
    alarms: tuple[str, ...] = ()
    cause: str = ""
    reason: str = ""
    lacking: tuple[str, ...] = ()

    @property
    def caught(self) -> bool:
        return bool(self.caught_by)


@dataclass(frozen=True)
class Record:
    """A mutant with the results of the ordinary run and, if it survives that and a search follows, of the search."""

    id: str
    title: str
    mutant: Mutant
    ordinary: Result
    search: Result | None = None

    @property
    def survives(self) -> bool:
        return not self.ordinary.caught and not (self.search is not None and self.search.caught)

    @property
    def why(self) -> Result:
        """The result that says why the mutant survives: of the search if it met the mutant, else of the ordinary run."""
        return self.search if self.search is not None and self.search.changed else self.ordinary


def _decode(kind: str, values: dict[str, Any], schema: int) -> Record:
    record: Record = decode_fields(Record, values)
    return record


def _counts(records: Sequence[Record]) -> Mapping[str, Any]:
    return {"mutants": len(records), "survivors": sum(record.survives for record in records)}


FORMAT: Format[Record] = Format(
    name="a file of mutants",
    kinds=("mutant",),
    schemas=(1,),
    decode=_decode,
    encode=lambda record: ("mutant", encode(record)),
    key=lambda record: record.id,
    counts=_counts,
    unit="mutants",
    again="run `tox -e mutants` again",
    mark="seed",
)


def write(path: Path, header: Mapping[str, Any], records: Iterable[Record]) -> None:
    """Write a file. Raises UsageError if it cannot be written."""
    file = PartialFile(FORMAT, path, header, "--out")
    kept = list(records)
    for record in kept:
        file.add(record)
    file.complete(kept, _counts(kept))


def read(path: Path) -> tuple[dict[str, Any], list[Record]]:
    """The header and the records of a file. Raises UsageError if it is damaged or has several parts."""
    parts = read_text(FORMAT, path)
    if len(parts) > 1:
        raise UsageError(f"{path}: has {len(parts)} parts: mutants of different analyses are not comparable")
    return parts[0].header, list(parts[0].items)
