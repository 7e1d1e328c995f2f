"""Faults of audited layers explained by the ledger, by what causes them: engine, check and features of the layer."""

from collections.abc import Sequence
from dataclasses import replace

from conformance.results.audits import Audit, Fault, Layer, Refusal
from conformance.results.known import Entry, Host
from conformance.results.ledger import explaining


def explained(audited: Audit, entries: Sequence[Entry], host: Host) -> Audit:
    """An audit with the cause of each fault and refusal that the ledger explains."""

    def cause(check: str, features: dict[str, str]) -> str | None:
        entry = explaining(entries, host, audited.engine, check, features)
        return entry.id if entry else None

    def fault(layer: Layer, one: Fault) -> Fault:
        features = {"pattern": layer.pattern, "kernels": " ".join(layer.kernels), **layer.features}
        return replace(one, cause=cause(one.check, features))

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
