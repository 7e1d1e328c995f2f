"""Minimal float models, one for each cause that the ledger gives for layers of networks, and the entry that explains it."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.ao.quantization import (
    MinMaxObserver,
    QConfig,
    QConfigMapping,
    default_weight_observer,
    get_default_qconfig_mapping,
)
from torch.nn import functional as F

Batch = tuple[Tensor, ...]


@dataclass(frozen=True)
class Cause:
    """A model that shows one cause on an engine, with its batches, of which the last is held out.

    `id` is that of the entry that explains it, `beside` has those of others that the model shows too. `arch` and `isa` are
    globs over hosts on which it occurs, as in the ledger. `mapping` takes the place of the engine's default one, `quantizer`
    that of FX, and `qat` says that the quantizer prepares for training.
    """

    id: str
    engine: str
    model: Callable[[], nn.Module]
    batches: Callable[[], list[Batch]]
    arch: str = "*"
    isa: str = "*"
    beside: frozenset[str] = frozenset()
    mapping: Callable[[], QConfigMapping] | None = None
    quantizer: str = ""
    qat: bool = False

    @property
    def name(self) -> str:
        return f"{self.id}@{self.engine}"


def masked() -> nn.Module:
    """The sum of values and a mask, which are stacked."""

    def forward(self: Any, x: Tensor) -> Tensor:
        return x[0] + x[1]

    return Call(forward)


def masked_by_the_least() -> list[Batch]:
    """Inputs with a mask of the most negative float in every third place."""
    mask = torch.zeros(4, 6, 6)
    mask[:, :, ::3] = torch.finfo(torch.float32).min
    generator = torch.Generator().manual_seed(1)
    return [(torch.stack([torch.randn(4, 6, 6, generator=generator), mask]),) for _ in range(3)]


def doubled(module: nn.Module) -> nn.Module:
    """A layer and a hook that doubles its result."""
    layer = nn.Linear(8, 8)
    layer.register_forward_hook(lambda _, __, result: 2 * result)
    return nn.Sequential(layer, module)


def weight_in_float_too() -> nn.Module:
    def forward(self: Any, x: Tensor) -> Any:
        return F.conv2d(x, self.weight[:2], None, (1, 1), (0, 0), (1, 1), 1) * self.weight[2:].abs().mean()

    return Call(forward, weight=nn.Parameter(torch.randn(4, 4, 1, 1)))


def added_bias() -> nn.Module:
    def forward(self: Any, x: Tensor) -> Any:
        return torch.relu(self.linear(x)) + self.linear.bias

    return Call(forward, linear=nn.Linear(4, 4))


class Call(nn.Module):
    """A function of a model's inputs, and of the modules and parameters that it is given."""

    def __init__(self, function: Callable[..., Any], **parts: nn.Module | nn.Parameter) -> None:
        super().__init__()
        self.function = function
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, x: Tensor) -> Any:
        return self.function(self, x)


def normal(*shape: int, mean: float = 0.0, last: bool = False) -> Callable[[], list[Batch]]:
    """Three batches of one input of this shape, in channels-last if `last`."""

    def batches() -> list[Batch]:
        generator = torch.Generator().manual_seed(1)
        data = [torch.randn(shape, generator=generator) + mean for _ in range(3)]
        return [(x.contiguous(memory_format=torch.channels_last) if last else x,) for x in data]

    return batches


def twice_the_calibration() -> list[Batch]:
    """Values from 0 to 1 to calibrate with, then some from 0 to 2."""
    generator = torch.Generator().manual_seed(3)
    return [(torch.rand(2, 8, 12, 12, generator=generator) * scale,) for scale in (1.0, 1.0, 2.0)]


def beyond_calibration() -> list[Batch]:
    """Values from 0 to 1 to calibrate with, then some from 0 to 4."""
    generator = torch.Generator().manual_seed(1)
    return [(torch.rand(2, 104, 4, 4, generator=generator) * scale,) for scale in (1.0, 1.0, 4.0)]


def weight(*shape: int) -> nn.Parameter:
    return nn.Parameter(torch.randn(shape))


def positive_depthwise() -> nn.Module:
    conv = nn.Conv2d(104, 104, 3, padding=1, groups=104)
    nn.init.constant_(conv.weight, 0.2)
    return conv


def called_twice() -> nn.Module:
    def forward(self: Any, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.conv(x * 16), self.conv(x)

    return Call(forward, conv=nn.Conv2d(4, 4, 1))


def clamped() -> nn.Module:
    return nn.Sequential(nn.Conv2d(4, 4, 1), nn.ReLU6())


def added_to_itself() -> nn.Module:
    def forward(self: Any, x: Tensor) -> Any:
        return x + self.conv(x)

    return Call(forward, conv=nn.Conv2d(4, 4, 3, padding=1))


def added_to_itself_by_another_name() -> nn.Module:
    def forward(self: Any, x: Tensor) -> Any:
        x = self.first(x)
        return self.conv(x) + self.same(x)

    return Call(forward, first=nn.Conv2d(4, 4, 1), conv=nn.Conv2d(4, 4, 3, padding=1), same=nn.Identity())


def added_to_a_view_of_itself() -> nn.Module:
    def forward(self: Any, x: Tensor) -> Any:
        x = self.first(x)
        return self.conv(x) + x.view(x.shape)

    return Call(forward, first=nn.Conv2d(4, 16, 1), conv=nn.Conv2d(16, 16, 3, padding=1))


def added_and_used_again() -> nn.Module:
    def forward(self: Any, x: Tensor) -> Any:
        y = self.other(x)
        return (self.conv(x) + y) * y

    return Call(forward, conv=nn.Conv2d(4, 4, 1), other=nn.Conv2d(4, 4, 1))


def activated_once() -> nn.Module:
    def forward(self: Any, x: Tensor) -> Any:
        return torch.cat([self.relu(self.linear(x)), self.linear(x * 0.5)], 1)

    return Call(forward, linear=nn.Linear(8, 8), relu=nn.ReLU())


def number_added() -> nn.Module:
    def forward(self: Any, x: Tensor) -> Any:
        return torch.relu(self.linear(x)) + 0.3

    return Call(forward, linear=nn.Linear(8, 8))


def hooked_norm() -> nn.Module:
    norm = nn.BatchNorm2d(4)
    norm.register_forward_hook(lambda _, __, result: 2 * result)
    return nn.Sequential(nn.Conv2d(4, 4, 1), norm, nn.ReLU())


def joined_whole() -> nn.Module:
    def forward(self: Any, x: Tensor) -> Any:
        return torch.cat(self.conv(x).chunk(2, 1), 1)

    return Call(forward, conv=nn.Conv2d(4, 4, 1))


def added_to_its_input() -> nn.Module:
    def forward(self: Any, x: Tensor) -> Any:
        y = self.first(x)
        return y + self.conv(y)

    return Call(forward, first=nn.Conv2d(4, 4, 1), conv=nn.Conv2d(4, 4, 1))


def added_and_activated_in_place() -> nn.Module:
    def forward(self: Any, x: Tensor) -> Any:
        y = self.other(x)
        return self.relu(self.conv(x) + y) + y

    return Call(forward, conv=nn.Conv2d(4, 4, 1), other=nn.Conv2d(4, 4, 1), relu=nn.ReLU(inplace=True))


def added_to_each_position() -> nn.Module:
    def forward(self: Any, x: Tensor) -> Any:
        return x + self.conv(self.pool(x))

    return Call(forward, conv=nn.Conv2d(4, 4, 1), pool=nn.AdaptiveAvgPool2d(1))


def pooled_with_indices() -> nn.Module:
    def forward(self: Any, x: Tensor) -> Any:
        values, indices = self.pool(x)
        return self.unpool(values, indices)

    pooled = Call(forward, pool=nn.MaxPool2d(2, return_indices=True), unpool=nn.MaxUnpool2d(2))
    return nn.Sequential(nn.Conv2d(4, 4, 1), pooled)


def kept_where_greatest() -> nn.Module:
    def forward(self: Any, x: Tensor) -> Any:
        return x * (F.max_pool2d(x, 3, 1, 1) == x)

    return nn.Sequential(nn.Conv2d(4, 4, 1), nn.ReLU(), Call(forward))


def given_by_keyword() -> nn.Module:
    def forward(self: Any, x: Tensor) -> Any:
        return F.conv2d(
            input=x, weight=self.weight, bias=self.bias, stride=(1, 1), padding=(0, 0), dilation=(1, 1), groups=1
        )

    return nn.Sequential(Call(forward, weight=weight(4, 4, 1, 1), bias=weight(4)), nn.Conv2d(4, 4, 1))


def viewed_as_rows() -> nn.Module:
    def forward(self: Any, x: Tensor) -> Any:
        return self.conv(x).view(2, -1)

    return Call(forward, conv=nn.Conv2d(4, 4, 1))


def only_zeros() -> nn.Module:
    def forward(self: Any, x: Tensor) -> Any:
        return F.relu(x + torch.sigmoid(x))

    return Call(forward)


def scaled_weight() -> nn.Module:
    def forward(self: Any, x: Tensor) -> Any:
        return F.conv2d(x, self.weight * 0.5, self.bias, (1, 1), (0, 0), (1, 1), 1)

    return Call(forward, weight=weight(16, 4, 1, 1), bias=weight(16))


def dtype_of_weight() -> nn.Module:
    def forward(self: Any, x: Tensor) -> Any:
        return self.conv(x) + torch.ones(4, 1, 1, dtype=self.conv.weight.dtype)

    return Call(forward, conv=nn.Conv2d(4, 4, 1))


def normalized_for_two() -> nn.Module:
    def forward(self: Any, x: Tensor) -> Any:
        y = self.norm(self.first(x))
        return self.second(y) + torch.sin(y)

    return Call(forward, first=nn.Linear(4, 4), norm=nn.LayerNorm(4), second=nn.Linear(4, 4))


def without_bias() -> nn.Module:
    def forward(self: Any, x: Tensor) -> Any:
        return F.conv2d(x, self.weight)

    return nn.Sequential(nn.Conv2d(4, 4, 1), nn.ReLU(), Call(forward, weight=weight(4, 4, 1, 1)))


def padded_to_the_same_size() -> nn.Module:
    return nn.Sequential(nn.Conv2d(4, 4, 1), nn.ReLU(), nn.Conv2d(4, 4, 3, padding="same"))


def upsampled() -> nn.Module:
    return nn.Sequential(nn.Conv2d(4, 4, 1), nn.ReLU(), nn.ConvTranspose2d(4, 4, 2, 2))


def linear_and_function() -> nn.Module:
    def forward(self: Any, x: Tensor) -> Any:
        return torch.tanh(self.linear(x))

    return Call(forward, linear=nn.Linear(4, 4))


def averages_joined() -> nn.Module:
    """Averages have a much smaller range than what they are averages of."""

    def forward(self: Any, x: Tensor) -> Tensor:
        return torch.cat([self.conv(x).mean((2, 3)), self.other(x).mean((2, 3))], 1)

    return Call(forward, conv=nn.Conv2d(4, 4, 1), other=scaled(nn.Conv2d(4, 4, 1), 4.0))


def joined_twice() -> nn.Module:
    """The second concatenation gives its observer to an operand of the first, whose grid is then that of another range."""

    def forward(self: Any, x: Tensor) -> Any:
        once, greater, less = self.once(x), self.greater(x), self.less(x)
        return torch.cat([once, greater], 1), torch.cat([less, once], 1)

    return Call(forward, once=nn.Conv2d(4, 4, 1), greater=scaled(nn.Conv2d(4, 4, 1), 8.0), less=nn.Conv2d(4, 4, 1))


def scaled(convolution: nn.Conv2d, factor: float) -> nn.Conv2d:
    with torch.no_grad():
        convolution.weight.mul_(factor)
    return convolution


def added_twice_over() -> nn.Module:
    def forward(self: Any, x: Tensor) -> Tensor:
        return torch.add(self.conv(x), self.other(x), alpha=2)

    return Call(forward, conv=nn.Conv2d(4, 4, 1), other=nn.Conv2d(4, 4, 1))


def added_number() -> nn.Module:
    def forward(self: Any, x: Tensor) -> Any:
        return self.conv(x) + 1.5

    return Call(forward, conv=nn.Conv2d(4, 4, 1))


def normalized_by_row(rows: int) -> nn.Module:
    """A batch norm over dimension 1 behind a linear layer with eight outputs."""
    norm = nn.BatchNorm1d(rows)
    with torch.no_grad():
        norm.running_mean.normal_()  # type: ignore[union-attr]
        norm.running_var.uniform_(0.2, 4)  # type: ignore[union-attr]
    return nn.Sequential(nn.Linear(8, 8), norm)


def written_before_it_is_used() -> nn.Module:
    def forward(self: Any, x: Tensor) -> Any:
        y = self.first(x)
        y.mul_(2)
        return self.second(y)

    return Call(forward, first=nn.Linear(4, 4), second=nn.Linear(4, 4))


def between_layers(operator: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Linear(8, 8), operator, nn.Linear(8, 4))


def weight_of_two(*, transposed: bool) -> nn.Module:
    """Two layers that share a weight, of which one is fused with a ReLU."""

    def forward(self: Any, x: Tensor) -> Any:
        weight = self.linear.weight.t() if transposed else self.linear.weight
        return F.linear(self.relu(self.linear(x)), weight)

    return Call(forward, linear=nn.Linear(8, 8), relu=nn.ReLU())


def multiplied() -> nn.Module:
    def forward(self: Any, x: Tensor) -> Any:
        return 100 * self.linear(x)

    return Call(forward, linear=nn.Linear(8, 8))


def normed_beside_input() -> nn.Module:
    """A linear layer, its batch norm and a ReLU, whose result is joined with the input."""

    def forward(self: Any, x: Tensor) -> Any:
        return torch.cat([self.relu(self.norm(self.linear(x))), x], 1)

    return Call(forward, linear=nn.Linear(8, 8), norm=nn.BatchNorm1d(8), relu=nn.ReLU())


def without(engine: str, kind: type[nn.Module]) -> QConfigMapping:
    """An engine's default mapping, with the modules of a class left in float."""
    return get_default_qconfig_mapping(engine).set_object_type(kind, None)


def signed() -> QConfigMapping:
    """A mapping with activations in qint8."""
    observer = MinMaxObserver.with_args(dtype=torch.qint8, eps=2.0**-12)
    return QConfigMapping().set_global(QConfig(observer, default_weight_observer))  # type: ignore[no-untyped-call]


def in_dtype(dtype: torch.dtype) -> nn.Module:
    """A layer with weights of another dtype, and one in float32 behind it."""

    def forward(self: Any, x: Tensor) -> Any:
        return self.second(self.first(x.to(dtype)).float())

    return Call(forward, first=nn.Linear(8, 8).to(dtype), second=nn.Linear(8, 4))


IMAGE = normal(2, 4, 8, 8)
VOLUME = normal(2, 4, 4, 4, 4)
SIGNAL = normal(2, 4, 16)


def activated_twice() -> nn.Module:
    """A residual block with one activation behind a convolution and behind the sum."""

    def forward(self: Any, x: Tensor) -> Any:
        return self.relu(x + self.second(self.relu(self.first(x))))

    return Call(forward, first=nn.Conv2d(4, 4, 1), second=nn.Conv2d(4, 4, 1), relu=nn.ReLU())


def results_summed() -> nn.Module:
    """The sum of a list of results, which Python begins with 0."""

    def forward(self: Any, x: Tensor) -> Any:
        return sum([self.first(x), self.second(x)])

    return Call(forward, first=nn.Conv2d(4, 4, 1), second=nn.Conv2d(4, 4, 1))


def norm_behind_part_of_a_weight() -> nn.Module:
    """A convolution with half of the weight, and a batch norm."""

    def forward(self: Any, x: Tensor) -> Any:
        return self.norm(F.conv2d(x, self.layer.weight[:4]))

    return Call(forward, layer=nn.Conv2d(4, 8, 1, bias=False), norm=nn.BatchNorm2d(4))


def norm_with_another_eps() -> nn.Module:
    """A convolution with a norm of which eps matters."""
    norm = nn.BatchNorm2d(4, eps=0.1)
    assert norm.running_var is not None
    norm.running_var.fill_(0.01)
    return nn.Sequential(nn.Conv2d(4, 4, 1), norm)


def pooled_and_activated(**options: Any) -> Callable[[], nn.Module]:
    """Maxima with an activation behind them, by functions."""

    def forward(self: Any, x: Tensor) -> Any:
        return F.relu(F.max_pool2d(x, **options))

    return lambda: Call(forward)


def negative_images() -> list[Batch]:
    """Images of mostly negative values, in the memory format that CortexMQuantizer takes."""
    return [((x - 2).to(memory_format=torch.channels_last),) for (x,) in IMAGE()]


def decoded_twice() -> nn.Module:
    """A transposed convolution of two signals, joined."""

    def forward(self: Any, x: Tensor) -> Any:
        return torch.cat([self.layer(x), self.layer(x * 2)], 1)

    return Call(forward, layer=nn.ConvTranspose1d(4, 1, 4, stride=2, bias=False))


def normed_twice() -> nn.Module:
    """A batch norm of two values."""

    def forward(self: Any, x: Tensor) -> Any:
        return self.norm(x) + self.norm(x.relu())

    return Call(forward, norm=nn.BatchNorm2d(4))


def standardized() -> nn.Module:
    """A convolution whose weight has mean 0 and a scaled variance by channels."""

    def forward(self: Any, x: Tensor) -> Any:
        weight, gain = self.layer.weight, self.gain.weight * 0.5
        one = F.batch_norm(weight.reshape(1, 4, -1), None, None, gain.view(-1), training=True)
        return F.conv2d(x, one.reshape_as(weight))

    return Call(forward, layer=nn.Conv2d(4, 4, 1, bias=False), gain=nn.Linear(4, 1, bias=False))


def weight_of_two_and_a_norm() -> nn.Module:
    """Two convolutions with one weight, of which a batch norm follows one."""

    def forward(self: Any, x: Tensor) -> Any:
        return self.norm(self.first(x)) + self.second(x)

    first, second, norm = nn.Conv2d(4, 4, 1), nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4)
    second.weight = first.weight
    assert norm.running_var is not None
    norm.running_var.fill_(4.0)
    return Call(forward, first=first, second=second, norm=norm)


def applied_to_parts() -> nn.Module:
    """A convolution that is called for each half of a batch."""

    def forward(self: Any, x: Tensor) -> Any:
        first, second = x.chunk(2)
        return torch.cat([self.layer(first), self.layer(second)])

    return Call(forward, layer=nn.Conv2d(4, 4, 3))


def next_embedded() -> nn.Module:
    """Embeddings of the indices after those that are given."""

    def forward(self: Any, x: Tensor) -> Any:
        return self.layer(x + 1)

    return Call(forward, layer=nn.Embedding(10, 4))


def halves_added() -> nn.Module:
    """The sum of both halves of the channels of a convolution."""

    def forward(self: Any, x: Tensor) -> Any:
        y = self.layer(x)
        return y[:, :2] + y[:, 2:]

    return Call(forward, layer=nn.Conv2d(4, 4, 3))


def padded() -> nn.Module:
    """A convolution whose result is padded behind it."""
    return nn.Sequential(nn.Conv2d(4, 4, 3), nn.ConstantPad2d(1, 0.0))


def in_windows() -> nn.Module:
    """A layer whose result is cut into windows along three dimensions, which makes seven dimensions of it."""

    def forward(self: Any, x: Tensor) -> Any:
        windows = self.layer(x).reshape(2, 2, 2, 2, 4, 2, 4)
        return windows.permute(0, 1, 3, 5, 2, 4, 6).reshape(2, -1)

    return Call(forward, layer=nn.Conv2d(4, 4, 1))


def flattened() -> nn.Module:
    """A convolution whose result is flattened."""
    return nn.Sequential(nn.Conv2d(4, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(288, 4))


def indices() -> list[Batch]:
    """Bags of indices."""
    return [(torch.tensor([[0, 3, 8], [1, first, 2]]),) for first in range(3)]


FIXED = frozenset({"fixed-range-on-input"})
READ_AGAIN = frozenset({"weight-read-after-lowering"})

CAUSES = (
    Cause("executorch-computed-weight", "executorch", standardized, IMAGE, quantizer="xnnpack"),
    *(
        Cause("cortexm-pool-options", "cortex-m", pooled_and_activated(**options), negative_images, quantizer="cortexm")
        for options in ({"kernel_size": 2, "dilation": 2}, {"kernel_size": 3, "stride": 2, "ceil_mode": True})
    ),
    Cause("executorch-embedding-bag", "executorch", lambda: nn.EmbeddingBag(9, 4), indices, quantizer="xnnpack"),
    Cause("executorch-missing-kernel", "executorch", lambda: nn.MaxPool3d(2), VOLUME, quantizer="xnnpack"),
    *(
        Cause("executorch-volumes", "executorch", model, VOLUME, quantizer="xnnpack")
        for model in (lambda: nn.Conv3d(4, 4, 1), lambda: nn.Sequential(nn.Conv3d(4, 4, 1), nn.ReLU()))
    ),
    Cause("xnnpack-conv1d-in-float", "executorch", decoded_twice, SIGNAL, quantizer="xnnpack"),
    Cause("xnnpack-norm-numbered", "executorch", lambda: nn.BatchNorm2d(4), IMAGE, quantizer="xnnpack"),
    Cause("xnnpack-prelu-volumes", "executorch", nn.PReLU, VOLUME, quantizer="xnnpack"),
    Cause("executorch-not-core", "executorch", lambda: nn.AdaptiveMaxPool2d(2), IMAGE, quantizer="xnnpack"),
    Cause("executorch-shared-bias", "executorch", applied_to_parts, IMAGE, quantizer="xnnpack"),
    Cause("xnnpack-integer-scalar", "executorch", next_embedded, indices, quantizer="xnnpack"),
    Cause("xnnpack-pad-in-float", "executorch", padded, IMAGE, quantizer="xnnpack"),
    Cause("xnnpack-seven-dimensions", "executorch", in_windows, IMAGE, quantizer="xnnpack"),
    Cause("xnnpack-slice", "executorch", halves_added, IMAGE, quantizer="xnnpack"),
    *(
        Cause("norm-computed-weight", engine, norm_behind_part_of_a_weight, IMAGE, quantizer=quantizer)
        for engine, quantizer in (("executorch", "xnnpack"), ("x86-inductor", "x86inductor"))
    ),
    *(
        Cause("qat-norm-called-twice", engine, normed_twice, IMAGE, quantizer=quantizer, qat=True)
        for engine, quantizer in (("executorch", "xnnpack"), ("x86-inductor", "x86inductor"))
    ),
    *(
        Cause("qat-norm-eps", engine, norm_with_another_eps, IMAGE, quantizer=quantizer, qat=True)
        for engine, quantizer in (("executorch", "xnnpack"), ("x86-inductor", "x86inductor"))
    ),
    Cause("x86-boolean-observed", "x86-inductor", kept_where_greatest, IMAGE, quantizer="x86inductor"),
    Cause("x86-add-scalar", "x86-inductor", results_summed, IMAGE, quantizer="x86inductor"),
    Cause("shared-layer-norms", "x86-inductor", weight_of_two_and_a_norm, IMAGE, quantizer="x86inductor"),
    Cause(
        "x86-shared-convolution",
        "x86-inductor",
        activated_twice,
        normal(2, 4, 8, 8, last=True),
        quantizer="x86inductor",
    ),
    Cause("x86-padding-same", "x86-inductor", padded_to_the_same_size, IMAGE, quantizer="x86inductor"),
    Cause("x86-view-of-channels-last", "x86-inductor", flattened, IMAGE, quantizer="x86inductor"),
    Cause("add-alpha", "onednn", added_twice_over, IMAGE),
    *(Cause("add-overflows", engine, masked, masked_by_the_least) for engine in ("x86", "fbgemm")),
    Cause("avg-pool-options", "qnnpack", lambda: nn.AvgPool2d(3, 1, 1, count_include_pad=False), IMAGE),
    Cause("boolean-observed", "x86", kept_where_greatest, IMAGE),
    *(
        Cause("called-twice", engine, called_twice, IMAGE, beside=frozenset({"range-shared-with-multiple"}))
        for engine in ("x86", "qnnpack")
    ),
    *(
        Cause("conv-amx", engine, lambda: nn.Conv2d(32, 32, 8, stride=8), normal(2, 32, 24, 24), isa="*+amx")
        for engine in ("onednn", "x86")
    ),
    Cause("conv-add-broadcast", "onednn", added_to_each_position, IMAGE),
    Cause("conv-add-in-place", "onednn", added_and_used_again, IMAGE),
    Cause("conv-add-in-place", "onednn", added_to_itself, normal(2, 4, 8, 8, last=True), isa="*[!x]"),
    Cause("conv-add-in-place", "onednn", added_to_itself_by_another_name, IMAGE, isa="*[!x]"),
    # images as large as CPUs with AMX need to show it
    Cause("conv-add-in-place", "onednn", added_to_a_view_of_itself, normal(2, 4, 40, 40), isa="avx512_vnni*"),
    Cause("conv-add-other-weight", "onednn", added_to_its_input, IMAGE, isa="avx512_vnni*"),
    Cause("conv-add-in-place", "onednn", added_and_activated_in_place, IMAGE),
    Cause("conv-add-scalar", "onednn", added_number, IMAGE),
    Cause("conv-padding-same", "x86", padded_to_the_same_size, IMAGE),
    Cause("depthwise-beyond-reduced-range", "fbgemm", positive_depthwise, beyond_calibration, arch="x86_64"),
    Cause("depthwise-beyond-reduced-range", "x86", positive_depthwise, beyond_calibration, arch="x86_64"),
    *(
        Cause(
            "fbgemm-saturation",
            engine,
            lambda: nn.Conv2d(8, 16, 3),
            twice_the_calibration,
            arch="x86_64",
            isa="avx*[2f]",
        )
        for engine in ("fbgemm", "x86")
    ),
    Cause(
        "onednn-saturation",
        "onednn",
        lambda: nn.Conv2d(8, 16, 3),
        twice_the_calibration,
        arch="x86_64",
        isa="avx*[2f]",
    ),
    Cause(
        "fbgemm-direct-convolution-garbage",
        "fbgemm",
        lambda: nn.ConvTranspose2d(8, 8, 2, 2),
        normal(2, 8, 4, 4),
        arch="x86_64",
    ),
    Cause(
        "conv-transpose-bn-groups",
        "x86",
        lambda: nn.Sequential(nn.ConvTranspose2d(8, 8, 3, groups=8), nn.BatchNorm2d(8)),
        normal(2, 8, 4, 4),
    ),
    Cause("functional-conv-options", "x86", without_bias, IMAGE),
    *(
        Cause("fixed-range-on-input", engine, kind, normal(2, 4, 8, 8))
        for engine in ("x86", "qnnpack")
        for kind in (nn.Sigmoid, nn.Hardsigmoid, nn.Tanh, lambda: nn.Softmax(1))
    ),
    Cause(
        "instance-norm-cancellation",
        "onednn",
        lambda: nn.InstanceNorm2d(2),
        normal(2, 2, 32, 32, mean=100.0, last=True),
    ),
    Cause("joined-on-grid-of-first", "x86", joined_twice, IMAGE),
    Cause("keyword-dropped", "x86", given_by_keyword, IMAGE),
    Cause("layer-norm-used-in-float", "x86", normalized_for_two, normal(2, 4)),
    Cause("layer-norm-used-in-float", "qnnpack", normalized_for_two, normal(2, 4)),
    *(Cause("inplace-alias", engine, written_before_it_is_used, normal(4, 4)) for engine in ("x86", "qnnpack")),
    *(
        Cause("forward-hooks-dropped", engine, partial(doubled, after), normal(4, 8))
        for engine in ("x86", "qnnpack")
        for after in (nn.ReLU(), nn.Linear(8, 4))
    ),
    *(Cause("forward-hooks-dropped", engine, hooked_norm, IMAGE) for engine in ("x86", "qnnpack")),
    *(Cause("fused-in-every-call", engine, activated_once, normal(4, 8)) for engine in ("x86", "onednn", "qnnpack")),
    Cause("codes-add-scalar-rounded", "x86", number_added, normal(64, 8), beside=frozenset({"scalar-own-qparams"})),
    Cause("linear-batchnorm-rank3", "x86", lambda: nn.Sequential(normalized_by_row(8), nn.ReLU()), normal(4, 8, 8)),
    *(
        Cause("linear-batchnorm-rank3", engine, partial(normalized_by_row, rows), normal(4, rows, 8))
        for engine in ("x86", "onednn", "qnnpack")
        for rows in (8, 5)
    ),
    Cause("linear-functional-activation", "onednn", linear_and_function, normal(2, 4), beside=FIXED),
    Cause(
        "onednn-default-mapping-tanh",
        "onednn",
        lambda: nn.Sequential(nn.Linear(4, 4), nn.Tanh()),
        normal(2, 4),
    ),
    Cause("onednn-default-mapping-conv-transpose", "onednn", upsampled, IMAGE),
    Cause("onednn-conv-transpose-channels", "x86", lambda: nn.ConvTranspose2d(4, 3, 2, 2), IMAGE, isa="avx512_vnni*"),
    Cause("prelu-one-on-grid-of-slope", "x86", lambda: nn.PReLU(4), IMAGE),
    Cause("prelu-one-on-grid-of-slope", "qnnpack", lambda: nn.PReLU(4), IMAGE),
    Cause("tuple-observed", "x86", pooled_with_indices, IMAGE),
    *(
        Cause(
            "prelu-without-qconfig",
            engine,
            lambda: between_layers(nn.PReLU()),
            normal(4, 8),
            mapping=partial(without, engine, nn.PReLU),
        )
        for engine in ("x86", "qnnpack")
    ),
    *(
        Cause(
            "quantized-without-qconfig",
            engine,
            partial(between_layers, operator),
            normal(4, 8),
            mapping=partial(without, engine, type(operator)),
        )
        for engine in ("x86", "qnnpack")
        for operator in (nn.ELU(), nn.LeakyReLU(), nn.Hardswish(), nn.LayerNorm(8), nn.Softmax(-1))
    ),
    *(
        Cause(
            "parameter-read-after-fusion",
            engine,
            partial(weight_of_two, transposed=transposed),
            normal(4, 8),
            beside=READ_AGAIN,
        )
        for engine in ("x86", "qnnpack")
        for transposed in (True, False)
    ),
    *(Cause("range-shared-with-multiple", engine, multiplied, normal(4, 8)) for engine in ("x86", "qnnpack")),
    *(Cause("linear-norm-relu-dropped", engine, normed_beside_input, normal(4, 8)) for engine in ("x86", "qnnpack")),
    Cause("prelu-slope-rounded", "x86", lambda: nn.PReLU(4, 1.3), normal(2, 4, 32, 32)),
    Cause("qnnpack-add-scale", "qnnpack", only_zeros, normal(2, 4, mean=-1000.0), beside=FIXED),
    Cause("qnnpack-clamp-channels-last", "qnnpack", clamped, IMAGE),
    Cause("qnnpack-conv-transpose3d-garbage", "qnnpack", lambda: nn.ConvTranspose3d(4, 4, 2, 2), VOLUME),
    Cause("qnnpack-max-pool-dilation", "qnnpack", lambda: nn.MaxPool2d(2, 1, 1, 2), IMAGE),
    Cause("qnnpack-max-pool3d", "qnnpack", lambda: nn.MaxPool3d(2), VOLUME),
    Cause("qnnpack-pool-of-one", "qnnpack", lambda: nn.MaxPool2d(1, 2), IMAGE),
    Cause(
        "norm-without-affine",
        "x86",
        lambda: nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4, affine=False)),
        normal(4, 4),
    ),
    Cause(
        "norm-without-statistics",
        "x86",
        lambda: nn.Sequential(nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4, track_running_stats=False)),
        IMAGE,
    ),
    Cause("qint8-fixed-qparams", "qnnpack", nn.Hardsigmoid, normal(4, 8, mean=-2.0), mapping=signed),
    Cause("scalar-own-qparams", "qnnpack", scaled_weight, IMAGE),
    *(Cause("shared-observer-chain", engine, averages_joined, IMAGE) for engine in ("x86", "onednn", "qnnpack")),
    *(Cause("tuple-observed", engine, joined_whole, IMAGE) for engine in ("x86", "qnnpack")),
    *(Cause("folded-weight-read", engine, weight_in_float_too, IMAGE) for engine in ("x86", "onednn", "qnnpack")),
    Cause("view-channels-last", "x86", viewed_as_rows, IMAGE),
    *(
        Cause("weights-not-float32", "x86", partial(in_dtype, dtype), normal(4, 8))
        for dtype in (torch.float16, torch.bfloat16, torch.float64)
    ),
    Cause("weight-read-after-lowering", "x86", dtype_of_weight, IMAGE),
    Cause("weight-read-after-lowering", "x86", added_bias, normal(4, 4)),
)
