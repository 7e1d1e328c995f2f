"""What scripts write for an engine: the lines that make its program, run it, and list the kernels that ran."""

from dataclasses import dataclass, replace

from conformance.cases.runs import Run
from conformance.models.compiled import CALLED

from .executorch.runtime import EXECUTORCH
from .inductor import ARM_COMPILED, ARM_LOWERED, COMPILED, LOWERED, PACKAGED, PACKAGED_UNFROZEN, UNFROZEN
from .native import NATIVE
from .registry import engine_expression

TRACED = "given = inputs()\nwith Trace() as trace:\n    outputs = tensors(lowered(*given))\n"
ON_GRIDS = (
    "given = inputs()\nwith Trace() as ran:\n    outputs = tensors(lowered(*given))\n"
    "trace = Dequantized(converted, outputs, ran.calls)\n"
)
UNTRACED = "outputs = tensors(lowered(*inputs()))\ntrace = Dequantized(converted, outputs)\n"

WITH_CODES = TRACED.replace("Trace()", "TraceOfCodes()")

NATIVE_CALLS = """\
calls = [
    (name, quantized(name, taken), any(x.is_floating_point() for x in taken)) for name, taken, _ in trace.calls
]
"""
"""The calls of a program whose integers are quantized tensors."""

INTEGER_CALLS = '''\
def integers(name, taken):
    """Whether a call of this name, that took these tensors, is of a quantized kernel: integers, float16 weights."""
    return "quantized" in name or "_fp16" in name or any(x.dtype in (torch.int8, torch.uint8) for x in taken)


calls = [(name, integers(name, taken), any(x.is_floating_point() for x in taken)) for name, taken, _ in trace.calls]
'''
"""The calls of a program that torch runs and whose integers are no quantized tensors."""

PROFILED_CALLS = """\
with torch.autograd.profiler.profile(record_shapes=True) as profile:
    lowered(*inputs())
ran = [event for event in profile.kineto_results.events() if "::" in event.name()]
calls, end = [], 0
integers, floats = {"signed char", "unsigned char"}, {"float", "double"}
for event in ran:
    if event.start_ns() >= end:
        end, dtypes = event.start_ns() + event.duration_ns(), {*event.dtypes()}
        calls.append((event.name().replace("::", "."), bool(dtypes & integers), bool(dtypes & floats)))
"""
"""The operators that compiled code calls."""


@dataclass(frozen=True)
class ProgramLines:
    """The lines for an engine whose programs are made from a model that is converted for it, `converted` in scripts.

    Attributes:
        lower: bind `lowered`, the program, for `{data}`, a tuple of inputs.
        execute: bind `outputs` and, where codes are read from it, `trace`.
        calls: bind `calls`: the name of each operator that ran, whether it took integers, and whether it took floats.
        conversion: the call that raises if the model cannot be converted or lowered.
        shortest: bind `lowered` where nothing else is asked of the program, if that takes other lines.
        edge: bind `edge`, the program of which delegates are parts, if there are delegates.
        listed: whether `lowered` of the shortest lines returns the list of all outputs, also of one.
    """

    lower: str
    execute: str = ON_GRIDS
    calls: str = INTEGER_CALLS
    conversion: str = "convert_pt2e"
    shortest: str = ""
    edge: str = ""
    listed: bool = False

    def lowering(self, data: str) -> str:
        """The lines that bind `lowered` for a tuple of inputs."""
        return self.lower.replace("{data}", data)

    def shortest_lowering(self, data: str) -> str:
        """The fewest lines that bind `lowered`."""
        return (self.shortest or self.lower).replace("{data}", data)


def _edge(partitioner: str) -> str:
    return (
        "exported = torch.export.export(converted, {data})\n"
        f"edge = to_edge_transform_and_lower(exported, partitioner=[{partitioner}])\n"
    )


INDUCTOR = ProgramLines("lowered = lower_pt2e_quantized_to_x86(converted, {data})\n", WITH_CODES)
INDUCTOR_UNFROZEN = ProgramLines(
    "lowered = torch.compile(copy.deepcopy(converted))\nlowered(*{data})  # compiles\n",
    UNTRACED,
    PROFILED_CALLS,
    shortest="lowered = torch.compile(converted)\n",
)
FREEZING = "torch._inductor.config.freezing = True\n"
INDUCTOR_COMPILED = replace(
    INDUCTOR_UNFROZEN, lower=FREEZING + INDUCTOR_UNFROZEN.lower, shortest=FREEZING + INDUCTOR_UNFROZEN.shortest
)
PACKAGED_CALLS = f"""\
with zipfile.ZipFile(package) as files:
    code = "".join(files.read(name).decode() for name in files.namelist() if name.endswith(".wrapper.cpp"))
called = re.findall(r"{CALLED.pattern}", code)
calls = [(name, name.startswith("q"), not name.startswith("q")) for name in called]
"""
"""The operators that the code of AOTInductor calls."""


def _packaged(configs: str) -> ProgramLines:
    return ProgramLines(
        "import re\nimport zipfile\n\nimport torch._inductor\n\n"
        "package = torch._inductor.aoti_compile_and_package(torch.export.export(converted, {data})"
        f"{configs})\nlowered = torch._inductor.aoti_load_package(package)\n",
        UNTRACED,
        PACKAGED_CALLS,
    )


KERNELS = "import executorch.kernels.quantized  # registers kernels\n"
TO_XNNPACK = _edge("XnnpackPartitioner()")

PROGRAMS: dict[str, ProgramLines] = {
    EXECUTORCH.name: ProgramLines(
        f"{KERNELS}lowered = Program(converted, {{data}})\n",
        UNTRACED,
        "calls = lowered.calls\n",
        "lowering",
        f"{TO_XNNPACK}{KERNELS}program = Runtime.get().load_program(edge.to_executorch().buffer)\n"
        'method = program.load_method("forward")\nlowered = lambda *inputs: method.execute(inputs)\n',
        edge=TO_XNNPACK,
        listed=True,
    ),
    **dict.fromkeys((LOWERED.name, ARM_LOWERED.name), INDUCTOR),
    **dict.fromkeys((COMPILED.name, ARM_COMPILED.name), INDUCTOR_COMPILED),
    UNFROZEN.name: INDUCTOR_UNFROZEN,
    PACKAGED.name: _packaged(', inductor_configs={"freezing": True}'),
    PACKAGED_UNFROZEN.name: _packaged(""),
    "cortex-m": ProgramLines("lowered = lower_to_cortex_m(converted, {data})\n"),
    "tosa": ProgramLines(
        "lowered = Tosa(converted, {data})\n", edge=_edge('TOSAPartitioner(TosaCompileSpec("TOSA-1.0+INT"))')
    ),
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
