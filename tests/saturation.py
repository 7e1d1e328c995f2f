"""Hosts without AVX-512 VNNI: there FBGEMM and oneDNN add 8-bit products in saturating 16-bit arithmetic, and torch's engine
x86 runs FBGEMM's kernels alone."""

import pytest

from conformance.audit.auditing import host

SATURATIONS = frozenset({"fbgemm-saturation", "onednn-saturation"})
"""Findings that any layer with large values shows on such a host, beside those that a test is about."""

VNNI = host().vnni == "True"
EXACT = "x86" if VNNI else "qnnpack"
"""An engine on which no layer saturates."""

needs_vnni = pytest.mark.skipif(not VNNI, reason="without VNNI oneDNN's layers saturate, and x86 is FBGEMM")
