"""The text of a least script, from a candidate and the lines that show its deviation."""

import ast
import contextlib
import io
import textwrap
from dataclasses import replace
from typing import Any

import torch

from conformance.cases.runs import Run
from conformance.engines.native import NATIVE
from conformance.host import poison
from conformance.host.isa import ISA_LIMITS
from conformance.repro.case import backend_config_source, custom_argument, custom_source
from conformance.repro.inline import IMPORTS, free

from . import exports
from .candidate import Candidate

FURTHER_IMPORTS = {
    "BackendConfig": "from torch.ao.quantization.backend_config import BackendConfig",
    "PrepareCustomConfig": "from torch.ao.quantization.fx.custom_config import PrepareCustomConfig",
    "freeze_bn_stats": "from torch.ao.nn.intrinsic.qat import freeze_bn_stats",
    "lower_pt2e_quantized_to_x86": "from torchao.quantization.pt2e.lowering import lower_pt2e_quantized_to_x86",
    "ctypes": "import ctypes",
}
"""Import statements of names that only least scripts use."""

PERTURB = "mallopt = ctypes.CDLL(None).mallopt\n"
"""The line that binds the function of glibc that fills new memory, which shows what a kernel leaves as it was."""
WIDTH = 120
"""Columns beyond which a line continues on the next one."""

GRADIENTS = "torch.set_grad_enabled(False)\n"


def perturbed(candidate: Candidate, value: int) -> str:
    """The line that fills new memory from here on, if the candidate wants that."""
    if not candidate.perturbed:
        return ""
    return f"mallopt({poison.M_PERTURB}, {value})  # M_PERTURB: new memory holds {value ^ 0xFF:#x} in every byte\n"


def arguments(candidate: Candidate, data: str = "inputs") -> str:
    """The arguments of a call of a model, as source."""
    names = candidate.operands
    if data == "calibration" and candidate.calibration is not None:
        names = tuple(f"{name}_calibration" for name in names)
    return ", ".join(f"{name}.clone()" if candidate.clones else name for name in names)


def data_lines(candidate: Candidate) -> str:
    """The lines that bind the inputs and, where it is other data, those of the calibration."""
    lines = [f"{name} = {one.source}\n" for name, one in zip(candidate.operands, candidate.inputs, strict=True)]
    for name, one in zip(candidate.operands, candidate.calibration or (), strict=False):
        lines.append(f"{name}_calibration = {one.source}\n")
    return "".join(lines)


def qconfig_lines(candidate: Candidate) -> str:
    """The lines that bind `qconfig`, if the model or the mapping refers to it, with an observer each; then `mapping`."""
    mapping, qconfig = candidate.mapping, candidate.qconfig
    others, separator, rest = mapping.removeprefix("QConfigMapping().set_global(").partition(").set_object_type(")
    if separator and others.startswith("QConfig("):  # of the operators beside the pattern
        head = f"others = {others}\n"
        return head + qconfig_lines(
            replace(candidate, mapping=f"QConfigMapping().set_global(others).set_object_type({rest}")
        )
    lines = f"mapping = {mapping}\n"
    named = "qconfig" in free("\n".join([*(line.replace("self.", "self_") for line in candidate.init), mapping]))
    if not named:
        return lines
    if "(" in qconfig and qconfig.startswith("QConfig(") and len(qconfig) > 60:
        activation, weight = qconfig.removeprefix("QConfig(activation=").removesuffix(")").split(", weight=")
        separator = ", " if len(activation) + len(weight) < WIDTH - 30 else ",\n    "
        return f"qconfig = QConfig(\n    activation={activation}{separator}weight={weight}\n)\n{lines}"
    if any("qconfig" in line for line in candidate.init):
        return f"qconfig = {qconfig}\n{lines}"
    return f"mapping = {mapping.replace('qconfig)', f'{qconfig})')}\n"


def model_lines(run: Run, candidate: Candidate) -> str:
    """The lines that bind `model` in the mode in which it is prepared."""
    made = candidate.model_lines
    if run.flow == "qat":
        return made  # in training mode
    if candidate.parameter_lines:
        return f"{made}model.eval()\n"
    return f"{made.rstrip()}.eval()\n"


def as_tuple(candidate: Candidate, data: str = "inputs") -> str:
    """The arguments of a call of a model as a tuple, as source."""
    given = arguments(candidate, data)
    return f"({given},)" if len(candidate.operands) == 1 else f"({given})"


def prepare_line(run: Run, candidate: Candidate, custom: str = "") -> str:
    """The lines that bind `prepared`."""
    example = as_tuple(candidate, "calibration")
    if exports.exports(run):
        return exports.prepare_lines(run, example)
    function = "prepare_qat_fx" if run.flow == "qat" else "prepare_fx"
    return f"prepared = {function}(model, mapping, {example}, {custom or custom_argument(run)}backend_config=config)\n"


def calibrate_lines(run: Run, candidate: Candidate) -> str:
    """The lines that calibrate `prepared`, of which a QAT model then is in eval mode."""
    call = f"prepared({arguments(candidate, 'calibration')})\n"
    if run.flow != "qat":
        return call
    if exports.exports(run):
        return f"move_exported_model_to_eval(prepared)\n{call}"
    norms = any("BatchNorm" in line or "Bn" in line for line in candidate.init)
    return ("prepared.apply(freeze_bn_stats)\n" if norms else "") + call + "prepared.eval()\n"


def lower_line(run: Run, candidate: Candidate, prepared: str = "prepared") -> str:
    """The lines that bind `lowered`, and `converted` before if the model is exported."""
    if exports.exports(run):
        return exports.convert_lines(prepared) + lowering_lines(run, candidate)
    return f"lowered = convert_fx({prepared}, backend_config=config)\n"


def lowering_lines(run: Run, candidate: Candidate) -> str:
    """The lines that bind `lowered` of an exported model, behind the definition of what they call."""
    lowering = exports.LOWERINGS[run.engine]
    defined = f"\n\n{lowering.definition}\n\n" if lowering.definition else ""
    return defined + lowering.lines.replace("{data}", as_tuple(candidate))


def setting(run: Run, candidate: Candidate) -> str:
    """The lines before `model`: engine, model class, data, mapping and config."""
    engine = f'torch.backends.quantized.engine = "{run.engine}"\n' if run.engine in NATIVE else ""
    threads = f"torch.set_num_threads({candidate.threads})\n" if candidate.threads > 1 else ""
    gradients = GRADIENTS if candidate.parameter_lines else ""
    model = f"\n\n{candidate.model_source}\n\n" if candidate.model_source else ""
    if exports.exports(run):
        return GRADIENTS + threads + model + data_lines(candidate) + exports.quantizer_line(candidate)
    config = backend_config_source(run).replace("backend_config = ", "config = ", 1)
    config += custom_source(run)
    return engine + threads + gradients + model + data_lines(candidate) + qconfig_lines(candidate) + config


def prepared_lines(run: Run, candidate: Candidate, custom: str = "") -> str:
    """All lines up to a calibrated model."""
    lines = setting(run, candidate) + model_lines(run, candidate)
    return lines + prepare_line(run, candidate, custom) + calibrate_lines(run, candidate)


def with_class(definition: str, lines: str) -> str:
    """Lines with another class, before that of the model if there is one."""
    start, _, rest = lines.partition("\n\n\n")
    return f"{start}\n\n\n{definition}\n\n{rest}" if rest else f"\n{definition}\n\n{lines}"


def ending(check: str, condition: str, text: str) -> str:
    """The last lines: what was expected, what there is instead, and the verdict as the exit status."""
    return (
        'print(f"expected {expected}\\ngot      {got}")\n'
        f"deviates = {condition}\n"
        f'print("DEVIATES {check}: {text}" if deviates else "CONFORMS")\n'
        "raise SystemExit(bool(deviates))\n"
    )


def imports(body: str) -> str:
    """The import statements that a body needs: the standard library, torch, then what comes from torch."""
    names = free(body)
    table = {**IMPORTS, **FURTHER_IMPORTS, **exports.imported(names)}
    statements = {table[name] for name in names if name in table}
    whole = sorted(one for one in statements if one.startswith("import ") and " as " not in one)
    first = [one for one in whole if not one.startswith("import torch")]
    parts: dict[str, list[str]] = {}
    for statement in sorted(statements - {*whole}):
        head, separator, name = statement.partition(" import ")
        parts.setdefault(head if separator else statement, []).extend([name] if separator else [])
    rest = [f"{head} import {', '.join(names)}" if names else head for head, names in parts.items()]
    rest.sort(key=lambda statement: not statement.startswith("import "))
    return "\n".join([*first, *([""] if first else []), "import torch", *rest]) + "\n"


def whole(title: str, expectation: str, body: str, isa: str | None) -> str:
    """The text of a script. `isa` limits the instruction set as `--isa` does."""
    limits = f"import os\n\nos.environ.update({ISA_LIMITS[isa]!r})  # read when torch loads\n\n" if isa else ""
    described = f"{title}\n{expectation}".replace("\\", "\\\\").replace('"""', "'''")
    text = f'"""{described}"""\n\n{limits}{imports(body)}\n{folded(body)}'
    return text.replace("\n\n\n", "\n\n").replace("\n\n    def ", "\n    def ")  # no more lines than it needs


def folded(body: str) -> str:
    """Lines in which a long one without a string continues, inside of its brackets, on further lines."""
    lines = []
    for line in body.splitlines():
        long = len(line) > WIDTH and '"' not in line and "#" not in line
        inner = " " * (len(line) - len(line.lstrip()) + 4)
        parts = textwrap.wrap(line, WIDTH, subsequent_indent=inner, break_long_words=False, drop_whitespace=True)
        lines += parts if long and _parses("\n".join(parts)) else [line]
    return "\n".join(lines) + "\n"


def _parses(line: str) -> bool:
    try:
        ast.parse(textwrap.dedent(line).rstrip(","))
    except SyntaxError:
        return False
    return True


def executed(body: str, memory: int = 0x5A) -> tuple[str, dict[str, Any]]:
    """Execute lines of a script in this process. Returns what they print and the names that they bind.

    New memory holds `memory` in every byte, unless the script fills it itself. Raises their exceptions, but for SystemExit.
    """
    scope: dict[str, Any] = {"__name__": "__main__"}
    printed = io.StringIO()
    try:
        with (
            contextlib.redirect_stdout(printed),
            contextlib.suppress(SystemExit),
            torch.enable_grad(),
            poison.fresh_memory_holds(memory),
        ):
            exec(compile(imports(body) + body, "<script>", "exec"), scope)
    finally:
        torch.set_num_threads(1)
    return printed.getvalue(), scope


DIES = "dies here, or else prints CONFORMS"
"""What a script prints before the call that ends its process."""


def shows(printed: str, check: str) -> bool:
    """Whether what a script has printed ends with the deviation of a check, or with the announcement of a crash."""
    last = (printed.strip().splitlines() or [""])[-1]
    return last.startswith(DIES if check == "crashes" else f"DEVIATES {check}:")
