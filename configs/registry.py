"""The backends by name, with the config of each and the engines that run it."""

from collections.abc import Callable
from dataclasses import dataclass

from torch.ao.quantization.backend_config import BackendConfig

from .engines import ENGINES
from .executorch import get_executorch_backend_config
from .fbgemm import get_fbgemm_backend_config
from .onednn import get_onednn_backend_config
from .qnnpack import get_qnnpack_backend_config


@dataclass(frozen=True)
class Backend:
    """A backend: its name, a factory of its config, and the engines that run it."""

    name: str
    factory: Callable[[], BackendConfig]
    engines: tuple[str, ...]


FACTORIES: dict[str, Callable[[], BackendConfig]] = {
    "qnnpack": get_qnnpack_backend_config,
    "fbgemm": get_fbgemm_backend_config,
    "onednn": get_onednn_backend_config,
    "executorch": get_executorch_backend_config,
}
BACKENDS = {name: Backend(name, FACTORIES[name], engines) for name, engines in ENGINES.items()}
