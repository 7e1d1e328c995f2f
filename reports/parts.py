"""The parts of rows files, one for each invocation. All shards of a selection are joined to one part."""

import json
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from conformance.errors import UsageError
from conformance.results import diagnostics
from conformance.results.diagnostics import Details
from conformance.results.environments import Environment, environment
from conformance.results.rows import RowsFile, assembled, read_all
from conformance.results.shards import Shard

MACHINE = ("python", "os", "cpu", "cpu_flags")
"""Fields of a header that may differ between shards that are joined: the ledger does not ask for them. Where they do, the
joined header has all values, and the flags that all processors have."""


@dataclass(frozen=True)
class Part:
    """The rows and diagnostics of one invocation, and the path of their file."""

    path: Path
    file: RowsFile
    environment: Environment
    details: Mapping[str, Details]

    @property
    def shard(self) -> Shard | None:
        """Which shard of a selection it is; None for a whole selection."""
        text = self.file.header.get("shard")
        return Shard.parse(text) if text else None


def parts_of(paths: Sequence[Path]) -> list[Part]:
    """Read rows files, merged or not, with their diagnostics. Shards are joined if all of a selection are there.

    Raises UsageError naming a file that cannot be read, two files with the same run in the same environment, or shards that
    were cut differently.
    """
    parts: list[Part] = []
    seen: dict[tuple[str, Environment], Path] = {}
    for path in paths:
        files = read_all(path)
        for file, details in zip(files, diagnostics.read(path, files), strict=True):
            recorded_in = environment(path, file.header)
            for row in file.rows:
                if (earlier := seen.get((row.id, recorded_in))) is not None:
                    raise UsageError(
                        f"{path}: duplicate: {row.id} is in {earlier} too, from the same environment "
                        f"({recorded_in.platform}, torch {recorded_in.torch}): give one of them"
                    )
                seen[row.id, recorded_in] = path
            parts.append(Part(path, file, recorded_in, details))
    # those of one machine first: another machine may have run the same shards
    for ignored in ((), MACHINE):
        parts = [part for members in _sets(parts, _header_without(*ignored)) for part in _joined(members)]
    return parts


def mixed(parts: Sequence[Part]) -> str:
    """The files and platforms of the shards of a selection that are all there, but not of one platform; empty if there are
    none."""
    for members in _sets(parts, _header_without(*MACHINE, "isa", "isa_limit", "engines")):
        numbers = sorted(member.shard.number for member in members if member.shard)
        platforms = {member.environment.platform for member in members}
        if len(platforms) > 1 and len({*numbers}) == len(numbers):
            return ", ".join(f"{member.path} on {member.environment.platform}" for member in members)
    return ""


def missing(parts: Sequence[Part]) -> list[str]:
    """A line for each selection of which shards are missing."""
    lines = []
    for members in _sets(parts, _header_without(*MACHINE, "isa", "engines")):
        shards = {member.shard for member in members if member.shard}
        of = max((shard.of for shard in shards), default=0)
        if lost := [str(Shard(number, of)) for number in range(1, of + 1) if Shard(number, of) not in shards]:
            named = ", ".join(str(path) for path in dict.fromkeys(member.path for member in members))
            lines.append(f"{named}: shards of this selection are missing: {', '.join(lost)}")
    return lines


def _header_without(*ignored: str) -> Callable[[Part], Hashable]:
    """A key that is equal for shards of one selection whose headers differ at most in these fields."""

    def key(part: Part) -> Hashable:
        header = part.file.header
        kept = {name: header[name] for name in header.keys() - {"shard", "since", *ignored}}
        return json.dumps([kept, part.shard and part.shard.of], sort_keys=True)

    return key


def _sets(parts: Sequence[Part], key: Callable[[Part], Hashable]) -> Iterator[list[Part]]:
    """The shards that have a key in common, and every other part by itself."""
    sets: dict[Hashable, list[Part]] = {}
    for number, part in enumerate(parts):
        sets.setdefault(key(part) if part.shard else number, []).append(part)
    yield from sets.values()


def _joined(members: list[Part]) -> list[Part]:
    """One part if these are all shards of a selection, each once; else the parts as they are."""
    shards = [member.shard for member in members if member.shard]
    if not shards or sorted(shard.number for shard in shards) != [*range(1, shards[0].of + 1)]:
        return members
    first, *others = (members[shards.index(Shard(number, len(members)))] for number in range(1, len(members) + 1))
    for other in others:
        if other.file.header.get("since") != first.file.header.get("since"):
            raise UsageError(
                f"{first.path} and {other.path}: shards {first.shard} and {other.shard} of one selection were balanced by "
                "different rows: run all of them with the same --since"
            )
    ordered = [first, *others]
    if len({row.id for member in ordered for row in member.file.rows}) < sum(
        len(member.file.rows) for member in ordered
    ):
        raise UsageError(
            f"{first.path} and the other shards of its selection overlap: run all of them with one revision"
        )
    file = assembled(_header(ordered), (member.file for member in ordered))
    details = {run_id: details for member in ordered for run_id, details in member.details.items()}
    return [Part(first.path, file, environment(first.path, file.header), details)]


def _header(ordered: Sequence[Part]) -> dict[str, Any]:
    headers = [part.file.header for part in ordered]
    header = {name: value for name, value in headers[0].items() if name != "shard"}
    for name in ("python", "os", "cpu"):
        header[name] = " / ".join(dict.fromkeys(other[name] for other in headers))
    if "cpu_flags" in header:
        header["cpu_flags"] = [
            flag for flag in header["cpu_flags"] if all(flag in other["cpu_flags"] for other in headers)
        ]
    return header
