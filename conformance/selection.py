"""The selection of an invocation: claims, runs, operator families, ledger entries, goldens and the rows file."""

import platform
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from conformance.cases.claims import BackendClaims, backend, third_party
from conformance.cases.runs import Run, benchmarks, runs, select, usual
from conformance.configs.registry import BACKENDS, Backend
from conformance.engines.availability import probe
from conformance.engines.registry import engine
from conformance.errors import UsageError
from conformance.fuzz.samples import Family, families
from conformance.goldens.store import Store
from conformance.host.cpu import isa
from conformance.host.environment import environment
from conformance.paths import GOLDEN, KNOWN
from conformance.results.ledger import Entry, Host, backends_of, entries_by_run, load, useless


@dataclass
class Selection:
    """The selection that the options make. Its properties raise UsageError for an option that makes no sense."""

    backends: Sequence[str] = ()
    engines: Sequence[str] = ()
    globs: Sequence[str] = ()
    backend_config: str | None = None
    isa_limit: str | None = None
    results: Path | None = None
    ledger: Path = KNOWN
    golden: Path = GOLDEN

    @cached_property
    def claims(self) -> list[BackendClaims]:
        """The claims of each selected backend."""
        if self.backend_config:
            if self.backends:
                raise UsageError("--backend and --backend-config exclude each other")
            return [third_party(self.backend_config)]
        return [backend(name) for name in self.backends or BACKENDS]

    @cached_property
    def possible(self) -> list[Run]:
        """Every run of the selected backends and engines."""
        for name in self.engines:
            engine(name)
        return [run for claims in self.claims for run in runs(claims, self.engines)]

    @cached_property
    def runs(self) -> list[Run]:
        """The selected runs."""
        return select(self.possible, self.globs)

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
            for run in benchmarks(claims, self.engines, [extent])
        }
        return [(run, extent_of[run]) for run in select(extent_of, self.globs)]

    @property
    def families(self) -> list[Family]:
        """The operator families to search with drawn cases: those of the selected backends; none if cases are selected."""
        if self.globs:
            return []
        return [family for claims in self.claims for family in families(claims, self.engines)]

    @cached_property
    def unavailable(self) -> dict[str, str | None]:
        """Why each engine of the selection cannot run on this host, None if it can. Each is probed in its own child."""
        return {name: probe(name) for name in dict.fromkeys(run.engine for run in self.runs)}

    @cached_property
    def store(self) -> Store:
        """The goldens of the runs. They are cached once read, so that forked children share them."""
        return Store(self.golden)

    @cached_property
    def host(self) -> Host:
        """The host by which `when` of a ledger entry is decided."""
        return Host(torch.__version__, platform.machine(), isa(self.isa_limit))

    @cached_property
    def entries(self) -> tuple[Entry, ...]:
        """All entries of the ledger."""
        return load(self.ledger)

    @cached_property
    def applying(self) -> tuple[Entry, ...]:
        """The entries of the ledger that apply to this host."""
        return tuple(entry for entry in self.entries if entry.applies(self.host))

    @cached_property
    def crashing(self) -> frozenset[str]:
        """Ids of the selected runs that are known to crash on this host."""
        entries = [entry for entry in self.applying if "crashes" in entry.check]
        return frozenset(entries_by_run(entries, (run.id for run in self.runs)))

    @property
    def whole(self) -> list[Backend]:
        """The registered backends of which all claims are selected."""
        if self.globs or self.backend_config:
            return []
        return [BACKENDS[claims.name] for claims in self.claims]

    @property
    def ledger_to_check(self) -> list[Entry]:
        """The entries that must match a run: those of the whole backends, and those of no registered backend."""
        selected = {backend.name for backend in self.whole}
        return [
            entry
            for entry in self.entries
            if selected and (backends_of(entry) & selected or not backends_of(entry) <= set(BACKENDS))
        ]

    @cached_property
    def useless(self) -> dict[str, str]:
        """The problem of each entry that matches no run or adds nothing to the others, by entry id."""
        return useless(self.entries, self.every_id, self.host)

    @cached_property
    def every_id(self) -> list[str]:
        """Ids of all runs of the registered backends, whatever is selected."""
        return [run.id for name in BACKENDS for run in runs(backend(name))]

    @property
    def results_path(self) -> Path:
        """The rows file. By default a partial selection has another one than the whole backend."""
        if self.results:
            return self.results
        name = "+".join(claims.name for claims in self.claims)
        part = (f"-{self.isa_limit}" if self.isa_limit else "") + ("-selection" if self.globs or self.engines else "")
        return Path("reports/out") / f"{name}-{platform.machine()}{part}.jsonl"

    def circumstances(self) -> dict[str, Any]:
        """The part of a header that needs no engine: the environment and the selection."""
        return {
            **environment(self.isa_limit),
            "backends": [claims.name for claims in self.claims],
            "selection": list(self.globs),
        }

    def header(self) -> dict[str, Any]:
        """The header of the rows file."""
        return {
            **self.circumstances(),
            "engines": {name: reason or "available" for name, reason in self.unavailable.items()},
            "not_asked_for": [run.id for run in self.not_asked_for],
        }
