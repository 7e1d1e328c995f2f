"""The backends by name, with the config of each and the engines that run it."""

import importlib
from collections.abc import Callable
from dataclasses import dataclass

from torch.ao.quantization.backend_config import BackendConfig

from .engines import ENGINES


@dataclass(frozen=True)
class Backend:
    """A backend: its name, a factory of its config, and the engines that run it."""

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
