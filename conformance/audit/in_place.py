"""Audits of networks that a library such as torchao quantizes in place, by a config or a function."""

import copy
import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from conformance.cases.claims import BackendClaims
from conformance.configs.engines import IN_PLACE
from conformance.configs.workflows import Workflow, WorkflowConfig
from conformance.engines.workflows import EAGER
from conformance.errors import UsageError, brief
from conformance.host.callables import attribute_of
from conformance.models.workflows import library, unavailable
from conformance.results.audits import USABLE_DB, Audit
from conformance.suggestions import unknown

from .isolated import Stage, isolated
from .network import Network
from .replaced import Replaced


def in_place(quantize: object, engine: str | None, claims: BackendClaims, floor_db: float = USABLE_DB) -> "InPlace":
    """A way to audit networks that a library quantizes.

    Args:
        quantize: a config, or an expression of one in the names of the library, such as `Int8WeightOnlyConfig()`; or a
            function that quantizes the model that it is given in place; or the module:attribute of either.
        engine: one of the engines that run such modules; None for torch-eager.
        claims: what the library declares.
        floor_db: the least SQNR in dB of an output that is usable.

    Raises UsageError for what is neither, another engine, and a library that is not installed.
    """
    engine = engine or EAGER.name
    if engine not in IN_PLACE:
        raise unknown("engine", engine, IN_PLACE, ", which run modules that are quantized in place")
    if not isinstance(claims.config, WorkflowConfig):
        raise UsageError(
            f"--quantize needs declarations of workflows, and {claims.name} has patterns: see docs/extending.md"
        )
    if reason := unavailable(claims, None):
        raise UsageError(f"--quantize is unavailable here: {reason}")
    scope = claims.config.namespace()
    name, config = (
        (quantize, _named(quantize, scope)) if isinstance(quantize, str) else (type(quantize).__name__, quantize)
    )
    if isinstance(config, type):
        raise UsageError(f"--quantize {name!r} is a class: write {config.__name__}() for its defaults")
    if callable(config):
        return InPlace(name, config, None, engine, claims, floor_db)
    return InPlace(name, lambda model: scope["quantize_"](model, config), config, engine, claims, floor_db)


def _named(text: str, scope: Mapping[str, Any]) -> Any:
    """What a text names: module:attribute, or an expression in a scope. Raises UsageError if it is neither."""
    if all(part.isidentifier() for part in text.replace(":", ".", 1).split(".")) and ":" in text:
        return attribute_of("--quantize", text)
    try:
        return eval(text, dict(scope))
    except Exception as error:
        names = ", ".join(sorted(name for name in scope if name.endswith("Config")))
        raise UsageError(f"--quantize {text!r}: {brief(error)}; write a config, such as one of {names}") from error


@dataclass(frozen=True)
class InPlace:
    """A library with a function that quantizes a network in place, and its config, None if the function alone knows it."""

    name: str
    quantizes: Callable[[nn.Module], object]
    config: object
    engine: str
    claims: BackendClaims
    floor_db: float = USABLE_DB

    @property
    def backend(self) -> str:
        return self.claims.name

    def audit(self, subject: Network, progress: Stage = lambda _: None) -> Audit:
        """Audit a network. Raises UsageError for one with inputs that are no tensors, on an engine that compiles."""
        if self.engine != EAGER.name and not all(isinstance(x, Tensor) for x in subject.held_out):
            raise UsageError(f"engine {self.engine} compiles networks that take tensors alone: give {EAGER.name}")

        def work(crashed: Mapping[str, str], place: Path) -> Replaced:
            return Replaced(
                subject, self.quantizes, self.declared, self.claims, self.floor_db, crashed, place, progress
            )

        return isolated(subject.name, self.engine, self.backend, work)

    @property
    def declared(self) -> Mapping[type[nn.Module], Workflow]:
        """The workflows that declare the config, by the class of modules; those of groups of another size count too."""
        if self.config is None:
            return {}
        scope = library(self.claims).namespace()
        found: dict[type[nn.Module], Workflow] = {}
        for entry in library(self.claims).workflows:
            if (grid := _grid(self.config, eval(entry.source, scope), entry)) is not None:
                made = copy.copy(entry)
                made.weight = grid
                found.setdefault(entry.pattern, made)  # type: ignore[arg-type]
        return found


def _grid(config: Any, known: Any, entry: Workflow) -> Any:
    """The grid of weights by a config that is equal to a declared one but for the size of its groups, or None."""
    if type(config) is not type(known) or not dataclasses.is_dataclass(config):
        return None
    size, blocks = None, entry.weight.blocks
    for one in dataclasses.fields(config):
        own, theirs = getattr(config, one.name), getattr(known, one.name)
        own_size, known_size = _group(one.name, own), _group(one.name, theirs)
        if isinstance(blocks, int) and own_size and known_size == blocks:
            size = own_size
        elif not _equal(own, theirs):
            return None
    return entry.weight if size is None else replace(entry.weight, blocks=size)


def _group(name: str, value: Any) -> int | None:
    """The size of groups that a parameter of a config asks for, or None."""
    size = value if name == "group_size" else getattr(value, "group_size", None)
    return size if isinstance(size, int) else None


def _equal(own: Any, theirs: Any) -> bool:
    if isinstance(own, Tensor) or isinstance(theirs, Tensor):
        return isinstance(own, Tensor) and isinstance(theirs, Tensor) and torch.equal(own, theirs)
    return bool(own == theirs)
