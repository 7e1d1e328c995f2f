"""Networks end to end: latency, throughput, memory and size beside float, and which layers take the time."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter

from conformance.bench.results import AIM, TimingsFile
from conformance.bench.timings import EAGER, FLOAT, LayerTime, Memory, NetworkCase, Timing, case_seconds, is_network
from conformance.markdown import code, escaped, table

SETTING = attrgetter("case.network", "case.items", "threads")
MOST_LAYERS = 3
"""Layers that are named as the slowest, or as slower than in float."""


@dataclass(frozen=True)
class Timed:
    """A network in one form on one engine, or in float: the seconds of a batch beside those of the eager float model, its
    memory, and the times of its layers."""

    case: NetworkCase
    threads: str
    seconds: float
    float_seconds: float
    memory: Memory | None
    layers: tuple[LayerTime, ...]

    @property
    def throughput(self) -> float:
        """Items per second."""
        return self.case.items / self.seconds

    @property
    def converting(self) -> float:
        """Share of the layers' time that conversions between layers take."""
        total = sum(layer.seconds for layer in self.layers)
        return sum(layer.seconds for layer in self.layers if layer.conversion) / total if total else 0.0

    @property
    def by_time(self) -> list[LayerTime]:
        """All layers and conversions, the slowest first."""
        return sorted(self.layers, key=lambda layer: -layer.seconds)

    @property
    def slowest(self) -> list[LayerTime]:
        """The layers that take most time."""
        return [layer for layer in self.by_time if not layer.conversion][:MOST_LAYERS]

    @property
    def slower(self) -> list[LayerTime]:
        """The layers that lose most time against float."""
        layers = [layer for layer in self.layers if layer.seconds > layer.float_seconds * (1 + AIM)]
        lost = sorted(layers, key=lambda layer: layer.float_seconds - layer.seconds)
        return [layer for layer in lost if not layer.conversion][:MOST_LAYERS]


@dataclass(frozen=True)
class Setting:
    """A network with a batch and a number of threads: its float forms, and its lowered forms by engine."""

    network: str
    batch: int
    threads: str
    floating: Mapping[str, float]
    """Seconds by form."""
    lowered: Mapping[str, Sequence[Timed]]

    @property
    def best_float(self) -> str:
        return min(self.floating, key=lambda form: self.floating[form])

    def best(self, engine: str) -> Timed:
        """The fastest form on an engine."""
        return min(self.lowered[engine], key=lambda timed: timed.seconds)

    def memory(self, engine: str) -> Memory | None:
        """The memory of TorchScript, or else of the eager form."""
        forms = [one for one in self.lowered.get(engine, ()) if one.memory]
        return min(forms, key=lambda one: one.case.form == EAGER).memory if forms else None

    def layered(self, engine: str) -> Timed | None:
        """The form whose layers were timed, if there is one."""
        return next((one for one in self.lowered.get(engine, ()) if one.layers), None)

    def speedup(self, engine: str) -> float:
        """The latency of the fastest float form by that of the fastest lowered one."""
        return self.floating[self.best_float] / self.best(engine).seconds


def timed(passes: Sequence[Timing]) -> Timed:
    """A network's case from its passes."""
    layers = next((timing.layers for timing in passes if timing.layers), ())
    memory = next((timing.memory for timing in passes if timing.memory), None)
    return Timed(NetworkCase.of(passes[0].id), passes[0].threads, *case_seconds(passes), memory, layers)


def settings(files: Iterable[TimingsFile]) -> list[Setting]:
    """The networks of these files with each batch and number of threads, in order."""
    every = [timed(passes) for file in files for passes in file.cases.values() if is_network(passes[0].id)]
    found = []
    for key, group in groupby(sorted(every, key=SETTING), SETTING):
        of = [*group]
        floating = {EAGER: min(one.float_seconds for one in of)}
        lowered: dict[str, list[Timed]] = {}
        for one in of:
            if one.case.engine == FLOAT:
                floating[one.case.form] = one.seconds
            else:
                lowered.setdefault(one.case.engine, []).append(one)
        found.append(Setting(*key, floating, lowered))
    return found


def engines(all_settings: Sequence[Setting]) -> list[str]:
    return sorted({engine for setting in all_settings for engine in setting.lowered})


def document(files: Sequence[TimingsFile]) -> Iterator[str]:
    """Yield the lines of a section about networks; none without networks."""
    found = settings(files)
    if not found:
        return
    yield from (
        "",
        "## Networks",
        "",
        "Milliseconds of a batch in the fastest form: eager, TorchScript, or for float also torch.compile. In parentheses: "
        "the speed-up over the fastest float form, and the form.",
    )
    for batch, threads in sorted({(setting.batch, setting.threads) for setting in found}):
        yield from ("", f"### Batch {batch}, {'one thread' if threads == '1' else 'all threads'}", "")
        yield from _latencies([setting for setting in found if (setting.batch, setting.threads) == (batch, threads)])
    batch = min(setting.batch for setting in found)
    if least := [setting for setting in found if (setting.batch, setting.threads) == (batch, "1")]:
        yield from _memory(least)
        yield from _layers(least)


def _latencies(found: Sequence[Setting]) -> Iterator[str]:
    names, rows = engines(found), []
    for setting in found:
        best = {engine: setting.best(engine) for engine in setting.lowered}
        cells = [
            f"{1e3 * best[engine].seconds:.1f} (**{setting.speedup(engine):.2f}×**, {best[engine].case.form})"
            if engine in best
            else "not timed"
            for engine in names
        ]
        form = setting.best_float
        rates = [setting.batch / setting.floating[form]]
        if best:
            rates.append(max(one.throughput for one in best.values()))
        floating, of_both = f"{1e3 * setting.floating[form]:.1f} ({form})", ", ".join(f"{rate:.1f}" for rate in rates)
        rows.append([code(setting.network), floating, *cells, of_both])
    yield from table(["network", "float", *map(escaped, names), "items per second: float, best"], rows)


def _memory(least: Sequence[Setting]) -> Iterator[str]:
    """Yield the table of memory and disk."""
    yield from (
        "",
        "### Memory and size on disk",
        "",
        "Mebibytes that a process needs at most to load the saved program and to execute it, beyond what it had before, "
        "and the size of the saved program. TorchScript where it runs, else what `torch.save` writes.",
        "",
    )
    names, rows = engines(least), []
    for setting in least:
        sizes = [setting.memory(engine) for engine in names]
        if memory := next(filter(None, sizes), None):
            cells = [_mebibytes(one.quantized_peak, one.quantized_saved) if one else "" for one in sizes]
            rows.append([code(setting.network), _mebibytes(memory.floating_peak, memory.floating_saved), *cells])
    yield from table(["network", "float", *map(escaped, names)], rows)


def _mebibytes(peak: int, saved: int) -> str:
    return f"{peak / 2**20:.1f}, {saved / 2**20:.1f}"


def _layers(least: Sequence[Setting]) -> Iterator[str]:
    """Yield the table of the layers that take the time."""
    yield from (
        "",
        "### Which layers take the time",
        "",
        f"Batch {least[0].batch}, one thread, eager: the share of conversions between layers, the slowest layers with their "
        "shares, and the layers that lose most against the same operators in float.",
        "",
    )
    rows = []
    for setting in least:
        for engine in sorted(setting.lowered):
            if (one := setting.layered(engine)) is None:
                continue
            total = sum(layer.seconds for layer in one.layers)
            slowest = "; ".join(f"{code(layer.name)} {layer.seconds / total:.0%}" for layer in one.slowest)
            slower = "; ".join(
                f"{code(layer.name)} {1e6 * layer.float_seconds:.0f} → {1e6 * layer.seconds:.0f} µs"
                for layer in one.slower
            )
            rows.append([code(setting.network), escaped(engine), f"{one.converting:.0%}", slowest, slower or "none"])
    titles = ["network", "engine", "conversions", "slowest layers", "slower than in float"]
    yield from table(titles, rows, (2,))
