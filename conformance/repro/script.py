"""The reproduction script of a run: source text that needs torch alone and checks what the run's findings state.

A script consists of the model's and the recipe's source, the stages that its findings need, and a block for each finding.
The names that these refer to are imported, or defined with the source that this package has for them.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from conformance.cases.operators.variant import in_degenerate_data, in_sizes
from conformance.cases.ranges import in_range, written
from conformance.cases.runs import Run
from conformance.configs.workflows import Workflow
from conformance.engines.programs import engine_source
from conformance.host.cpu import ISA_LIMITS
from conformance.results.findings import Finding, detail_of
from conformance.results.findings.memory import OutOfBounds
from conformance.results.findings.stages import (
    INPUTS,
    Crashes,
    FurtherInputs,
    FurtherRange,
    FurtherThreads,
    OfData,
    Undefined,
)
from conformance.results.known import Entry
from conformance.results.rows import Row

from . import checks, stages, workflows
from .apis import lines_of
from .case import Case, NothingToCheck
from .inline import free, merged, needs


def _checks(case: Case) -> Iterator[str]:
    """Yield the blocks of every finding. Raises NothingToCheck for a finding without a block that can report a deviation."""
    for finding in case.findings:
        if isinstance(finding, INPUTS):  # says how the script executes the model, and nothing of its own
            continue
        blocks = checks.blocks(case, finding)
        if not any("deviates(" in block for block in blocks):
            raise NothingToCheck(
                f"{case.run.id}: no script checks the finding {finding.kind!r} of the check {finding.check}: {finding.text}"
            )
        yield from blocks


def _docstring(run: Run, row: Row, entry: Entry | None) -> str:
    lines = [run.id, ""]
    for check in dict.fromkeys(finding.check for finding in row.findings):
        findings = [finding for finding in row.findings if finding.check == check]
        crashes = isinstance(findings[0], Crashes)
        lines += (findings[0].text if crashes else detail_of(findings)).splitlines()
    if not row.findings:
        lines += (row.detail or "conforms").splitlines()
    if entry is not None:
        lines += ["", entry.finding.title, entry.finding.reason, f"Upstream: {entry.finding.upstream}"]
    text = "\n".join(lines).replace("\\", "\\\\").replace('"""', "'''")
    return f'"""{text}\n"""\n'


def executed_run(run: Run, findings: Iterable[Finding]) -> Run:
    """The run with the inputs that its findings are about, where they are further ones."""
    assert run.variant is not None
    variant = run.variant
    for finding in findings:
        if isinstance(finding, FurtherInputs):
            variant = in_sizes(variant, dict(finding.operands))
        if isinstance(finding, FurtherRange):
            variant = in_range(variant, written(finding.below, finding.exponent))
        if isinstance(finding, OfData):
            variant = in_degenerate_data(variant, finding.data)
    return replace(run, variant=variant)


def script(run: Run, row: Row, entry: Entry | None, *, isa: str | None = None) -> str:
    """Return the script of a judged run.

    It prints `DEVIATES check: …` for each failing check and exits with 1, or prints `CONFORMS` and exits with 0; what crashes
    runs in a child. `isa` limits the instruction set as `--isa` does. Raises NothingToCheck if a failed check has no
    finding, as in rows of files of schema 1, or a finding that no block of a script checks.
    """
    if isinstance(run.claim.entry, Workflow):
        return workflows.script(run, row, _docstring(run, row, entry), isa=isa)
    case = Case(executed_run(run, row.findings), row.findings)
    if missing := sorted(row.failed - case.failed):
        raise NothingToCheck(
            f"{run.id}: the row has no findings of {', '.join(missing)}, so a script would check nothing: run it again"
        )
    checked = [*_checks(case)]
    blocks = [*dict.fromkeys([*stages.blocks(case, free("".join(checked))), *checked])]
    if "calibration()" in "".join(blocks) and "def calibration" not in "".join(blocks):
        blocks = [block.replace("calibration()", "inputs()") for block in blocks]
    body = "".join(_spaced(blocks)) + 'if not found:\n    print("CONFORMS")\nsys.exit(bool(found))\n'
    # kernels divide larger inputs among threads, of which a run has one unless its findings say otherwise
    count = next((finding.threads for finding in row.findings if isinstance(finding, FurtherThreads)), 1)
    threads = f"torch.set_num_threads({count})\n" if any(map(case.has, (*INPUTS, Undefined, OutOfBounds))) else ""
    start = f'torch.set_grad_enabled(False)\n{threads}{engine_source(run)}warnings.simplefilter("ignore")\nfound = []\n'
    statements, definitions = needs(start + body, lines_of(case).modules, lines_of(case).imports())
    limits = f"import os\n\nos.environ.update({ISA_LIMITS[isa]!r})  # read when torch loads\n\n" if isa else ""
    defined = "".join(f"{text}\n\n" for text in definitions)
    return f"{_docstring(run, row, entry)}\n{limits}{merged(statements)}\n{start}\n\n{defined}{body}"


def _spaced(blocks: Iterable[str]) -> Iterator[str]:
    """Blocks with two empty lines around definitions."""
    apart = True
    for block in blocks:
        defines = block.startswith(("class ", "def "))
        yield block if apart or not defines else f"\n\n{block}"
        if defines:
            yield "\n\n"
        apart = defines
