"""Quantizers of PT2E, which declare in code what a BackendConfig declares in data. Imports no quantizer.

A declaration of a quantizer is written down in the terms of a BackendConfig: a pattern of operators and the dtypes of its
activations and weights. The same claims, models and checks then hold for both.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch.ao.quantization.backend_config import BackendConfig, BackendPatternConfig

FLOWS = ("ptq", "qat")


@dataclass(frozen=True, eq=False)
class QuantizerSpec:
    """How a quantizer is made and configured.

    Attributes:
        source: an expression that makes the quantizer.
        names: the module of each name in the expressions.
        default: an expression of the QuantizationConfig that its users begin with, over `per_channel`, `qat` and `dynamic`.
    """

    source: str
    names: Mapping[str, str]
    default: str

    @property
    def configured(self) -> str:
        """An expression of the quantizer with a QuantizationConfig `qconfig` for all operators."""
        return f"{self.source}.set_global(qconfig)"


class Declaration(BackendPatternConfig):
    """What a quantizer declares of one pattern.

    `name` is the quantizer's own name for it, and `flows` are those for which it is declared.
    """

    def __init__(self, pattern: Any, name: str, flows: tuple[str, ...] = FLOWS) -> None:
        super().__init__(pattern)
        self.name, self.flows = name, flows


class QuantizerConfig(BackendConfig):
    """What a quantizer declares."""

    def __init__(self, name: str, quantizer: QuantizerSpec) -> None:
        super().__init__(name)
        self.quantizer = quantizer
