"""The reproduction script of a part of a network: source that needs torch alone, and for PT2E the quantizer and engine."""

from collections.abc import Iterator
from typing import Any

from conformance.configs.engines import backend_of
from conformance.configs.quantizer import QuantizerSpec
from conformance.engines.programs import PROGRAMS
from conformance.templates import source_templates

from .parts import Part

REFERENCE_DB = 15.0
"""The SQNR below which a script says that a reference model is wrong: 8 bits leave more of random data."""

X86 = ("from torchao.quantization.pt2e.lowering import lower_pt2e_quantized_to_x86",)
LOWERING: dict[str, tuple[str, ...]] = {
    "executorch": (
        "from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner",
        "from executorch.exir import to_edge_transform_and_lower",
        "from executorch.runtime import Runtime",
    ),
    "x86-inductor": X86,
    "arm-inductor": X86,
}
"""Import statements of the lines with which PROGRAMS lowers a converted model, by engines whose lines need no more."""


def script(engine: str, part: Part, title: str, of_reference: bool) -> str:
    """Return a script that prints `DEVIATES check: …` and exits with 1, or prints `CONFORMS` and exits with 0. It holds the
    engine to the reference model, or the reference model to the float model."""
    config = f"get_{backend_of(engine)}_backend_config"
    return _rendered("part.j2", part, title, of_reference, engine=engine, config=config)


def exported_script(
    engine: str, quantizer: QuantizerSpec, qat: bool, part: Part, title: str, of_reference: bool
) -> str:
    """Return the same for a quantizer of PT2E, as its users begin, and an engine of LOWERING."""
    imports = [f"from {module} import {name}" for name, module in quantizer.names.items()]
    return _rendered(
        "exported.j2",
        part,
        title,
        of_reference,
        imports=[*imports, *LOWERING[engine]],
        prepare="prepare_qat_pt2e" if qat else "prepare_pt2e",
        qconfig=quantizer.default.format(per_channel=True, qat=qat, dynamic=False),
        quantizer=quantizer.configured,
        lowering=PROGRAMS[engine].shortest_lowering("held_out").splitlines(),
    )


def _rendered(template: str, part: Part, title: str, of_reference: bool, **values: Any) -> str:
    quoted = title.replace("\\", "\\\\").replace('"', "'")
    return (
        source_templates(__package__)
        .get_template(template)
        .render(
            title=quoted,
            part=part,
            inputs=[*_inputs(part)],
            of_reference=of_reference,
            limit=REFERENCE_DB,
            **values,
        )
    )


def _inputs(part: Part) -> Iterator[str]:
    """Yield an expression of random data for each input of a part."""
    for shape, last in zip(part.shapes, part.channels_last, strict=True):
        memory_format = {4: "channels_last", 5: "channels_last_3d"}.get(len(shape), "")
        suffix = f".to(memory_format=torch.{memory_format})" if last else ""
        yield f"torch.randn({', '.join(map(str, shape))}){suffix}"
