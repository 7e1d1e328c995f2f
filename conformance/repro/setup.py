"""The blocks of a script up to its checks: model, prepare, calibration, reference model, lowering and execution.

Which of them a script has depends on the kinds of its findings. A stage that raises is guarded, and no later stage follows.
"""

from collections.abc import Callable, Iterator

from conformance.cases.runs import Run
from conformance.checks.lowering import EARLIER
from conformance.configs.registry import BACKENDS
from conformance.models.build import FILLS
from conformance.results.findings import Finding
from conformance.results.findings.constraints import ConstraintViolated
from conformance.results.findings.stages import Crashes, Raises, Undefined
from conformance.results.findings.structure import NoEffect
from conformance.results.findings.values import CodesVary
from conformance.results.profiles import PROFILES

from . import codes, constraints, metamorphic
from .apis import lines_of
from .case import (
    Case,
    Once,
    Renderer,
    backend_config_source,
    custom_source,
    data_source,
    guarded,
    has_state,
)
from .memory import accesses
from .programs import PROGRAMS, TRACED

CALLS = {
    "float": "the float model",
    "prepare": "prepare",
    "calibrate": "the observed model",
    "reference": "convert_to_reference_fx",
    "reference execution": "the reference model",
    "lower": "convert_fx",
    "execute": "execution",
}
"""The name of each stage in the messages of scripts."""


def blocks(case: Case) -> Iterator[str]:
    """Yield the blocks that run before the checks. A `constraints` run prepares in its renderers, with their QConfigs."""
    if case.run.constraint is not None:
        yield from _constraint_setting(case.run)
        return
    yield from _setting(case.run)
    for stage in (_built, _prepared, _reference, _executed):
        yield from stage(case)


def _raised(case: Case, finding: Raises) -> Iterator[str]:
    """The stage's own block, which `blocks` yields in its place."""
    yield stage_block(case, finding.stage)


def _crashed(case: Case, finding: Crashes) -> Iterator[str]:
    """An execution in a child, which the alarm ends if it hangs."""
    yield """\
if (child := os.fork()) == 0:
    signal.alarm(60)
    for byte in (0x55, 0xAA):
        with fresh_memory_holds(byte):
            lowered(*inputs())
    os._exit(0)
status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
if status < 0:
    deviates("crashes", f"a signal ends the process: {signal.Signals(-status).name}")
"""


def _undefined(case: Case, finding: Undefined) -> Iterator[str]:
    """The accesses out of bounds; for another reason, executions in children, each with memory that holds another byte: one
    that reads no byte before it is written ends alike in all of them."""
    if finding.reason == "out-of-bounds":
        yield accesses(finding.check)
        return
    yield f"""\
def outcome(byte):
    receive, send = os.pipe()
    if (child := os.fork()) == 0:
        try:
            with fresh_memory_holds(byte):
                results = [str(content(x).tolist()) for x in tensors(lowered(*inputs()))]
            os.write(send, hashlib.sha256("".join(results).encode()).digest())
        except Exception as error:
            os.write(send, type(error).__name__.encode())
        finally:
            os._exit(0)
    os.close(send)
    with open(receive, "rb") as sent:
        result = sent.read()
    return os.waitpid(child, 0)[1], result


outcomes = sorted({{outcome(byte) for byte in range(1, 255, 8)}})
for status, result in outcomes:
    if status or len(result) < 32 or len(outcomes) > 1:
        ended = f"dies with status {{status}}" if status else "raises" if len(result) < 32 else "returns a result of its own"
        deviates("undefined", f"{finding.text}: one of {{len(outcomes)}} outcomes {{ended}}")
"""


RENDERERS: dict[type[Finding], Renderer] = {Raises: _raised, Crashes: _crashed, Undefined: _undefined}
"""Renderers of findings about stages."""


def stage_block(case: Case, stage: str) -> str:
    """The lines of a stage, guarded if it raises."""
    lines = LINES[stage](case)
    if (raised := case.raised(stage)) is None:
        return lines
    program = PROGRAMS.get(case.run.engine)
    call = program.conversion if program is not None and stage == "lower" else CALLS[stage]
    return Once(guarded(raised.check, call, lines))


def _setting(run: Run) -> Iterator[str]:
    yield run.model.source
    yield from lines_of(run).setting(run)
    yield f'key = "{run.key}"  # what the data are a function of\n'
    calibration, inputs = (data_source(run, executed=executed) for executed in (False, True))
    if calibration != inputs or lines_of(run).calibrates_apart:
        yield f"def calibration():\n    return {calibration}\n"
    yield f"def inputs():\n    return {inputs}\n"
    yield from lines_of(run).functions(run)


def _constraint_setting(run: Run) -> Iterator[str]:
    yield run.model.source
    registered = run.backend.name in BACKENDS
    yield (not registered and constraints.config_source(run.claim.entry)) or backend_config_source(run)
    yield custom_source(run)
    yield f'key = "{run.key}"  # what the data are a function of\n'
    yield f"def inputs():\n    return {data_source(run, executed=False)}\n"


def _float_outputs(run: Run) -> str:
    lines = "float_model = copy.deepcopy(model).eval()\n"
    if "nnqat." in run.model.source or "nniqat." in run.model.source:
        lines += (
            "for module in float_model.modules():\n"
            '    if hasattr(module, "weight_fake_quant"):\n'
            "        module.weight_fake_quant = nn.Identity()\n"
        )
    if "EmbeddingBag" in run.model.source:
        return f"{lines}ideal = tensors(float_model(*inputs()))\n"
    data = "[x.double() if x.is_floating_point() else x for x in inputs()]"
    outputs = f"ideal = tensors(float_model.double()(*{data}))\n"
    if "nniqat." in run.model.source:  # some of these modules create a bias in the default dtype
        outputs = f"torch.set_default_dtype(torch.float64)\n{outputs}torch.set_default_dtype(torch.float32)\n"
    return lines + outputs


def _model_lines(case: Case) -> str:
    run, lines = case.run, "model = Model()\n"
    if has_state(run):
        filled = FILLS.get(PROFILES[run.profile].data)
        lines += f"{filled.__name__}(model, key)\n" if filled else metamorphic.filled(run, "model")
    return lines


def _float_lines(case: Case) -> str:
    return _model_lines(case) + _float_outputs(case.run)


def _reference_execution_lines(case: Case) -> str:
    if case.raises("reference execution"):
        return "reference(*inputs())\n"
    return lines_of(case.run).reference_execution()


def _lower_lines(case: Case) -> str:
    if (program := PROGRAMS.get(case.run.engine)) is not None:
        return lines_of(case.run).converted("") + program.lower
    again = {"reference", "numerics", "matched", "observed", "constraints", "memory", "undefined"} & case.failed
    return (
        f"lowered = convert_fx({'copy.deepcopy(prepared)' if again else 'prepared'}, backend_config=backend_config)\n"
    )


def _execute_lines(case: Case) -> str:
    if case.raises("execute"):
        return "lowered(*inputs())\n"
    if case.run.engine in PROGRAMS and PROGRAMS[case.run.engine].execute != TRACED:
        return PROGRAMS[case.run.engine].execute
    poisoned = "fresh_memory_holds(0x55), " if repeats(case, "second run") else ""
    return f"given = inputs()\nwith {poisoned}Trace() as trace:\n    outputs = tensors(lowered(*given))\n"


LINES: dict[str, Callable[[Case], str]] = {
    "float": _float_lines,
    "prepare": lambda case: lines_of(case.run).prepare(case),
    "calibrate": lambda case: lines_of(case.run).calibrate(case),
    "reference": lambda case: lines_of(case.run).reference(),
    "reference execution": _reference_execution_lines,
    "lower": _lower_lines,
    "execute": _execute_lines,
}
"""The lines of each stage."""


def repeats(case: Case, repetition: str) -> bool:
    """Whether a finding is about a repetition of the execution or, in the profile `laws`, about a relation of that name."""
    return any(
        repetition in (getattr(finding, name, None) for name in ("stage", "repetition", "relation"))
        for finding in case.findings
    )


def _built(case: Case) -> Iterator[str]:
    if case.raises("float"):
        yield stage_block(case, "float")
        return
    yield _model_lines(case) + ("model.train()\n" if case.run.flow == "qat" else "model.eval()\n")
    if "accuracy" in case.failed:
        yield _float_outputs(case.run)


def _prepared(case: Case) -> Iterator[str]:
    if case.raises("float"):
        return
    yield stage_block(case, "prepare")
    if case.raises("prepare"):
        return
    if repeats(case, "state_dict") or repeats(case, "a loaded state_dict"):
        yield "blank = copy.deepcopy(prepared)\n"
    yield stage_block(case, "calibrate")


def _reference(case: Case) -> Iterator[str]:
    if not {"reference", "constraints"} & case.failed and not case.has(CodesVary):
        return
    if case.raises(*EARLIER):
        return
    yield stage_block(case, "reference")
    if not case.raises("reference"):
        yield stage_block(case, "reference execution")


def _executed(case: Case) -> Iterator[str]:
    if codes.lowers_in_turns(case) or case.raises(*EARLIER):
        return
    checks = {"lowered", "numerics", "accuracy", "stable", "asked"} & case.failed
    constrained = any(
        isinstance(finding, ConstraintViolated) and finding.what == "engine's output" for finding in case.findings
    )
    if not (checks or constrained or case.has(NoEffect) or case.has(Crashes) or case.has(Undefined)):
        return
    yield stage_block(case, "lower")
    if not case.raises("lower") and (checks or constrained):
        yield stage_block(case, "execute")
