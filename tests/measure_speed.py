"""Measure what judging costs beside torch's own work, and how an invocation grows with claims and cores.

    python tests/measure_speed.py floor [--backend NAME] [--every N]
    python tests/measure_speed.py scaling [--claims N]
    python tests/measure_speed.py shortcuts [NAME …] [--backend NAME]

`floor` judges a sample of cases in one process and prints the seconds by phase. The floor is one prepare and one conversion
to a reference model of each case, and one lowering and execution on each engine, by torch alone without shortcuts. `scaling`
runs a config with N entries of fbgemm's, and with twice and four times as many, on one core and on two. `shortcuts` runs
a backend with all shortcuts, and without each NAME (by default those that replace functions of torch), shard by shard in
turns because machines change their speed, and prints CPU seconds.
"""

import argparse
import os
import resource
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import subprocess

import torch
from torch.fx import GraphModule

from conformance.cases.claims import backend
from conformance.cases.runs import Run, runs
from conformance.checks.judge import Judge
from conformance.engines.registry import engine
from conformance.execution.batch import warm_up
from conformance.host.isolation import Done, run_isolated
from conformance.models import build, fx
from conformance.models.taken import take_shortcuts
from conformance.models.trace import execute
from conformance.paths import KNOWN
from conformance.results.ledger_file import load
from conformance.shortcuts import NAMES, TABLE, without

ROOT = Path(__file__).parent.parent
TOGETHER = 8
"""Successive runs of a claim in the sample, as an invocation judges them."""
SCALES = (1, 2, 4)
SHARDS = 4

SYNTHETIC = """
from torch.ao.quantization.backend_config import BackendConfig
from conformance.configs.fbgemm import get_fbgemm_backend_config


def config():
    entries = [e for e in get_fbgemm_backend_config().configs if e.dtype_configs]
    chosen, claims = [], 0
    for number in range({claims}):
        entry = entries[number * len(entries) // {claims}]
        chosen.append(entry)
    return BackendConfig("synthetic").set_backend_pattern_configs(list(dict.fromkeys(chosen)))
"""


class Phases:
    """Seconds by name of phase."""

    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        start = time.process_time()
        try:
            yield
        finally:
            self.seconds[name] += time.process_time() - start


def sample(name: str, every: int) -> list[Run]:
    """The runs of TOGETHER successive exact cases of each `every`-th claim, on all engines of a backend."""
    chosen = backend(name)
    crashing = [entry for entry in load(KNOWN) if "crashes" in entry.check or entry.undefined]
    kept: dict[str, list[Run]] = {}
    for run in runs(chosen):
        crashes = any(entry.matches(run.id) for entry in crashing)
        if run.profile == "exact" and run.variant is not None and run.flow == "ptq" and not crashes:
            kept.setdefault(run.claim.id, []).append(run)
    return [run for of in list(kept.values())[::every] for run in of[: TOGETHER * len(chosen.engines)]]


def torch_alone(phases: Phases, prepared_cases: dict[str, GraphModule], run: Run) -> bool:
    """Prepare and convert a case once, lower and execute it on each engine, timed; False for a run in which torch raises."""
    config = run.backend.config
    with without(), engine(run.engine).scope(), fx.quiet():
        try:
            subject = build.subject(run)
            build.float_outputs(subject)
            if run.key not in prepared_cases:
                with phases("prepare"):
                    prepared_cases[run.key] = fx.prepare(subject, config)
                fx.calibrate(prepared_cases[run.key], subject)
                with phases("reference"):
                    fx.reference(prepared_cases[run.key], config)
            prepared = prepared_cases[run.key]
            with phases("lower"):
                lowered = fx.lower(prepared, config)
            with phases("execute"):
                execute(lowered, subject.fresh_inputs())
        except Exception:  # such a run has no floor
            return False
    return True


def measured(cases: Sequence[Run]) -> dict[str, float]:
    """Seconds of a sample, once for each phase of the floor and once for all that judging does."""
    phases = Phases()
    judge = Judge()
    for run in cases:
        judge.row(run)  # what is loaded lazily is loaded
        break
    prepared_cases: dict[str, GraphModule] = {}
    kept = [run for run in cases if torch_alone(phases, prepared_cases, run)]
    judge = Judge()
    with phases("judged"):
        for run in kept:
            judge.row(run)
    return {**phases.seconds, "runs": float(len(kept))}


def in_child(cases: Sequence[Run]) -> dict[str, float]:
    """What `measured` says of a sample in a process that replaces functions of torch, as children that judge do."""
    take_shortcuts()
    return measured(cases)


def floor(name: str, every: int) -> None:
    warm_up()
    (outcome,) = run_isolated([sample(name, every)], in_child, 600.0)
    assert isinstance(outcome, Done), outcome
    seconds: dict[str, float] = outcome.value
    count = seconds.pop("runs")
    judged = seconds.pop("judged")
    whole = sum(seconds.values())
    for phase, spent in seconds.items():
        print(f"{phase:10} {1000 * spent / count:6.1f} ms a run")
    print(f"floor      {1000 * whole / count:6.1f} ms a run, of {count:.0f} runs of {name}")
    print(f"judged     {1000 * judged / count:6.1f} ms a run: {judged / whole:.2f} times the floor")


def invocation(folder: Path, claims: int, cores: int) -> tuple[int, float]:
    """Number of rows and seconds of an invocation of the synthetic config."""
    (folder / "synthetic.py").write_text(SYNTHETIC.format(claims=claims), encoding="utf-8")
    rows = folder / "rows.jsonl"
    command = [sys.executable, "-m", "pytest", "conformance", "-q", "-p", "no:cacheprovider", "-n", str(cores)]
    command += ["--backend-config", "synthetic:config", "--engine", "fbgemm", "--results", str(rows)]
    command += ["--case", "*"]  # a search takes the same time for any number of claims of a family
    environment = {**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{ROOT}"}
    start = time.perf_counter()
    subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, check=False)
    seconds = time.perf_counter() - start
    return sum('"kind":"row"' in line.replace(" ", "") for line in rows.read_text().splitlines()), seconds


def scaling(claims: int) -> None:
    print("| entries | cores | runs | seconds |\n| --: | --: | --: | --: |")
    for cores in (2, 1):
        for scale in SCALES:
            with tempfile.TemporaryDirectory() as folder:
                count, seconds = invocation(Path(folder), claims * scale, cores)
            print(f"| {claims * scale} | {cores} | {count} | {seconds:.0f} |", flush=True)


def spent(name: str, *options: str) -> float:
    """CPU seconds of an invocation of a backend, with its workers and children. Raises CalledProcessError if it fails."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pytest", "conformance", "-q", "-p", "no:cacheprovider", "-n", "2"]
        command += ["--backend", name, "--results", f"{folder}/rows.jsonl", *options]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def saved(name: str, shortcuts: Sequence[str]) -> None:
    """Print what an invocation takes with all shortcuts and without each of some."""
    seconds: defaultdict[str, float] = defaultdict(float)
    for part in range(1, SHARDS + 1):
        for shortcut in ("", *shortcuts):
            without_it = ["--no-shortcut", shortcut] if shortcut else []
            seconds[shortcut] += spent(name, "--shard", f"{part}/{SHARDS}", *without_it)
    print(f"{name}: {seconds['']:.1f} CPU seconds with all shortcuts\n")
    print("| without | CPU seconds | more |\n| --- | --: | --: |")
    for shortcut in shortcuts:
        print(f"| {shortcut} | {seconds[shortcut]:.1f} | {seconds[shortcut] / seconds[''] - 1:+.1%} |")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    commands = parser.add_subparsers(required=True, dest="command")
    of_floor = commands.add_parser("floor")
    of_floor.add_argument("--backend", default="fbgemm")
    of_floor.add_argument("--every", type=int, default=8)
    of_scaling = commands.add_parser("scaling")
    of_scaling.add_argument("--claims", type=int, default=24)
    of_shortcuts = commands.add_parser("shortcuts")
    of_shortcuts.add_argument("names", nargs="*", metavar="NAME", choices=[*NAMES, []])
    of_shortcuts.add_argument("--backend", default="fbgemm")
    options = parser.parse_args(arguments)
    replacing = [shortcut.name for shortcut in TABLE if shortcut.replaces]
    todo: dict[str, Callable[[], None]] = {
        "floor": lambda: floor(options.backend, options.every),
        "scaling": lambda: scaling(options.claims),
        "shortcuts": lambda: saved(options.backend, options.names or replacing),
    }
    torch.set_num_threads(1)
    todo[options.command]()


if __name__ == "__main__":
    main()
