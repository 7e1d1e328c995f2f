"""Faults of audited layers explained by the ledger, by what causes them: engine, check and features of the layer, or the runs
that it is like."""

from collections.abc import Sequence
from dataclasses import replace

from conformance.cases.claims import BackendClaims, backend
from conformance.configs.registry import REGISTERED
from conformance.execution.likeness import Likeness
from conformance.results.audits import Audit, Fault, Layer, Refusal
from conformance.results.findings.layers import LayerRaises
from conformance.results.known import Entry, Host
from conformance.results.ledger import explaining

from .forms import run_of


def explained(audited: Audit, entries: Sequence[Entry], host: Host) -> Audit:
    """An audit with the cause of each fault and refusal that the ledger explains."""
    likeness = Likeness(entry for entry in entries if entry.applies(host))
    claims = backend(audited.backend) if audited.backend in REGISTERED else None

    def cause(check: str, features: dict[str, str]) -> str | None:
        entry = explaining(entries, host, audited.engine, check, features)
        return entry.id if entry else None

    def fault(layer: Layer, one: Fault) -> Fault:
        seen = {"pattern": layer.pattern, "kernels": " ".join(layer.kernels), "finding": one.finding.kind}
        if isinstance(one.finding, LayerRaises):
            seen["error"] = f"{one.finding.exception}: {one.finding.message}"
        features = {**seen, **layer.features}
        found = cause(one.check, features)
        return replace(one, cause=found or _of_runs(layer, one.check, claims, audited.engine, likeness))

    def refusal(one: Refusal) -> Refusal:
        return replace(one, cause=cause(one.check, {"operator": one.operator, "stage": one.stage, "error": one.error}))

    layers = tuple(
        replace(layer, faults=tuple(fault(layer, one) for one in layer.faults)) if layer.faults else layer
        for layer in audited.layers
    )
    found = replace(audited, layers=layers, refusals=tuple(map(refusal, audited.refusals)))
    if audited.failure:
        check = "lowered" if audited.stage in ("convert", "execute") else "observed"
        found = replace(found, cause=cause(check, {"failure": audited.failure}))
    return found


def _of_runs(layer: Layer, check: str, claims: BackendClaims | None, engine: str, likeness: Likeness) -> str | None:
    """The first entry that lists a check for runs that a layer is like."""
    run = run_of(layer, claims, engine) if claims else None
    if run is None:
        return None
    try:
        covering = likeness.covering(run, frozenset([check]))
    except (ValueError, KeyError, LookupError):  # no features are known of such an operator
        return None
    return next((entry.id for entry in covering if check in entry.check or entry.undefined), None)
