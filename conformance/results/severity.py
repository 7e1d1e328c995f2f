"""How bad a deviation is and what is at fault, from the findings of its row."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from .findings import Finding
from .findings.stages import INPUTS, Raises, Undefined
from .rows import Row
from .verdicts import Shown


class Severity(Shown):
    """How bad a deviation is. Members are in the order of `worst`, the worst first.

    A `phrase` completes a sentence about a claim.
    """

    CRASHES = "crashes", "crashes or corrupts memory", "‼"
    WRONG = "wrong", "wrong numbers, silently", "✗"
    UNSTABLE = "unstable", "depends on what must not matter", "±"
    FLOAT = "float", "silently in float", "ƒ"
    REFUSES = "refuses", "refuses", "⊘"
    REFERENCE = "reference", "the reference model is wrong", "R"
    ACCEPTS = "accepts", "accepts what its constraints forbid", "C"
    IDLE = "idle", "promise without effect", "○"

    @property
    def works_by_default(self) -> bool:
        return False

    @classmethod
    def worst(cls, severities: Iterable["Severity"]) -> "Severity":
        """The worst of severities."""
        return min(severities, key=[*cls].index)


IN_ORDER = tuple(Severity)


class Component(StrEnum):
    """What is at fault."""

    CONFIG = "config"
    PREPARE = "prepare"
    REFERENCE = "reference"
    LOWERING = "lowering"
    KERNEL = "kernel"
    RUNTIME = "runtime"


OF_CHECK = {
    "crashes": (Severity.CRASHES, Component.KERNEL),
    "undefined": (Severity.CRASHES, Component.KERNEL),
    "numerics": (Severity.WRONG, Component.KERNEL),
    "accuracy": (Severity.WRONG, Component.KERNEL),
    "stable": (Severity.UNSTABLE, Component.KERNEL),
    "memory": (Severity.CRASHES, Component.KERNEL),
    "lowered": (Severity.FLOAT, Component.LOWERING),
    "reference": (Severity.REFERENCE, Component.REFERENCE),
    "constraints": (Severity.ACCEPTS, Component.REFERENCE),
    "observed": (Severity.FLOAT, Component.PREPARE),
    "annotated": (Severity.FLOAT, Component.CONFIG),
    "matched": (Severity.IDLE, Component.CONFIG),
    "asked": (Severity.IDLE, Component.LOWERING),
}
"""The severity of a failed check whose finding says no more about it, and the component at fault. An operator that is not
annotated or observed stays in float."""

OF_OTHERS = Severity.WRONG, Component.KERNEL
"""The same of a check without a row."""

OF_KIND = {
    "writes-to-input": Severity.CRASHES,
    "relation-writes": Severity.CRASHES,
    "output-kind": Severity.FLOAT,
    "left-quantized": Severity.WRONG,
    "weight-blocks": Severity.IDLE,
    "weight-codes": Severity.WRONG,
    "weight-scales": Severity.WRONG,
    "weight-vanishes": Severity.WRONG,
    "weight-zero-points": Severity.WRONG,
    "output-dtype": Severity.WRONG,
    "raises": Severity.REFUSES,
    "swept-raises": Severity.REFUSES,
    "layer-raises": Severity.REFUSES,
    "network-fails": Severity.REFUSES,
    "operand-overwritten": Severity.CRASHES,
    "violating-qconfig-used": Severity.ACCEPTS,
    "violating-qconfig-ignored": Severity.ACCEPTS,
    "satisfying-qconfig-warned": Severity.ACCEPTS,
    "ignored-qconfig-trains-weight": Severity.ACCEPTS,
    "satisfying-qconfig-ignored": Severity.FLOAT,
}
"""The severity of a kind of findings that has one of its own."""

OF_REASON = {"out-of-bounds": Severity.CRASHES, "uninitialized": Severity.WRONG, "race": Severity.WRONG}
"""The severity of an undefined outcome by its reason."""

OF_STAGE = {
    "float": Component.CONFIG,
    "prepare": Component.PREPARE,
    "calibrate": Component.PREPARE,
    "reference": Component.REFERENCE,
    "reference execution": Component.REFERENCE,
    "execute": Component.KERNEL,
}
"""The component that raises in a stage; in any other stage that is lowering, or what it made."""

RUNTIMES = frozenset({"executorch"})
"""Engines that execute a program of their own: their kernels are a runtime's."""


@dataclass(frozen=True, order=True)
class Assessment:
    """How bad a finding of a row is: its check, the component at fault, and the stage that refuses, if one does."""

    rank: int
    check: str
    component: Component
    stage: str = ""

    @property
    def severity(self) -> Severity:
        return IN_ORDER[self.rank]


def assessments(row: Row) -> Iterator[Assessment]:
    """Yield the assessment of every finding of a failed check. A failed check without a finding, of a row of schema 1, is
    assessed by its name."""
    in_float = any(
        one.check == "lowered" and one.kind in ("ran-in-float", "no-quantized-kernel") for one in row.findings
    )
    annotations = {kind.kind for kind in INPUTS}
    assessed = set()
    for finding in row.findings:
        if finding.check in row.failed and finding.kind not in annotations:
            assessed.add(finding.check)
            yield _assessment(row, finding, in_float)
    for check in sorted(row.failed - assessed):
        severity, component = OF_CHECK.get(check, OF_OTHERS)
        yield Assessment(IN_ORDER.index(severity), check, _component(row, component))


def assessment(row: Row) -> Assessment | None:
    """The assessment of a row's worst finding, None if it has none."""
    return min(assessments(row), default=None)


def _assessment(row: Row, finding: Finding, in_float: bool) -> Assessment:
    check, stage = finding.check, finding.stage if isinstance(finding, Raises) else ""
    severity, component = OF_CHECK.get(check, OF_OTHERS)
    if stage:
        component = OF_STAGE.get(stage, Component.LOWERING)
    elif finding.kind in ("converts-inside", "swept-raises"):
        component = Component.KERNEL
    elif check in ("numerics", "accuracy") and in_float:
        component = Component.LOWERING
    if isinstance(finding, Undefined):
        severity = OF_REASON[finding.reason]
    if check == "matched" or stage == "float":
        severity = Severity.IDLE  # no model that the pattern matches can be executed
    elif check != "reference":
        severity = OF_KIND.get(finding.kind, severity)
    return Assessment(IN_ORDER.index(severity), check, _component(row, component), stage)


def _component(row: Row, component: Component) -> Component:
    """The component by the name that it has on the row's engine."""
    return Component.RUNTIME if component is Component.KERNEL and row.engine in RUNTIMES else component
