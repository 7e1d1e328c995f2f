"""The backends by name: the config of each and the engines that owe what it promises."""

from collections.abc import Callable
from dataclasses import dataclass

from torch.ao.quantization.backend_config import BackendConfig

from configs.executorch import get_executorch_backend_config
from configs.fbgemm import get_fbgemm_backend_config
from configs.onednn import get_onednn_backend_config
from configs.qnnpack import get_qnnpack_backend_config


@dataclass(frozen=True)
class Backend:
    """A backend: its name, what makes a new copy of its config, and the engines held to it."""

    name: str
    factory: Callable[[], BackendConfig]
    engines: tuple[str, ...]


BACKENDS = {
    backend.name: backend
    for backend in (
        Backend("qnnpack", get_qnnpack_backend_config, ("qnnpack",)),
        # x86 picks fbgemm's or oneDNN's kernels at run time and has no config of its own here.
        Backend("fbgemm", get_fbgemm_backend_config, ("fbgemm", "x86")),
        Backend("onednn", get_onednn_backend_config, ("onednn",)),
        Backend("executorch", get_executorch_backend_config, ("executorch",)),
    )
}
