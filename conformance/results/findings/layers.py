"""Findings about layers of networks, held to the reference model given the same inputs."""

from dataclasses import dataclass

from .finding import Finding


@dataclass(frozen=True)
class LayerDiffers(Finding, kind="layer-differs"):
    """Elements of a layer's output differ from the reference's by more than a tie; `steps_max` is the greatest distance in
    codes, 0 for values that are not quantized."""

    wrong: int
    total: int
    steps_max: int

    @property
    def text(self) -> str:
        far = f", by up to {self.steps_max} steps" if self.steps_max else ""
        return f"{self.wrong} of {self.total} elements are off by more than a tie{far}, given the same inputs"


@dataclass(frozen=True)
class LayerShape(Finding, kind="layer-shape"):
    """The shape of a layer's output differs from the reference's."""

    got: tuple[int, ...]
    expected: tuple[int, ...]

    @property
    def text(self) -> str:
        return f"shape {self.got}, reference {self.expected}"


@dataclass(frozen=True)
class LayerKind(Finding, kind="layer-kind"):
    """A layer's output is quantized where the reference's is float, or float where the reference's is quantized."""

    quantized: bool

    @property
    def text(self) -> str:
        return f"gives {'codes' if self.quantized else 'float values'}, the reference the other"


@dataclass(frozen=True)
class LayerRaises(Finding, kind="layer-raises"):
    """A stage of a layer, `prepare`, `convert` or `execute`, raises an exception of this type with this message."""

    stage: str
    exception: str
    message: str

    @property
    def text(self) -> str:
        return f"{self.stage} raises {self.exception}: {self.message}"


@dataclass(frozen=True)
class OperandOverwritten(Finding, kind="operand-overwritten"):
    """A layer's kernel overwrites an operand that is used again; `left_db` is the SQNR in dB of what is left of it."""

    operand: str
    left_db: float | None

    @property
    def text(self) -> str:
        left = "" if self.left_db is None else f", of which {self.left_db:.1f} dB are left"
        return f"overwrites its operand {self.operand}, which is used again{left}"


@dataclass(frozen=True)
class NetworkUnstable(Finding, kind="network-unstable"):
    """A repetition of the execution of a whole network changes its output."""

    repetition: str
    change: str

    @property
    def text(self) -> str:
        return f"{self.repetition}: {self.change}"


@dataclass(frozen=True)
class NetworkFails(Finding, kind="network-fails"):
    """A network cannot be traced, converted or executed as a whole."""

    reason: str

    @property
    def text(self) -> str:
        return self.reason


@dataclass(frozen=True)
class NetworkLoses(Finding, kind="network-loses"):
    """The output of an engine is worse than that of its reference model: SQNR in dB of both against the float model."""

    engine_db: float
    reference_db: float

    @property
    def text(self) -> str:
        return f"the output has {self.engine_db:.1f} dB against the float model, the reference's {self.reference_db:.1f} dB"
