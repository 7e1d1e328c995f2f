"""Timings of cases, a line for each pass over a case, and the files that hold them."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

from conformance.errors import UsageError
from conformance.results.codec import Count, Limit, decode, decode_fields, encode
from conformance.results.jsonl import Format, PartialFile, Reader, opened, partial_path, read_text


@dataclass(frozen=True)
class Counts:
    """Figures of one call of a lowered model that do not vary from call to call.

    The kernels that it executes, the number of calls that quantize and dequantize, the size of the saved weights in bytes,
    and the number of instructions where the machine counts them."""

    kernels: tuple[str, ...]
    quantize: int
    dequantize: int
    weight_bytes: int
    instructions: int | None


THREADS = ("1", "all")
"""Numbers of threads with which a case is timed."""
HEADER = "conformance"
"""Field of `machine_info` in pytest-benchmark's JSON that holds the header of a file of timings."""
Round = Annotated[
    float, Limit("a positive number of seconds", lambda value: 0 < value < math.inf, {"exclusiveMinimum": 0})
]
HEADER_FIELDS: Mapping[str, Any] = {
    **dict.fromkeys(("suite", "torch", "python", "os", "arch", "cpu", "isa", "form"), str),
    "git": str | None,
    "cores": Count,
    "passes": Count,
    "against": Mapping[str, Any] | None,
}
"""Fields of a header that are read, with their types."""


@dataclass(frozen=True)
class Builds:
    """Seconds per call, by round, of the lowered and of the float model of one build of torch.

    The fastest round represents all: disturbances make a call slower, never faster."""

    quantized: tuple[Round, ...]
    floating: tuple[Round, ...]

    @property
    def log_ratio(self) -> float:
        """Logarithm of the ratio of the lowered to the float model."""
        return math.log(min(self.quantized) / min(self.floating))


@dataclass(frozen=True)
class Timing:
    """One pass over a case. `base` has the rounds of the other interpreter, if there is one; `disturbed` counts rounds that
    were discarded because another process slowed the machine."""

    id: str
    threads: str
    number: int
    extent: str
    new: Builds
    base: Builds | None
    counts: Counts
    disturbed: int

    @property
    def case(self) -> str:
        return case_name(self.id, self.threads)


@dataclass(frozen=True)
class NotTimed:
    """A case that is not timed, with the reason: it does not conform, its engine is missing, or it crashes."""

    id: str
    threads: str
    extent: str
    reason: str

    @property
    def case(self) -> str:
        return case_name(self.id, self.threads)


def case_seconds(passes: Sequence[Timing]) -> tuple[float, float]:
    """Seconds of the lowered and of the float model: the median over passes of the fastest round of each."""
    quantized = statistics.median(min(timing.new.quantized) for timing in passes)
    return quantized, statistics.median(min(timing.new.floating) for timing in passes)


def case_name(run_id: str, threads: str) -> str:
    """Name of a case, the key of its history: a run's id and the number of threads."""
    return f"{run_id}#{threads}"


@dataclass(frozen=True)
class TimingsFile:
    """The timings of one invocation. `finished` is its end in ISO 8601, in UTC."""

    path: Path
    header: Mapping[str, Any]
    timings: tuple[Timing, ...]
    not_timed: tuple[NotTimed, ...]
    finished: str

    @property
    def cases(self) -> dict[str, list[Timing]]:
        """The passes over each case that was timed in every pass, in order."""
        without = {case.case for case in self.not_timed}
        passes: dict[str, list[Timing]] = {}
        for timing in sorted(self.timings, key=lambda timing: (timing.case, timing.number)):
            if timing.case not in without:
                passes.setdefault(timing.case, []).append(timing)
        return passes


def _decoded(kind: str, values: dict[str, Any], schema: int) -> "Timing | NotTimed":
    if kind == "timing":
        return timing_of(values)
    line: NotTimed = decode_fields(NotTimed, values)
    return line


def timing_of(values: Mapping[str, Any]) -> Timing:
    """A timing from the JSON object of its fields. Raises TypeError if a field is missing, unknown or wrong."""
    timing: Timing = decode_fields(Timing, values)
    for builds in (timing.new, timing.base or timing.new):
        if not len(builds.quantized) == len(builds.floating) == len(timing.new.quantized):
            raise TypeError("builds and models have unequal numbers of rounds")
    return timing


def _counts(lines: Sequence["Timing | NotTimed"]) -> dict[str, int]:
    timings = sum(isinstance(line, Timing) for line in lines)
    return {"timings": timings, "not_timed": len(lines) - timings}


FORMAT: Format["Timing | NotTimed"] = Format(
    name="a file of timings",
    kinds=("timing", "not timed"),
    schemas=(1,),
    decode=_decoded,
    encode=lambda line: ("timing" if isinstance(line, Timing) else "not timed", encode(line)),
    key=lambda line: f"{line.case}#{line.number}" if isinstance(line, Timing) else line.case,
    counts=_counts,
    unit="timings",
    again="time it again with `tox -e bench`",
    mark="passes",
)


class Writer(PartialFile["Timing | NotTimed"]):
    """Writes a file of timings beside its place, and renames it when it is complete.

    Continues from the partial file of an interrupted invocation with the same header. Raises UsageError if another
    invocation left it, or if the file cannot be written.
    """

    def __init__(self, path: Path, header: Mapping[str, Any]) -> None:
        self.timings: dict[tuple[str, int], Timing] = {}
        self.not_timed: dict[str, NotTimed] = {}
        partial = partial_path(path)
        earlier = _interrupted(partial, {"schema": FORMAT.schemas[-1], **header}) if partial.exists() else []
        super().__init__(FORMAT, path, header, "--timings")
        for line in earlier:
            self.add(line)

    def add(self, line: "Timing | NotTimed") -> None:
        if isinstance(line, Timing):
            self.timings[line.case, line.number] = line
        else:
            self.not_timed[line.case] = line
        super().add(line)

    def finish(self, finished: str = "") -> None:
        """Write the complete file. `finished` is the time in ISO 8601 that its footer states, by default the present."""
        finished = finished or datetime.now(UTC).isoformat(timespec="seconds")
        self.complete([*self.timings.values(), *self.not_timed.values()], {"finished": finished})


def _interrupted(partial: Path, header: Mapping[str, Any]) -> "list[Timing | NotTimed]":
    """The lines that an interrupted invocation with this header left; the last one may be cut off."""
    reader = Reader(FORMAT, partial)
    with opened(partial):
        texts = partial.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)
    for text in texts:
        if text.endswith("\n"):
            reader.take(text)
    earlier = reader.header
    if differing := sorted(name for name in {*header, *earlier} if header.get(name) != earlier.get(name)):
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
    for name, annotation in HEADER_FIELDS.items():
        _checked(path, "header", annotation, name, part.header)
    _checked(path, "footer", str, "finished", part.footer)
    timings = tuple(line for line in part.items if isinstance(line, Timing))
    not_timed = tuple(line for line in part.items if isinstance(line, NotTimed))
    return TimingsFile(path, part.header, timings, not_timed, part.footer["finished"])


def _checked(path: Path, place: str, annotation: Any, name: str, values: Mapping[str, Any]) -> None:
    try:
        decode(annotation, values.get(name))
    except TypeError as error:
        raise UsageError(f"{path}: damaged {place}: {name}: {error}; {FORMAT.again}") from error
