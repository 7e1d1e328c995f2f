"""Drawing of mutants: each from one call of the population, some of whose facts become its conditions.

There are two draws. Of `layers` in use, conditions are joint and of the kinds that kernels branch on: options, remainders and
bounds of sizes, formats. Of `samples`, a condition may be any fact of a drawn model.

Candidate n of an engine depends on the seed, on n, and on the population, and on nothing else.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random

from .effects import ON_ARGUMENTS
from .facts import Fact
from .injection import CONVERSIONS
from .mutant import Condition, Effect, Mutant, Region
from .population import Seen

MOST_COMMON = 0.5
"""The share of the calls of its kernel that a narrow mutant's conditions hold for, at most."""

WIDE = 0.1
"""The probability that a candidate with a greater share is kept."""

MODULI = (2, 3, 4, 8, 16, 32, 64)
WIDTHS = (4, 8, 16, 32, 64)
UNCONDITIONAL = ("dtype", "output_scale", "Y_scale_i", "scale", "greatest weight scale")
"""Facts that are no conditions: the dtype decides the kernel's code path as a whole, and scales count by their exponents."""

SIZES_AS_OPTIONS = ("normalized_shape", "num_groups")
"""Options that repeat a size, which counts by remainders and bounds in a joint draw."""

GROUPS: Mapping[str, tuple[str, ...]] = {
    "qparams": ("zero point", "zero_point", "exponent", "per channel"),
    "process": ("call", "threads"),
    "format": ("format",),
    "size": ("size(", "elements", "image", "rank", "length", "channels", "products", "greatest"),
}
"""Kinds of facts by parts of their names; every other fact is an option of the operator."""

WEIGHTS = {"option": 35, "size": 35, "qparams": 20, "format": 6, "process": 4}


TILES = (4, 8, 16, 32, 64)
"""Widths of vectors and tiles: remainders by them, and whether a size is beyond one, decide about paths of kernels."""

BLOCK = 256
"""The products that are summed up in one block of the cache."""

ENDS = (-128, 0, 127, 128, 255)
"""Zero points that kernels may have paths for."""

FLAT = re.compile(
    r"aten\.(relu|sigmoid|tanh|clamp|hardtanh|hardsigmoid|gelu|threshold)_?(\..*)?|aten\.(de)?quantize.*"
    r"|quantized\.(add|mul|elu|celu|leaky_relu|hardswish|sigmoid|relu6|threshold)(_relu|_scalar)*(\..*)?"
)
"""Kernels that treat all elements alike: of operands of one size only the number of elements matters."""


@dataclass(frozen=True)
class Draw:
    """What the population of a draw has: `samples` of each family of operators, and `layers` of networks; and whether
    conditions are `joint`, of the kinds that kernels branch on."""

    samples: int
    layers: int
    joint: bool


DRAWS = {"layers": Draw(0, 700, joint=True), "samples": Draw(40, 150, joint=False)}
"""The draws by name."""


def group_of(fact: str) -> str:
    return next((group for group, parts in GROUPS.items() if any(part in fact for part in parts)), "option")


class Population:
    """The calls of one engine, by kernel, with the number of the run that made each. `joint` as in `Draw`."""

    def __init__(self, calls: Sequence[Sequence[Seen]], *, joint: bool = False) -> None:
        self.joint = joint
        self.by_kernel: dict[str, list[tuple[int, Seen]]] = {}
        for number, of_run in enumerate(calls):
            for seen in of_run:
                self.by_kernel.setdefault(seen.kernel, []).append((number, seen))
        self.kernels = sorted(self.by_kernel)
        # every model converts, and few conversions are narrow
        self.weights = [
            (0.2 if kernel in CONVERSIONS else 1.0) * len(self.by_kernel[kernel]) ** 0.5 for kernel in self.kernels
        ]

    def runs_that_meet(self, mutant: Mutant) -> list[int]:
        """Numbers of the runs that make a call which fulfils a mutant's conditions."""
        calls = self.by_kernel[mutant.kernel]
        return list(dict.fromkeys(number for number, seen in calls if mutant.meets(seen.facts)))

    def share(self, mutant: Mutant) -> float:
        """The share of the calls of a mutant's kernel that fulfil its conditions."""
        calls = self.by_kernel[mutant.kernel]
        return sum(mutant.meets(seen.facts) for _, seen in calls) / len(calls)


def candidate(population: Population, backend: str, engine: str, seed: int, number: int) -> tuple[Mutant, int] | None:
    """Candidate `number` of an engine, with the number of the run that it is drawn from; None if it is too wide."""
    random = Random(f"{seed}/{engine}/{number}")
    (kernel,) = random.choices(population.kernels, population.weights)
    run, seen = random.choice(population.by_kernel[kernel])
    region = drawn_region(random, seen)
    effect = drawn_effect(random, seen)
    if population.joint:
        region, conditions = tiled(random, region), joint_conditions(random, seen)
    else:
        conditions = drawn_conditions(random, seen, 1 if random.random() < 0.6 else 2)
    mutant = Mutant(backend, engine, number, kernel, conditions, region, effect)
    share = population.share(mutant)
    if share > MOST_COMMON and random.random() >= WIDE:
        return None
    return replace(mutant, share=round(share, 4)), run


def candidates(
    population: Population, backend: str, engine: str, seed: int, first: int, most: int
) -> Iterator[tuple[Mutant, int]]:
    """Yield the candidates of an engine from number `first` on, at most `most` of them."""
    for number in range(first, first + most):
        if (drawn := candidate(population, backend, engine, seed, number)) is not None:
            yield drawn


def drawn_conditions(random: Random, seen: Seen, count: int) -> tuple[Condition, ...]:
    """Conditions on different facts of a call, which it fulfils."""
    by_group: dict[str, list[str]] = {}
    for fact in seen.facts:
        if fact not in UNCONDITIONAL and not fact.endswith(" dtype"):
            by_group.setdefault(group_of(fact), []).append(fact)
    conditions: dict[str, Condition] = {}
    for _ in range(count):
        groups = sorted(by_group)
        (group,) = random.choices(groups, [WEIGHTS[name] for name in groups])
        fact = random.choice(by_group[group])
        conditions[fact] = drawn_condition(random, fact, seen.facts[fact])
    return tuple(conditions.values())


def drawn_condition(random: Random, fact: str, value: Fact) -> Condition:
    """A condition at or around a value, which the value fulfils."""
    if isinstance(value, bool | str | float):
        return Condition(fact, "==", value)
    if group_of(fact) in ("option", "process"):
        relation = random.choice(("==", "==", ">=" if value > 1 else "=="))
        return Condition(fact, relation, value)
    kinds = ["==", ">=", "<="]
    if group_of(fact) == "size":
        # kernels have paths for small sizes and for those beside a power of two, not for any other one
        kinds = [*kinds[not _special(value) :], ">=", "%"]
    kind = random.choice(kinds)
    if kind == "%":
        modulus = random.choice(MODULI)
        return Condition(fact, "%", value % modulus, modulus)
    if kind == "==":
        return Condition(fact, "==", value)
    off = random.choice((0, 1, max(1, abs(value) // 8)))
    return Condition(fact, kind, value - off if kind == ">=" else value + off)


def joint_conditions(random: Random, seen: Seen) -> tuple[Condition, ...]:
    """Up to three conditions on facts of different kinds, which a call fulfils."""
    by_group: dict[str, list[str]] = {}
    for fact in seen.facts:
        if not unconditional(fact) and not follows(fact, seen.kernel, seen.facts):
            by_group.setdefault(group_of(fact), []).append(fact)
    (count,) = random.choices((1, 2, 3), (35, 45, 20))
    conditions: list[Condition] = []
    while by_group and len(conditions) < count:
        groups = sorted(by_group)
        (group,) = random.choices(groups, [WEIGHTS[name] for name in groups])
        fact = random.choice(by_group.pop(group))
        conditions.append(joint_condition(random, fact, seen.facts[fact]))
    return tuple(conditions)


def bounds_of(fact: str) -> tuple[int, ...]:
    """The bounds that a size may be beyond: the tiles and, of the products of a sum, the block of the cache."""
    return (*TILES, BLOCK) if fact == "products" else TILES


def unconditional(fact: str) -> bool:
    """Whether a fact is no condition of a joint draw, because it decides the path as a whole or repeats another one."""
    return fact in (*UNCONDITIONAL, *SIZES_AS_OPTIONS) or fact.endswith((" dtype", " rank"))


def follows(fact: str, kernel: str, facts: Mapping[str, Fact]) -> bool:
    """Whether a kernel that treats all elements alike does not know a size, but only the number of elements."""
    counts = {value for name, value in facts.items() if name.endswith(" elements")}
    flat = FLAT.fullmatch(kernel) is not None and len(counts) == 1
    return flat and group_of(fact) in ("size", "format") and not fact.endswith("elements")


def joint_condition(random: Random, fact: str, value: Fact) -> Condition:
    """A condition of a kind that kernels branch on, which the value fulfils: an option, a format and a small number by its
    value, any other number by its remainder by a tile or by whether it is beyond a bound, a zero point by its end."""
    group = group_of(fact)
    if isinstance(value, bool | str | float) or group == "process":
        return Condition(fact, "==", value)
    if group == "qparams":
        if "exponent" in fact:
            return Condition(fact, random.choice((">=", "<=")), value)
        at_end = value in ENDS
        return Condition(fact, "==", value) if at_end else Condition(fact, *random.choice(((">=", 1), ("<=", 254))))
    if value <= 4:
        return Condition(fact, "==", value)
    if random.random() < 0.5:
        modulus = random.choice(TILES)
        return Condition(fact, "%", value % modulus, modulus)
    bound = random.choice(bounds_of(fact))
    return Condition(fact, ">=", bound + 1) if value > bound else Condition(fact, "<=", bound)


def tiled(random: Random, region: Region) -> Region:
    """A region of a joint draw: an index or an element lies within the first tiles, and what is beyond begins at one."""
    if region.kind == "element" or region.kind == "index":
        return replace(region, number=random.randrange(min(region.number + 1, TILES[-1])))
    if region.kind == "beyond":
        return replace(region, number=random.choice([bound for bound in (1, 2, *TILES) if bound <= region.number]))
    return region


def _special(size: int) -> bool:
    """Whether a size is at most 4, or a power of two or next to one."""
    return size <= 4 or any((size + off) & (size + off - 1) == 0 for off in (-1, 0, 1))


def drawn_region(random: Random, seen: Seen) -> Region:
    """A region that the result of a call has."""
    rank, total = len(seen.shape), 1
    for size in seen.shape:
        total *= size
    axis = random.randrange(rank) if rank else 0
    named = axis if axis < 2 else axis - rank
    kinds = {"everywhere": 20, "element": 12, "lane": 10}
    if rank and seen.shape[axis] > 1:
        kinds |= {"last": 16, "index": 10, "beyond": 12}
    widths = [width for width in WIDTHS if width < total and total % width]
    if widths:
        kinds["tail"] = 12
    if seen.codes:
        kinds |= {"code": 8, "codes from": 4}
    if seen.inputs:
        kinds["input code"] = 8
    if "indices" in seen.names and "indices greatest" in seen.facts:
        kinds["looked up"] = 15
    (kind,) = random.choices([*kinds], [*kinds.values()])
    match kind:
        case "element":
            return Region(kind, number=random.randrange(total))
        case "lane":
            width = random.choice([width for width in WIDTHS if width <= total] or [1])
            return Region(kind, number=random.randrange(width), width=width)
        case "tail":
            return Region(kind, width=random.choice(widths))
        case "code" | "codes from":
            return Region(kind, number=random.choice(seen.codes))
        case "input code":
            return Region(kind, number=random.choice(seen.inputs))
        case "looked up":
            return Region(kind, number=random.randint(0, int(seen.facts["indices greatest"])))
        case "index":
            return Region(kind, named, random.randrange(seen.shape[axis]))
        case "beyond":
            return Region(kind, named, random.randrange(1, seen.shape[axis]))
    return Region(kind, named if kind == "last" else 0)


def drawn_effect(random: Random, seen: Seen) -> Effect:
    """An effect that may change the result of a call."""
    axis = random.randrange(len(seen.shape)) if seen.shape else 0
    axis = axis if axis < 2 else axis - len(seen.shape)
    kinds = {"one step more": 25, "one step less": 25, "zero": 4}
    if seen.shape and max(seen.shape) > 1:
        kinds["the neighbour's value along dimension {axis}"] = 8
    if seen.kind == "codes":
        kinds["the highest code wraps around"] = 3
        kinds["the lowest code becomes the next"] = 3
        kinds["the highest code becomes the one below"] = 3
    else:
        kinds["rounded to bfloat16"] = 6
    arguments = [kind for kind in ON_ARGUMENTS if changeable(kind, seen)]
    kinds |= dict.fromkeys(arguments, 30 // max(1, len(arguments)))
    (kind,) = random.choices([*kinds], [*kinds.values()])
    return Effect(kind, axis if "axis" in kind else 0)


def changeable(kind: str, seen: Seen) -> bool:
    """Whether a call has the arguments that an effect changes."""
    facts, first = seen.facts, seen.names[0] if seen.names else ""
    weighted = "products" in facts
    match kind:
        case "the input's zero point is one off":
            return seen.kind == "codes" and f"{first} zero point" in facts
        case "the input's zero point is ignored":
            return seen.kind == "codes" and facts.get(f"{first} zero point", 0) != 0
        case "the output's zero point is one off":
            return (
                bool({"output_zero_point", "Y_zero_point_i", "zero_point"} & set(seen.names)) and seen.kind == "codes"
            )
        case "the second operand is dropped":
            return bool({"qb", "qaccum"} & set(seen.names))
        case "the last tensor is the one before it":
            return int(facts.get(f"{first} length", 0)) > 1
        case "the bias is dropped" | "the neighbour's bias":
            return weighted and bool(facts.get("bias"))
        case "the neighbour's weight scale":
            return weighted and bool(facts.get("per channel"))
        case "the last input channel is dropped":
            return weighted
    return weighted and "per channel" in facts
