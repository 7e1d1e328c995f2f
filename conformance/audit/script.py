"""The reproduction script of a part of a network: source that needs torch alone."""

from conformance.configs.engines import backend_of
from conformance.templates import source_templates

from .parts import Part

REFERENCE_DB = 15.0
"""The SQNR below which a script says that a reference model is wrong: 8 bits leave more of random data."""


def script(part: Part, engine: str, title: str, *, of_reference: bool = False) -> str:
    """Return a script that prints `DEVIATES check: …` and exits with 1, or prints `CONFORMS` and exits with 0. It holds the
    engine to the reference model, or the reference model to the float model."""
    inputs = []
    for shape, last in zip(part.shapes, part.channels_last, strict=True):
        memory_format = {4: "channels_last", 5: "channels_last_3d"}.get(len(shape), "")
        suffix = f".to(memory_format=torch.{memory_format})" if last else ""
        inputs.append(f"torch.randn({', '.join(map(str, shape))}){suffix}")
    return (
        source_templates(__package__)
        .get_template("part.j2")
        .render(
            title=title.replace("\\", "\\\\").replace('"', "'"),
            engine=engine,
            config=f"get_{backend_of(engine)}_backend_config",
            part=part,
            inputs=inputs,
            of_reference=of_reference,
            limit=REFERENCE_DB,
        )
    )
