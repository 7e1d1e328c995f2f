"""Operators of third parties: modules with `OPERATORS`, in the form of the suite's own tables."""

import importlib.metadata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from conformance.configs.names import operator_name
from conformance.errors import UsageError
from conformance.host.callables import module_of

from . import OPERATORS
from .further import FURTHER
from .variant import Variant

GROUP = "conformance.operators"
"""The group of entry points of installed packages whose modules are read for every config of a third party."""


@dataclass(frozen=True)
class Declared:
    """The variants of an operator, and the module of a third party that has them."""

    module: str
    variants: list[Variant]


DECLARED: dict[str, Declared] = {name: Declared("", variants) for name, variants in FURTHER.items()}
"""Operators beside those of the tables, by name: those of `FURTHER`, and those that were declared in this process."""


def declare(module: str, option: str = "--operators") -> None:
    """Add the operators of a module, which is imported as if from the current folder.

    Its `OPERATORS` has the variants of each operator, by the name that patterns give it or by the operator itself. The first
    one is the default. `option` is named in errors.

    Raises UsageError for a module that cannot be imported, one without operators, an operator that a table or another module
    has, and one without variants.
    """
    table = getattr(module_of(option, module), "OPERATORS", None)
    if not isinstance(table, Mapping) or not table:
        raise UsageError(f"{option} {module!r} has no OPERATORS: bind it to a dict of operators and their variants")
    found: dict[str, Declared] = {}
    for key, variants in table.items():
        name = key if isinstance(key, str) else operator_name(key)
        owner = DECLARED.get(name) or found.get(name)
        if name in OPERATORS or (owner is not None and (name in found or owner.module != module)):
            has = f"{owner.module!r} has it" if owner and owner.module else "the suite has it"
            raise UsageError(f"{option} {module!r}: operator {name!r} is declared twice: {has}: remove one")
        found[name] = Declared(module, [*_checked(f"{option} {module!r}: operator {name!r}", variants)])
    DECLARED.update(found)


def _checked(where: str, variants: Any) -> Iterator[Variant]:
    """The variants of an operator. Raises UsageError for anything else."""
    if not isinstance(variants, Sequence) or not variants:
        raise UsageError(f"{where}: no list of variants: write Variant(...) of conformance.cases.operators")
    names = set()
    for variant in variants:
        if not isinstance(variant, Variant):
            raise UsageError(f"{where}: {type(variant).__name__} is no Variant of conformance.cases.operators")
        if variant.name in names or not set(variant.name).isdisjoint("/@*?[ "):
            raise UsageError(f"{where}: name {variant.name!r}: name each variant once, without / @ * ? [ and spaces")
        names.add(variant.name)
        yield variant


@cache
def declare_installed() -> None:
    """Add the operators of installed packages with an entry point of `GROUP`. Raises UsageError as `declare` does."""
    for point in importlib.metadata.entry_points(group=GROUP):
        declare(point.value, f"entry point {point.name!r} of {GROUP}:")
