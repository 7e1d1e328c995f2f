"""Least scripts: which finding of a run one shows, the search for the least candidate, and the verified text."""

from collections.abc import Callable, Iterator
from typing import Any

from torch import nn

from conformance.cases.apis import api
from conformance.cases.recipes import RANGE_OBSERVERS
from conformance.cases.runs import Run
from conformance.configs.registry import BACKENDS, QUANTIZERS
from conformance.engines.native import NATIVE
from conformance.engines.programs import PROGRAMS
from conformance.errors import UsageError
from conformance.execution.batch import warm_up
from conformance.models import apis, build
from conformance.repro.script import executed_run
from conformance.results.findings import Finding
from conformance.results.findings.annotations import AnnotatedBeside, NotAnnotated
from conformance.results.findings.codes import (
    SweptCodes,
    SweptPlaces,
    SweptQparams,
    SweptRaises,
    SweptScale,
    SweptTies,
)
from conformance.results.findings.constraints import (
    ConversionViolates,
    IgnoredQConfigTrainsWeight,
    ViolatingQConfigUsed,
)
from conformance.results.findings.relations import RelationShape, RelationValues, RelationVaries, RelationWrites
from conformance.results.findings.stability import RepetitionShape, RepetitionValues, WritesToInput
from conformance.results.findings.stages import INPUTS, Crashes, FurtherThreads, Raises
from conformance.results.findings.structure import ConvertsInside, NoEffect, NoQuantizedKernel, NotObserved, RanInFloat
from conformance.results.findings.values import (
    CodesDiffer,
    CodesVary,
    FloatShape,
    InSevenBits,
    LowSqnr,
    OutputQparams,
    OutputShape,
    QuantizedByPart,
    ValuesDiffer,
)
from conformance.results.rows import Row

from .enforcement import Unenforced
from .exported import Annotated, FarFromConverted, left_in_float
from .repetitions import Repeating, way_of
from .search import Search, Shown, deviates
from .starts import recipes_of, starts
from .structure import ConvertingInside, Ineffective, InFloat, Unobserved
from .sweeps import Sweeping
from .symptoms import TITLES, Crashing, Raising, Symptom
from .text import whole
from .values import FarFromFloat, WrongValues

SYMPTOMS: dict[type[Finding], Callable[[Run, Any], Symptom[Any]]] = {
    Crashes: Crashing,
    **dict.fromkeys(
        (CodesDiffer, ValuesDiffer, InSevenBits, QuantizedByPart, OutputShape, OutputQparams, CodesVary), WrongValues
    ),
    **dict.fromkeys((FloatShape, LowSqnr), FarFromFloat),
    **dict.fromkeys((RepetitionValues, RepetitionShape, WritesToInput), Repeating),
    **dict.fromkeys((RelationValues, RelationShape, RelationVaries, RelationWrites), Repeating),
    **dict.fromkeys((RanInFloat, NoQuantizedKernel), InFloat),
    ConvertsInside: ConvertingInside,
    **dict.fromkeys((ConversionViolates, ViolatingQConfigUsed, IgnoredQConfigTrainsWeight), Unenforced),
    **dict.fromkeys((SweptCodes, SweptTies, SweptScale, SweptPlaces, SweptQparams, SweptRaises), Sweeping),
    Raises: Raising,
    NotObserved: Unobserved,
    NoEffect: Ineffective,
}
"""The symptom of each kind of finding, worst first. Findings of other kinds have no least script."""

WRONG_OF_EXPORTED = (CodesDiffer, ValuesDiffer, QuantizedByPart, OutputShape, CodesVary)
"""Kinds of findings about the values of an exported model."""
SECONDS_OF_EXPORTED = 60.0
"""The most seconds of a search that exports and lowers each candidate."""

TRIED = 3
"""The most candidates of a search that are executed in an interpreter of their own, from the least on."""

REPEATED = 3
"""Executions of a script about values, all of which have to deviate: what memory holds that nothing wrote is chance."""


class NoLeastScript(UsageError):
    """Raised for a run without a least script."""


class NoLeastForm(NoLeastScript):
    """Raised for a run that deviates, none of whose findings has a least script that was seen to deviate."""


def symptoms_of_exported(run: Run, row: Row) -> Iterator[Symptom[Any]]:
    """Yield the symptoms of a row about an exported model, wrong values first."""
    for finding in row.findings:
        if isinstance(finding, WRONG_OF_EXPORTED) and finding.check == "numerics":
            yield FarFromConverted(run, finding)
    for finding in row.findings:
        if isinstance(finding, Raises) and finding.stage in TITLES and not finding.stage.startswith("reference"):
            yield Raising(run, finding)
        elif isinstance(finding, RanInFloat) and (symptom := left_in_float(run.engine)) is not None:
            yield symptom(run, finding)
        elif isinstance(finding, NotAnnotated | AnnotatedBeside):
            yield Annotated(run, finding)
        elif isinstance(finding, FloatShape | LowSqnr):
            yield FarFromFloat(run, finding)


def symptoms(run: Run, row: Row) -> Iterator[Symptom[Any]]:
    """Yield the symptoms of a row, worst first. The check `reference`, which is about torch's own model, comes last."""
    if api(run.backend).exports:
        yield from symptoms_of_exported(run, row)
        return
    order = [*SYMPTOMS]
    findings = [finding for finding in row.findings if type(finding) in SYMPTOMS]
    for finding in sorted(findings, key=lambda one: (one.check == "reference", order.index(type(one)))):
        if isinstance(finding, Raises) and finding.stage not in TITLES:
            if way_of(finding) is not None:
                yield Repeating(run, finding)
            continue
        if type(finding) in (RelationValues, RelationShape, RelationVaries) and way_of(finding) is None:
            continue
        yield SYMPTOMS[type(finding)](run, finding)


def least(run: Run, row: Row, *, isa: str | None = None) -> str:
    """Return the least script of a judged run, which has been executed in an interpreter of its own.

    It prints `expected`, `got` and, in its last line, `DEVIATES check: …` for the one check that it shows, and exits with 1;
    if the run conforms it prints `CONFORMS` and exits with 0. A crash ends the script's own process, which announces it.
    `isa` limits the instruction set as `--isa` does, and has to be in force.

    Raises NoLeastScript if the run conforms, and NoLeastForm if no script of its findings was seen to deviate, of engines and
    configs that are not torch's own, and for findings of kinds that SYMPTOMS lacks. `script.script` has a script of these.
    """
    if not row.failed:
        raise NoLeastScript(f"{run.id}: conforms on this host, so there is nothing to reproduce")
    native = run.engine in NATIVE and run.backend.name in BACKENDS
    exported = run.backend.name in QUANTIZERS and run.engine in PROGRAMS
    if run.variant is None or not (native or exported):
        raise NoLeastForm(
            f"{run.id}: least scripts are written for torch's engines and configs, and quantizers of PT2E"
        )
    warm_up()
    apis.of(run.backend).warm_up(run.backend)
    threads = next((finding.threads for finding in row.findings if isinstance(finding, FurtherThreads)), 1)
    executed = executed_run(run, row.findings)
    subject = subject_of(executed)
    varies = any(isinstance(finding, CodesVary | RelationVaries) for finding in row.findings)
    for symptom in symptoms(executed, row):
        search = Search(symptom, seconds=SECONDS_OF_EXPORTED) if exported else Search(symptom)
        search.least(starts(subject, recipes_for(symptom), symptom.data_matter, threads=threads, varies=varies))
        for shown in [*reversed(search.accepted)][:TRIED]:
            text = _text(symptom, shown, isa)
            if all(deviates(text, symptom.check) for _ in range(REPEATED if symptom.values_matter else 1)):
                return text
    kinds = dict.fromkeys(finding.kind for finding in row.findings if not isinstance(finding, INPUTS))
    raise NoLeastForm(f"{run.id}: no least script shows {', '.join(kinds)}; repro without --least does")


def recipes_for(symptom: Symptom[Any]) -> list[tuple[str, str]]:
    """The QConfigs and mappings that a symptom may show with, the one that is easiest to read first."""
    if isinstance(symptom, Unenforced):
        # the mapping has observers of its own for operators beside the pattern
        mapping = symptom.run.recipe.mapping
        for own, torchs in RANGE_OBSERVERS.items():
            mapping = mapping.replace(own, torchs)
        return [(symptom.finding.qconfig, mapping)]
    return [(recipe.qconfig, recipe.mapping) for recipe in recipes_of(symptom.run)]


def subject_of(run: Run) -> build.Subject:
    """The subject of a run; of a model that cannot be built, one with an empty module in its place."""
    try:
        return build.subject(run)
    except build.CannotBeBuilt:
        operands = run.model.operands
        calibration, inputs = (
            tuple(build.operand(run, name, spec, executed=executed) for name, spec in operands)
            for executed in (False, True)
        )
        return build.Subject(run, None, None, nn.Module(), calibration, inputs)


def _text(symptom: Symptom[Any], shown: Shown, isa: str | None) -> str:
    return whole(f"{symptom.title}: {symptom.run.id}", symptom.expectation, shown.body, isa)
