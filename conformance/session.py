"""One invocation: what is selected, what the host is, and where the rows go."""

import os
import platform
import re
import subprocess
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import torch

from configs.registry import BACKENDS, Backend

from . import __version__, enforcement, exhibits, laws, pipeline
from .cases import CASES, Run, benchmarks, runs, select, usual
from .claims import BackendClaims, backend, third_party
from .details import Details
from .engines import engine
from .errors import UsageError
from .generated import Family, families
from .golden import GOLDEN, GoldenError, Store, name_of
from .isa import ISA_LIMITS
from .isolation import Death, Done, Raised, run_isolated
from .judge import Judge, describe
from .ledger import KNOWN, Entry, Host, backends_of, load, useless
from .models import missing_operators
from .rows import Row

BATCH = 32
"""Runs per child: a fork and its first kernels cost some 60 ms, a death costs the batch again."""


def cpu() -> tuple[str, tuple[str, ...]]:
    """Model name and instruction set flags of the CPU, as far as the system tells."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.processor() or "unknown", ()
    model = re.search(r"^model name\s*:\s*(.+)$", text, re.M)
    flags = re.search(r"^(?:flags|Features)\s*:\s*(.+)$", text, re.M)
    return model[1] if model else platform.processor() or "unknown", tuple(sorted(flags[1].split())) if flags else ()


def isa(limit: str | None) -> str:
    """The widest instruction set for 8-bit products that torch's libraries use on this host, or the limit set for them."""
    if limit:
        return limit
    for name, settings in ISA_LIMITS.items():
        if all(os.environ.get(key) == value for key, value in settings.items()):
            return name
    if platform.machine() not in ("x86_64", "AMD64"):
        return platform.machine()
    flags = cpu()[1]
    return next((name for name in ("avx512_vnni", "avx_vnni", "avx512f", "avx2") if name in flags), "baseline")


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


def probe(name: str) -> str | None:
    """Return why an engine cannot run on this host, or None. A probe that dies is a reason."""
    engine(name).warm_up()
    (outcome,) = run_isolated([name], lambda one: engine(one).unavailable())
    if isinstance(outcome, Done):
        return outcome.value
    return outcome.reason if isinstance(outcome, Death) else outcome.traceback.strip().splitlines()[-1]


def _revision() -> str | None:
    try:
        command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty", "--abbrev=12"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


@cache
def warm_up() -> None:
    """Let torch do its late imports here, before the fork, and not in every child.

    With one thread nothing starts a thread pool that a child would miss, but for oneDNN on ARM, which has its own; one run a
    core is also what suits small models.
    """
    torch.set_num_threads(1)
    run = next(run for run in runs(backend("fbgemm"), ["x86"]) if run.variant is not None)
    with pipeline.quiet(), torch.backends.mkldnn.flags(enabled=False):
        given = pipeline.subject(run)
        prepared = pipeline.prepare(given, run.backend.config)
        pipeline.calibrate(prepared, given)
        pipeline.reference(prepared, run.backend.config)


@dataclass
class Judged:
    """A row with the seconds that its run spent in torch, and what there is to see of it; `unusable` says why it could not
    be held to a golden."""

    row: Row
    torch_seconds: float = 0.0
    unusable: str = ""
    details: Details | None = None


MEMORY_FAULTS = ("SIGSEGV", "SIGBUS", "SIGABRT")


def crash(death: Death) -> str:
    """How a run died, in the same words every time: which way a process with a damaged heap ends is chance.

    The allocator may also wait for itself forever, while it tells of the damage.
    """
    if death.reason.startswith((*MEMORY_FAULTS, "hangs")):
        return f"crashes: memory fault ({', '.join(MEMORY_FAULTS)}) or hang"
    return f"crashes: {death.reason}"


def deviation(run: Run) -> Details:
    """What there is to see of a run that has left no evidence: one that breaks a property, or dies."""
    graphs = exhibits.converted(run) if run.profile != "constraints" else {}
    return Details(run.id, {**exhibits.setting(run), **graphs})


def crashed(run: Run) -> Details:
    """What there is to see of a run that died: how far it comes without running a kernel, which may be where it dies."""
    (outcome,) = run_isolated([run], deviation)
    return outcome.value if isinstance(outcome, Done) else Details(run.id, exhibits.setting(run))


PROPERTY = {"constraints": enforcement.row, "laws": laws.row}
"""What makes the row of a run that tries a property, by profile."""


def judge_runs(
    batch: Sequence[Run], unavailable: Callable[[str], str | None], store: Store | None = None
) -> list[Judged | Raised]:
    """Judge a batch of runs, isolated, in order, by the goldens of `store` (default: those in the repository).

    A run on which the suite itself fails is Raised.
    """
    store = store or Store()
    results: dict[str, Judged | Raised] = {}
    possible = []
    for run in batch:
        reason = unavailable(run.engine)
        if run.variant is None:
            named = ", ".join(missing_operators(run.claim)) or run.claim.pattern
            lacking = f"not covered: no entry for {named} in conformance/operators/"
            results[run.id] = Judged(Row(**describe(run), verdict="unavailable", detail=lacking))
        elif reason and run.profile != "constraints":  # which torch enforces, whatever the engine
            results[run.id] = Judged(
                Row(**describe(run), verdict="unavailable", detail=f"engine {run.engine}: {reason}")
            )
        else:
            possible.append(run)
    warm_up()
    for name in dict.fromkeys(run.engine for run in possible):
        engine(name).warm_up()
    with suppress(GoldenError):  # what cannot be read is said by the run that needs it
        store.preload(name_of(run) for run in possible if run.profile in CASES)
    judge = Judge(store)

    def work(run: Run) -> Judged:
        before = judge.watch.seconds
        if run.profile not in PROPERTY:
            evidence, row = judge.judged(run)
            seconds = judge.watch.seconds - before
            return Judged(row, seconds, evidence.unusable, exhibits.details(evidence, row))
        row = PROPERTY[run.profile](judge, run)
        return Judged(row, judge.watch.seconds - before, details=deviation(run) if row.failed else None)

    for run, outcome in zip(possible, run_isolated(possible, work), strict=True):
        if isinstance(outcome, Done):
            results[run.id] = outcome.value
        elif isinstance(outcome, Death):
            row = Row(**describe(run), verdict="crashes", detail=crash(outcome))
            results[run.id] = Judged(row, details=crashed(run))
        else:
            results[run.id] = outcome
    return [results[run.id] for run in batch]
