"""What a kernel may branch on in a run, in words: by it the most telling runs come first, and what fails is told from what
passes."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush

from conformance.configs.spelling import computation, is_batch_norm
from conformance.results.profiles import PROFILES

from .features import features_of
from .forms import WORDS, options
from .operators.fused import plain_of
from .runs import Run
from .variants import in_tables

MODULI = (8, 32)
"""The moduli of the remainders that are conditions: elements of 4 and of 1 byte in a vector of 32."""

BOUNDS = (1, 8, 16, 64, 256)
"""What a size may be beyond: one element, vectors, tiles, and blocks of the cache."""


def conditions(run: Run) -> frozenset[str]:
    """The options, features, memory formats, sizes and kinds of data of a run."""
    return frozenset(_conditions(run)) if run.variant is not None else frozenset()


def _conditions(run: Run) -> Iterator[str]:
    assert run.variant is not None
    if in_tables(run.claim):
        yield from (WORDS.get(name, name.replace("_", " ")) for name in features_of(run))
        yield from (f"{name}={value}" for name, value in options(run.claim.root, run.variant).items())
    else:
        yield run.variant.name.replace("_", " ")
    yield from (f"data {name}" for name in run.degenerate)
    for operand, spec in run.variant.operands.items():
        whose = "" if operand == "x" else f" of {operand}"
        sizes = {"batch": spec.shape[:1], "channels": spec.shape[1:2], "width": spec.shape[2:][-1:]}
        if len(spec.shape) > 3:
            sizes["height"] = spec.shape[-2:-1]
        yield from (text + whose for name, size in sizes.items() for text in _of_size(name, *size))
    yield from _of_size("output channels", *run.variant.output[1:2])


def _of_size(name: str, *size: int) -> Iterator[str]:
    for one in size:
        yield from (f"{name} % {modulus} is {one % modulus}" for modulus in MODULI)
        bounds = [bound for bound in BOUNDS if one > bound]
        yield f"more than {bounds[-1]} {name}" if bounds else f"{name} {one}"


def inputs(run: Run) -> str:
    """The operands of a run with their shapes, memory formats and, of dyadic data, scales and zero points."""
    assert run.variant is not None
    texts = []
    for name, calibrated in run.model.operands:
        spec = run.variant.executed_operand(name) if name in run.variant.operands else calibrated
        text = f"{name} {'x'.join(map(str, spec.shape)) or 'scalar'}"
        text += f" {spec.layout}" * (spec.layout != "contiguous")
        if spec.kind == "activation" and PROFILES[run.profile].data == "dyadic":
            low, _, exponent = run.bounds(spec)
            text += f" of scale 2**{exponent}, {-low} codes below zero"
        texts.append(text)
    return ", ".join(texts)


def kernel(run: Run) -> tuple[object, ...]:
    """What decides about the kernels of a run: what its operators compute, how it is quantized, and the engine."""
    root, *rest = run.claim.operators
    computes = tuple(computation(plain_of(name)) for name in (root, *rest) if not is_batch_norm(name))
    return (*computes, run.claim.dtypes.is_dynamic, run.claim.dtypes.weight_dtype, run.engine)


AGAIN = 0.5
"""How telling a condition is that a run before has had, beside one that none has had, for each such run."""


def most_telling(runs: Sequence[Run], costs: Mapping[str, float]) -> Iterator[Run]:
    """Yield runs in the order of a greedy cover: next comes the one that tells most of its kernel for its cost, by id.

    It tells the sum of its conditions, of which those count half as much that a run before it has for the same kernel.
    """
    # how much each condition tells of a kernel
    seen = defaultdict[tuple[object, ...], defaultdict[str, float]](lambda: defaultdict(lambda: 1.0))
    met = [(conditions(run), seen[kernel(run)]) for run in runs]

    def told(number: int) -> float:
        own, tells = met[number]
        return sum(map(tells.__getitem__, own)) / costs[runs[number].id]

    # what a run tells only gets less, so that the first one that is up to date is the greatest
    queue = [(-told(number), number) for number in range(len(runs))]
    heapify(queue)
    while queue:
        _, number = heappop(queue)
        now = told(number)
        if queue and now < -queue[0][0]:
            heappush(queue, (-now, number))
            continue
        yield runs[number]
        own, tells = met[number]
        for one in own:
            tells[one] *= AGAIN


def shared(failing: Iterable[Run], passing: Iterable[Run]) -> tuple[list[str], int]:
    """What all failing runs have and fewest of the passing ones, in up to three conditions, and how many of these have it."""
    common = frozenset.intersection(*map(conditions, failing))
    rest, chosen = [conditions(run) for run in passing], list[str]()
    while len(chosen) < 3 and rest and common:
        best = min(sorted(common), key=lambda one: sum(one in met for met in rest))
        left = [met for met in rest if best in met]
        if len(left) == len(rest):
            break
        chosen, rest, common = [*chosen, best], left, common - {best}
    return chosen, len(rest)
