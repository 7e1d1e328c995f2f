"""What the options of an invocation select, and the header of its rows file."""

import platform
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from conformance import __version__
from conformance.cases.claims import BackendClaims, backend, third_party
from conformance.cases.runs import Run, benchmarks, runs, select, usual
from conformance.configs.registry import BACKENDS, Backend
from conformance.engines.availability import probe
from conformance.engines.registry import engine
from conformance.errors import UsageError
from conformance.fuzz.samples import Family, families
from conformance.goldens.store import Store
from conformance.host.cpu import cpu, isa
from conformance.paths import GOLDEN, KNOWN
from conformance.results.ledger import Entry, Host, backends_of, load, useless


@dataclass
class Selection:
    """What the options select. Raises UsageError from its properties if an option makes no sense."""

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
        return [run for one in self.claims for run in runs(one, self.engines)]

    @cached_property
    def runs(self) -> list[Run]:
        return select(self.possible, self.globs)

    def timed(self, extents: Sequence[str]) -> list[tuple[Run, str]]:
        """The runs that are timed, with the extent of their layers. Raises UsageError for a glob that matches none."""
        extent_of = {
            run: extent for extent in extents for one in self.claims for run in benchmarks(one, self.engines, [extent])
        }
        return [(run, extent_of[run]) for run in select(extent_of, self.globs)]

    @property
    def not_asked_for(self) -> list[Run]:
        """The runs that are made only if they are asked for by name, and were not."""
        return [] if self.globs else [run for run in self.possible if not usual(run)]

    @property
    def families(self) -> list[Family]:
        """The families that are searched with drawn cases: all of the selected backends, none where runs are selected."""
        return [] if self.globs else [one for claims in self.claims for one in families(claims, self.engines)]

    @cached_property
    def store(self) -> Store:
        """The goldens that runs are held to; what is read of them stays, so that forked children share it."""
        return Store(self.golden)

    @cached_property
    def entries(self) -> tuple[Entry, ...]:
        return load(self.ledger)

    @cached_property
    def useless(self) -> dict[str, str]:
        """What entries say in vain, by their ids."""
        return useless(self.entries, self.every_id, self.host)

    @property
    def whole(self) -> list[Backend]:
        """Registered backends that are selected with all their claims."""
        return [] if self.globs or self.backend_config else [BACKENDS[one.name] for one in self.claims]

    @property
    def ledger_to_check(self) -> list[Entry]:
        """Entries that have to match a run: those of the selected backends, where whole backends are selected."""
        selected = {one.name for one in self.whole}
        return [
            e for e in self.entries if selected and (backends_of(e) & selected or not backends_of(e) <= set(BACKENDS))
        ]

    @cached_property
    def every_id(self) -> list[str]:
        """Ids of all runs that the registry promises, whatever is selected."""
        return [run.id for name in BACKENDS for run in runs(backend(name))]

    @property
    def results_path(self) -> Path:
        if self.results:
            return self.results
        name = "+".join(one.name for one in self.claims)
        part = (f"-{self.isa_limit}" if self.isa_limit else "") + ("-selection" if self.globs or self.engines else "")
        return Path("reports/out") / f"{name}-{platform.machine()}{part}.jsonl"

    @cached_property
    def host(self) -> Host:
        return Host(torch.__version__, platform.machine(), isa(self.isa_limit))

    def header(self) -> dict[str, Any]:
        """The header of the rows file."""
        return {
            **self.circumstances(),
            "engines": {name: reason or "available" for name, reason in self.unavailable.items()},
            "not_asked_for": [run.id for run in self.not_asked_for],
        }

    def circumstances(self) -> dict[str, Any]:
        """What a header says of the host, the versions and what was selected, for which no engine has to be probed."""
        model, flags = cpu()
        return {
            "suite": __version__,
            "torch": torch.__version__,
            "python": platform.python_version(),
            "os": platform.platform(),
            "arch": platform.machine(),
            "cpu": model,
            "cpu_flags": list(flags),
            "isa_limit": self.isa_limit,
            "isa": self.host.isa,
            "git": _revision(),
            "backends": [one.name for one in self.claims],
            "selection": list(self.globs),
        }

    @cached_property
    def unavailable(self) -> dict[str, str | None]:
        """For every engine of the selection: why it cannot run here, or None. Each is probed in a child of its own."""
        return {name: probe(name) for name in dict.fromkeys(run.engine for run in self.runs)}


def _revision() -> str | None:
    try:
        command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty", "--abbrev=12"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None
