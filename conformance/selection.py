"""The selection of an invocation: claims, runs, operator families, ledger entries, goldens and the rows file."""

import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from conformance.cases.claims import BackendClaims, backend, third_parties
from conformance.cases.runs import Run, benchmarks, candidates, runs, select, usual
from conformance.cases.shards import dealt
from conformance.cases.similar import nameable_ids
from conformance.configs.registry import BACKENDS, BY_NAME, REGISTERED, Backend
from conformance.engines.availability import probe
from conformance.engines.registry import engine_name
from conformance.errors import UsageError
from conformance.goldens.store import Store
from conformance.host import guard
from conformance.host.cpu import cpu, isa
from conformance.host.environment import environment, installed
from conformance.paths import GOLDEN, KNOWN
from conformance.results.earlier import Earlier, read_earlier
from conformance.results.estimates import LastTime, last_time
from conformance.results.known import Coverage, Entry, Host
from conformance.results.ledger import backends_of, useless
from conformance.results.ledger_file import load
from conformance.results.shards import Shard
from conformance.results.verdicts import AS_CHECKS

FAILED, NEW, LATER = range(3)
"""The turns of runs, in order."""

if TYPE_CHECKING:
    from conformance.cases.families import Family


@dataclass
class Selection:
    """The selection that the options make. Its properties raise UsageError for an option that makes no sense."""

    backends: Sequence[str] = ()
    engines: Sequence[str] = ()
    globs: Sequence[str] = ()
    backend_configs: Sequence[str] = ()
    isa_limit: str | None = None
    results: Path | None = None
    ledger: Path = KNOWN
    golden: Path = GOLDEN
    shard: str | None = None
    since: Path | None = None
    only_since: bool = False
    quantizers: Sequence[str] = ()
    search_minutes: float | None = None
    operators: Sequence[str] = ()

    @cached_property
    def claims(self) -> list[BackendClaims]:
        """The claims of each selected backend."""
        given = {
            "--backend": self.backends,
            "--backend-config": self.backend_configs,
            "--quantizer": self.quantizers,
        }
        if len(options := [option for option, values in given.items() if values]) > 1:
            raise UsageError(f"{options[0]} and {options[1]} exclude each other")
        if self.backend_configs:
            return third_parties(self.backend_configs)
        if self.quantizers:
            return third_parties(self.quantizers, "--quantizer")
        return [backend(name) for name in dict.fromkeys(self.backends or BACKENDS)]

    @cached_property
    def possible(self) -> list[Run]:
        """Every run of the selected backends and engines; with globs, those of the claims that they can match."""
        return candidates(self.claims, self.engine_names, self.globs)

    @cached_property
    def engine_names(self) -> list[str]:
        """The names of the engines that the option `--engine` names."""
        return [*dict.fromkeys(map(engine_name, self.engines))]

    @cached_property
    def asked_for(self) -> list[Run]:
        """The runs that backends, engines and globs select, or only those of them that failed or are new since then."""
        earlier = self.earlier
        selected = select(self.possible, self.globs)
        if not self.only_since:
            return selected
        if earlier is None:
            raise UsageError("--only-since: name the rows file of an earlier invocation with --since")
        if self.since is not None and self.since.resolve() == self.results_path.resolve():
            raise UsageError(
                f"--results {self.results_path}: these rows would replace those of --since: name another file"
            )
        return [run for run in selected if self.turn(run) < LATER]

    @cached_property
    def runs(self) -> list[Run]:
        """The selected runs; of a shard, its part of them."""
        return [run for run in self.asked_for if self._mine(run.id)]

    @cached_property
    def part(self) -> Shard | None:
        """The shard that is asked for."""
        if self.shard is None:
            return None
        try:
            return Shard.parse(self.shard)
        except ValueError as error:
            raise UsageError(f"--shard {self.shard!r}: {error}: write 1/4 for the first of four parts") from error

    @cached_property
    def _dealt(self) -> Mapping[str, int]:
        """The number of the shard of each run and family of the selection, by id."""
        assert self.part is not None
        seconds = self.earlier.seconds if self.earlier else {}
        return dealt(self.asked_for, [family.id for family in self._searched], seconds, self.part.of)

    def _mine(self, name: str) -> bool:
        """Whether the run or family with this id belongs to the shard."""
        return self.part is None or self._dealt[name] == self.part.number

    @cached_property
    def earlier(self) -> Earlier | None:
        """The rows that `--since` names."""
        if self.since is None:
            return None
        return read_earlier(self.since, [claims.name for claims in self.claims], self.entries)

    @cached_property
    def last_time(self) -> LastTime:
        """What the file says that this invocation replaces."""
        return last_time(self.results_path)

    def turn(self, run: Run) -> int:
        """When a run has its turn: first what failed last time, or in the rows of `--since`, then what was not executed, then
        the rest."""
        if self.earlier is None:
            if run.id in self.last_time.unexpected:
                return FAILED
            return NEW if self.last_time.seconds and run.id not in self.last_time.seconds else LATER
        if run.id in self.earlier.failed:
            return FAILED
        # an operator that is missing from the tables is executed nowhere: only its first row is new
        executed = run.id in (self.earlier.seconds if run.variant else self.earlier.ids)
        return LATER if executed else NEW

    @property
    def notes(self) -> list[str]:
        """Lines that say which part of the selection this is, for the end of an invocation."""
        lines = []
        if self.earlier is not None:
            turns = [self.turn(run) for run in self.asked_for]
            failed, new = turns.count(FAILED), turns.count(NEW)
            nothing = "" if self.asked_for else ": nothing to run"
            lines.append(f"since {self.since}: {failed} runs failed there, {new} are new{nothing}")
        if self.part is not None:
            searched = f", {len(self.families)} of {len(self._searched)} searches" if self._searched else ""
            lines.append(f"shard {self.part}: {len(self.runs)} of {len(self.asked_for)} runs{searched}")
        return lines

    @property
    def not_asked_for(self) -> list[Run]:
        """Runs that only a `--case` selects, where none is given."""
        return [] if self.globs else [run for run in self.possible if not usual(run)]

    def timed(self, extents: Sequence[str]) -> list[tuple[Run, str]]:
        """The runs to time, with the extent of their layers. Raises UsageError for a glob that matches none."""
        extent_of = {
            run: extent
            for extent in extents
            for claims in self.claims
            for run in benchmarks(claims, self.engine_names, [extent])
        }
        return [(run, extent_of[run]) for run in select(extent_of, self.globs)]

    @cached_property
    def _searched(self) -> "list[Family]":
        if self.globs or self.only_since:
            return []
        from conformance.cases.families import families

        slow = self.search_minutes is not None
        return [family for claims in self.claims for family in families(claims, self.engine_names, slow=slow)]

    @property
    def families(self) -> "list[Family]":
        """The operator families to search with drawn cases: those of the selected backends; none if cases are selected."""
        return [family for family in self._searched if self._mine(family.id)]

    @cached_property
    def unavailable(self) -> dict[str, str | None]:
        """Why each engine of the selection cannot run on this host, None if it can. Each is probed in its own child."""
        return {name: probe(name) for name in dict.fromkeys(run.engine for run in self.asked_for)}

    @cached_property
    def store(self) -> Store:
        """The goldens of the runs. They are cached once read, so that forked children share them."""
        return Store(self.golden)

    @cached_property
    def host(self) -> Host:
        """The host by which `when` of a ledger entry is decided."""
        return Host(torch.__version__, platform.machine(), isa(self.isa_limit), cpu()[1], installed())

    @cached_property
    def entries(self) -> tuple[Entry, ...]:
        """All entries of the ledger."""
        return load(self.ledger)

    @cached_property
    def unknown_platform(self) -> str:
        """A sentence if this host is none of the platforms of the ledger, which then demands no deviation; else empty."""
        if all(self.host.among(entry.platforms) for entry in self.entries):
            return ""
        return (
            f"unknown platform: the ledger was not written on {self.host.platform}: what it lists may deviate here or not, "
            "and anything else that deviates may be peculiar to this platform"
        )

    @cached_property
    def applying(self) -> tuple[Entry, ...]:
        """The entries of the ledger that apply to this host."""
        return tuple(entry for entry in self.entries if entry.applies(self.host))

    @cached_property
    def crashing(self) -> frozenset[str]:
        """Ids of the selected runs that are known to crash on this host, or may."""
        known = Coverage(entry for entry in self.applying if not entry.check.isdisjoint(AS_CHECKS))
        return frozenset(run.id for run in self.runs if known.of(run.id))

    @property
    def whole(self) -> list[Backend]:
        """The registered backends of which all claims are selected. The first shard stands for all shards of a selection."""
        if (
            self.globs
            or self.backend_configs
            or self.quantizers
            or self.only_since
            or (self.part and self.part.number > 1)
        ):
            return []
        return [REGISTERED[claims.name] for claims in self.claims]

    @property
    def complete(self) -> bool:
        """Whether this invocation has every run of the whole backends, so that it tells what none of them needs."""
        return bool(self.whole) and self.part is None

    @property
    def ledger_to_check(self) -> list[Entry]:
        """The entries that must match a run: those of the whole backends, and those of no registered backend."""
        selected = {backend.name for backend in self.whole}
        return [
            entry
            for entry in self.entries
            if selected and (backends_of(entry) & selected or not backends_of(entry) <= set(REGISTERED))
        ]

    @cached_property
    def useless(self) -> dict[str, str]:
        """The problem of each entry of `ledger_to_check` that matches no run or adds nothing to the others, by name."""
        asked = {entry.name for entry in self.ledger_to_check}
        absent = {*BY_NAME} - {claims.name for claims in self._every_backend}
        return useless(self.entries, self.every_id, self.host, self.nameable, asked, absent)

    @cached_property
    def _every_backend(self) -> list[BackendClaims]:
        """The registered backends, whatever is selected, and selected quantizers."""
        return [backend(name) for name in (*BACKENDS, *(name for name in self.backends if name in BY_NAME))]

    @cached_property
    def every_id(self) -> list[str]:
        """Ids of all runs of the registered backends, whatever is selected, and of selected quantizers."""
        return [run.id for claims in self._every_backend for run in runs(claims)]

    def nameable(self) -> Iterator[str]:
        """Ids of the fixed runs of these backends to which other runs are compared."""
        for claims in self._every_backend:
            yield from nameable_ids(claims)

    @property
    def own_options(self) -> list[str]:
        """The options that name what is not the suite's: without them no command finds the selected runs."""
        named = {
            "--backend-config": self.backend_configs,
            "--quantizer": self.quantizers,
            "--engine": [text for text in self.engines if ":" in text],
            "--operators": self.operators,
        }
        return [word for option, values in named.items() for value in values for word in (option, value)]

    @property
    def repro_options(self) -> list[str]:
        """The options without which `repro` does not find the selected runs, or runs them otherwise."""
        return [*self.own_options, *(["--isa", self.isa_limit] if self.isa_limit else [])]

    @property
    def results_path(self) -> Path:
        """The rows file. By default a partial selection has another one than the whole backend."""
        if self.results:
            return self.results
        name = "+".join(claims.name for claims in self.claims)
        part = f"-{self.isa_limit}" if self.isa_limit else ""
        part += "-memory" if guard.switched_on() else ""
        part += "-selection" if self.globs or self.engines or self.only_since else ""
        part += f"-shard-{self.part.number}-of-{self.part.of}" if self.part else ""
        return Path("reports/out") / f"{name}-{platform.machine()}{part}.jsonl"

    def circumstances(self) -> dict[str, Any]:
        """The part of a header that needs no engine: the environment and the selection."""
        return {
            **environment(self.isa_limit),
            "backends": [claims.name for claims in self.claims],
            "selection": list(self.globs),
            **({"options": self.own_options} if self.own_options else {}),
        }

    def header(self) -> dict[str, Any]:
        """The header of the rows file."""
        return {
            **self.circumstances(),
            "engines": {name: reason or "available" for name, reason in self.unavailable.items()},
            "not_asked_for": [run.id for run in self.not_asked_for],
            **({"memory": guard.unavailable() or "guarded"} if guard.switched_on() else {}),
            **({"shard": str(self.part)} if self.part else {}),
            **({"since": self.earlier.digest} if self.earlier else {}),
            **({"only_since": True} if self.only_since else {}),
        }
