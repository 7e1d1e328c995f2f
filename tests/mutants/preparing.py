"""The mutants of an analysis, drawn from the population of each engine and tried on it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from random import Random

from conformance.cases.claims import backend
from conformance.cases.families import families
from conformance.cases.runs import Run
from conformance.configs.engines import ENGINE_TABLE, IN_PLACE
from conformance.engines.availability import probe
from conformance.fuzz.samples import run_of
from conformance.host.isolation import Done
from conformance.results import in_use
from conformance.results.families import family_named

from .drawing import Draw, Population, candidates
from .injection import Sightings, observing
from .mutant import Mutant
from .parallel import in_batches, in_parallel, results_of
from .population import (
    Seen,
    calls_of,
    drawn_samples,
    executed,
    layers_of,
    threads_of,
)

TRIED = 6
"""Runs of the population on which a candidate may prove that it changes a result."""

UNIT = 10
"""Runs of the population that one child executes."""


COMPILED = 60
"""Layers that an engine compiles which runs modules in place: each takes a second."""

MOST_CANDIDATES = 30
"""Candidates for each mutant, at most."""


@dataclass(frozen=True)
class Engine:
    """An engine of the analysis with the name of its backend."""

    backend: str
    name: str


def engines(backends: Sequence[str]) -> list[Engine]:
    """The engines of these backends that this host has, but those whose programs take seconds."""
    found = [
        Engine(name, engine)
        for name in backends
        for engine in backend(name).engines
        if not ENGINE_TABLE[engine].default_only
    ]
    return [engine for engine in found if probe(engine.name) is None]


def population_of(engine: Engine, seed: int, draw: Draw) -> list[Run]:
    """The runs of an engine's population."""
    claims = backend(engine.backend)
    key = f"{seed}/{engine.name}"
    chosen = [*families(claims, [engine.name])] if draw.samples else []
    title = f"{engine.name}: drawing a population"
    by_family = results_of(lambda family: drawn_samples(family, draw.samples, f"{key}/{family.name}"), chosen, title)
    in_networks = layers_of(claims, engine.name, in_use.read(), Random(f"{key}/layers"))
    layers = draw.layers if engine.name not in IN_PLACE[1:] else COMPILED
    return [run_of(claims, sample) for sample in (*chain(*by_family), *islice(in_networks, layers))]


def seen_calls(runs: Sequence[Run]) -> list[list[Seen]]:
    """The calls of each run; none of those of a run that crashes."""
    calls: list[list[Seen]] = [[] for _ in runs]

    def work(numbers: Sequence[int]) -> list[list[Seen]]:
        return [calls_of(runs[number], threads_of(number)) for number in numbers]

    for number, outcome in in_batches(work, range(len(runs)), UNIT, "executing a population"):
        if isinstance(outcome, Done):
            calls[number] = outcome.value
    return calls


def effective(drawn: Sequence[tuple[Mutant, int]], population: Population, runs: Sequence[Run]) -> set[str]:
    """Ids of the candidates that change a result on the population: the run that they are drawn from is tried first."""
    by_run: dict[int, list[Mutant]] = {}
    for mutant, own in drawn:
        for number in dict.fromkeys([own, *population.runs_that_meet(mutant)[:TRIED]]):
            by_run.setdefault(number, []).append(mutant)

    def work(number: int) -> list[str]:
        sightings: Sightings = {}
        executed(runs[number], observing(by_run[number], sightings), threads_of(number))
        return [name for name, sighting in sightings.items() if sighting.elements]

    found: set[str] = set()
    for _, outcome in in_parallel(work, sorted(by_run), "trying candidates"):
        if isinstance(outcome, Done):
            found.update(outcome.value)
    return found


@dataclass(frozen=True)
class Drawn:
    """Mutants, and the names of the families of operators in which each kernel of an engine is called."""

    mutants: list[Mutant]
    families: Mapping[tuple[str, str], frozenset[str]]


def draw(chosen: Sequence[Engine], how: Draw, count: int, seed: int, say: Callable[[str], None]) -> Drawn:
    """`count` mutants, as many of each engine as of any other: the first candidates that change a result."""
    mutants: list[Mutant] = []
    called_in: dict[tuple[str, str], frozenset[str]] = {}
    for place, engine in enumerate(chosen):
        share = count // len(chosen) + (place < count % len(chosen))
        runs = population_of(engine, seed, how)
        calls = seen_calls(runs)
        population = Population(calls, joint=how.joint)
        for kernel, of_kernel in population.by_kernel.items():
            called_in[engine.name, kernel] = frozenset(family_named(runs[number].claim.root) for number, _ in of_kernel)
        found, tried = first_effective(population, runs, engine, seed, share)
        say(
            f"{engine.name}: {len(found)} mutants of {tried} candidates, from {sum(map(len, calls))} calls of "
            f"{len(population.kernels)} kernels in {len(runs)} models"
        )
        mutants += found
    return Drawn(mutants, called_in)


def first_effective(
    population: Population, runs: Sequence[Run], engine: Engine, seed: int, count: int
) -> tuple[list[Mutant], int]:
    """The first `count` candidates of an engine that change a result of its population, and how many were tried."""
    found: list[Mutant] = []
    tried = 0
    while len(found) < count and tried < MOST_CANDIDATES * count:
        batch = 2 * (count - len(found)) + 20
        drawn = [*candidates(population, engine.backend, engine.name, seed, tried, batch)]
        ids = effective(drawn, population, runs)
        found += [mutant for mutant, _ in drawn if mutant.id in ids]
        tried += batch
    return found[:count], tried
