"""Faults of audited layers explained by the ledger, by what causes them: engine, check and features of the layer, or the runs
that it is like."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from conformance.cases.claims import backend
from conformance.cases.runs import Run
from conformance.checks.likeness import Likeness
from conformance.configs.registry import REGISTERED
from conformance.results.audits import Audit, Fault, Layer, Refusal
from conformance.results.findings.layers import LayerDiffers, LayerRaises, LayerShape, LayersRaise
from conformance.results.findings.stages import Crashes
from conformance.results.findings.values import OutputQparams
from conformance.results.known import Entry, Host
from conformance.results.ledger import explaining

from .forms import runs_of


def explained(audited: Audit, entries: Sequence[Entry], host: Host) -> Audit:
    """An audit with the cause of each fault and refusal that the ledger explains."""
    likeness = Likeness(entry for entry in entries if entry.applies(host))
    claims = backend(audited.backend) if audited.backend in REGISTERED else None
    by_id = {claim.id: claim for claim in claims.claims} if claims is not None else {}

    def cause(check: str, features: dict[str, str]) -> str | None:
        entry = explaining(entries, host, audited.engine, check, features)
        return entry.id if entry else None

    def fault(layer: Layer, one: Fault) -> Fault:
        seen = {"pattern": layer.pattern, "kernels": " ".join(layer.kernels), "finding": one.finding.kind}
        if isinstance(one.finding, LayerRaises | LayersRaise):
            seen["error"] = f"{one.finding.exception}: {one.finding.message}"
        elif isinstance(one.finding, Crashes):
            seen["error"] = one.finding.reason
        features = {**seen, **layer.features}
        found = cause(one.check, features) or alike(layer, one.check, one.finding.kind)
        if found is None and one.check == "numerics" and layer.output is None:
            found = alike(layer, "reference")  # in float, where the reference's value is the one that is off
        if found is None and isinstance(one.finding, LayerRaises):
            found = next((misshapen[name] for name in layer.inputs if name in misshapen), None)
        return replace(one, cause=found)

    def alike(layer: Layer, check: str, kind: str = "") -> str | None:
        if claims is None or layer.form is None:
            return None
        own = [by_id[layer.claim]] if layer.claim in by_id else []
        own = own or [claim for claim in claims.claims if claim.pattern == layer.pattern][:1]
        calls = int(layer.features.get("calls", "1"))
        return _of_runs(runs_of(layer.form, own, claims, audited.engine, layer.shape, calls), check, likeness, kind)

    misshapen: dict[str, str | None] = {}  # layers that a value of another shape comes from, and its cause

    def known(layer: Layer) -> Layer:
        if layer.faults:
            layer = replace(layer, faults=tuple(fault(layer, one) for one in layer.faults))
            misshapen.update((layer.name, one.cause) for one in layer.faults if isinstance(one.finding, LayerShape))
        if misshapen and not layer.arithmetic.computes:
            misshapen.update((layer.name, misshapen[name]) for name in layer.inputs if name in misshapen)
        return replace(layer, cause=alike(layer, "lowered")) if layer.unkept else layer

    def refusal(one: Refusal) -> Refusal:
        found = cause(one.check, {"operator": one.operator, "stage": one.stage, "error": one.error})
        if found is None and claims is not None and one.form is not None:
            asked = [by_id[name] for name in one.claims if name in by_id]
            found = _of_runs(runs_of(one.form, asked, claims, audited.engine), one.check, likeness)
        return replace(one, cause=found)

    layers = tuple(map(known, audited.layers))
    found = replace(audited, layers=layers, refusals=tuple(map(refusal, audited.refusals)))
    if audited.failure:
        check = "lowered" if audited.stage in ("convert", "execute") else "observed"
        own = cause(check, {"failure": audited.failure, "stage": audited.stage, "error": audited.failure})
        return replace(found, cause=own or _of_layers(found))
    return found


def _of_layers(audited: Audit) -> str | None:
    """The cause of the layers that raise in a network which fails as a whole, if all have one."""
    raising = [fault for layer in audited.layers for fault in layer.faults if fault.check in ("lowered", "crashes")]
    return raising[0].cause if raising and all(fault.cause for fault in raising) else None


def _of_runs(runs: Iterable[Run], check: str, likeness: Likeness, kind: str = "") -> str | None:
    """The first entry that lists a check for runs like one of these, but not for other qparams alone if codes are off."""
    for run in runs:
        try:
            covering = likeness.covering(run, frozenset([check]))
        except (ValueError, LookupError, TypeError):  # no features are known of such a call
            continue
        fitting = (one for one in covering if kind != LayerDiffers.kind or one.kind != (OutputQparams.kind,))
        if found := next((entry.id for entry in fitting if check in entry.check or entry.undefined), None):
            return found
    return None
