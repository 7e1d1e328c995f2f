"""What scripts write for an engine: the lines that make its program, run it, and list the kernels that ran."""

from dataclasses import dataclass, replace

from conformance.cases.runs import Run
from conformance.engines.executorch.runtime import EXECUTORCH
from conformance.engines.inductor import ARM_COMPILED, ARM_LOWERED, COMPILED, LOWERED, UNFROZEN
from conformance.engines.native import NATIVE
from conformance.engines.registry import engine_expression

from .case import Once


@dataclass(frozen=True)
class ProgramLines:
    """The lines for an engine whose programs are made from a model that is converted for it, `converted` in scripts.

    Attributes:
        lower: bind `lowered`, the program.
        execute: bind `outputs` and, where codes are read from it, `trace`.
        calls: bind `calls`: the name of each operator that ran, whether it took integers, and whether it took floats.
        conversion: the call that raises if the model cannot be converted or lowered.
    """

    lower: str
    execute: str
    calls: str
    conversion: str = "convert_pt2e"


TRACED = "given = inputs()\nwith Trace() as trace:\n    outputs = tensors(lowered(*given))\n"

ON_GRIDS = (
    "given = inputs()\nwith Trace() as ran:\n    outputs = tensors(lowered(*given))\n"
    "trace = Dequantized(converted, outputs, ran.calls)\n"
)

NATIVE_CALLS = Once(
    "calls = [\n"
    "    (name, quantized(name, taken), any(x.is_floating_point() for x in taken)) for name, taken, _ in trace.calls\n"
    "]\n"
)
"""The calls of a program whose integers are quantized tensors."""

INTEGER_CALLS = Once(
    "def integers(name, taken):\n"
    '    """Whether a call of this name, that took these tensors, is of a quantized kernel: integers, float16 weights."""\n'
    '    return "quantized" in name or "_fp16" in name or any(x.dtype in (torch.int8, torch.uint8) for x in taken)\n'
    "\n\n"
    "calls = [(name, integers(name, taken), any(x.is_floating_point() for x in taken)) for name, taken, _ in trace.calls]\n"
)
"""The calls of a program that torch runs and whose integers are no quantized tensors."""

PROFILED_CALLS = Once(
    "with torch.autograd.profiler.profile(record_shapes=True) as profile:\n    lowered(*inputs())\n"
    'ran = [event for event in profile.kineto_results.events() if "::" in event.name()]\n'
    "calls, end = [], 0\n"
    'integers, floats = {"signed char", "unsigned char"}, {"float", "double"}\n'
    "for event in ran:\n"
    "    if event.start_ns() >= end:\n"
    "        end, dtypes = event.start_ns() + event.duration_ns(), {*event.dtypes()}\n"
    '        calls.append((event.name().replace("::", "."), bool(dtypes & integers), bool(dtypes & floats)))\n'
)
"""The operators that compiled code calls."""

INDUCTOR = ProgramLines("lowered = lower_pt2e_quantized_to_x86(converted, inputs())\n", TRACED, INTEGER_CALLS)
INDUCTOR_UNFROZEN = ProgramLines(
    "lowered = torch.compile(copy.deepcopy(converted))\nlowered(*inputs())  # compiles\n",
    "outputs = tensors(lowered(*inputs()))\ntrace = Dequantized(converted, outputs)\n",
    PROFILED_CALLS,
)
FREEZING = "torch._inductor.config.freezing = True\n"
INDUCTOR_COMPILED = replace(INDUCTOR_UNFROZEN, lower=FREEZING + INDUCTOR_UNFROZEN.lower)

PROGRAMS: dict[str, ProgramLines] = {
    EXECUTORCH.name: ProgramLines(
        "import executorch.kernels.quantized  # registers kernels\nlowered = Program(converted, inputs())\n",
        "outputs = tensors(lowered(*inputs()))\ntrace = Dequantized(converted, outputs)\n",
        "calls = lowered.calls\n",
        "lowering",
    ),
    **dict.fromkeys((LOWERED.name, ARM_LOWERED.name), INDUCTOR),
    **dict.fromkeys((COMPILED.name, ARM_COMPILED.name), INDUCTOR_COMPILED),
    UNFROZEN.name: INDUCTOR_UNFROZEN,
    "cortex-m": ProgramLines("lowered = lower_to_cortex_m(converted, inputs())\n", ON_GRIDS, INTEGER_CALLS),
    "tosa": ProgramLines("lowered = Tosa(converted, inputs())\n", ON_GRIDS, INTEGER_CALLS),
}
"""The lines by the name of an engine. Others run what `convert_fx` returns, under a trace."""


def calls_lines(engine: str) -> str:
    """The lines that bind `calls` for the program of an engine."""
    return PROGRAMS[engine].calls if engine in PROGRAMS else NATIVE_CALLS


def engine_source(run: Run) -> str:
    """The lines that select the engine of a run; none for an engine that has lines of its own.

    The engine of a third party lowers and compiles in place of `convert_fx`.
    """
    if run.engine in NATIVE:
        return f'torch.backends.quantized.engine = "{run.engine}"\n'
    if run.engine in PROGRAMS:
        return ""
    module, expression = engine_expression(run.engine)
    return (
        f"import {module}\nengine = {expression}\nscope = engine.scope()\nscope.__enter__()  # until the process ends\n"
        "def convert_fx(prepared, backend_config):\n"
        "    return engine.compile(engine.convert(prepared, backend_config), inputs())\n"
    )
