"""The environment of an invocation, from the header of its rows file."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from conformance.errors import UsageError

from .known import Host
from .shards import Shard

OPTIONAL = {
    "engines": dict,
    "backends": list,
    "selection": list,
    "options": list,
    "not_asked_for": list,
    "cpu_flags": list,
    "packages": dict,
    "shard": str,
    "since": str,
    "only_since": bool,
}
"""Other fields of a header, and the type of each."""


@dataclass(frozen=True)
class Environment:
    """Fields of an invocation's header that a run's outcome may depend on. `packages` have their versions, as
    `executorch 1.4.1`."""

    torch: str
    python: str
    os: str
    arch: str
    cpu: str
    isa: str
    cpu_flags: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()

    @property
    def host(self) -> Host:
        return Host(self.torch, self.arch, self.isa, self.cpu_flags, self.packages)

    @property
    def platform(self) -> str:
        """Architecture and instruction set, each once."""
        return self.arch if self.arch == self.isa else f"{self.arch} {self.isa}"


def environment(path: Path, header: Mapping[str, Any]) -> Environment:
    """The environment of a header. Raises UsageError naming the file if any field is missing or has a wrong value."""
    values = {field.name: header.get(field.name) for field in fields(Environment) if field.name not in OPTIONAL}
    for name, value in values.items():
        if not isinstance(value, str):
            raise _damaged(path, name, value)
    for name, kind in OPTIONAL.items():
        if not isinstance(header.get(name, kind()), kind):
            raise _damaged(path, name, header[name])
    if "shard" in header:
        try:
            Shard.parse(header["shard"])
        except ValueError as error:
            raise _damaged(path, "shard", header["shard"]) from error
    packages = tuple(f"{name} {version}" for name, version in sorted(header.get("packages", {}).items()))
    return Environment(**values, cpu_flags=tuple(header.get("cpu_flags", ())), packages=packages)  # type: ignore[arg-type]


def _damaged(path: Path, name: str, value: object) -> UsageError:
    return UsageError(f"{path}: damaged: {name} of its header is {value!r}; run it again")
