"""Findings about layers of networks, held to the reference model given the same inputs."""

from .finding import Finding

MOST_NAMED = 4
"""Layers of a program that a sentence names."""


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


class PrepareDiffers(Finding, kind="prepare-differs"):
    """The fused layer of a prepared network computes something else than the float network: the SQNR in dB given the same
    inputs, in float."""

    sqnr_db: float
    template = "what prepare fuses computes something else: {sqnr_db:.1f} dB against the float network, in float"


class ReferenceDiffers(Finding, kind="reference-differs"):
    """The reference model's layer computes something else than the float operators with the declared weights: the SQNR in dB
    given the same inputs, before anything is rounded."""

    sqnr_db: float
    template = "the reference model computes something else: {sqnr_db:.1f} dB against the float operators, in float"


class LayerCoarser(Finding, kind="layer-coarser"):
    """A layer's output has another grid than the reference's, with less precision: the SQNR in dB of both against the float
    network given the same inputs."""

    grid: str
    reference_grid: str
    sqnr_db: float
    reference_db: float
    template = (
        "the output is on the grid {grid}, the reference's on {reference_grid}: {sqnr_db:.1f} dB against float given "
        "the same inputs, the reference has {reference_db:.1f} dB"
    )


class FixedRangeClips(Finding, kind="fixed-range-clips"):
    """A range that the config fixes clips a share of a layer's values and leaves this SQNR in dB."""

    clipped: float
    low: float
    high: float
    sqnr_db: float

    @property
    def text(self) -> str:
        return (
            f"the fixed range {self.low:g} to {self.high:g} of an operator is put on it and clips "
            f"{100 * self.clipped:.0f}% of its values: {self.sqnr_db:.1f} dB are left"
        )


class SharedRange(Finding, kind="shared-range"):
    """The config gives a layer's value the observer of another value, whose range is so many times as wide: this SQNR in dB
    is left, and with a range of its own rounding would leave `own_db`."""

    other: str
    ratio: float
    sqnr_db: float
    own_db: float
    template = (
        "it shares the observer of {other}, whose range is {ratio:.3g} times as wide: {sqnr_db:.1f} dB are left, "
        "{own_db:.1f} with a range of its own"
    )


class LayerShape(Finding, kind="layer-shape"):
    """The shape of a layer's output differs from the reference's."""

    got: tuple[int, ...]
    expected: tuple[int, ...]
    template = "shape {got}, reference {expected}"


class LayerKind(Finding, kind="layer-kind"):
    """A layer's output is quantized where the reference's is float, or float where the reference's is quantized."""

    quantized: bool

    @property
    def text(self) -> str:
        return f"gives {'codes' if self.quantized else 'float values'}, the reference the other"


class LayerRaises(Finding, kind="layer-raises"):
    """A stage of a layer, `prepare`, `convert` or `execute`, raises an exception of this type with this message."""

    stage: str
    exception: str
    message: str
    template = "{stage} raises {exception}: {message}"


def _listed(layers: tuple[str, ...]) -> str:
    """The names of layers, or how many there are."""
    return ", ".join(layers) if len(layers) <= MOST_NAMED else f"{len(layers)} layers"


class LayersDiffer(Finding, kind="layers-differ"):
    """Layers that are right one by one give other values as one program: the SQNR in dB of these against those."""

    layers: tuple[str, ...]
    sqnr_db: float

    @property
    def text(self) -> str:
        program = f"one program of {_listed(self.layers)}"
        return f"right alone, and wrong in {program}: {self.sqnr_db:.1f} dB against the layers one by one"


class LayersRaise(Finding, kind="layers-raise"):
    """Layers that run one by one raise as one program, while it is lowered, loaded or executed."""

    layers: tuple[str, ...]
    exception: str
    message: str

    @property
    def text(self) -> str:
        return f"runs alone, and raises in one program of {_listed(self.layers)}: {self.exception}: {self.message}"


class OperandOverwritten(Finding, kind="operand-overwritten"):
    """A layer's kernel overwrites an operand that is used again; `left_db` is the SQNR in dB of what is left of it."""

    operand: str
    left_db: float | None

    @property
    def text(self) -> str:
        left = "" if self.left_db is None else f", of which {self.left_db:.1f} dB are left"
        return f"overwrites its operand {self.operand}, which is used again{left}"


class WriteLost(Finding, kind="write-lost"):
    """A later operator of the float network writes to the value of a layer, which is used again; that of the quantized one
    does not."""

    writer: str
    template = "{writer} writes to its value in float, and not in the quantized network, where it is used again"


class NetworkUnstable(Finding, kind="network-unstable"):
    """A repetition of the execution of a whole network changes its output."""

    repetition: str
    change: str
    template = "{repetition}: {change}"


class NetworkFails(Finding, kind="network-fails"):
    """A network cannot be traced, converted or executed as a whole."""

    reason: str
    template = "{reason}"


class NetworkLoses(Finding, kind="network-loses"):
    """The output of an engine is worse than that of its reference model: SQNR in dB of both against the float model."""

    engine_db: float
    reference_db: float
    template = "the output has {engine_db:.1f} dB against the float model, the reference's {reference_db:.1f} dB"
