"""Networks end to end: latency, throughput, memory and size beside float, and which layers take the time."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from conformance.bench.results import AIM, TimingsFile
from conformance.bench.timings import NETWORKS, LayerTime, Memory, Timing, case_seconds, is_network
from conformance.markdown import code, escaped

FLOAT = "float"
"""What stands in place of an engine in the id of a float model."""
EAGER = "eager"
MOST_LAYERS = 3
"""Layers that are named as the slowest, or as slower than in float."""


@dataclass(frozen=True)
class Timed:
    """A network in one form on one engine, or in float: the seconds of a batch of `batch` items beside those of the eager
    float model, its memory, and the times of its layers."""

    network: str
    batch: int
    threads: str
    form: str
    engine: str
    seconds: float
    float_seconds: float
    memory: Memory | None
    layers: tuple[LayerTime, ...]

    @property
    def throughput(self) -> float:
        """Items per second."""
        return self.batch / self.seconds

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
        return min(forms, key=lambda one: one.form == EAGER).memory if forms else None

    def layered(self, engine: str) -> Timed | None:
        """The form whose layers were timed, if there is one."""
        return next((one for one in self.lowered.get(engine, ()) if one.layers), None)

    def speedup(self, engine: str) -> float:
        """The latency of the fastest float form by that of the fastest lowered one."""
        return self.floating[self.best_float] / self.best(engine).seconds


def timed(passes: Sequence[Timing]) -> Timed:
    """A network's case from its passes."""
    first = passes[0]
    name, batch, form = first.id.removeprefix(NETWORKS).rsplit("/", 2)
    form, _, engine = form.partition("@")
    layers = next((timing.layers for timing in passes if timing.layers), ())
    memory = next((timing.memory for timing in passes if timing.memory), None)
    seconds, float_seconds = case_seconds(passes)
    items = int(batch.removeprefix("batch_"))
    return Timed(name, items, first.threads, form, engine, seconds, float_seconds, memory, layers)


def settings(files: Iterable[TimingsFile]) -> list[Setting]:
    """The networks of these files with each batch and number of threads, in order."""
    every = [timed(passes) for file in files for passes in file.cases.values() if is_network(passes[0].id)]
    found = []
    for key in sorted({(one.network, one.batch, one.threads) for one in every}):
        of = [one for one in every if (one.network, one.batch, one.threads) == key]
        floating = {EAGER: min(one.float_seconds for one in of)}
        floating |= {one.form: one.seconds for one in of if one.engine == FLOAT}
        lowered: dict[str, list[Timed]] = {}
        for one in of:
            if one.engine != FLOAT:
                lowered.setdefault(one.engine, []).append(one)
        found.append(Setting(*key, floating, lowered))
    return found


def engines(all_settings: Sequence[Setting]) -> list[str]:
    return sorted({engine for setting in all_settings for engine in setting.lowered})


def document(files: Sequence[TimingsFile]) -> Iterator[str]:
    """Yield the lines of a section about networks; none without networks."""
    found = settings(files)
    if not found:
        return
    yield ""
    yield "## Networks"
    yield ""
    yield (
        "Milliseconds of a batch in the fastest form: eager, TorchScript, or for float also torch.compile. In parentheses: "
        "the speed-up over the fastest float form, and the form."
    )
    for batch, threads in sorted({(setting.batch, setting.threads) for setting in found}):
        yield from _latencies(
            [setting for setting in found if (setting.batch, setting.threads) == (batch, threads)], batch, threads
        )
    batch = min(setting.batch for setting in found)
    if least := [setting for setting in found if (setting.batch, setting.threads) == (batch, "1")]:
        yield from _memory(least)
        yield from _layers(least)


def _latencies(found: Sequence[Setting], batch: int, threads: str) -> Iterator[str]:
    names = engines(found)
    yield ""
    yield f"### Batch {batch}, {'one thread' if threads == '1' else 'all threads'}"
    yield ""
    yield f"| network | float | {' | '.join(map(escaped, names))} | items per second: float, best |"
    yield f"| --- | --- | {' | '.join('---' for _ in names)} | --- |"
    for setting in found:
        form = setting.best_float
        cells = [f"{1e3 * setting.floating[form]:.1f} ({form})"]
        for engine in names:
            if engine in setting.lowered:
                best = setting.best(engine)
                cells.append(f"{1e3 * best.seconds:.1f} (**{setting.speedup(engine):.2f}×**, {best.form})")
            else:
                cells.append("not timed")
        rates = [batch / setting.floating[form]]
        if setting.lowered:
            rates.append(max(setting.best(engine).throughput for engine in setting.lowered))
        yield f"| {code(setting.network)} | {' | '.join(cells)} | {', '.join(f'{rate:.1f}' for rate in rates)} |"


def _memory(least: Sequence[Setting]) -> Iterator[str]:
    """Yield the table of memory and disk."""
    names = engines(least)
    yield ""
    yield "### Memory and size on disk"
    yield ""
    yield (
        "Mebibytes that a process needs at most to load the saved program and to execute it, beyond what it had before, "
        "and the size of the saved program. TorchScript where it runs, else what `torch.save` writes."
    )
    yield ""
    yield f"| network | float | {' | '.join(map(escaped, names))} |"
    yield f"| --- | --- | {' | '.join('---' for _ in names)} |"
    for setting in least:
        sizes = {engine: setting.memory(engine) for engine in names}
        memory = next((one for one in sizes.values() if one), None)
        if memory is None:
            continue
        cells = [_mebibytes(memory.floating_peak, memory.floating_saved)]
        cells += [_mebibytes(one.quantized_peak, one.quantized_saved) if one else "" for one in sizes.values()]
        yield f"| {code(setting.network)} | {' | '.join(cells)} |"


def _mebibytes(peak: int, saved: int) -> str:
    return f"{peak / 2**20:.1f}, {saved / 2**20:.1f}"


def _layers(least: Sequence[Setting]) -> Iterator[str]:
    """Yield the table of the layers that take the time."""
    yield ""
    yield "### Which layers take the time"
    yield ""
    yield (
        f"Batch {least[0].batch}, one thread, eager: the share of conversions between layers, the slowest layers with their "
        "shares, and the layers that lose most against the same operators in float."
    )
    yield ""
    yield "| network | engine | conversions | slowest layers | slower than in float |"
    yield "| --- | --- | ---: | --- | --- |"
    for setting in least:
        for engine in sorted(setting.lowered):
            one = setting.layered(engine)
            if one is None:
                continue
            total = sum(layer.seconds for layer in one.layers)
            slowest = "; ".join(f"{code(layer.name)} {layer.seconds / total:.0%}" for layer in one.slowest)
            slower = "; ".join(
                f"{code(layer.name)} {1e6 * layer.float_seconds:.0f} → {1e6 * layer.seconds:.0f} µs"
                for layer in one.slower
            )
            yield (
                f"| {code(setting.network)} | {escaped(engine)} | {one.converting:.0%} | {slowest} | {slower or 'none'} |"
            )
