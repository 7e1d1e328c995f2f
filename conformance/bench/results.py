"""Files of timings: what was timed on which machine, a line for each pass over a case. What was interrupted goes on."""

import json
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from conformance.errors import UsageError
from conformance.results.rows import refuse_constant


@dataclass(frozen=True)
class Counts:
    """What a call of a lowered model has that no noise touches: the kernels that it executes, calls that quantize and
    dequantize, bytes of the weights as they are saved, and instructions where the machine counts them."""

    kernels: tuple[str, ...]
    quantize: int
    dequantize: int
    weight_bytes: int
    instructions: int | None


SCHEMA_VERSION = 1


THREADS = ("1", "all")
"""With how many threads a case is timed."""


HEADER = "conformance"
"""The field of `machine_info` that has the header of a file of timings in pytest-benchmark's JSON."""


NEEDED: Mapping[str, Any] = {
    **dict.fromkeys(("suite", "torch", "python", "os", "arch", "cpu", "isa", "form"), str),
    "git": str | None,
    "cores": int,
    "passes": int,
    "against": dict | None,
}
"""Fields of a header that others read."""


@dataclass(frozen=True)
class Builds:
    """Seconds per call, by round, of the lowered and of the float model of one build of torch.

    Of the rounds the fastest stands for all: what disturbs a call makes it slower, never faster."""

    quantized: tuple[float, ...]
    floating: tuple[float, ...]

    @property
    def log_ratio(self) -> float:
        """Logarithm of the ratio of the lowered to the float model."""
        return math.log(min(self.quantized) / min(self.floating))


@dataclass(frozen=True)
class Timing:
    """One pass over a case. `base` has the rounds of the other interpreter, where there was one; `disturbed` counts rounds
    that were left out, because something else slowed the machine."""

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
    """A case that is not timed, and why: it does not conform, its engine is missing, it crashes."""

    id: str
    threads: str
    extent: str
    reason: str

    @property
    def case(self) -> str:
        return case_name(self.id, self.threads)


def case_seconds(passes: Sequence[Timing]) -> tuple[float, float]:
    """Seconds of the lowered and of the float model: the median, over the passes over a case, of the fastest rounds."""
    quantized = statistics.median(min(one.new.quantized) for one in passes)
    return quantized, statistics.median(min(one.new.floating) for one in passes)


def case_name(run_id: str, threads: str) -> str:
    """The name of a case, by which history is keyed: a run's id and the number of threads."""
    return f"{run_id}#{threads}"


@dataclass(frozen=True)
class TimingsFile:
    """What one invocation timed."""

    path: Path
    header: Mapping[str, Any]
    timings: tuple[Timing, ...]
    not_timed: tuple[NotTimed, ...]
    finished: str
    """When, in ISO 8601, in UTC."""

    @property
    def cases(self) -> dict[str, list[Timing]]:
        """The passes over each case that was timed in all of them, in order."""
        without = {one.case for one in self.not_timed}
        found: dict[str, list[Timing]] = {}
        for timing in sorted(self.timings, key=lambda one: (one.case, one.number)):
            if timing.case not in without:
                found.setdefault(timing.case, []).append(timing)
        return found


def _line(kind: str, values: Mapping[str, Any]) -> str:
    return json.dumps({"kind": kind, **values}, ensure_ascii=False, allow_nan=False) + "\n"


def _kind(one: Timing | NotTimed) -> str:
    return "timing" if isinstance(one, Timing) else "not timed"


class Writer:
    """Writes a file of timings beside its place, and renames it when it is complete.

    What an interrupted invocation with the same header left is taken up. Raises UsageError if that was another one, or if
    the file cannot be written.
    """

    def __init__(self, path: Path, header: Mapping[str, Any]) -> None:
        self.path, self.header = path, {"schema": SCHEMA_VERSION, **header}
        self.partial = path.with_name(path.name + ".partial")
        self.timings: dict[tuple[str, int], Timing] = {}
        self.not_timed: dict[str, NotTimed] = {}
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            kept = self._taken_up() if self.partial.exists() else []
            self._file = self.partial.open("w", encoding="utf-8")
        except OSError as error:
            raise UsageError(f"--timings {path}: {error.strerror}: name a file that can be written") from error
        self._write(_line("header", self.header))
        for one in kept:
            self.add(one)

    def _taken_up(self) -> list[Timing | NotTimed]:
        header, found = _lines(self.partial, complete=False)
        if differing := [name for name in {*header, *self.header} if header.get(name) != self.header.get(name)]:
            name = sorted(differing)[0]
            raise UsageError(
                f"{self.partial}: an interrupted invocation with {name} {header.get(name)!r}, where this one has "
                f"{self.header.get(name)!r}: remove it, or name another file with --timings"
            )
        return found

    def _write(self, line: str) -> None:
        self._file.write(line)
        self._file.flush()

    def add(self, one: Timing | NotTimed) -> None:
        if isinstance(one, Timing):
            self.timings[one.case, one.number] = one
        else:
            self.not_timed[one.case] = one
        self._write(_line(_kind(one), asdict(one)))

    def finish(self, finished: str = "") -> None:
        """Rename the file to its name, with a footer that says when, which is now unless told."""
        finished = finished or datetime.now(UTC).isoformat(timespec="seconds")
        counts = {"timings": len(self.timings), "not_timed": len(self.not_timed)}
        self._write(_line("footer", {**counts, "finished": finished}))
        self._file.close()
        self.partial.replace(self.path)

    def interrupt(self) -> None:
        """Leave what there is for an invocation that goes on."""
        self._file.close()


def read(path: Path) -> TimingsFile:
    """Read a complete file of timings. Raises UsageError naming a file that is missing, damaged, truncated or foreign."""
    header, found = _lines(path, complete=True)
    finished = header.pop("finished")
    timings = tuple(one for one in found if isinstance(one, Timing))
    return TimingsFile(path, header, timings, tuple(one for one in found if isinstance(one, NotTimed)), finished)


def _lines(path: Path, *, complete: bool) -> tuple[dict[str, Any], list[Timing | NotTimed]]:
    """The header and the lines of a file. Of one that is not complete the last line may be cut off; of another one the header
    is given the footer's time."""
    try:
        texts = path.read_text(encoding="utf-8").splitlines(keepends=True)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: not a file of timings: {error}") from error
    if not complete and texts and not texts[-1].endswith("\n"):
        del texts[-1]
    lines = [_parsed(f"{path}:{number}", text) for number, text in enumerate(texts, 1)]
    if not lines or lines[0].get("kind") != "header" or "passes" not in lines[0]:
        raise UsageError(f"{path}: not a file of timings: `tox -e bench` writes one")
    header, rest = lines[0], lines[1:]
    if header.get("schema") != SCHEMA_VERSION:
        raise UsageError(f"{path}: schema {header.get('schema')!r}; this version reads {SCHEMA_VERSION}: time it again")
    footer = rest.pop() if complete and rest and rest[-1].get("kind") == "footer" else None
    found = [_read(f"{path}:{number}", line) for number, line in enumerate(rest, 2)]
    if complete:
        counted = {"timings": sum(isinstance(one, Timing) for one in found)}
        counted["not_timed"] = len(found) - counted["timings"]
        if footer is None:
            raise UsageError(f"{path}: truncated: it has no footer; the invocation that is interrupted can go on")
        if any(footer.get(name) != count for name, count in counted.items()):
            raise UsageError(f"{path}: damaged: its footer counts other lines than there are; time it again")
        header["finished"] = footer.get("finished")
    for name in (*NEEDED, *(["finished"] if complete else [])):
        if not isinstance(header.get(name), NEEDED.get(name, str)):
            raise UsageError(f"{path}: damaged: its {name} is {header.get(name)!r}; time it again")
    del header["kind"]
    return header, found


def _parsed(place: str, text: str) -> dict[str, Any]:
    try:
        values = json.loads(text, parse_constant=refuse_constant)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{place}: damaged, or not a file of timings: {error}") from error
    if not isinstance(values, dict):
        raise UsageError(f"{place}: damaged, or not a file of timings")
    return values


def _read(place: str, values: dict[str, Any]) -> Timing | NotTimed:
    kind = values.pop("kind", None)
    try:
        if kind == "not timed":
            return NotTimed(**values)
        if kind == "timing":
            return timing_of(values)
    except (TypeError, KeyError, ValueError, AttributeError) as error:
        raise UsageError(f"{place}: damaged {kind}: {error}") from error
    raise UsageError(f"{place}: not a line of a file of timings: {kind!r}")


def timing_of(values: Mapping[str, Any]) -> Timing:
    """A timing from its fields. Raises TypeError, KeyError, ValueError or AttributeError if they are not those of one."""
    new, base, counts = values["new"], values["base"], dict(values["counts"])
    counts["kernels"] = tuple(counts["kernels"])
    changed = {"new": _builds(new), "base": base and _builds(base), "counts": Counts(**counts)}
    return Timing(**{**values, **changed})


def _builds(values: Mapping[str, Any]) -> Builds:
    found = {one.name: tuple(map(float, values[one.name])) for one in fields(Builds)}
    rounds: Iterable[float] = (value for taken in found.values() for value in taken)
    if not all(math.isfinite(value) and value > 0 for value in rounds) or len({*map(len, found.values())}) != 1:
        raise ValueError("rounds that are none")
    return Builds(**found)
