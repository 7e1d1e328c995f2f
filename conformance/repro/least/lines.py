"""The lines of a least script that build, prepare, calibrate and lower the model of a candidate, by the API of its run."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from torch.fx import GraphModule
from torch.utils._pytree import tree_leaves

from conformance.cases.apis import api
from conformance.cases.claims import backend
from conformance.cases.runs import Run
from conformance.configs.registry import QUANTIZERS
from conformance.engines.native import NATIVE
from conformance.engines.programs import PROGRAMS, ProgramLines
from conformance.host import poison
from conformance.models import pt2e
from conformance.models.data import FORMATS
from conformance.repro.configs import backend_config_source, custom_argument, custom_source, observers_of
from conformance.repro.inline import free, lowering_definitions, pt2e_imports

from .candidate import Candidate

PERTURB = "mallopt = ctypes.CDLL(None).mallopt\n"
"""The line that binds the function of glibc that fills new memory, which shows what a kernel leaves as it was."""
WIDTH = 120
"""Columns beyond which a line continues on the next one."""

GRADIENTS = "torch.set_grad_enabled(False)\n"
TO_REFERENCE = "convert_to_reference_fx(prepared, backend_config=config)\n"


@dataclass(frozen=True)
class LeastFxLines:
    """The lines of a script about FX."""

    run: Run
    candidate: Candidate

    def arguments(self, data: str = "inputs") -> str:
        """The arguments of a call of a model, as source."""
        names = self.candidate.operands
        if data == "calibration" and self.candidate.calibration is not None:
            names = tuple(f"{name}_calibration" for name in names)
        return ", ".join(f"{name}.clone()" if self.candidate.clones else name for name in names)

    def as_tuple(self, data: str = "inputs") -> str:
        """The arguments of a call of a model as a tuple, as source."""
        given = self.arguments(data)
        return f"({given},)" if len(self.candidate.operands) == 1 else f"({given})"

    def in_channels_last(self) -> str:
        """The arguments of a call in channels-last format, where they have that many dimensions."""
        layouts = (FORMATS.get(len(one.shape)) for one in self.candidate.inputs)
        pairs = zip(self.candidate.operands, layouts, strict=True)
        return ", ".join(f"{name}.contiguous(memory_format={layout})" if layout else name for name, layout in pairs)

    def perturbed(self, value: int) -> str:
        """The line that fills new memory from here on, if the candidate wants that."""
        if not self.candidate.perturbed:
            return ""
        return f"mallopt({poison.M_PERTURB}, {value})  # M_PERTURB: new memory holds {value ^ 0xFF:#x} in every byte\n"

    @property
    def perturb(self) -> str:
        """The line that `perturbed` needs."""
        return PERTURB if self.candidate.perturbed else ""

    @property
    def data(self) -> str:
        """The lines that bind the inputs and, where it is other data, those of the calibration."""
        names, calibration = self.candidate.operands, self.candidate.calibration or ()
        lines = [f"{name} = {one.source}\n" for name, one in zip(names, self.candidate.inputs, strict=True)]
        lines += [f"{name}_calibration = {one.source}\n" for name, one in zip(names, calibration, strict=False)]
        return "".join(lines)

    @property
    def engine(self) -> str:
        return f'torch.backends.quantized.engine = "{self.run.engine}"\n' if self.run.engine in NATIVE else ""

    @property
    def gradients(self) -> str:
        return GRADIENTS if self.candidate.parameter_lines else ""

    @property
    def quantization(self) -> str:
        """The lines that bind how the model is quantized."""
        config = backend_config_source(self.run).replace("backend_config = ", "config = ", 1)
        return quantization_lines(self.candidate) + config + custom_source(self.run)

    @property
    def setting(self) -> str:
        """The lines before `model`: engine, model class, data, mapping and config."""
        candidate = self.candidate
        threads = f"torch.set_num_threads({candidate.threads})\n" if candidate.threads > 1 else ""
        model = f"\n\n{candidate.model_source}\n\n" if candidate.model_source else ""
        before = [self.engine, threads, self.gradients]
        return "".join([*before, model, self.data, self.quantization])

    @property
    def model(self) -> str:
        """The lines that bind `model` in the mode in which it is prepared."""
        made = self.candidate.model_lines
        if self.run.flow == "qat":
            return made  # in training mode
        return f"{made}model.eval()\n" if self.candidate.parameter_lines else f"{made.rstrip()}.eval()\n"

    @property
    def built(self) -> str:
        """All lines up to `model`."""
        return self.setting + self.model

    def prepare(self, custom: str = "") -> str:
        """The lines that bind `prepared`."""
        function = "prepare_qat_fx" if self.run.flow == "qat" else "prepare_fx"
        arguments = f"model, mapping, {self.as_tuple('calibration')}, {custom or custom_argument(self.run)}"
        return f"prepared = {function}({arguments}backend_config=config)\n"

    @property
    def calibrate(self) -> str:
        """The lines that calibrate `prepared`, of which a QAT model then is in eval mode."""
        call = f"prepared({self.arguments('calibration')})\n"
        if self.run.flow != "qat":
            return call
        norms = any("BatchNorm" in line or "Bn" in line for line in self.candidate.init)
        return ("prepared.apply(freeze_bn_stats)\n" if norms else "") + call + "prepared.eval()\n"

    def prepared(self, custom: str = "") -> str:
        """All lines up to a calibrated model."""
        return self.built + self.prepare(custom) + self.calibrate

    @property
    def lower(self) -> str:
        """The lines that bind `lowered`, and `converted` before if the model is exported."""
        return "lowered = convert_fx(prepared, backend_config=config)\n"

    @property
    def lowered(self) -> str:
        """All lines up to a lowered model."""
        return self.prepared() + self.lower


class LeastPt2eLines(LeastFxLines):
    """The lines of a script about PT2E."""

    @property
    def program(self) -> ProgramLines:
        return PROGRAMS[self.run.engine]

    @property
    def engine(self) -> str:
        return GRADIENTS

    @property
    def gradients(self) -> str:
        return ""  # set already

    @property
    def quantization(self) -> str:
        whole = self.candidate.mapping
        if "qconfig" in free(whole):
            whole = whole.replace("qconfig", self.candidate.qconfig)
        return f"quantizer = {whole}\n"

    @property
    def export(self) -> str:
        """The line that binds `exported`."""
        return f"exported = torch.export.export(model, {self.as_tuple('calibration')}).module(check_guards=False)\n"

    def prepare(self, custom: str = "") -> str:
        function = "prepare_qat_pt2e" if self.run.flow == "qat" else "prepare_pt2e"
        return f"{self.export}prepared = {function}(exported, quantizer)\n"

    @property
    def calibrate(self) -> str:
        call = f"prepared({self.arguments('calibration')})\n"
        return f"move_exported_model_to_eval(prepared)\n{call}" if self.run.flow == "qat" else call

    @property
    def converted(self) -> str:
        """All lines up to a converted model."""
        return f"{self.prepared()}converted = convert_pt2e(prepared)\n"

    @property
    def lower_converted(self) -> str:
        """The lines that bind `lowered`, behind the definition of what they call."""
        lines, definitions = self.program.shortest_lowering(self.as_tuple()), lowering_definitions()
        return "".join(f"\n\n{definitions[name]}\n\n" for name in free(lines) & definitions.keys()) + lines

    @property
    def lower(self) -> str:
        return f"converted = convert_pt2e(prepared)\n{self.lower_converted}"


def least_lines(run: Run, candidate: Candidate) -> LeastFxLines:
    """The lines of scripts of a candidate."""
    return (LeastPt2eLines if api(run.backend).exports else LeastFxLines)(run, candidate)


def quantization_lines(candidate: Candidate) -> str:
    """The lines that bind `qconfig`, if the model or the mapping refers to it, with an observer each; then `mapping`."""
    mapping, qconfig = candidate.mapping, candidate.qconfig
    others, separator, rest = mapping.removeprefix("QConfigMapping().set_global(").partition(").set_object_type(")
    if separator and others.startswith("QConfig("):  # of the operators beside the pattern
        mapping = f"QConfigMapping().set_global(others).set_object_type({rest}"
        return f"others = {others}\n" + quantization_lines(replace(candidate, mapping=mapping))
    lines = f"mapping = {mapping}\n"
    named = "qconfig" in free("\n".join([*(line.replace("self.", "self_") for line in candidate.init), mapping]))
    if not named:
        return lines
    if (observers := observers_of(qconfig)) and len(qconfig) > 60:
        separator = ", " if sum(map(len, observers.values())) < WIDTH - 30 else ",\n    "
        stated = separator.join(f"{name}={observer}" for name, observer in observers.items())
        return f"qconfig = QConfig(\n    {stated}\n)\n{lines}"
    if any("qconfig" in line for line in candidate.init):
        return f"qconfig = {qconfig}\n{lines}"
    return f"mapping = {mapping.replace('qconfig)', f'{qconfig})')}\n"


@cache
def _tables() -> tuple[tuple[frozenset[str], dict[str, str]], ...]:
    """The names of each registered quantizer's own package, with the import statements that scripts about it need."""
    specs = [pt2e.spec_of(backend(name)) for name in QUANTIZERS]
    return tuple((frozenset(spec.names), pt2e_imports(spec)) for spec in specs)


def imported(names: frozenset[str]) -> dict[str, str]:
    """Import statements by name, in place of those of FX, for a script that uses these names of a quantizer."""
    own, table = max(_tables(), key=lambda one: len(one[0] & names))  # several packages have a name in common
    return table if own & names else {}


def steps(converted: GraphModule) -> Iterator[float | None]:
    """Yield the scale of each output of a converted model, None for one that is not quantized per tensor."""
    results: list[Any] = tree_leaves(converted.graph.output_node().args[0])
    for node in results:
        scale = node.args[1] if "dequantize_per_tensor" in str(node.target) else None
        yield scale if isinstance(scale, float) else None
