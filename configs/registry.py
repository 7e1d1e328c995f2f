"""The backends by name: the config of each and the engines held to it."""

import importlib
from collections.abc import Callable
from dataclasses import dataclass

from torch.ao.quantization.backend_config import BackendConfig

from .engines import ENGINES


@dataclass(frozen=True)
class Backend:
    """A backend: its name, what makes a new copy of its config, and the engines held to it."""

    name: str
    factory: Callable[[], BackendConfig]
    engines: tuple[str, ...]


def _factory(name: str) -> Callable[[], BackendConfig]:
    """Return `get_<name>_backend_config` of the module `configs/<name>.py`."""
    factory: Callable[[], BackendConfig] = getattr(
        importlib.import_module(f".{name}", __package__), f"get_{name}_backend_config"
    )
    return factory


BACKENDS = {name: Backend(name, _factory(name), engines) for name, engines in ENGINES.items()}
