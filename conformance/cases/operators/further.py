"""Operators of configs of third parties, in the form in which these declare their own. They have no option spaces."""

from .record import IMAGE
from .variant import Operand, Shape, Variant, batch_variants, data_variants, layout_variants, operands, static_variants


def _addmm() -> list[Variant]:
    call = "torch.addmm(self.bias, x, self.weight{})"
    parameters: dict[str, Shape] = {"bias": (8,), "weight": (16, 8)}
    default = Variant("default", call.format(""), operands((4, 16)), "", parameters, output=(4, 8), core=True)
    wide = {"operands": operands((33, 128)), "parameters": {"bias": (96,), "weight": (128, 96)}}
    return [
        default,
        *static_variants(default),
        *batch_variants(default),
        *data_variants(default),
        default.named("strided", operands=operands(x=Operand((4, 16), layout="strided"))),
        default.named("wide", **wide),
        default.named("bias_of_rows", parameters={"bias": (4, 8), "weight": (16, 8)}),
        default.named("scaled", call=call.format(", beta=2, alpha=0.5")),
    ]


def _einsum() -> list[Variant]:
    batches, matrices = operands((2, 4, 5), (2, 5, 3)), operands((4, 5), (5, 3))
    default = Variant("default", "torch.einsum('bij,bjk->bik', x, y)", batches, core=True, output=(2, 4, 3))
    return [
        default,
        default.named("matrices", call="torch.einsum('ij,jk->ik', x, y)", operands=matrices, output=(4, 3)),
        default.named("transposed", call="torch.einsum('bij,bjk->bki', x, y)", output=(2, 3, 4)),
        default.named("outer", call="torch.einsum('i,j->ij', x, y)", operands=operands((4,), (5,)), output=(4, 5)),
        *data_variants(default),
    ]


def _glu(call: str, init: str = "") -> list[Variant]:
    """Variants of a gate, which halves a dimension. `{}` is the place of its option."""
    halved: Shape = (IMAGE[0], IMAGE[1] // 2, *IMAGE[2:])
    default = Variant("default", call.format("dim=1"), operands(IMAGE), init.format("dim=1"), output=halved, core=True)
    last = {"call": call.format("dim=-1"), "init": init.format("dim=-1"), "operands": operands((2, 4, 7, 6))}
    return [
        default,
        default.named("last_dimension", output=(2, 4, 7, 3), **last),
        *batch_variants(default, 0, 1),
        *data_variants(default),
        *layout_variants(default),
    ]


def _prelu() -> list[Variant]:
    default = Variant(
        "default", "F.prelu(x, self.weight)", operands(IMAGE), "", {"weight": (1,)}, output=IMAGE, core=True
    )
    return [
        default,
        default.named("per_channel_slope", parameters={"weight": (IMAGE[1],)}),
        *batch_variants(default, 0, 1),
        *data_variants(default),
        *layout_variants(default),
    ]


FURTHER: dict[str, list[Variant]] = {
    "torch.addmm": _addmm(),
    "torch.einsum": _einsum(),
    "nn.GLU": _glu("self.op(x)", "nn.GLU({})"),
    "F.glu": _glu("F.glu(x, {})"),
    "F.prelu": _prelu(),
}
"""Variants by operator, as `OPERATORS` has them."""
