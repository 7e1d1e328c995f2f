"""Timings of cases, and what is measured beside them: the machine's limits, repeated timings, memory and layers."""

import math
import os
import secrets
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from conformance.results.codec import Count, Finite, Limit

THREADS = ("1", "all")
"""Numbers of threads with which a case is timed."""

WITH_FLOAT = 3
"""Passes over two builds in which the float model is timed too."""

Positive = Annotated[
    float, Limit("a positive number of seconds", lambda value: 0 < value < math.inf, {"exclusiveMinimum": 0})
]


@dataclass(frozen=True)
class Counts:
    """Figures of one call of a lowered model that do not vary from call to call.

    The kernels that it executes, the number of calls that quantize and dequantize, the size of the saved weights in bytes,
    and the number of instructions where the machine counts them. `operations` are the multiplications and additions of
    the float model's products and convolutions, `traffic` the bytes of its input, weights and output where the input and the
    output are float; both are None in files of schema 1."""

    kernels: tuple[str, ...]
    quantize: int
    dequantize: int
    weight_bytes: int
    instructions: int | None
    operations: int | None = None
    traffic: int | None = None


Rounds = tuple[Positive, ...]
"""Seconds per call, by round."""


@dataclass(frozen=True)
class Builds:
    """Seconds per call of the lowered and of the float model of one build of torch, by placement of their inputs in memory
    and by round. `floating` is empty in later passes over two builds, which are compared with each other.

    The fastest round of all represents a model: disturbances, and places in memory that share a place in a cache, make a call
    slower, never faster.
    """

    quantized: tuple[Rounds, ...]
    floating: tuple[Rounds, ...]

    @property
    def quantized_seconds(self) -> float:
        return min(map(min, self.quantized))

    @property
    def floating_seconds(self) -> float:
        return min(map(min, self.floating))

    @property
    def log_ratio(self) -> float:
        """Logarithm of the ratio of the lowered to the float model. Raises ValueError without rounds of the latter."""
        return math.log(self.quantized_seconds / self.floating_seconds)


@dataclass(frozen=True)
class Memory:
    """Memory and disk in bytes of a lowered and of a float model: what a process that loads the saved program and executes it
    needs at most beyond what it had before, and the size of the saved program."""

    quantized_peak: Count
    floating_peak: Count
    quantized_saved: Count
    floating_saved: Count


@dataclass(frozen=True)
class LayerTime:
    """The time of one layer of a network. `seconds` is that of its kernels in the lowered model, `float_seconds` that of the
    same operators in the float model. A conversion between layers has an empty pattern and no seconds in float."""

    name: str
    pattern: str
    kernels: tuple[str, ...]
    seconds: Finite
    float_seconds: Finite

    @property
    def conversion(self) -> bool:
        return not self.pattern


@dataclass(frozen=True)
class OfCase:
    """A line of a file of timings about a case: a run, or a network in one form, with a number of threads."""

    id: str
    threads: str

    @property
    def case(self) -> str:
        """The name of the case, the key of its history."""
        return case_name(self.id, self.threads)


@dataclass(frozen=True)
class Timing(OfCase):
    """One pass over a case. `base` has the rounds of the other interpreter, if there is one; `disturbed` counts rounds that
    were discarded because another process slowed the machine. `pace` is the fastest time of the reference computation in
    this pass, in seconds, which follows the frequency of the processor; None in files of schema 1. Only networks have
    `memory` and `layers`."""

    number: int
    extent: str
    new: Builds
    base: Builds | None
    counts: Counts
    disturbed: int
    pace: Positive | None = None
    memory: Memory | None = None
    layers: tuple[LayerTime, ...] = ()

    @property
    def beside_float(self) -> bool:
        """Whether the float model was timed too, as in the first `WITH_FLOAT` passes at least."""
        return bool(self.new.floating)

    @property
    def log_paced(self) -> float:
        """Logarithm of the time of the lowered model in units of the reference computation. Raises ValueError without it."""
        if self.pace is None:
            raise ValueError(f"{self.case} has no pace")
        return math.log(self.new.quantized_seconds / self.pace)

    @property
    def log_builds(self) -> float:
        """Logarithm of the ratio of this build's lowered model to that of the other one. Raises ValueError without one."""
        if self.base is None:
            raise ValueError(f"{self.case} has one build")
        return math.log(self.new.quantized_seconds / self.base.quantized_seconds)


@dataclass(frozen=True)
class NotTimed(OfCase):
    """A case that is not timed, with the reason: it does not conform, its engine is missing, or it crashes."""

    extent: str
    reason: str


@dataclass(frozen=True)
class Repeat(OfCase):
    """One of several timings of a case in the same process, which files of before have."""

    number: int
    opened: int
    repetition: int
    log_ratio: Finite
    pace: Positive


@dataclass(frozen=True)
class Machine:
    """What the machine reached with so many threads, measured beside the timings.

    `float_rate` and `int8_rate` are operations per second of products of large matrices, `bandwidth` the bytes per second
    that copies of so many bytes read and write."""

    threads: str
    float_rate: Positive
    int8_rate: Positive
    bandwidth: Mapping[str, Positive]

    def bytes_a_second(self, size: int) -> float:
        """The bandwidth of a working set of `size` bytes: that of the nearest measured size that is not smaller."""
        sizes = sorted(map(int, self.bandwidth))
        return self.bandwidth[str(next((one for one in sizes if one >= size), sizes[-1]))]

    def least_seconds(self, counts: Counts, *, floating: bool = False) -> float | None:
        """The seconds that the products and the traffic of a call take at the measured limits (the roofline: Williams,
        Waterman and Patterson 2009); None where they are unknown."""
        if counts.operations is None or counts.traffic is None:
            return None
        rate = self.float_rate if floating else self.int8_rate
        return max(counts.operations / rate, counts.traffic / self.bytes_a_second(counts.traffic))


Line = Timing | NotTimed | Repeat | Machine


def case_seconds(passes: Sequence[Timing]) -> tuple[float, float]:
    """Seconds of the lowered and of the float model: the median over passes that timed both."""
    both = [timing.new for timing in passes if timing.beside_float]
    quantized = statistics.median(builds.quantized_seconds for builds in both)
    return quantized, statistics.median(builds.floating_seconds for builds in both)


def log_ratios(passes: Sequence[Timing]) -> list[float]:
    """Logarithms of the ratios of the lowered to the float model, of the passes that timed both."""
    return [timing.new.log_ratio for timing in passes if timing.beside_float]


def case_name(run_id: str, threads: str) -> str:
    """Name of a case, the key of its history: a run's id and the number of threads."""
    return f"{run_id}#{threads}"


def log_floating(passes: Sequence[Timing]) -> list[float]:
    """Logarithms of the times of the float model in units of the reference computation, of the passes that timed both."""
    return [math.log(timing.new.floating_seconds / (timing.pace or 1.0)) for timing in passes if timing.beside_float]


CACHE = "CONFORMANCE_BENCH_CACHE"
"""The environment variable with the path of a folder that the workers of an invocation share. Without it, a process has a
temporary folder of its own."""

KEY = "CONFORMANCE_BENCH_KEY"
"""The variable with the key that programs are sealed with."""


def key() -> str:
    """The key of this invocation, made when it is first needed. Child processes inherit it."""
    return os.environ.setdefault(KEY, secrets.token_hex(32))


FORKS = ("open", "limits")
"""Requests to a worker that a new child of it answers, and those after it until `close`."""

NETWORKS = "networks/"
"""What ids of networks begin with, such as `networks/resnet18/batch_8/eager@x86`."""


FLOAT, EAGER = "float", "eager"
"""What stands in place of an engine for float models, and the form of a model that was not traced."""


@dataclass(frozen=True)
class NetworkCase:
    """A network of the corpus with batches of `items`, in a form on an engine; `float` stands in place of an engine."""

    network: str
    items: int
    form: str
    engine: str

    @property
    def id(self) -> str:
        return f"{NETWORKS}{self.network}/batch_{self.items}/{self.form}@{self.engine}"

    @classmethod
    def of(cls, case_id: str) -> "NetworkCase":
        """The case with an id. Raises ValueError for anything else than an id."""
        name, batch, form = case_id.removeprefix(NETWORKS).rsplit("/", 2)
        form, _, engine = form.partition("@")
        return cls(name, int(batch.removeprefix("batch_")), form, engine)


def is_network(run_id: str) -> bool:
    """Whether an id is that of a network, and not of a layer."""
    return run_id.startswith(NETWORKS)
