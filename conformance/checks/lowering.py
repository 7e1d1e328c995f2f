"""Checks that the engine ran quantized kernels."""

from .evidence import PASS, Evidence, Outcome, fail, skip


def lowered(evidence: Evidence) -> Outcome:
    """The engine ran quantized kernels for the whole pattern, and no float compute op."""
    for stage in ("lower", "execute"):
        if stage in evidence.failures:
            return fail(f"{stage} raises {evidence.failures[stage]}")
    if evidence.execution is None:
        return skip("not executed")
    execution, static = evidence.execution, evidence.run.recipe.kind == "static"
    computed = [k.name for k in execution.kernels if (k.in_float if static else k.computes_in_float)]
    problems = []
    if computed:
        problems.append(f"ran in float: {', '.join(dict.fromkeys(computed))}")
    if not static and not execution.names():
        problems.append("no quantized kernel ran")
    left = [number for number, output in enumerate(execution.outputs) if output.left_quantized]
    if left:
        problems.append(f"output {', '.join(map(str, left))} is left quantized, the float model gives float")
    if execution.nested and static:
        problems.append(f"converts to float inside of the kernel: {', '.join(dict.fromkeys(execution.nested))}")
    return fail("; ".join(problems)) if problems else PASS
