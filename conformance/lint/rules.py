"""Rules: what each finds, why it matters, and an example. A check of a rule yields sentences about an entry."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from .declared import Declared, DeclaredEntry

Check = Callable[[DeclaredEntry, Declared], Iterator[str]]
"""Yields a sentence for each problem of an entry, which is one of the declaration."""


@dataclass(frozen=True)
class Rule:
    """A rule of the linter.

    An `error` is refused by torch, or can never do what it says; a `warning` is probably not what was meant. `example` is
    the shortest declaration that breaks the rule.
    """

    id: str
    level: str
    reason: str
    example: str
    check: Check


RULES: dict[str, Rule] = {}
"""All rules by id, in the order in which they are checked."""


def error(name: str, reason: str, example: str) -> Callable[[Check], Check]:
    """Make a check the rule `name` for errors."""
    return _rule(name, "error", reason, example)


def warning(name: str, reason: str, example: str) -> Callable[[Check], Check]:
    """Make a check the rule `name` for warnings."""
    return _rule(name, "warning", reason, example)


def _rule(name: str, level: str, reason: str, example: str) -> Callable[[Check], Check]:
    def register(check: Check) -> Check:
        if name in RULES:
            raise ValueError(f"two rules have the id {name}")
        RULES[name] = Rule(name, level, reason, example, check)
        return check

    return register
