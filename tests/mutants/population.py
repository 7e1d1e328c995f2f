"""The population that mutants are drawn from: calls that engines make in models which the ordinary run does not have.

The models are drawn samples of every family of operators, by other seeds than the searches', and layers of real networks.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

import torch
from faults.kernels import Call
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.strategies import DrawFn, composite
from torch import Tensor

from conformance.cases.claims import BackendClaims, Claim
from conformance.cases.families import Family
from conformance.cases.in_use import Unwritable, as_produced
from conformance.cases.runs import Run
from conformance.cases.variants import flows, has_per_channel, missing_operators
from conformance.configs.engines import IN_PLACE
from conformance.configs.workflows import Workflow, WorkflowConfig
from conformance.engines.registry import engine
from conformance.engines.workflows import WorkflowEngine
from conformance.fuzz.samples import Sample
from conformance.fuzz.strategies import samples
from conformance.host.threads import COUNTS
from conformance.models import build, fx, workflows
from conformance.properties.search import search
from conformance.results.in_use import LayerInUse

from .effects import LOW
from .facts import PER_TENSOR, Fact
from .injection import INJECTION, Handler, described

ON_SEVERAL_THREADS = 4
"""One run of so many is executed on several threads, on each number in turn."""

PER_CHANNEL = 0.6
"""The part of the layers with weights that are quantized per channel, as most mappings do."""

MOST_ELEMENTS = 100_000
"""Elements of an input of a layer. The networks of the corpus have small images."""


@dataclass(frozen=True)
class Seen:
    """One call of the population: its kernel, facts, shape and kind of the result (`codes` or `floats`), some codes of its
    result and of its input, and what effects on arguments can change."""

    kernel: str
    facts: Mapping[str, Fact]
    shape: tuple[int, ...]
    kind: str
    codes: tuple[int, ...] = ()
    inputs: tuple[int, ...] = ()
    names: tuple[str, ...] = ()


def searched_samples(family: Family) -> list[Sample]:
    """The samples that the bounded search of an ordinary run draws of a family."""
    drawn: list[Sample] = []
    search(samples(family), drawn.append)
    return drawn


def drawn_samples(family: Family, count: int, key: str) -> list[Sample]:
    """Samples that hypothesis draws of a family from a seed, which is a function of the key."""
    drawn: list[Sample] = []

    @composite
    def sample(draw: DrawFn) -> Sample:
        return draw(samples(family))

    @seed(Random(key).randrange(2**32))
    @settings(
        derandomize=False,
        database=None,
        deadline=None,
        max_examples=count,
        phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )
    @given(sample())
    def collect(example: Sample) -> None:
        drawn.append(example)

    collect()
    return drawn[:count]


def _is_covered(claim: Claim, engine_name: str) -> bool:
    """Whether layers of a claim can be made; of workflows those that may call a kernel for integers on an engine."""
    entry = claim.entry
    if not isinstance(entry, Workflow):
        return not missing_operators(claim)
    quantizes = not entry.needs and entry.activation is not None and engine_name == IN_PLACE[0]
    return entry.integers or quantizes


def layers_of(
    backend: BackendClaims, engine_name: str, corpus: Iterable[LayerInUse], random: Random
) -> Iterator[Sample]:
    """Samples of layers in use that claims of a backend cover, the more frequent the more likely, without repetition."""
    claims: dict[str, list[Claim]] = {}
    for claim in backend.claims:
        if _is_covered(claim, engine_name):
            claims.setdefault(claim.pattern, []).append(claim)
    layers = [layer for layer in corpus if layer.pattern in claims]
    for layer in sorted(layers, key=lambda layer: random.random() ** (1 / layer.occurrences), reverse=True):
        claim = random.choice(claims[layer.pattern])
        try:
            variant = as_produced(layer)
        except Unwritable:
            continue
        if max(math.prod(spec.shape) for spec in variant.operands.values()) <= MOST_ELEMENTS:
            per_channel = has_per_channel(claim) and random.random() < PER_CHANNEL
            variant = variant.named(variant.name, per_channel=per_channel)
            yield Sample(claim.id, flows(claim, backend.entries)[0], engine_name, variant)


def executed(run: Run, handler: Handler, threads: int = 1) -> None:
    """Prepare, calibrate, lower and execute a run once with its calls going through a handler. Ends where torch raises."""
    used = engine(run.engine)
    with used.scope(), fx.quiet():
        try:
            subject, program = _program(run)
            torch.set_num_threads(threads)
            with INJECTION.handling(handler):
                used.execute(program, subject.fresh_inputs())
        except Exception:  # a model that an engine refuses adds no calls
            return
        finally:
            torch.set_num_threads(1)


def _program(run: Run) -> tuple[build.Subject, Any]:
    """The quantized program of a run, compiled for its inputs, with the float model."""
    config, used = run.backend.config, engine(run.engine)
    if isinstance(config, WorkflowConfig):
        subject = workflows.subject(run)
        assert isinstance(used, WorkflowEngine)
        return subject, used.compile(workflows.quantized(subject), subject.fresh_inputs())
    subject = build.subject(run)
    prepared = fx.prepare(subject, config)
    fx.calibrate(prepared, subject)
    return subject, used.compile(used.convert(prepared, config), subject.fresh_inputs())


def threads_of(number: int) -> int:
    """The number of threads on which a run of the population is executed, by its number."""
    turn, rest = divmod(number, ON_SEVERAL_THREADS)
    return 1 if rest else COUNTS[turn % len(COUNTS)]


def calls_of(run: Run, threads: int = 1) -> list[Seen]:
    """The calls of a run that can be mutated."""
    seen: list[Seen] = []

    def record(name: str, facts: Mapping[str, Any], call: Call, result: Tensor, before: Tensor | None) -> None:
        if result.numel() and (kind := _kind(result)):
            inputs = before if before is not None and before.shape == result.shape else None
            codes = _some(result.int_repr()) if kind == "codes" else ()
            names = tuple(name for name, value in call.arguments.items() if value is not None)
            seen.append(
                Seen(name, facts, tuple(result.shape), kind, codes, _some(inputs) if inputs is not None else (), names)
            )

    executed(run, described(record), threads)
    return seen


def _kind(result: Tensor) -> str:
    if not result.is_quantized:
        return "floats" if result.is_floating_point() or result.dtype in (torch.int8, torch.int32) else ""
    return "codes" if result.qscheme() in PER_TENSOR and result.dtype in LOW else ""


def _some(codes: Tensor) -> tuple[int, ...]:
    """Some codes of a tensor: the lowest, the highest, and those at a few places."""
    flat = codes.flatten()
    places = [0, len(flat) // 3, len(flat) // 2, len(flat) - 1]
    return tuple(dict.fromkeys([int(flat.min()), int(flat.max()), *(int(flat[place]) for place in places)]))
