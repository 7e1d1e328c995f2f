"""Least scripts of models that are exported: the stages of PT2E, and what an engine lowers a converted model to."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from torch.fx import GraphModule
from torch.utils._pytree import tree_leaves

from conformance.cases.apis import api
from conformance.cases.claims import backend
from conformance.cases.runs import Run
from conformance.configs.registry import QUANTIZERS
from conformance.engines.executorch.runtime import EXECUTORCH
from conformance.engines.inductor import ARM_COMPILED, ARM_LOWERED, COMPILED, LOWERED, UNFROZEN
from conformance.models import pt2e
from conformance.repro.inline import TEMPLATES, free, pt2e_imports
from conformance.repro.programs import FREEZING

from .candidate import Candidate


@dataclass(frozen=True)
class Lowering:
    """How scripts lower what `convert_pt2e` returns.

    Attributes:
        lines: bind `lowered`, from `converted` and `{data}`, the tuple of inputs.
        definition: the class or the function that they call.
        listed: whether `lowered` returns the list of all outputs, also of one.
        traced: whether torch dispatches the operators of `lowered`.
        edge: bind `edge`, the program of which delegates are parts, if there are delegates.
    """

    lines: str
    definition: str = ""
    listed: bool = False
    traced: bool = False
    edge: str = ""


def _edge(partitioner: str) -> str:
    return (
        "exported = torch.export.export(converted, {data})\n"
        f"edge = to_edge_transform_and_lower(exported, partitioner=[{partitioner}])\n"
    )


TO_XNNPACK, TO_TOSA = _edge("XnnpackPartitioner()"), _edge('TOSAPartitioner(TosaCompileSpec("TOSA-1.0+INT"))')
COMPILING = "lowered = torch.compile(converted)\n"
TO_X86 = Lowering("lowered = lower_pt2e_quantized_to_x86(converted, {data})\n", traced=True)
LOWERINGS: dict[str, Lowering] = {
    **dict.fromkeys((LOWERED.name, ARM_LOWERED.name), TO_X86),
    **dict.fromkeys((COMPILED.name, ARM_COMPILED.name), Lowering(FREEZING + COMPILING)),
    UNFROZEN.name: Lowering(COMPILING),
    EXECUTORCH.name: Lowering(
        f"{TO_XNNPACK}import executorch.kernels.quantized  # registers kernels\n"
        "program = Runtime.get().load_program(edge.to_executorch().buffer)\n"
        'method = program.load_method("forward")\n'
        "lowered = lambda *inputs: method.execute(inputs)\n",
        listed=True,
        edge=TO_XNNPACK,
    ),
    "tosa": Lowering("lowered = Tosa(converted, {data})\n", TEMPLATES["Tosa"], edge=TO_TOSA),
    "cortex-m": Lowering("lowered = lower_to_cortex_m(converted, {data})\n", TEMPLATES["lower_to_cortex_m"]),
}
"""The lines by the name of the engine."""


def exports(run: Run) -> bool:
    """Whether the model of a run is exported, and its engine has lines of its own."""
    return api(run.backend).exports and run.engine in LOWERINGS


def quantizer_line(candidate: Candidate) -> str:
    """The line that binds `quantizer`."""
    whole = candidate.mapping
    if "qconfig" in free(whole):
        whole = whole.replace("qconfig", candidate.qconfig)
    return f"quantizer = {whole}\n"


@cache
def _tables() -> tuple[tuple[frozenset[str], dict[str, str]], ...]:
    """The names of each registered quantizer's own package, with the import statements that scripts about it need."""
    specs = [pt2e.spec_of(backend(name)) for name in QUANTIZERS]
    return tuple((frozenset(spec.names), pt2e_imports(spec)) for spec in specs)


def imported(names: frozenset[str]) -> dict[str, str]:
    """Import statements by name, in place of those of FX, for a script that uses these names of a quantizer."""
    own, table = max(_tables(), key=lambda one: len(one[0] & names))  # several packages have a name in common
    return table if own & names else {}


def export_lines(data: str) -> str:
    """The line that binds `exported`."""
    return f"exported = torch.export.export(model, {data}).module(check_guards=False)\n"


def prepare_lines(run: Run, data: str) -> str:
    """The lines that bind `prepared`; `data` is the tuple that the model is calibrated with."""
    function = "prepare_qat_pt2e" if run.flow == "qat" else "prepare_pt2e"
    return f"{export_lines(data)}prepared = {function}(exported, quantizer)\n"


def convert_lines(prepared: str) -> str:
    """The line that binds `converted`."""
    return f"converted = convert_pt2e({prepared})\n"


def steps(converted: GraphModule) -> Iterator[float | None]:
    """Yield the scale of each output of a converted model, None for one that is not quantized per tensor."""
    (last,) = [node for node in converted.graph.nodes if node.op == "output"]
    results: list[Any] = tree_leaves(last.args[0])
    for node in results:
        scale = node.args[1] if "dequantize_per_tensor" in str(node.target) else None
        yield scale if isinstance(scale, float) else None
