"""A mutant: a kernel of an engine that is off in a region of its result, under conditions on its call."""

from dataclasses import dataclass
from typing import Any

from .facts import Fact, Facts


@dataclass(frozen=True)
class Condition:
    """A condition on one fact of a call: `fact relation value`. `%` with a `modulus` compares the remainder."""

    fact: str
    relation: str
    value: Fact
    modulus: int = 0

    def holds(self, facts: Facts) -> bool:
        """Whether a call with these facts fulfils the condition. A call without the fact does not."""
        actual: Any = facts.get(self.fact)
        if actual is None or isinstance(actual, str) is not isinstance(self.value, str):
            return False
        expected: Any = self.value
        match self.relation:
            case ">=":
                return bool(actual >= expected)
            case "<=":
                return bool(actual <= expected)
            case "%":
                return bool(actual % self.modulus == expected)
        return bool(actual == expected)

    @property
    def text(self) -> str:
        if self.relation == "%":
            return f"{self.fact} % {self.modulus} is {self.value}"
        sign = {"==": "is", ">=": "is at least", "<=": "is at most"}[self.relation]
        return f"{self.fact} {sign} {self.value}"


@dataclass(frozen=True)
class Region:
    """A set of elements of a result, see `regions.mask`."""

    kind: str
    axis: int = 0
    number: int = 0
    width: int = 0

    @property
    def text(self) -> str:
        return TEXTS[self.kind].format(axis=self.axis, number=self.number, width=self.width)


TEXTS = {
    "everywhere": "everywhere",
    "element": "at element {number}",
    "index": "at index {number} of dimension {axis}",
    "beyond": "from index {number} of dimension {axis} on",
    "last": "at the last index of dimension {axis}",
    "lane": "at elements {number} modulo {width}",
    "tail": "after the last whole vector of {width} elements",
    "code": "where the result is code {number}",
    "codes from": "where the result is code {number} or more",
    "input code": "where the input is code {number}",
    "looked up": "where index {number} or a greater one is looked up",
}


@dataclass(frozen=True)
class Effect:
    """A change of a result, see `effects.EFFECTS`."""

    kind: str
    axis: int = 0

    @property
    def text(self) -> str:
        return self.kind.format(axis=self.axis)


@dataclass(frozen=True)
class Mutant:
    """One narrow fault: number `number` of its engine. `population` is the share of the population's calls of the kernel that
    fulfil the conditions."""

    backend: str
    engine: str
    number: int
    kernel: str
    conditions: tuple[Condition, ...]
    region: Region
    effect: Effect
    share: float = 0.0

    @property
    def id(self) -> str:
        return f"{self.engine}/{self.number}"

    @property
    def title(self) -> str:
        """The mutant in words, without its engine."""
        where = " and ".join(condition.text for condition in self.conditions)
        return f"{self.kernel}: {self.effect.text} {self.region.text}" + (f", where {where}" if where else "")

    def meets(self, facts: Facts) -> bool:
        return all(condition.holds(facts) for condition in self.conditions)
