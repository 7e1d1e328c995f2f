"""The stage of further inputs: a run's program executed on inputs of other sizes than its own."""

from collections.abc import Sequence
from dataclasses import replace

from conformance.cases.runs import Run
from conformance.engines.protocol import Program
from conformance.engines.registry import engine
from conformance.goldens.golden import compute_each
from conformance.host.poison import fresh_memory_holds
from conformance.models.build import Subject
from conformance.models.further import further
from conformance.results.profiles import PROFILES
from conformance.stopwatch import Stopwatch

from .evidence import Back, Expectation, Further, Shared
from .recorder import Recorder


def executed(watch: Stopwatch, run: Run, shared: Shared, back: Back) -> tuple[Further, ...]:
    """Execute the program of a run on the further inputs of its profile.

    There are none if the run's own inputs have not been executed, have no golden, or are of the only sizes that the program
    accepts.
    """
    subject, expectation, program, count = (
        shared.front.subject,
        shared.expectation,
        back.program,
        PROFILES[run.profile].further,
    )
    if not count or subject is None or expectation is None or expectation.golden is None:
        return ()
    if program is None or back.execution is None or engine(run.engine).fixed_shapes:
        return ()
    if shared.further is None:
        shared.further = expectations(subject, expectation, count)
    return tuple(_execute(watch, run, program, *further) for further in shared.further)


def expectations(subject: Subject, expectation: Expectation, count: int) -> Sequence[tuple[Subject, Expectation]]:
    """Up to `count` subjects with inputs of other sizes, with what the oracle expects of them; none where it is uncertain."""
    subjects = [
        replace(subject, run=replace(subject.run, variant=variant), inputs=inputs)
        for variant, inputs in further(subject, count)
    ]
    answers = compute_each(subjects, expectation.qparams()) if subjects else []
    return [(other, Expectation.of(answer)) for other, answer in zip(subjects, answers, strict=True) if answer.certain]


def _execute(watch: Stopwatch, run: Run, program: Program, subject: Subject, expectation: Expectation) -> Further:
    recorder, execution = Recorder(watch), None
    with recorder.stage("execute"), fresh_memory_holds(0x55):
        execution = engine(run.engine).execute(program, subject.fresh_inputs())
    return Further(subject, expectation, execution, recorder.failures.get("execute"))
