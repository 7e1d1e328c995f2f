"""Linting a declaration: every rule is checked for every entry."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from torch.ao.quantization.backend_config import BackendConfig, BackendPatternConfig

from conformance.configs.workflows import WorkflowConfig
from conformance.errors import UsageError
from conformance.host.callables import object_of

from . import dtypes, modules, patterns  # noqa: F401  (they register rules)
from .declared import Declared, DeclaredEntry
from .replaced import duplicates
from .rules import RULES, Rule


@dataclass(frozen=True)
class Problem:
    """What a rule found: a sentence about an entry, which `where` names."""

    rule: Rule
    where: str
    text: str


def declared(name: str, entries: Iterable[BackendPatternConfig]) -> Declared:
    """A declaration of these entries."""
    return Declared(name, tuple(DeclaredEntry(number, entry) for number, entry in enumerate(entries, 1)))


def named(path: str) -> Declared:
    """The declaration that `module:attribute` names, or returns if it is a callable.

    It is a BackendConfig or a list of entries, since torch refuses to make a BackendConfig of some. Raises UsageError for
    anything else, a WorkflowConfig among it, which torch takes nothing of.
    """
    value, _ = object_of("lint", path)
    if isinstance(value, BackendConfig) and not isinstance(value, WorkflowConfig):
        return replace(declared(value.name or path, value.configs), replaced=tuple(duplicates(path)))
    if isinstance(value, (list, tuple)) and all(isinstance(entry, BackendPatternConfig) for entry in value):
        return declared(path, value)
    raise UsageError(
        f"lint {path!r} is of type {type(value).__name__}; it has to be a BackendConfig or a list of BackendPatternConfigs"
    )


def lint(declaration: Declared) -> list[Problem]:
    """All problems of a declaration, by entry and then in the order of the rules, after the entries that are lost."""
    lost = [
        Problem(RULES["duplicate"], name, "the list that the config is made of has several entries of this pattern")
        for name in declaration.replaced
    ]
    found = [
        Problem(rule, one.label, text)
        for one in declaration.entries
        for rule in RULES.values()
        for text in rule.check(one, declaration)
    ]
    return lost + found


def described() -> Iterator[str]:
    """Yield lines with the id, the level, the reason and an example of every rule."""
    for rule in RULES.values():
        yield f"{rule.id} ({rule.level})"
        yield f"    {rule.reason}"
        yield f"    {rule.example}"
