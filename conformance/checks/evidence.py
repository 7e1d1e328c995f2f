"""Evidence of a run, composed of the products of its stages, the outcome of a check, and the row that is made of them."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

from torch import Tensor, nn
from torch.ao.quantization.backend_config import BackendConfig
from torch.fx import GraphModule

from conformance.cases.ranges import range_of
from conformance.cases.runs import Run, describe
from conformance.engines.protocol import Program
from conformance.errors import Failure
from conformance.goldens.golden import Golden, golden_of
from conformance.host.guard import Access
from conformance.models import apis
from conformance.models.build import Subject
from conformance.models.templates import Template
from conformance.models.trace import Execution
from conformance.oracle import Answer, Codes, Qparams
from conformance.results.findings import Finding, detail_of, text_of
from conformance.results.findings.stages import (
    BEYOND,
    FurtherBeyond,
    FurtherData,
    FurtherInputs,
    FurtherRange,
    FurtherThreads,
    Raises,
)
from conformance.results.rows import Row
from conformance.results.verdicts import Verdict

from .comparison import Comparison


@dataclass(frozen=True)
class Ablation:
    """Whether the observed model changes when the claim's entry, or its dtype config, is taken out of the config.

    Preparing may also raise then, which counts as a change. Where nothing changes, `config` is the config without the claim
    and `prepared` the model prepared with it, so that the lowered models can be compared.
    """

    changes: bool
    config: BackendConfig | None = None
    prepared: GraphModule | None = None


@dataclass(frozen=True)
class Front:
    """Products of the stages before conversion: float model, prepare, ablation, calibrate.

    They do not depend on the engine, so runs of one case on several engines share them. The product of a stage that failed
    is None, and `failures` has the exception by the name of the stage. `float_outputs` are those of the unfused model in
    float64, `prepared` is the calibrated model and `template` has one before calibration, maybe with other data.
    """

    subject: Subject | None = None
    float_outputs: tuple[Tensor, ...] = ()
    prepared: GraphModule | None = None
    template: Template | None = None
    ablation: Ablation | None = None
    failures: Mapping[str, Failure] = field(default_factory=dict)

    @cached_property
    def blank(self) -> GraphModule:
        """An uncalibrated model of other weights in eval mode, which a state can be loaded into."""
        assert self.subject is not None
        assert self.template is not None
        return apis.of(self.subject.run.backend).blank(self.template, self.subject.run)


@dataclass(frozen=True)
class Reference:
    """The reference model and its execution, which do not depend on the engine; `failures` as in `Front`."""

    model: GraphModule | None = None
    execution: Execution | None = None
    failures: Mapping[str, Failure] = field(default_factory=dict)


@dataclass(frozen=True)
class Back:
    """Products of the stages that depend on the engine: lowering, execution, repetitions.

    The product of a stage that failed is None, and `failures` has the exception by the name of the stage. `program` is
    compiled from `lowered` by the engine. `changes` is true if the lowered model changes without the claim's entry; it is
    only tested where the observed model does not change. `repetitions` has the outputs of each repeated execution by name.
    """

    lowered: GraphModule | None = None
    program: Program | None = None
    changes: bool = False
    execution: Execution | None = None
    repetitions: Mapping[str, tuple[Tensor, ...]] = field(default_factory=dict)
    failures: Mapping[str, Failure] = field(default_factory=dict)


def exact_positions(answer: Answer, output: int) -> Tensor | None:
    """Exact positions (float64, in steps) of an output on its grid, or None if it is not quantized."""
    codes = answer.outputs[output]
    return codes.position if isinstance(codes, Codes) else None


def no_positions(output: int) -> Tensor | None:
    """Exact positions where the oracle has no answer."""
    return None


@dataclass(frozen=True)
class Expectation:
    """The golden of a run. `exact` gives the exact positions (float64, in steps) of an output on its grid, by the number of
    the output. `unusable` is the reason why the run cannot be compared with a golden."""

    golden: Golden | None = None
    exact: Callable[[int], Tensor | None] = no_positions
    unusable: str = ""
    qparams: Callable[[], Mapping[str, Qparams]] = dict
    """Every scale and zero point that the oracle used, by name."""

    @classmethod
    def of(cls, answer: Answer) -> "Expectation":
        """What the oracle answers for inputs in the further executions of a run."""
        return cls(golden_of(answer), partial(exact_positions, answer), qparams=lambda: answer.qparams)


@dataclass(frozen=True)
class Further:
    """An execution of a run's program on the inputs of `subject`, in further sizes, with qparams of its own calibration, or
    on its own inputs on several threads.

    `failure` is the exception that it raises.
    """

    subject: Subject
    expectation: Expectation
    execution: Execution | None = None
    failure: Failure | None = None
    threads: int = 1

    @property
    def degenerate(self) -> str:
        """The name of the degenerate data of the inputs; empty if they have other ones."""
        variant = self.subject.run.variant
        assert variant is not None
        return next((spec.degenerate for spec in variant.executed.values() if spec.degenerate), "")

    def findings(self, check: str) -> tuple[Finding, ...]:
        """The findings that say which inputs the finding before them is about."""
        variant = self.subject.run.variant
        assert variant is not None
        threads = [FurtherThreads(check, self.threads)] if self.threads > 1 else []
        if data := self.degenerate:
            return (FurtherBeyond if data in BEYOND else FurtherData)(check, data), *threads
        if not variant.executed:
            return tuple(threads)
        inputs = FurtherInputs(check, tuple((name, spec.shape) for name, spec in variant.executed.items()))
        row = range_of(variant.data)
        ranged = [FurtherRange(check, int(row.covers), row.exponent)] if row.covers.isdecimal() else []
        return inputs, *ranged, *threads


@dataclass(frozen=True)
class Guarded:
    """Accesses of guarded executions outside of tensors, each with the operator that was called, None outside of calls, as
    where weights are packed. `reason` says why there may be others."""

    accesses: frozenset[tuple[str | None, Access]] = frozenset()
    reason: str = ""


@dataclass
class Shared:
    """What runs of one case on several engines share, each product made when it is first asked for."""

    front: Front
    reference: Reference | None = None
    expectation: Expectation | None = None
    further: dict[tuple[int, tuple[str, ...], bool], Sequence[tuple[Subject, Expectation]]] = field(
        default_factory=dict
    )
    """Further inputs, by the number of those in other sizes, the degenerate ones, and whether sizes have other ranges too."""


@dataclass(frozen=True)
class Evidence:
    """Everything that the stages of a run produced."""

    run: Run
    front: Front = Front()
    back: Back = Back()
    expectation: Expectation = Expectation()
    further: tuple[Further, ...] = ()
    guarded: Guarded | None = None
    reference: Reference = Reference()
    quantized: nn.Module | None = None
    """The module that was quantized in place, where that is what the claim is about."""

    @property
    def failures(self) -> Mapping[str, Failure]:
        """The exception of each stage that failed, by the name of the stage, in the order of the stages."""
        return {**self.front.failures, **self.reference.failures, **self.back.failures}

    @property
    def changes(self) -> bool:
        """Whether taking the claim out of the config changes the observed or the lowered model."""
        return self.back.changes or (self.front.ablation is not None and self.front.ablation.changes)

    def raises(self, check: str, stage: str) -> tuple[Raises, ...]:
        """The finding of `check` about the exception of a stage; empty if the stage did not fail."""
        failure = self.failures.get(stage)
        return () if failure is None else (Raises(check, stage, failure.exception, failure.message),)


@dataclass(frozen=True)
class Outcome:
    """Outcome of a check: `result` is pass, fail or skip.

    `findings` is empty unless the check fails. `note` is the reason for a skip. `comparison` and `sqnr_db` are the
    measurements of the checks numerics and accuracy.
    """

    result: str
    findings: tuple[Finding, ...] = ()
    note: str = ""
    comparison: Comparison | None = None
    sqnr_db: float | None = None

    @property
    def detail(self) -> str:
        """The findings as text, or the reason for a skip."""
        return text_of(self.findings) if self.findings else self.note


PASS = Outcome("pass")


def skip(reason: str, sqnr_db: float | None = None) -> Outcome:
    return Outcome("skip", note=reason, sqnr_db=sqnr_db)


def outcome(
    findings: Iterable[Finding], *, comparison: Comparison | None = None, sqnr_db: float | None = None
) -> Outcome:
    """Fail if there are findings, else pass."""
    findings = tuple(findings)
    return Outcome("fail" if findings else "pass", findings, comparison=comparison, sqnr_db=sqnr_db)


def row_of(
    run: Run,
    start: float,
    checks: Mapping[str, str],
    findings: tuple[Finding, ...],
    *,
    execution: Execution | None = None,
    comparison: Comparison | None = None,
    remark: str = "",
    **measured: Any,
) -> Row:
    """The row, without `known`, of a run that has been judged since `start`, as `time.perf_counter` has it. `remark` is its
    detail if there are no findings; `measured` are further fields."""
    if comparison is not None:
        measured |= {
            name: getattr(comparison, name) for name in ("steps_max", "mismatched", "ties", "tolerated", "total")
        }
    return Row(
        **describe(run),
        verdict=Verdict.of("fail" in checks.values()),
        checks=checks,
        detail=detail_of(findings) or remark,
        findings=findings,
        kernels=tuple(dict.fromkeys(execution.listed())) if execution else (),
        seconds=round(time.perf_counter() - start, 4),
        **measured,
    )
