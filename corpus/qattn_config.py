"""The config of qattn, `--backend-config corpus.qattn_config:CONFIG`.

Its module is loaded alone: the package imports Triton and timm, which the config does not need.
"""

import importlib.metadata
import importlib.util

import torch.ao.quantization.quantize_fx  # noqa: F401  (its import completes torch.ao.quantization)
from torch.ao.quantization.backend_config import BackendConfig

_FILE = importlib.metadata.distribution("qattn").locate_file("qattn/backends_config/qattn.py")
_SPEC = importlib.util.spec_from_file_location("qattn_backend_config", str(_FILE))
assert _SPEC is not None
assert _SPEC.loader is not None
_MODULE = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(_MODULE)

CONFIG: BackendConfig = _MODULE.get_qattn_backend_config()
