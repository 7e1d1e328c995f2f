"""The tables of engines and of backends, one row each. Imports no torch, so that reports can read it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class EngineSpec:
    """What the suite knows of an engine without importing it.

    Attributes:
        implementation: `module:attribute` of the object that implements `conformance.engines.protocol.Engine`, or of a
            class or function that makes one without arguments; None for an engine of torch's own, which is a value of
            `torch.backends.quantized.engine`.
        reduced_range: whether activations have 7 bits. Without VNNI, the engine's 8-bit kernels add pairs of products in
            int16, so torch's own qconfigs reduce the range (`torch.ao.quantization.get_default_qconfig`).
        ahead_of_time: whether a model is lowered to a program before it runs, which takes a fifth of a second. Such an
            engine runs the core variants of a claim, and all others only if `--case` selects them.
        default_only: whether that takes seconds. Such an engine runs the default variant of a claim in one flow only.
        signed: whether quantized activations are qint8. Those of other engines are quint8.
        architectures: those that torch builds it for, by the name of `platform.machine()`; empty if it is for all.
    """

    implementation: str | None = None
    reduced_range: bool = False
    ahead_of_time: bool = False
    default_only: bool = False
    signed: bool = False
    architectures: tuple[str, ...] = ()

    @property
    def native(self) -> bool:
        """Whether the engine is torch's own, with default qconfigs in torch."""
        return self.implementation is None


ENGINE_TABLE: dict[str, EngineSpec] = {
    "qnnpack": EngineSpec(),
    "fbgemm": EngineSpec(reduced_range=True, architectures=("x86_64",)),
    "onednn": EngineSpec(),
    # dispatches to kernels of fbgemm or oneDNN, and has no config of its own
    "x86": EngineSpec(reduced_range=True),
    "executorch": EngineSpec("conformance.engines.executorch.runtime:EXECUTORCH", ahead_of_time=True, signed=True),
    "x86-inductor": EngineSpec("conformance.engines.inductor:LOWERED", ahead_of_time=True),
    "converted": EngineSpec("conformance.engines.converted:ConvertedEngine", ahead_of_time=True),
    "x86-compiled": EngineSpec("conformance.engines.inductor:COMPILED", ahead_of_time=True, default_only=True),
    "x86-unfrozen": EngineSpec("conformance.engines.inductor:UNFROZEN", ahead_of_time=True, default_only=True),
    "x86-aot": EngineSpec("conformance.engines.inductor:PACKAGED", ahead_of_time=True, default_only=True),
    "x86-aot-unfrozen": EngineSpec(
        "conformance.engines.inductor:PACKAGED_UNFROZEN", ahead_of_time=True, default_only=True
    ),
    "arm-inductor": EngineSpec("conformance.engines.inductor:ARM_LOWERED", ahead_of_time=True),
    "arm-compiled": EngineSpec("conformance.engines.inductor:ARM_COMPILED", ahead_of_time=True, default_only=True),
    "cortex-m": EngineSpec("conformance.engines.cortex_m:CortexMEngine", ahead_of_time=True),
    "tosa": EngineSpec("conformance.engines.tosa:TosaEngine", ahead_of_time=True),
    "torch-eager": EngineSpec("conformance.engines.workflows:EAGER"),
    "torch-compiled": EngineSpec("conformance.engines.workflows:COMPILED"),
    "torch-frozen": EngineSpec("conformance.engines.workflows:FROZEN"),
    "torch-packaged": EngineSpec("conformance.engines.workflows:PACKAGED", default_only=True),
}
"""The engines by the names that run ids and `--engine` have. To add one, write its module and add its row here. Engines of
third parties, which `--engine module:attribute` names, are added while the options are read."""

IN_PLACE = ("torch-eager", "torch-compiled", "torch-frozen", "torch-packaged")
"""Engines that run modules which a library has quantized in place, and no converted models. The first compiles nothing."""

PACKAGES = ("executorch", "torchao", "tosa-tools")
"""Packages beside torch whose versions decide what engines do."""


def ahead_of_time(engine: str) -> bool:
    """Whether an engine lowers a model ahead of time, which takes a fifth of a second.

    Unless `--case` selects other runs, such an engine runs only the core variants of a claim and no metamorphic relations.
    """
    return engine in ENGINE_TABLE and ENGINE_TABLE[engine].ahead_of_time


def is_signed(engine: str) -> bool:
    """Whether quantized activations are qint8 on an engine. Those of an engine that is not in the table are not."""
    return engine in ENGINE_TABLE and ENGINE_TABLE[engine].signed


ENGINES: dict[str, tuple[str, ...]] = {
    "qnnpack": ("qnnpack",),
    "fbgemm": ("fbgemm", "x86"),
    "onednn": ("onednn",),
    "executorch": ("executorch",),
}
"""Engines by registered backend. The config of a backend is `get_<name>_backend_config` in `configs/<name>.py`."""

QUANTIZER_ENGINES: dict[str, tuple[str, ...]] = {
    "xnnpack": ("executorch",),
    "x86inductor": ("x86-inductor", "x86-compiled"),
    "arminductor": ("arm-inductor", "arm-compiled"),
    "cortexm": ("cortex-m",),
    "tosa": ("tosa",),
}
"""Engines by registered quantizer. What a quantizer declares is `get_<name>_declarations` in `configs/<name>.py`."""

WORKFLOW_ENGINES: dict[str, tuple[str, ...]] = {
    "torchao": IN_PLACE,
}
"""Engines by registered library that quantizes modules in place. What it declares is `get_<name>_workflows` in
`configs/<name>.py`."""

SUCCESSORS: dict[str, tuple[str, str]] = {
    "qnnpack": ("xnnpack", "executorch"),
    "executorch": ("xnnpack", "executorch"),
    "fbgemm": ("x86inductor", "x86-inductor"),
    "onednn": ("x86inductor", "x86-inductor"),
}
"""The quantizer that users of a backend config move to, and its engine on the same hardware."""


def backend_of(engine: str) -> str:
    """The registered backend whose config an engine of the table runs."""
    return next(backend for backend, engines in ENGINES.items() if engine in engines)
