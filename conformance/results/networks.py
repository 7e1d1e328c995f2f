"""Rows of audited networks: one for each layer that computes, and one for the network as a whole."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from .audits import Arithmetic, Audit, Fault, Layer
from .findings import Finding, detail_of
from .findings.layers import LayerRaises, NetworkFails, NetworkLoses, NetworkUnstable
from .profiles import NETWORK
from .rows import Row
from .verdicts import Verdict

BACKEND = "networks"
"""What rows of networks have as their backend."""

WHOLE = "network"
"""The pattern of the row of a whole network."""


def _plain(name: str) -> str:
    """A name without the characters that separate the parts of an id."""
    return name.replace("/", "|").replace("@", "|")


@dataclass(frozen=True)
class Place:
    """A layer of a network; the whole network if `layer` is empty. Its variant is `network:layer`."""

    network: str
    layer: str = ""

    @property
    def variant(self) -> str:
        return f"{_plain(self.network).replace(':', '.')}:{_plain(self.layer)}"

    @classmethod
    def of(cls, row: Row) -> "Place":
        network, _, layer = row.variant.partition(":")
        return cls(network, layer)


def rows(audit: Audit) -> Iterator[Row]:
    """The rows of an audit, the whole network's first."""
    yield _whole(audit)
    for layer in audit.layers:
        if layer.arithmetic.computes or layer.faults:
            yield _row(audit, layer)


def _row(audit: Audit, layer: Layer) -> Row:
    findings = tuple(fault.finding for fault in layer.faults)
    causes = [fault.cause for fault in layer.faults]
    found = layer.agreement
    checks = _checks(findings)
    if layer.arithmetic is Arithmetic.FLOAT and checks["lowered"] == "pass":
        checks["lowered"] = "skip"  # whether it should be in integers is a question for the claim's own runs
    crashes = any(finding.check == "crashes" for finding in findings)
    if crashes:  # its value is the reference's, so nothing else is known of it
        findings = tuple(finding for finding in findings if finding.check == "crashes")
    return Row(
        **_ids(audit, layer.pattern, (layer.claim or "/float").rpartition("/")[2], Place(audit.network, layer.name)),
        verdict=Verdict.CRASHES if crashes else Verdict.of(findings),
        checks={} if crashes else checks,
        detail=detail_of(findings),
        findings=findings,
        kernels=layer.kernels,
        steps_max=found.steps_max if found else None,
        mismatched=found.wrong if found else None,
        ties=found.tied if found else None,
        tolerated=0 if found else None,
        total=found.total if found else None,
        sqnr_db=layer.local_db,
        known=_known(causes),
    )


def _whole(audit: Audit) -> Row:
    """The row of a whole network. What it loses and how it varies are explained by the layers that are blamed, if all are."""
    faults = [Fault(LayerRaises("lowered", one.stage, one.exception, one.message), one.cause) for one in audit.refusals]
    if audit.failure:
        faults.append(Fault(NetworkFails("lowered", audit.failure), audit.cause))
    cause = audit.blamed[0].faults[0].cause if audit.blamed and not audit.new else None
    if audit.loses:
        assert audit.engine_db is not None
        assert audit.reference_db is not None
        faults.append(Fault(NetworkLoses("numerics", audit.engine_db, audit.reference_db), cause))
    faults += [Fault(NetworkUnstable("stable", one.name, one.text), cause) for one in audit.unstable]
    findings = tuple(fault.finding for fault in faults)
    causes = [fault.cause for fault in faults]
    return Row(
        **_ids(audit, WHOLE, "-", Place(audit.network)),
        verdict=Verdict.of(findings),
        checks=_checks(findings),
        detail=detail_of(findings),
        findings=findings,
        sqnr_db=audit.engine_db,
        known=_known(causes),
        seconds=audit.seconds,
    )


def _known(causes: Sequence[str | None]) -> str | None:
    """The first cause, if every finding has one."""
    return None if None in causes else next(iter(causes), None)


def _ids(audit: Audit, pattern: str, dtype_config: str, place: Place) -> dict[str, Any]:
    parts = {"backend": BACKEND, "pattern": pattern, "dtype_config": dtype_config, "flow": "ptq"}
    parts |= {"variant": place.variant, "profile": NETWORK.name}
    return {"id": f"{'/'.join(parts.values())}@{audit.engine}", **parts, "engine": audit.engine}


def _checks(findings: Iterable[Finding]) -> dict[str, str]:
    failed = {finding.check for finding in findings}
    return {name: "fail" if name in failed else "pass" for name in NETWORK.checks}
