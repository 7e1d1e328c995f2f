"""A declaration as the linter reads it: its entries with their operators, whatever they were given."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from torch import nn
from torch.ao.quantization.backend_config import BackendPatternConfig, DTypeConfig

from conformance.configs.names import entry_name, nested_pattern, operators


def is_module_class(value: Any) -> bool:
    return isinstance(value, type) and issubclass(value, nn.Module)


@dataclass(frozen=True, eq=False)
class DeclaredEntry:
    """An entry and its number in the declaration, counted from 1."""

    number: int
    entry: BackendPatternConfig

    @cached_property
    def label(self) -> str:
        return f"entry {self.number}, {entry_name(self.entry)}"

    @property
    def pattern(self) -> Any:
        """The pattern as it was written."""
        complex_format = self.entry._pattern_complex_format
        return self.entry.pattern if complex_format is None else complex_format

    @cached_property
    def operators(self) -> tuple[Any, ...]:
        return operators(self.entry)

    @cached_property
    def nested(self) -> Any:
        """The pattern in torch's nested format, the last operator first; None if torch refuses it."""
        try:
            return nested_pattern(self.entry)
        except ValueError:
            return None

    @property
    def dtype_configs(self) -> list[DTypeConfig]:
        """The dtype configs, without whatever else stands among them."""
        configs = self.entry.dtype_configs
        return [each for each in configs if isinstance(each, DTypeConfig)] if isinstance(configs, list) else []

    @property
    def module(self) -> type[nn.Module] | None:
        """The class, if the pattern is a single module."""
        return self.pattern if is_module_class(self.pattern) else None


@dataclass(frozen=True, eq=False)
class Declared:
    """A declaration: its name and entries. `replaced` are names of entries of which a config has the last one only."""

    name: str
    entries: Sequence[DeclaredEntry]
    replaced: tuple[str, ...] = ()

    @cached_property
    def patterns(self) -> set[Any]:
        """All patterns in torch's nested format, those that can be looked up."""
        found = set()
        for each in self.entries:
            try:
                found.add(each.nested)
            except TypeError:  # a list, which has no hash
                continue
        return found

    @cached_property
    def produced(self) -> set[type]:
        """Classes of modules that fusing and the preparation for QAT put into a model."""
        values = (value for each in self.entries for value in (each.entry.fused_module, each.entry.qat_module))
        return {value for value in values if isinstance(value, type)}

    @cached_property
    def references(self) -> dict[Any, Any]:
        """The reference module classes by root module, as torch collects them."""
        declared = [
            each.entry for each in self.entries if each.entry.root_module and each.entry.reference_quantized_module
        ]
        return {entry.root_module: entry.reference_quantized_module for entry in declared}
