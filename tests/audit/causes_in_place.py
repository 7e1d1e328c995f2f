"""Models that show causes in the ledger about layers that are quantized in place."""

from dataclasses import dataclass

from torch import nn


@dataclass(frozen=True)
class Cause:
    """A layer that shows the finding of an entry on an engine, in bfloat16 or float32, if a config quantizes it."""

    id: str
    engine: str
    config: str
    layer: nn.Linear
    dtype: str = "bfloat16"
    beside: frozenset[str] = frozenset()
    shape: tuple[int, ...] = (3,)

    @property
    def name(self) -> str:
        return f"{self.id}@{self.engine}"


IN_HALF = frozenset({"torchao-scales-in-half"})
INT8 = "Int8WeightOnlyConfig()"
PER_TENSOR = "Int8WeightOnlyConfig(granularity=PerTensor())"
STATIC = "Int8StaticActivationInt8WeightConfig(torch.tensor([[0.0625]]), granularity=[PerTensor(), PerRow()])"
MX = "MXDynamicActivationMXWeightConfig(kernel_preference=KernelPreference.EMULATED)"
IN_PLACE = (
    Cause("torchao-scales-in-half", "torch-eager", INT8, nn.Linear(64, 8)),
    Cause("torchao-int8pack-out-of-bounds", "torch-compiled", INT8, nn.Linear(100, 128), beside=IN_HALF),
    Cause("torchao-int8pack-per-tensor", "torch-compiled", PER_TENSOR, nn.Linear(64, 8), beside=IN_HALF),
    Cause("torchao-int1-symmetric", "torch-eager", "IntxWeightOnlyConfig(torch.int1)", nn.Linear(64, 8), "float32"),
    Cause("torchao-static-rank", "torch-eager", STATIC, nn.Linear(64, 8), "float32", shape=(2, 3)),
    Cause("torchao-mx-compiled", "torch-compiled", MX, nn.Linear(64, 16)),
)
