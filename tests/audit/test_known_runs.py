"""What the ledger lists for a run is known in a network that is the run's model; its default use has no blame."""

from collections import Counter
from collections.abc import Iterator

import pytest
import torch

from conformance.audit import audit_engines
from conformance.audit.auditing import Settings, host
from conformance.audit.causes import explained
from conformance.audit.network import network
from conformance.cases.claims import backend
from conformance.cases.runs import Run, runs
from conformance.engines.availability import probe
from conformance.errors import UsageError
from conformance.models import build
from conformance.results.audits import Audit
from conformance.results.known import Coverage, Entry
from conformance.results.ledger_file import load

ENTRIES = [entry for entry in load() if entry.applies(host())]
BLAMED = {"observed", "reference", "lowered", "numerics"}
"""The checks whose failure an audit blames on a layer or an operator."""
EACH = 2
"""Networks of a finding on an engine."""


def listed(run: Run, coverage: Coverage) -> list[Entry]:
    """The entries for a run whose findings a network can meet; none for one whose outcome is undefined or that crashes."""
    entries = coverage.of(run.id)
    if any(entry.undefined or "crashes" in entry.check for entry in entries):
        return []
    return [entry for entry in entries if entry.check & BLAMED]


def audited(run: Run) -> Audit | None:
    """The audit of a run's model with its own mapping and data; None if it gives no output that can be compared."""
    subject = build.subject(run)
    try:
        one = network(run.id, subject.model.eval(), [subject.calibration, subject.fresh_inputs()])
    except UsageError:
        return None
    (found,) = audit_engines(one, [run.engine], Settings(mapping=subject.mapping, stable=False, reduce=False))
    return explained(found, ENTRIES, host())


def causes(found: Audit) -> Iterator[str | None]:
    yield from (fault.cause for layer in found.layers for fault in layer.faults)
    yield from (refusal.cause for refusal in found.refusals)
    if found.failure:
        yield found.cause


@pytest.mark.parametrize("name", ["qnnpack", "fbgemm", "onednn"])
def test_findings_of_runs_are_known_in_networks(name: str) -> None:
    coverage, tried = Coverage(ENTRIES), Counter[tuple[str, str]]()
    twins: dict[str, Run] = {}
    new, blamed = [], []
    torch.set_num_threads(1)
    claims = backend(name)
    for run in runs(claims, [engine for engine in claims.engines if not probe(engine)]):
        static = run.claim.dtype_config == "static-quint8" and run.flow == "ptq" and run.profile == "exact"
        if not static or run.variant is None:
            continue
        found = listed(run, coverage)
        if run.variant.name == "default" and not found:
            twins[f"{run.claim.id}@{run.engine}"] = run
        wanted = [entry.id for entry in found if tried[entry.id, run.engine] < EACH]
        if not wanted:
            continue
        tried.update((one, run.engine) for one in wanted)
        if (result := audited(run)) is None:
            continue
        if None in causes(result):
            new.append(run.id)
        twin = twins.pop(f"{run.claim.id}@{run.engine}", None)
        if twin is not None and (result := audited(twin)) is not None and [*causes(result)]:
            blamed.append(twin.id)
    assert not new
    assert not blamed
    assert len(tried) > 10
