"""Fused modules and QAT modules, which hold a layer."""

from collections.abc import Iterator
from dataclasses import dataclass

from conformance.configs.spelling import is_batch_norm

from .expressions import Call, Source, X
from .variant import Operand, Variant


@dataclass(frozen=True)
class FusedModule:
    """Modules inside a fused module: the name of the layer, and source of what follows it.

    The source has a place for the number of the layer's output `{channels}`.
    """

    layer: str
    followers: tuple[str, ...]


def _fused_modules() -> Iterator[tuple[str, FusedModule]]:
    relu = "nn.ReLU()"
    for rank in (1, 2, 3):
        layer, norm = f"nn.Conv{rank}d", f"nn.BatchNorm{rank}d({{channels}})"
        yield f"nni.ConvReLU{rank}d", FusedModule(layer, (relu,))
        yield f"nni.ConvBn{rank}d", FusedModule(layer, (norm,))
        yield f"nni.ConvBnReLU{rank}d", FusedModule(layer, (norm, relu))
    for rank in (2, 3):
        yield f"nni.BNReLU{rank}d", FusedModule(f"nn.BatchNorm{rank}d", (relu,))
    yield "nni.ConvAdd2d", FusedModule("nn.Conv2d", ("torch.add",))
    yield "nni.ConvAddReLU2d", FusedModule("nn.Conv2d", ("torch.add", relu))
    yield "nni.LinearReLU", FusedModule("nn.Linear", (relu,))
    yield "nni.LinearBn1d", FusedModule("nn.Linear", ("nn.BatchNorm1d({channels})",))
    yield "nni.LinearLeakyReLU", FusedModule("nn.Linear", ("nn.LeakyReLU(0.25)",))
    yield "nni.LinearTanh", FusedModule("nn.Linear", ("nn.Tanh()",))


def _qat_modules() -> Iterator[tuple[str, str]]:
    for rank in (1, 2, 3):
        for name in ("nnqat.Conv", "nniqat.ConvReLU", "nniqat.ConvBn", "nniqat.ConvBnReLU"):
            yield f"{name}{rank}d", f"nn.Conv{rank}d"
    for name in ("nnqat.Linear", "nniqat.LinearReLU", "nniqat.LinearBn1d"):
        yield name, "nn.Linear"


QCONFIG = {"qconfig": Source("qconfig")}
"""The further argument of a QAT module."""

FUSED = dict(_fused_modules())
"""Fused modules by name."""

QAT = dict(_qat_modules())
"""QAT modules, and the layer whose constructor arguments they take."""


NORMED_QAT = frozenset(
    {"nniqat.LinearBn1d", *(f"nniqat.{name}{rank}d" for name in ("ConvBn", "ConvBnReLU") for rank in (1, 2, 3))}
)
"""QAT modules with a batch norm."""


def _relu_less() -> Iterator[tuple[str, str]]:
    for operator, module in FUSED.items():
        *rest, last = module.followers
        if last == "nn.ReLU()":
            same = (name for name, other in FUSED.items() if other == FusedModule(module.layer, tuple(rest)))
            yield operator, next(same) if rest else module.layer
    for rank in (1, 2, 3):
        yield f"nniqat.ConvReLU{rank}d", f"nnqat.Conv{rank}d"
        yield f"nniqat.ConvBnReLU{rank}d", f"nniqat.ConvBn{rank}d"
    yield "nniqat.LinearReLU", "nnqat.Linear"


WITHOUT_RELU = dict(_relu_less())
"""Fused and QAT modules that end in a ReLU, and the module that is the same without it."""


def init_without_relu(operator: str, init: str) -> Call:
    """The constructor of a fused or QAT module (a key of `WITHOUT_RELU`) without its ReLU.

    Raises ValueError if `init` does not construct `operator`.
    """
    if not isinstance(init, Call) or init.function != operator:
        raise ValueError(f"{str(init)!r} does not construct {operator}")
    without = WITHOUT_RELU[operator]
    if operator in QAT:
        return Call(without, init.positional, init.keywords)
    first, *rest = init.positional[:-1]
    return Call(without, (first, *rest)) if rest else first


def is_qat_module(operator: str) -> bool:
    """Whether an operator is a module of torch's for training, also one that no table has."""
    return operator.startswith(("nnqat.", "nniqat."))


def is_normed(operator: str) -> bool:
    """Whether an operator is a batch norm, or a module that holds one behind its layer."""
    if operator in FUSED:
        return any(is_batch_norm(follower.partition("(")[0]) for follower in FUSED[operator].followers)
    return is_batch_norm(operator) or operator in NORMED_QAT


def plain_of(operator: str) -> str:
    """Name of the layer inside a fused or QAT module; any other operator's own name."""
    return FUSED[operator].layer if operator in FUSED else QAT.get(operator, operator)


def wrapped(variant: Variant, operator: str) -> Variant:
    """A variant of a layer as a variant of the fused or QAT module `operator`; of any other operator, as it is."""
    if operator in QAT:
        layer = variant.stated
        return variant.named(variant.name, init=Call(operator, layer.positional, {**layer.keywords, **QCONFIG}))
    if operator not in FUSED:
        return variant
    followers = FUSED[operator].followers
    modules = (variant.init, *(Source(follower.format(channels=variant.channels)) for follower in followers))
    fused = variant.named(variant.name, init=Call(operator, modules))
    if "torch.add" not in followers:
        return fused
    addend = Operand(fused.output, exponent=1)
    call = Call("self.op", (X, Source("other")))
    return fused.named(fused.name, call=call, operands={**fused.operands, "other": addend})
