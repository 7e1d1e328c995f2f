"""Files of timings: a line for each pass over a case, for what is not timed, and for what the machine reached."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from conformance.errors import UsageError
from conformance.results.codec import Count, Finite, decode, decode_fields, encode
from conformance.results.jsonl import Format, PartialFile, Reader, opened, partial_path, read_text

from .timings import Line, Machine, NotTimed, Repeat, Timing

HEADER = "conformance"
"""Field of `machine_info` in pytest-benchmark's JSON that holds the header of a file of timings."""
PASSES = "passes"
"""Field of `extra_info` in pytest-benchmark's JSON that holds the passes over a case."""
HEADER_FIELDS: Mapping[str, Any] = {
    **dict.fromkeys(("suite", "torch", "python", "os", "arch", "cpu", "isa", "form"), str),
    "git": str | None,
    "cores": Count,
    "passes": Count,
    "against": Mapping[str, Any] | None,
    "aim": Finite,
    "budget": Count | None,
    "looks": tuple[Count, ...],
}
"""Fields of a header that are read, with their types. `passes` is the greatest number of passes over a case, `looks` the
numbers of passes after which a case could be settled, `budget` the seconds that all passes could take, and `aim` the relative
change that the passes were to tell from none."""
AIM = 0.03
"""Default of `aim`: the placement of memory alone causes changes of this size."""


@dataclass(frozen=True)
class TimingsFile:
    """The timings of one invocation. `finished` is its end in ISO 8601, in UTC."""

    path: Path
    header: Mapping[str, Any]
    finished: str
    timings: tuple[Timing, ...]
    not_timed: tuple[NotTimed, ...]
    repeats: tuple[Repeat, ...]
    machines: tuple[Machine, ...]

    @property
    def cases(self) -> dict[str, list[Timing]]:
        """The passes over each case that was timed in every pass, in order."""
        without = {case.case for case in self.not_timed}
        passes: dict[str, list[Timing]] = {}
        for timing in sorted(self.timings, key=lambda timing: (timing.case, timing.number)):
            if timing.case not in without:
                passes.setdefault(timing.case, []).append(timing)
        return passes


SCHEMAS = (1, 2)
KINDS: Mapping[str, Any] = {"timing": Timing, "not timed": NotTimed, "repeat": Repeat, "machine": Machine}
"""Classes of the lines of a file by their kind."""


def _decoded(kind: str, values: dict[str, Any], schema: int) -> Line:
    if kind == "timing":
        return timing_of(values, schema)
    line: Line = decode_fields(KINDS[kind], values)
    return line


def _of_schema_1(values: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a timing of schema 1, whose inputs had one place in memory, as those of the present schema."""
    placed = {
        name: {model: [rounds] for model, rounds in values[name].items()}
        if isinstance(values.get(name), dict)
        else None
        for name in ("new", "base")
    }
    counts = values.get("counts")
    work = {"operations": None, "traffic": None}
    counted = {"counts": {**counts, **work}} if isinstance(counts, dict) else {}
    return {**values, **placed, **counted, "pace": None, "memory": None, "layers": []}


def timing_of(values: Mapping[str, Any], schema: int = SCHEMAS[-1]) -> Timing:
    """A timing from the JSON object of its fields in a schema. Raises TypeError if a field is missing, unknown or wrong."""
    timing: Timing = decode_fields(Timing, _of_schema_1(values) if schema == 1 else dict(values))
    for builds in (timing.new, timing.base or timing.new):
        if [*map(len, builds.quantized)] != [*map(len, builds.floating or builds.quantized)]:
            raise TypeError("models have unequal numbers of rounds")
        if not builds.floating and timing.base is None:
            raise TypeError("the float model has no rounds")
        if len(builds.quantized) != len(timing.new.quantized):
            raise TypeError("builds have unequal numbers of placements")
        if not builds.quantized or not all(builds.quantized):
            raise TypeError("a build has no rounds")
    return timing


COUNTED: Mapping[str, Any] = {"timings": Timing, "not_timed": NotTimed, "repeats": Repeat, "machines": Machine}
"""Names of the counts in a footer, and of the fields of `TimingsFile`. A footer of schema 1 has the first two."""


def _counts(lines: Sequence[Line]) -> dict[str, int]:
    found = {name: sum(isinstance(line, kind) for line in lines) for name, kind in COUNTED.items()}
    return {name: count for name, count in found.items() if count or name in ("timings", "not_timed")}


def _key(line: Line) -> str:
    if isinstance(line, Machine):
        return f"machine #{line.threads}"
    if isinstance(line, Timing):
        return f"{line.case}#{line.number}"
    if isinstance(line, Repeat):
        return f"{line.case}#{line.number}#{line.opened}#{line.repetition}"
    return line.case


FORMAT: Format[Line] = Format(
    name="a file of timings",
    kinds=tuple(KINDS),
    schemas=SCHEMAS,
    decode=_decoded,
    encode=lambda line: (next(kind for kind, of in KINDS.items() if isinstance(line, of)), encode(line)),
    key=_key,
    counts=_counts,
    unit="timings",
    again="time it again with `tox -e bench`",
    mark="passes",
)


class Writer(PartialFile[Line]):
    """Writes a file of timings beside its place, and renames it when it is complete.

    Continues from the partial file of an interrupted invocation with the same header, whatever its budget. Raises UsageError
    if another invocation left it, or if the file cannot be written.
    """

    def __init__(self, path: Path, header: Mapping[str, Any]) -> None:
        self.timings: dict[tuple[str, int], Timing] = {}
        self.passes: defaultdict[str, list[Timing]] = defaultdict(list)
        """The passes over each case, in order."""
        self.not_timed: dict[str, NotTimed] = {}
        self.beside: dict[str, Repeat | Machine] = {}
        partial = partial_path(path)
        earlier = _interrupted(partial, {"schema": SCHEMAS[-1], **header}) if partial.exists() else []
        super().__init__(FORMAT, path, header, "--timings")
        for line in earlier:
            self.add(line)

    def add(self, line: Line) -> None:
        if isinstance(line, Timing):
            self.timings[line.case, line.number] = line
            self.passes[line.case].append(line)
        elif isinstance(line, NotTimed):
            self.not_timed[line.case] = line
        else:
            self.beside[_key(line)] = line
        super().add(line)

    def finish(self, finished: str = "") -> None:
        """Write the complete file. `finished` is the time in ISO 8601 that its footer states, by default the present."""
        finished = finished or datetime.now(UTC).isoformat(timespec="seconds")
        self.complete([*self.timings.values(), *self.not_timed.values(), *self.beside.values()], {"finished": finished})


def _interrupted(partial: Path, header: Mapping[str, Any]) -> list[Line]:
    """The lines that an interrupted invocation with this header left; the last one may be cut off."""
    reader = Reader(FORMAT, partial)
    with opened(partial):
        texts = partial.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)
    for text in texts:
        if text.endswith("\n"):
            reader.take(text)
    earlier = reader.header
    same = {*header, *earlier} - {"budget"}  # says when to stop, and nothing of what was timed
    if differing := sorted(name for name in same if header.get(name) != earlier.get(name)):
        name = differing[0]
        raise UsageError(
            f"{partial}: an interrupted invocation with {name} {earlier.get(name)!r}, where this one has "
            f"{header.get(name)!r}: remove it, or name another file with --timings"
        )
    return reader.items


def read(path: Path) -> TimingsFile:
    """Read a complete file of timings. Raises UsageError naming a file that is missing, damaged, truncated or foreign."""
    parts = read_text(FORMAT, path)
    if len(parts) > 1:
        raise UsageError(f"{path}: damaged: {len(parts)} files of timings in one; {FORMAT.again}")
    (part,) = parts
    header = with_defaults(part.header)
    for name, annotation in HEADER_FIELDS.items():
        _checked(path, "header", annotation, name, header)
    _checked(path, "footer", str, "finished", part.footer)
    lines = {name: tuple(line for line in part.items if isinstance(line, kind)) for name, kind in COUNTED.items()}
    return TimingsFile(path, header, part.footer["finished"], **lines)


def with_defaults(header: Mapping[str, Any]) -> Mapping[str, Any]:
    """A header with the fields that files of schema 1 lack: all cases had the same number of passes."""
    if header["schema"] > 1:
        return header
    return {"aim": AIM, "budget": None, "looks": [header["passes"]], **header}


def _checked(path: Path, place: str, annotation: Any, name: str, values: Mapping[str, Any]) -> None:
    try:
        decode(annotation, values.get(name))
    except TypeError as error:
        raise UsageError(f"{path}: damaged {place}: {name}: {error}; {FORMAT.again}") from error
