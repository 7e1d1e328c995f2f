"""Thick cover: how many runs of an ordinary invocation make a call of each class that layers in use make.

A class is a kernel with one condition that it may branch on: the value of an option, a remainder or a bound of a size, a
memory format, a number of threads, or a kind of data.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from faults.kernels import Call

from conformance.cases.runs import Run
from conformance.host.isolation import Done
from conformance.host.threads import COUNTS
from conformance.markdown import table

from .drawing import BLOCK, TILES, Draw, bounds_of, follows, group_of, unconditional
from .facts import Fact, facts_of
from .injection import Handler, codes_before
from .parallel import in_batches
from .population import executed, threads_of
from .preparing import UNIT, Engine, population_of

PATH = Path(__file__).parents[2] / "docs" / "cover.md"

LEAST_RUNS, LEAST_PROFILES = 3, 2
"""What a class should hang on, at least."""

MODULUS = 8
"""The modulus of the remainders that are classes."""

LAYERS = Draw(samples=0, layers=2500, joint=True)

CONSTANT, SPREAD = "data constant", "data spread"

Classes = frozenset[tuple[str, str]]
"""Kernels with the text of a condition."""


def classes(kernel: str, facts: Mapping[str, Fact], data: str = "") -> Iterator[str]:
    """The classes that a call with these facts and this kind of data belongs to."""
    for fact, value in facts.items():
        group = group_of(fact)
        if unconditional(fact) or follows(fact, kernel, facts) or fact == "call":
            continue
        if group in ("format", "process") or isinstance(value, bool | str):
            yield f"{fact} {value}"
        elif group in ("size", "option") and isinstance(value, int):
            if group == "option" and value <= MODULUS:
                yield f"{fact} {value}"
            else:
                yield f"{fact} % {MODULUS} is {value % MODULUS}"
                yield from (f"{fact} is at least {bound + 1}" for bound in bounds_of(fact) if value > bound)
    if data:
        yield data


def recording(found: set[tuple[str, str]], handler: Handler | None = None) -> Handler:
    """A handler that records the classes of each call that does not raise, which it makes, or has another one make."""

    def record(name: str, call: Call, count: int) -> Any:
        before = codes_before(call)
        data = "" if before is None or before.numel() < 2 else CONSTANT if before.min() == before.max() else SPREAD
        met = [(name, text) for text in classes(name, facts_of(call, count), data)]
        result = call.original() if handler is None else handler(name, call, count)
        found.update(met)
        return result

    return record


def of_layers(engine: Engine, seed: int) -> Classes:
    """The classes that layers in use belong to, and for each of their kernels constant data and numbers of threads."""
    runs = population_of(engine, seed, LAYERS)

    def work(numbers: Sequence[int]) -> list[Classes]:
        found: list[Classes] = []
        for number in numbers:
            of_run: set[tuple[str, str]] = set()
            executed(runs[number], recording(of_run), threads_of(number))
            found.append(frozenset(of_run))
        return found

    batches = in_batches(work, range(len(runs)), UNIT, f"{engine.name}: executing layers")
    met = {one for _, outcome in batches if isinstance(outcome, Done) for one in outcome.value}
    kernels = {kernel for kernel, text in met if text == SPREAD}
    return frozenset(
        met | {(kernel, text) for kernel in kernels for text in (CONSTANT, *map("threads {}".format, COUNTS))}
    )


class Counts:
    """Of each class of an engine the number of runs with each profile that belong to it."""

    def __init__(self) -> None:
        self.by_engine: dict[str, dict[tuple[str, str], Counter[str]]] = defaultdict(lambda: defaultdict(Counter))

    def add(self, run: Run, found: Classes) -> None:
        for one in found:
            self.by_engine[run.engine][one][run.profile] += 1


def is_thin(profiles: Counter[str]) -> bool:
    """Whether a class hangs on too few runs, or on runs with one profile."""
    return profiles.total() < LEAST_RUNS or len(profiles) < LEAST_PROFILES


def document(required: Mapping[str, Classes], counts: Counts) -> str:
    """The page about the classes that layers in use need and the runs that have them, by engine."""
    lines = [INTRODUCTION]
    thin: dict[str, list[tuple[str, str, int, int]]] = {}
    rows = []
    for engine, needed in required.items():
        by_kernel: dict[str, list[int]] = defaultdict(list)
        thin[engine] = []
        for kernel, text in sorted(needed):
            profiles = counts.by_engine[engine].get((kernel, text), Counter())
            by_kernel[kernel].append(profiles.total())
            if is_thin(profiles):
                thin[engine].append((kernel, text, profiles.total(), len(profiles)))
        every = [count for of_kernel in by_kernel.values() for count in of_kernel]
        rows.append([engine, len(by_kernel), len(every), f"{median(every):.0f}", min(every), len(thin[engine])])
    lines += table(["engine", "kernels", "classes", "runs of a class, median", "fewest", "thin"], rows)
    for engine, found in thin.items():
        if found:
            lines += ["", f"## Thin on {engine}", ""]
            lines += table(["kernel", "class", "runs", "profiles"], found)
    return "\n".join(lines) + "\n"


INTRODUCTION = f"""\
# How many runs depend on each condition

This page is written by `tox -q -e mutants -- --cover`. A class is a kernel with one condition that it may branch on: the
value of an option, a remainder of a size by {MODULUS}, a size beyond {", ".join(map(str, TILES))}, products beyond
{BLOCK}, a memory format, a count of threads, or constant data. The classes are those of {LAYERS.layers} layers of the
networks in the corpus in their own sizes; a class is thin if fewer than {LEAST_RUNS} runs of an ordinary invocation, or runs
with one profile alone, make a call of it. Of kernels that treat all elements alike the number of elements counts.
"""
