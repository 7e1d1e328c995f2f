"""Rules: what each finds, why it matters, and an example. A check of a rule yields sentences about an entry."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from .declared import Declared, DeclaredEntry

Check = Callable[[DeclaredEntry, Declared], Iterator[str]]
"""Yields a sentence for each problem of an entry, which is one of the declaration. Its docstring says why that is one."""


@dataclass(frozen=True)
class Rule:
    """A rule of the linter.

    An `error` is refused by torch, or can never do what it says; a `warning` is probably not what was meant. `example` is
    the shortest declaration that breaks the rule.
    """

    id: str
    level: str
    example: str
    check: Check

    @property
    def reason(self) -> str:
        """Why it matters, on one line."""
        return " ".join((self.check.__doc__ or "").split())


RULES: dict[str, Rule] = {}
"""All rules by id, in the order in which they are checked."""


def _rule(level: str, name: str, example: str) -> Callable[[Check], Check]:
    """Make a check the rule `name`."""

    def register(check: Check) -> Check:
        if name in RULES:
            raise ValueError(f"two rules have the id {name}")
        RULES[name] = Rule(name, level, example, check)
        return check

    return register


error, warning = partial(_rule, "error"), partial(_rule, "warning")
