"""One run as text: sources, graphs, quantization parameters, kernels, numbers, checks, ledger."""

from collections.abc import Iterator, Mapping, Sequence

from torch import Tensor

from conformance.cases.runs import Run
from conformance.checks.comparison import compare_outputs
from conformance.checks.evidence import Evidence
from conformance.checks.judge import CHECKS, Judge
from conformance.checks.tolerances import tolerance
from conformance.execution import diagnose
from conformance.execution.batch import judge_runs, warm_up
from conformance.goldens.golden import Expected
from conformance.host.isolation import Done, Raised, run_isolated
from conformance.models.trace import Output
from conformance.properties.codes import judge as codes
from conformance.properties.metamorphic import relations
from conformance.results.findings.stages import UNDEFINED
from conformance.results.known import Entry
from conformance.results.profiles import CODES, LAWS
from conformance.stopwatch import Stopwatch

SHOWN = 10
"""Mismatched elements that are shown of each output."""


def section(title: str, text: str) -> str:
    return f"== {title}\n{text.rstrip()}\n"


def show(run: Run, entries: Sequence[Entry]) -> Iterator[str]:
    """Yield the sections of a run in order.

    Its kernels run in a child process; if that dies, the models are shown as far as they can be converted. The engine has to
    be available and the operators covered.
    """
    yield run.id
    yield from sections(diagnose.setting(run))
    warm_up()
    (outcome,) = run_isolated([run], executed)
    if isinstance(outcome, Done):
        yield outcome.value
    else:
        (before,) = run_isolated([run], converted)
        yield (
            before.value
            if isinstance(before, Done)
            else section("graphs", "converting the model ends the process already")
        )
        failed = outcome.traceback if isinstance(outcome, Raised) else f"the process dies: {outcome.reason}"
        yield section("the suite itself fails" if isinstance(outcome, Raised) else "crashes", failed)
    yield ledger(entries)


def sections(texts: Mapping[str, str]) -> list[str]:
    return [section(title, text) for title, text in texts.items()]


def executed(run: Run) -> str:
    """Take a run through every stage and check, and return the sections about its evidence and outcomes."""
    if run.profile in (LAWS.name, CODES.name):
        row = (codes if run.profile == CODES.name else relations).row(Stopwatch(), run)
        checked = (f"{name:<12}{result}" for name, result in row.checks.items())
        texts = {
            **diagnose.converted(run),
            "kernels": "\n".join(row.kernels) or "none",
            "checks": "\n".join([*checked, row.detail]),
        }
        return "\n".join(sections(texts))
    evidence = Judge().evidence(run)
    outcomes = {name: CHECKS[name](evidence) for name in run.checks}
    back = evidence.back
    parts = sections(diagnose.graphs(evidence.front.prepared, evidence.reference.model, back.lowered))
    if back.execution is not None:
        parts += sections(diagnose.executed(back.execution))
    parts += numbers(evidence)
    parts += sections(diagnose.raised(evidence))
    checked = (f"{name:<12}{outcome.result:<5} {outcome.detail}".rstrip() for name, outcome in outcomes.items())
    parts.append(section("checks", "\n".join(checked)))
    return "\n".join(parts)


def converted(run: Run) -> str:
    return "\n".join(sections(diagnose.converted(run)))


def numbers(evidence: Evidence) -> Iterator[str]:
    """Yield a section for each output: the golden, the outputs of engine and reference model, and elements that differ."""
    golden, back = evidence.expectation.golden, evidence.back
    if golden is None:
        yield section("golden", evidence.expectation.unusable or "none: there is nothing to compute")
        return
    for number, expected in enumerate(golden.outputs):
        grid = f" scale {expected.scale!r} zero point {expected.zero_point}" if expected.quantized else ""
        lines = [f"golden:    {expected.dtype} {tuple(expected.low.shape)}{grid}"]
        for name, execution in (("engine", back.execution), ("reference", evidence.reference.execution)):
            if execution is None or number >= len(execution.outputs):
                continue
            got = execution.outputs[number]
            lines.append(f"{name + ':':<11}{diagnose.described(got)}")
            if got.values.shape == expected.low.shape:
                lines += differences(evidence.run, got, expected, evidence.expectation.exact(number))
        yield section(f"output {number}", "\n".join(lines))


def differences(run: Run, got: Output, expected: Expected, exact: Tensor | None) -> list[str]:
    """Lines of a table of the first elements that differ: index, got, golden, exact. They are codes where output and golden
    have the same scale and zero point, else values."""
    comparison = compare_outputs(got, expected, tolerance(run))
    others = f"{comparison.ties} ties, {comparison.tolerated} within the tolerance"
    if not comparison.mismatched:
        return [f"none of {comparison.total} elements differs; {others}"]
    q = got.quantized
    same_grid = q is not None and (q.q_scale(), q.q_zero_point()) == (expected.scale, expected.zero_point)
    if same_grid and q is not None:
        values, golden = q.int_repr().double(), expected.low.double()
        differing = ((values < golden) | (values > expected.high.double())).nonzero()
        exact = golden if exact is None else exact
    else:
        values, golden = got.values.double(), expected.values
        differing, exact = (values != golden).nonzero(), golden
    table = [
        f"{comparison.mismatched} of {comparison.total} elements differ; {others}",
        f"{'index':<20}{'got':>14}{'golden':>14}{'exact':>16}",
    ]
    for position in differing[:SHOWN].tolist():
        index = tuple(position)
        table.append(f"{index!s:<20}{values[index]:>14.7g}{golden[index]:>14.7g}{exact[index]:>16.9g}")
    return table


def shown(run: Run, entries: Sequence[Entry]) -> Iterator[str]:
    """Yield the sections of a run that tests a constraint: its model, the constraint, the checks, the ledger."""
    (judged,) = judge_runs([run], lambda _: None)
    yield run.id
    yield from sections(diagnose.setting(run))
    if isinstance(judged, Raised):
        yield section("the suite itself fails", judged.traceback)
        return
    checked = "\n".join(f"{name:<12}{result}" for name, result in judged.row.checks.items())
    yield section("checks", f"{checked}\n{judged.row.detail}")
    yield ledger(entries)


def ledger(entries: Sequence[Entry]) -> str:
    """The section of the ledger's entries that match a run."""
    listed = [
        f"{entry.id} ({entry.source}): {_expected(entry)}\n{entry.finding.title}\n{entry.finding.reason}\n"
        f"upstream: {entry.finding.upstream}"
        for entry in entries
    ]
    return section("ledger", "\n\n".join(listed) or "not listed")


def _expected(entry: Entry) -> str:
    if entry.undefined:
        return f"undefined: {UNDEFINED[entry.undefined]}"
    return ", ".join((*sorted(entry.must), *(f"maybe {name}" for name in sorted(entry.may))))
