"""Audits of whole networks: does this one run in int8 on an engine, are its numbers right, and which layer is to blame?

`audit` is the Python interface; `python -m conformance audit` and the pytest fixture `audit` call it.
"""

from .auditing import Fx, audit
from .network import Network
from .quantizers import quantization

__all__ = ["Fx", "Network", "audit", "quantization"]
