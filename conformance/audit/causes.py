"""Faults of audited layers explained by the ledger, by what causes them: engine, check and features of the layer, or the runs
that it is like."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from conformance.cases.claims import backend
from conformance.cases.runs import Run
from conformance.cases.sources import root_of
from conformance.configs.registry import REGISTERED
from conformance.execution.likeness import Likeness
from conformance.results.audits import Audit, Fault, Layer, Refusal
from conformance.results.findings.layers import LayerRaises
from conformance.results.known import Entry, Host
from conformance.results.ledger import explaining

from .forms import runs_of


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
        if found is None and claims is not None and layer.form is not None:
            own = [claim for claim in claims.claims if claim.id == layer.claim]
            own = own or [claim for claim in claims.claims if claim.pattern == layer.pattern][:1]
            calls = int(layer.features.get("calls", "1"))
            like = runs_of(layer.form, own, claims, audited.engine, layer.shape, calls)
            found = _of_runs(like, one.check, likeness)
        return replace(one, cause=found)

    def refusal(one: Refusal) -> Refusal:
        found = cause(one.check, {"operator": one.operator, "stage": one.stage, "error": one.error})
        if found is None and claims is not None and one.form is not None:
            beginning = [claim for claim in claims.claims if root_of(claim.tree) == one.operator]
            found = _of_runs(runs_of(one.form, beginning, claims, audited.engine), one.check, likeness)
        return replace(one, cause=found)

    layers = tuple(
        replace(layer, faults=tuple(fault(layer, one) for one in layer.faults)) if layer.faults else layer
        for layer in audited.layers
    )
    found = replace(audited, layers=layers, refusals=tuple(map(refusal, audited.refusals)))
    if audited.failure:
        check = "lowered" if audited.stage in ("convert", "execute") else "observed"
        found = replace(found, cause=cause(check, {"failure": audited.failure}))
    return found


def _of_runs(runs: Iterable[Run], check: str, likeness: Likeness) -> str | None:
    """The first entry that lists a check for runs like one of these."""
    for run in runs:
        try:
            covering = likeness.covering(run, frozenset([check]))
        except (ValueError, LookupError, TypeError):  # no features are known of such a call
            continue
        if found := next((entry.id for entry in covering if check in entry.check or entry.undefined), None):
            return found
    return None
