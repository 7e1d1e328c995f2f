"""The backends and quantizers by name, with the config of each and the engines that run it."""

import importlib
from collections.abc import Callable
from dataclasses import dataclass

from torch.ao.quantization.backend_config import BackendConfig

from .engines import ENGINES, QUANTIZER_ENGINES, WORKFLOW_ENGINES


@dataclass(frozen=True)
class Backend:
    """A backend: its name, a factory of its config, and the engines that run it."""

    name: str
    factory: Callable[[], BackendConfig]
    engines: tuple[str, ...]


def _factory(name: str, declares: str) -> Callable[[], BackendConfig]:
    """Return `get_<name>_<declares>` of the module `configs/<name>.py`."""
    factory: Callable[[], BackendConfig] = getattr(
        importlib.import_module(f".{name}", __package__), f"get_{name}_{declares}"
    )
    return factory


BACKENDS = {name: Backend(name, _factory(name, "backend_config"), engines) for name, engines in ENGINES.items()}
QUANTIZERS = {
    name: Backend(name, _factory(name, "declarations"), engines) for name, engines in QUANTIZER_ENGINES.items()
}
"""Quantizers of PT2E, which declare what a config declares. They run if they are asked for by name."""
WORKFLOWS = {name: Backend(name, _factory(name, "workflows"), engines) for name, engines in WORKFLOW_ENGINES.items()}
"""Libraries that quantize modules in place."""
BY_NAME = {**QUANTIZERS, **WORKFLOWS}
"""What runs if it is asked for by name."""
REGISTERED = {**BACKENDS, **BY_NAME}
