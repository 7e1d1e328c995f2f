"""Claims of a backend config: one for each pattern and dtype config, with stable ids."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import torch
import torch.ao.quantization.quantize_fx
from torch import nn
from torch.ao.quantization.backend_config import BackendConfig, BackendPatternConfig, DTypeConfig
from torch.ao.quantization.utils import MatchAllNode

from conformance.configs.engines import IN_PLACE, QUANTIZER_ENGINES, WORKFLOW_ENGINES
from conformance.configs.names import config_pattern, entry_name, operators, pattern_name
from conformance.configs.quantizer import QuantizerConfig
from conformance.configs.registry import REGISTERED
from conformance.configs.workflows import MODULES, Workflow, WorkflowConfig
from conformance.errors import UsageError
from conformance.host.callables import object_of, users_code
from conformance.suggestions import unknown

from .operators.declared import declare_installed
from .recipes import dtype_config_name

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


def operators_of(tree: Any) -> Iterator[str]:
    """Names of the operators of a nested pattern without its wildcards, the root operator first."""
    if not isinstance(tree, tuple):
        if tree is not MatchAllNode:
            yield pattern_name(tree)
        return
    for part in tree[1:]:
        yield from operators_of(part)
    yield pattern_name(tree[0])


@dataclass(frozen=True, eq=False)
class Claim:
    """The claim that `pattern`, quantized according to `dtypes`, works on `backend`.

    `refused` says why torch cannot use the entry; empty if it can. The claim of such an entry stands for all of its dtype
    configs and is not run.
    """

    backend: str
    pattern: str
    dtype_config: str
    entry: BackendPatternConfig
    dtypes: DTypeConfig
    refused: str = ""

    @property
    def id(self) -> str:
        return f"{self.backend}/{self.pattern}/{self.dtype_config}"

    def __repr__(self) -> str:
        return self.id

    @cached_property
    def tree(self) -> Any:
        """The pattern in nested form, the last operator first: `(nn.ReLU, (nn.BatchNorm2d, nn.Conv2d))`."""
        return nested(config_pattern(self.entry))

    @cached_property
    def operators(self) -> tuple[str, ...]:
        """Names of the operators of the pattern, in the order in which they are executed."""
        return (*operators_of(self.tree),)

    @property
    def root(self) -> str:
        """Name of the operator that takes the pattern's input."""
        return self.operators[0]


@dataclass(frozen=True, eq=False)
class BackendClaims:
    """A backend's config and its claims, in the order of the config. `source` is code that binds `backend_config`."""

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
        if reason := refusal(entry):
            label = entry_name(entry).replace("/", "_")  # a part of ids
            claims.append(Claim(name, label, "refused", entry, DTypeConfig(), reason))
            continue
        seen: Counter[str] = Counter()
        for dtypes in entry.dtype_configs:
            label = entry.label(dtypes) if isinstance(entry, Workflow) else dtype_config_name(dtypes)
            seen[label] += 1
            label += f"-{seen[label]}" if seen[label] > 1 else ""
            claims.append(Claim(name, pattern_name(config_pattern(entry)), label, entry, dtypes))
    return tuple(claims)


def refusal(entry: BackendPatternConfig) -> str:
    """Why torch cannot use an entry of a config; empty if it can. An entry that it cannot use spoils the whole config."""
    if not isinstance(entry.dtype_configs, list):
        return f"its dtype_configs are a {type(entry.dtype_configs).__name__}, not a list"
    for dtypes in entry.dtype_configs:
        if not isinstance(dtypes, DTypeConfig):
            return f"one of its dtype configs is a {type(dtypes).__name__}"
        for dtype in (dtypes.input_dtype, dtypes.output_dtype, dtypes.weight_dtype, dtypes.bias_dtype):
            if not isinstance(dtype, torch.dtype | None):
                return f"one of its dtypes is {dtype!r:.60}, which is no torch.dtype"
    for operator in operators(entry):
        if not isinstance(operator, str) and (isinstance(operator, nn.Module) or not callable(operator)):
            return f"{operator!r:.60} is no module class, function or name of a method"
    return ""


@cache
def backend(name: str) -> BackendClaims:
    """Return the claims of a registered backend. Raises UsageError for an unknown name."""
    if name not in REGISTERED:
        raise unknown("backend", name, REGISTERED, ", or use --backend-config")
    factory = REGISTERED[name].factory
    config = factory()
    source = f"from {factory.__module__} import {factory.__name__}\nbackend_config = {factory.__name__}()"
    return BackendClaims(name, config, REGISTERED[name].engines, claims_of(name, config), source)


def third_parties(paths: Sequence[str], option: str = "--backend-config") -> list[BackendClaims]:
    """Return the claims of several configs, as `third_party` does. Raises UsageError for two of one name."""
    found = {path: third_party(path, option) for path in paths}
    by_name: dict[str, str] = {}
    for path, claims in found.items():
        if (other := by_name.setdefault(claims.name, path)) != path:
            raise UsageError(f"{option} {path!r} and {other!r} are both named {claims.name}: run them one by one")
    return [*found.values()]


@cache
def third_party(path: str, option: str = "--backend-config") -> BackendClaims:
    """Return the claims of the BackendConfig that `module:attribute.path` names, or returns if it is a callable.

    Entries that torch cannot use are left out of the config. Raises UsageError if it is no BackendConfig, or promises
    nothing; with `--quantizer` it has to be a QuantizerConfig. A QuantizerConfig and a WorkflowConfig become what globs have
    to name.
    """
    declare_installed()
    config, source = object_of(option, path)
    module, _, attribute = path.partition(":")
    wanted = QuantizerConfig if option == "--quantizer" else BackendConfig
    if not isinstance(config, wanted):
        advice = ": see docs/pt2e.md" if wanted is QuantizerConfig else ""
        raise UsageError(
            f"{option} {path!r} is of type {type(config).__name__}; it has to be a {wanted.__name__}{advice}"
        )
    if not config.configs:
        raise UsageError(f"{option} {path!r} has no entries: there is nothing to run")
    if isinstance(config, WorkflowConfig):
        _evaluate(config, f"{option} {path!r}")
    name = (config.name or attribute).replace("/", "_")
    if name in REGISTERED:
        name = attribute
    source = f"import {module}\nbackend_config = {source}"
    claims = claims_of(name, config)
    if not claims:
        raise UsageError(f"{option} {path!r} promises nothing: none of its entries has a dtype config")
    for claim in claims:
        if not claim.id.isprintable():
            raise UsageError(
                f"{option} {path!r}: a claim is named {claim.id!r}, which cannot be printed: name the config and its "
                "patterns without control characters, surrogates and invisible characters"
            )
    refused = [number for number, entry in enumerate(config.configs) if refusal(entry)]
    if refused:
        kept_entries = [entry for entry in config.configs if not refusal(entry)]
        rest = QuantizerConfig(name, config.quantizer, config.engines) if isinstance(config, QuantizerConfig) else None
        config = (rest or BackendConfig(name)).set_backend_pattern_configs(kept_entries)
        kept = f"[entry for number, entry in enumerate(backend_config.configs) if number not in {refused}]"
        source += f"\nbackend_config = type(backend_config)().set_backend_pattern_configs({kept})"
    engines: tuple[str, ...] = THIRD_PARTY_ENGINES
    if isinstance(config, QuantizerConfig):
        engines = config.engines
        QUANTIZER_ENGINES.setdefault(name, engines)
    elif isinstance(config, WorkflowConfig):
        engines = WORKFLOW_ENGINES.setdefault(name, IN_PLACE)
    return BackendClaims(name, config, engines, claims, source)


def _evaluate(config: WorkflowConfig, given: str) -> None:
    """Evaluate the expressions of workflows. Raises UsageError for those that no run can use."""
    if "quantize_" not in config.names:
        raise UsageError(f"{given}: its names have no 'quantize_', which runs call: add it with its module")
    with users_code(f"{given}: importing its names raises", "install the library, or correct the names"):
        namespace = config.namespace()
    for entry in config.workflows:
        if entry.pattern not in MODULES:
            known = ", ".join(map(pattern_name, MODULES))
            raise UsageError(
                f"{given}: workflow {entry.name!r} is of {entry.pattern!r:.60}: the suite has sizes of {known}"
            )
        if entry.needs:
            continue  # a device may be needed to make the library's config
        with users_code(f"{given}: workflow {entry.name!r} raises", "its names have to be among those of the config"):
            eval(entry.source, namespace)
