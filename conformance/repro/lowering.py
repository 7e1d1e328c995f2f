"""Renderers of findings about the kernels of lowered models."""

from collections.abc import Iterable, Iterator

from conformance.engines.executorch.runtime import EXECUTORCH
from conformance.engines.trace import CONVERSIONS, VIEWS
from conformance.results.findings import Finding
from conformance.results.findings.structure import (
    ConvertsInside,
    LeftQuantized,
    NoQuantizedKernel,
    QuantizedUnasked,
    RanInFloat,
)

from .case import Case, Once, Renderer
from .programs import calls_lines


def _set(name: str, members: Iterable[str]) -> Once:
    """An assignment of a set of strings, four to a line."""
    quoted = [f'"{member}"' for member in sorted(members)]
    lines = "".join(f"    {', '.join(quoted[i : i + 4])},\n" for i in range(0, len(quoted), 4))
    return Once(f"{name} = {{\n{lines}}}\n")


def _ran_in_float(case: Case, finding: RanInFloat) -> Iterator[str]:
    static = case.run.recipe.kind == "static"
    yield _set("conversions", CONVERSIONS)
    if not static:
        yield _set("views", VIEWS)
    yield calls_lines(case.run.engine)
    yield (
        "in_float = [name for name, in_integers, floating in calls if floating and not in_integers]\n"
        f"in_float = [name for name in in_float if name not in conversions{'' if static else ' | views'}]\n"
        'if in_float:\n    deviates("lowered", f"these run on float tensors: {in_float}")\n'
    )


def _quantized_unasked(case: Case, finding: QuantizedUnasked) -> Iterator[str]:
    assert case.run.variant is not None
    context = case.run.variant.context
    yield _set("conversions", CONVERSIONS)
    yield _set("views", VIEWS)
    yield calls_lines(case.run.engine)
    yield (
        "# the layers before and after have a kernel each\n"
        "in_integers = [name for name, in_integers, _ in calls if in_integers and name not in conversions]\n"
        f"between = [name for name in in_integers[{len(context.before)}:-{len(context.after)}] if name not in views]\n"
        'if between:\n    deviates("asked", f"the mapping has no qconfig for it, and this computes it: {between}")\n'
    )


def _no_quantized_kernel(case: Case, finding: NoQuantizedKernel) -> Iterator[str]:
    yield _set("conversions", CONVERSIONS)
    yield calls_lines(case.run.engine)
    yield (
        "if not any(in_integers and name not in conversions for name, in_integers, _ in calls):\n"
        '    deviates("lowered", "no quantized kernel runs")\n'
    )


def _left_quantized(case: Case, finding: LeftQuantized) -> Iterator[str]:
    yield 'if any(y.is_quantized for y in outputs):\n    deviates("lowered", "the model gives a quantized tensor")\n'


def _converts_inside(case: Case, finding: ConvertsInside) -> Iterator[str]:
    if case.run.engine == EXECUTORCH.name:
        return  # torch's profiler does not see the kernels of another runtime
    yield (
        "with torch.autograd.profiler.profile() as profile:\n    lowered(*inputs())\n"
        "inside = [\n"
        '    f"{event.cpu_parent.name} > {event.name}" for event in profile.function_events\n'
        '    if event.cpu_parent and event.name in ("aten::dequantize", "aten::quantize_per_tensor")\n'
        "]\n"
        'if inside:\n    deviates("lowered", f"kernels convert to float inside: {inside}")\n'
    )


RENDERERS: dict[type[Finding], Renderer] = {
    RanInFloat: _ran_in_float,
    QuantizedUnasked: _quantized_unasked,
    NoQuantizedKernel: _no_quantized_kernel,
    LeftQuantized: _left_quantized,
    ConvertsInside: _converts_inside,
}
"""Renderers of findings about the kernels of lowered models."""
