"""Ways to audit a network, and audits in child processes, so that a kernel that crashes costs one layer."""

import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from conformance.host.isolation import Death, Raised, run_isolated
from conformance.results.audits import Audit

from .network import Network

Stage = Callable[[str], None]
"""Called with the name of each stage as it begins."""


class Way(Protocol):
    """A way to quantize networks and run them on an engine. `backend` is the name of what promises layers in integers."""

    @property
    def engine(self) -> str: ...

    @property
    def backend(self) -> str: ...

    def audit(self, subject: Network, progress: Stage) -> Audit:
        """Audit a network. `progress` is called with a line for each stage, in a child process."""


AUDIT_SECONDS = 3600.0
"""CPU seconds that the audit of a network on one engine may take before it counts as hanging: twice what the recurrent layers
of sequencer2d_s take to be lowered. A process that sleeps hangs much sooner."""

MOST_CRASHES = 8
"""Layers that may crash, one after another, before the audit is given up."""

Work = Callable[[Mapping[str, str], Path], Callable[[str], Audit]]
"""Makes the audit of a job, the name of an engine, from how it has ended earlier processes, by the layer that they were in,
and the file in which a child writes the layer that it is in."""


def isolated(network: str, engine: str, backend: str, work: Work) -> Audit:
    """Audit in a child. A child that dies in a layer is followed by one that has the reference in its place."""
    started = time.perf_counter()
    crashed: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "node"
        while True:
            place.write_text("")
            (outcome,) = run_isolated([engine], work(dict(crashed), place), AUDIT_SECONDS)
            if isinstance(outcome, Raised):
                raise RuntimeError(f"the suite itself fails on {network}, which is our fault:\n{outcome.traceback}")
            if not isinstance(outcome, Death):
                return replace(outcome.value, seconds=round(time.perf_counter() - started, 2))
            node = place.read_text()
            if not node or node in crashed or len(crashed) >= MOST_CRASHES:
                failure = f"the process dies ({outcome.reason})" + (f" in {node}" if node else " outside of any layer")
                return Audit(network, engine, backend, failure=failure, stage="execute")
            crashed[node] = outcome.reason
