"""Claims of a backend config: one for each pattern and dtype config, with stable ids."""

import gc
from collections import Counter
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import torch.ao.quantization.quantize_fx  # noqa: F401  (its import completes torch.ao.quantization)
from torch.ao.quantization.backend_config import BackendConfig, BackendPatternConfig, DTypeConfig
from torch.ao.quantization.utils import MatchAllNode

from conformance.configs.names import config_pattern, pattern_name
from conformance.configs.registry import BACKENDS
from conformance.errors import UsageError
from conformance.host.callables import result_of
from conformance.suggestions import unknown

from .recipes import dtype_config_name

gc.freeze()  # what torch has loaded stays: a collection would visit a million objects each time

THIRD_PARTY_ENGINES = ("x86",)
"""Engines that run a config given by `--backend-config` unless `--engine` is set: torch's default engine."""


def nested(pattern: Any) -> Any:
    """Return a pattern in nested form, the last operator first: `(nn.ReLU, (nn.BatchNorm2d, nn.Conv2d))`."""
    if not isinstance(pattern, tuple) or any(isinstance(part, tuple) or part is MatchAllNode for part in pattern):
        return pattern
    result = pattern[0]
    for operator in pattern[1:]:
        result = (operator, result)
    return result


@dataclass(frozen=True, eq=False)
class Claim:
    """The claim that `pattern`, quantized according to `dtypes`, works on `backend`."""

    backend: str
    pattern: str
    dtype_config: str
    entry: BackendPatternConfig
    dtypes: DTypeConfig

    @property
    def id(self) -> str:
        return f"{self.backend}/{self.pattern}/{self.dtype_config}"

    def __repr__(self) -> str:
        return self.id

    @cached_property
    def tree(self) -> Any:
        """The pattern in nested form, the last operator first: `(nn.ReLU, (nn.BatchNorm2d, nn.Conv2d))`."""
        return nested(config_pattern(self.entry))


@dataclass(frozen=True, eq=False)
class BackendClaims:
    """A backend's config and its claims, in the order of the config."""

    name: str
    config: BackendConfig
    engines: tuple[str, ...]
    claims: tuple[Claim, ...]
    source: str

    @property
    def patterns(self) -> int:
        return len({claim.pattern for claim in self.claims})

    @cached_property
    def entries(self) -> dict[Any, BackendPatternConfig]:
        """The config's entries by their pattern."""
        return {entry.pattern: entry for entry in self.config.configs}

    @cached_property
    def reference_modules(self) -> dict[Any, Any]:
        """The reference module classes that the config declares, by root module."""
        declared = [entry for entry in self.config.configs if entry.reference_quantized_module]
        return {entry.root_module: entry.reference_quantized_module for entry in declared}


def claims_of(name: str, config: BackendConfig) -> tuple[Claim, ...]:
    """List the claims of `config`; dtype configs of one entry that share a name are numbered from the second on."""
    claims = []
    for entry in config.configs:
        seen: Counter[str] = Counter()
        for dtypes in entry.dtype_configs:
            label = dtype_config_name(dtypes)
            seen[label] += 1
            label += f"-{seen[label]}" if seen[label] > 1 else ""
            claims.append(Claim(name, pattern_name(config_pattern(entry)), label, entry, dtypes))
    return tuple(claims)


@cache
def backend(name: str) -> BackendClaims:
    """Return the claims of a registered backend. Raises UsageError for an unknown name."""
    if name not in BACKENDS:
        raise unknown("backend", name, BACKENDS, ", or use --backend-config")
    config = BACKENDS[name].factory()
    factory = f"from {BACKENDS[name].factory.__module__} import {BACKENDS[name].factory.__name__}"
    return BackendClaims(name, config, BACKENDS[name].engines, claims_of(name, config), factory)


@cache
def third_party(path: str) -> BackendClaims:
    """Return the claims of the BackendConfig that `module:callable` returns. Raises UsageError if it does not."""
    config = result_of("--backend-config", path)
    module, _, attribute = path.partition(":")
    if not isinstance(config, BackendConfig):
        raise UsageError(
            f"--backend-config {path!r} returned {type(config).__name__}; it has to return a BackendConfig"
        )
    name = config.name or attribute
    if name in BACKENDS:
        name = attribute
    return BackendClaims(
        name, config, THIRD_PARTY_ENGINES, claims_of(name, config), f"from {module} import {attribute}"
    )
