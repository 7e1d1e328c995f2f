"""The lines of a script that prepare, calibrate and convert a model, by the API of its run."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from conformance.cases.apis import api
from conformance.cases.runs import Run
from conformance.engines.programs import PROGRAMS, TRACED, WITH_CODES, ProgramLines
from conformance.models import pt2e
from conformance.results.findings.structure import NoEffect

from .case import Case
from .configs import backend_config_source, custom_source, frozen, prepare_call, qconfig_lines
from .inline import PT2E_MODULES, pt2e_imports


def _observed(calibrated: str, qparams: str) -> str:
    return f"set_observed({calibrated}, {qparams})" if qparams else calibrated


@dataclass(frozen=True)
class FxLines:
    """The lines of a script about FX.

    `modules` have definitions that come before others of the same name; `calibrates_apart` is whether the data of calibration
    have a function of their own in every script.
    """

    case: Case
    modules: ClassVar[tuple[str, ...]] = ()
    calibrates_apart: ClassVar[bool] = False

    @property
    def run(self) -> Run:
        return self.case.run

    @property
    def program(self) -> ProgramLines | None:
        """The lines of the engine, if it has lines of its own."""
        return PROGRAMS.get(self.run.engine)

    def imports(self) -> Mapping[str, str]:
        """Import statements by the names for which they stand in place of others."""
        return {}

    def setting(self) -> Iterator[str]:
        """The blocks that bind how the model is quantized."""
        run, recipe = self.run, self.run.recipe
        if recipe.qconfig.startswith("QConfig(") or re.search(r"\bqconfig\b", recipe.mapping + run.model.source):
            yield f"qconfig = {qconfig_lines(recipe.qconfig)}\n"
        yield f"mapping = {recipe.mapping}\n"
        yield backend_config_source(run) + custom_source(run)

    def functions(self) -> Iterator[str]:
        """The blocks of functions that other lines call."""
        yield from ()

    def prepare(self) -> str:
        """The lines that bind `prepared`."""
        model = "copy.deepcopy(model)" if self.case.has(NoEffect) else "model"
        return f"prepared = {prepare_call(self.run, model, 'calibration()')}\n"

    def calibrate(self) -> str:
        """The lines that calibrate `prepared`."""
        return f"{frozen(self.run, 'prepared')}prepared(*calibration())\nprepared.eval()\n"

    def reference(self) -> str:
        """The lines that bind `reference`."""
        return "reference = convert_to_reference_fx(copy.deepcopy(prepared), backend_config=backend_config)\n"

    def reference_execution(self) -> str:
        """The lines that bind `expected` and `reference_trace`."""
        if self.case.raises("reference execution"):
            return "reference(*inputs())\n"
        return "given = inputs()\nwith Trace() as reference_trace:\n    expected = tensors(reference(*given))\n"

    def converted(self, qparams: str) -> str:
        """The lines that bind `converted`, the model that a program is made from; `qparams` names those that its observers
        get before."""
        copied = f"copy.deepcopy({_observed('prepared', qparams)})"
        return (
            f"reference = _convert_to_reference_decomposed_fx({copied}, backend_config=backend_config)\n"
            "converted = with_integer_weights(reference)\n"
        )

    def lower(self) -> str:
        """The lines that bind `lowered`."""
        if self.program is not None:
            return self.converted("") + self.program.lowering("inputs()")
        again = {"reference", "numerics", "matched", "observed", "constraints", "memory", "undefined"}
        prepared = "copy.deepcopy(prepared)" if again & self.case.failed else "prepared"
        return f"lowered = convert_fx({prepared}, backend_config=backend_config)\n"

    def execute(self) -> str:
        """The lines that bind `outputs` and `trace`."""
        if self.case.raises("execute"):
            return "lowered(*inputs())\n"
        lines = TRACED if self.program is None else self.program.execute
        if lines in (TRACED, WITH_CODES) and self.case.repeats("second run"):
            return lines.replace("with ", "with fresh_memory_holds(0x55), ")
        return lines


class Pt2eLines(FxLines):
    """The lines of scripts about PT2E."""

    modules = PT2E_MODULES
    calibrates_apart = True

    def imports(self) -> Mapping[str, str]:
        return pt2e_imports(pt2e.spec_of(self.run.backend))

    def setting(self) -> Iterator[str]:
        yield f"qconfig = {self.run.recipe.qconfig}\n"
        yield f"quantizer = {self.run.recipe.mapping}\n"

    def functions(self) -> Iterator[str]:
        """A model that is prepared is consumed by its conversion, so functions make them anew."""
        qat = self.run.flow == "qat"
        yield (
            "def export():\n"
            "    return torch.export.export(copy.deepcopy(model), calibration()).module(check_guards=False)\n"
        )
        yield (
            'def annotate():\n    """The exported model with the annotations of the quantizer."""\n'
            "    return quantizer.annotate(quantizer.transform_for_annotation(export()))\n"
        )
        yield f"def prepare():\n    return {'prepare_qat_pt2e' if qat else 'prepare_pt2e'}(export(), quantizer)\n"
        frozen = "    move_exported_model_to_eval(prepared)  # freezes the statistics of norms\n" if qat else ""
        yield f"def calibrate(prepared):\n{frozen}    prepared(*calibration())\n    return prepared\n"

    def prepare(self) -> str:
        return "prepared = prepare()\n"

    def calibrate(self) -> str:
        return "calibrate(prepared)\n"

    def reference(self) -> str:
        return "reference = convert_pt2e(calibrate(prepare()))\n"

    def reference_execution(self) -> str:
        if self.case.raises("reference execution"):
            return super().reference_execution()
        return (
            "given = inputs()\nwith Trace() as ran:\n    expected = tensors(reference(*given))\n"
            "reference_trace = Dequantized(reference, expected, ran.calls)\n"
        )

    def converted(self, qparams: str) -> str:
        return f"converted = convert_pt2e({_observed('calibrate(prepare())', qparams)})\n"


def lines_of(case: Case) -> FxLines:
    """The lines of the script of a case."""
    return (Pt2eLines if api(case.run.backend).exports else FxLines)(case)
