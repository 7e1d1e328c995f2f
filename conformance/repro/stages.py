"""The blocks of a script up to its checks: model, prepare, calibration, reference model, lowering and execution.

Which of them a script has depends on the kinds of its findings. A stage that raises is guarded, and no later stage follows.
"""

from collections.abc import Collection, Iterator

from conformance.cases.runs import Run
from conformance.checks.lowering import EARLIER
from conformance.configs.registry import BACKENDS
from conformance.models.build import FILLS, unequal_channels
from conformance.results.findings.stages import Crashes, Undefined
from conformance.results.findings.structure import NoEffect
from conformance.results.findings.values import CodesVary
from conformance.results.profiles import PROFILES

from . import codes
from .apis import lines_of
from .case import Case, data_source, guarded, has_state
from .configs import backend_config_source, config_source, custom_source

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


def blocks(case: Case, used: Collection[str]) -> Iterator[str]:
    """Yield the blocks that run before the checks, with what the checks use: `ideal`, the outputs of the float model,
    `expected` and `reference_trace` of the reference model, `lowered`, `outputs` and `trace` of the engine.

    A `constraints` run prepares in its checks, with their QConfigs.
    """
    if case.run.constraint is not None:
        yield from _constraint_setting(case.run)
        return
    yield from _setting(case)
    yield from _built(case, ideal="ideal" in used)
    yield from _prepared(case)
    yield from _reference(case, outputs=not {"expected", "reference_trace"}.isdisjoint(used))
    yield from _executed(case, used)


def stage_block(case: Case, stage: str) -> str:
    """The lines of a stage, guarded if it raises."""
    if stage == "float":
        lines = _model_lines(case) + _float_outputs(case.run)
    else:
        lines = getattr(lines_of(case), stage.replace(" ", "_"))()
    if (raised := case.raised(stage)) is None:
        return lines
    program = lines_of(case).program
    call = program.conversion if program is not None and stage == "lower" else CALLS[stage]
    return guarded(raised.check, call, lines)


def _setting(case: Case) -> Iterator[str]:
    run, lines = case.run, lines_of(case)
    yield run.model.source
    yield from lines.setting()
    yield f'key = "{run.key}"  # what the data are a function of\n'
    calibration, inputs = (data_source(run, executed=executed) for executed in (False, True))
    if calibration != inputs or lines.calibrates_apart:
        yield f"def calibration():\n    return {calibration}\n"
    yield f"def inputs():\n    return {inputs}\n"
    yield from lines.functions()


def _constraint_setting(run: Run) -> Iterator[str]:
    yield run.model.source
    registered = run.backend.name in BACKENDS
    yield (not registered and config_source(run.claim.entry)) or backend_config_source(run)
    yield custom_source(run)
    yield f'key = "{run.key}"  # what the data are a function of\n'
    yield f"def inputs():\n    return {data_source(run, executed=False)}\n"


def filled(run: Run, model: str) -> str:
    """Lines that fill the parameters of a model."""
    lines = f"fill({model}, key, {run.recipe.weight_levels})\n"
    return lines + (f"with_unequal_channels({model})\n" if unequal_channels(run) else "")


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
        fill = FILLS.get(PROFILES[run.profile].data)
        lines += f"{fill.__name__}(model, key)\n" if fill else filled(run, "model")
    return lines


def _built(case: Case, *, ideal: bool) -> Iterator[str]:
    if case.raises("float"):
        yield stage_block(case, "float")
        return
    yield _model_lines(case) + ("model.train()\n" if case.run.flow == "qat" else "model.eval()\n")
    if ideal:
        yield _float_outputs(case.run)


def _prepared(case: Case) -> Iterator[str]:
    if case.raises("float"):
        return
    yield stage_block(case, "prepare")
    if case.raises("prepare"):
        return
    if case.repeats("state_dict") or case.repeats("a loaded state_dict"):
        yield "blank = copy.deepcopy(prepared)\n"
    yield stage_block(case, "calibrate")


def _reference(case: Case, *, outputs: bool) -> Iterator[str]:
    if not (outputs or {"reference", "constraints"} & case.failed or case.has(CodesVary)):
        return
    if case.raises(*EARLIER):
        return
    yield stage_block(case, "reference")
    if not case.raises("reference"):
        yield stage_block(case, "reference execution")


def _executed(case: Case, used: Collection[str]) -> Iterator[str]:
    if codes.lowers_in_turns(case) or case.raises(*EARLIER):
        return
    executed = not {"outputs", "trace"}.isdisjoint(used) or case.constrains_output
    executed |= bool({"lowered", "numerics", "accuracy", "stable", "asked"} & case.failed)
    if not (executed or "lowered" in used or any(map(case.has, (NoEffect, Crashes, Undefined)))):
        return
    yield stage_block(case, "lower")
    if executed and not case.raises("lower"):
        yield stage_block(case, "execute")
