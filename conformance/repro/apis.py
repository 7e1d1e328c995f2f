"""The lines of a script that prepare, calibrate and convert a model, by the API of its run."""

import re
from collections.abc import Iterator, Mapping

from conformance.cases.apis import api
from conformance.cases.runs import Run
from conformance.models import pt2e
from conformance.results.findings.structure import NoEffect

from .case import Case, backend_config_source, custom_argument, custom_source
from .inline import PT2E_MODULES, pt2e_imports


def _observed(calibrated: str, qparams: str) -> str:
    return f"set_observed({calibrated}, {qparams})" if qparams else calibrated


class FxLines:
    """The lines of scripts about FX.

    `modules` have definitions that come before others of the same name; `calibrates_apart` is whether the data of calibration
    have a function of their own in every script.
    """

    modules: tuple[str, ...] = ()
    calibrates_apart = False

    def imports(self, run: Run) -> Mapping[str, str]:
        """Import statements by the names for which they stand in place of others."""
        return {}

    def setting(self, run: Run) -> Iterator[str]:
        """The blocks that bind how the model is quantized."""
        recipe = run.recipe
        if recipe.qconfig.startswith("QConfig("):
            activation, weight = recipe.qconfig.removeprefix("QConfig(activation=").removesuffix(")").split(", weight=")
            yield f"qconfig = QConfig(\n    activation={activation},\n    weight={weight},\n)\n"
        elif re.search(r"\bqconfig\b", recipe.mapping + run.model.source):
            yield f"qconfig = {recipe.qconfig}\n"
        yield f"mapping = {recipe.mapping}\n"
        yield backend_config_source(run) + custom_source(run)

    def functions(self, run: Run) -> Iterator[str]:
        """The blocks of functions that other lines call."""
        yield from ()

    def prepare(self, case: Case) -> str:
        """The lines that bind `prepared`."""
        entry = "prepare_qat_fx" if case.run.flow == "qat" else "prepare_fx"
        model = "copy.deepcopy(model)" if case.has(NoEffect) else "model"
        custom = custom_argument(case.run)
        return f"prepared = {entry}({model}, mapping, calibration(), {custom}backend_config=backend_config)\n"

    def calibrate(self, case: Case) -> str:
        """The lines that calibrate `prepared`."""
        frozen = ""
        if case.run.flow == "qat":
            frozen = (
                "for module in prepared.modules():\n"
                '    if hasattr(module, "freeze_bn_stats"):\n        module.freeze_bn_stats()\n'
            )
        return f"{frozen}prepared(*calibration())\nprepared.eval()\n"

    def reference(self) -> str:
        """The lines that bind `reference`."""
        return "reference = convert_to_reference_fx(copy.deepcopy(prepared), backend_config=backend_config)\n"

    def reference_execution(self) -> str:
        """The lines that bind `expected` and `reference_trace`."""
        return "given = inputs()\nwith Trace() as reference_trace:\n    expected = tensors(reference(*given))\n"

    def converted(self, qparams: str) -> str:
        """The lines that bind `converted`, the model that a program is made from; `qparams` names those that its observers
        get before."""
        copied = f"copy.deepcopy({_observed('prepared', qparams)})"
        return (
            f"reference = _convert_to_reference_decomposed_fx({copied}, backend_config=backend_config)\n"
            "converted = with_integer_weights(reference)\n"
        )


class Pt2eLines(FxLines):
    """The lines of scripts about PT2E."""

    modules = PT2E_MODULES
    calibrates_apart = True

    def imports(self, run: Run) -> Mapping[str, str]:
        return pt2e_imports(pt2e.spec_of(run.backend))

    def setting(self, run: Run) -> Iterator[str]:
        yield f"qconfig = {run.recipe.qconfig}\n"
        yield f"quantizer = {run.recipe.mapping}\n"

    def functions(self, run: Run) -> Iterator[str]:
        """A model that is prepared is consumed by its conversion, so functions make them anew."""
        qat = run.flow == "qat"
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

    def prepare(self, case: Case) -> str:
        return "prepared = prepare()\n"

    def calibrate(self, case: Case) -> str:
        return "calibrate(prepared)\n"

    def reference(self) -> str:
        return "reference = convert_pt2e(calibrate(prepare()))\n"

    def reference_execution(self) -> str:
        return (
            "given = inputs()\nwith Trace() as ran:\n    expected = tensors(reference(*given))\n"
            "reference_trace = Dequantized(reference, expected, ran.calls)\n"
        )

    def converted(self, qparams: str) -> str:
        return f"converted = convert_pt2e({_observed('calibrate(prepare())', qparams)})\n"


def lines_of(run: Run) -> FxLines:
    """The lines of scripts about a run."""
    return Pt2eLines() if api(run.backend).exports else FxLines()
