"""Audits of whole networks: does this one run in int8 on an engine, are its numbers right, and which layer is to blame?

`audit` is the Python interface; `python -m conformance audit` and the pytest fixture `audit` call it.
"""

from .auditing import audit, audit_engines
from .network import Network

__all__ = ["Network", "audit", "audit_engines"]
