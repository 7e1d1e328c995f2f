"""Activation functions, fixed-qparams functions, dropout, and binary arithmetic."""

from collections.abc import Iterator
from dataclasses import replace

from .expressions import Call
from .variant import Operand, Shape, Variant, batch_variants, called_twice, data_variants, layout_variants, operands

IMAGE: Shape = (2, 4, 7, 5)
"""Default shape: 280 elements, so that vector loops have a scalar tail."""

WIDE_INPUT = "self.prelude = nn.Hardtanh(-8.0, 8.0)"
"""Source of an operator with qparams of its own, which precedes a fixed-qparams function as in a network."""


def _unary(call: str, init: str = "", shape: Shape = IMAGE, **fields: object) -> list[Variant]:
    """Variants that every function of one tensor has."""
    default = Variant("default", call, operands(shape), init, core=True, output=shape, **fields)  # type: ignore[arg-type]
    return [
        default,
        default.named("vector", operands=operands((3,)), core=False),
        default.named("large", operands=operands((4, 3, 67)), core=False),
        default.named("reused", result="y, x", core=False),
        *batch_variants(default, 0, 1),
        *data_variants(default),
        *layout_variants(default),
    ]


def _functional(function: str, *options: str, inplace: bool = True) -> list[Variant]:
    """One variant for each text of further arguments in `options`, named by that text."""
    variants = _unary(f"{function}(x)")
    default = variants[0]
    extra = [default.named(_label(option), call=f"{function}(x, {option})", core=False) for option in options]
    if inplace:
        extra.append(default.named("inplace", call=f"{function}(x, inplace=True)", core=False))
    return [*variants, *extra, default.named("keyword", call=f"{function}(input=x)", core=False)]


def _module(module: str, *options: str, inplace: bool = True) -> list[Variant]:
    variants = _unary("self.op(x)", f"{module}()")
    default = variants[0]
    extra = [default.named(_label(option), init=f"{module}({option})", core=False) for option in options]
    if inplace:
        extra.append(default.named("inplace", init=f"{module}(inplace=True)", core=False))
    return [
        *variants,
        *extra,
        default.named("keyword", call="self.op(input=x)", core=False),
        called_twice(default),
    ]


def _method(name: str, *options: str) -> list[Variant]:
    variants = _unary(f"x.{name}()")
    return [*variants, *(variants[0].named(_label(o), call=f"x.{name}({o})", core=False) for o in options)]


def _label(option: str) -> str:
    """A variant's name from an option's text: `negative_slope=0.25` gives `negative_slope_0.25`."""
    return "_".join("".join(c if c.isalnum() or c in "._-" else " " for c in option).split())


def in_network(variant: Variant) -> Variant:
    """The variant after an operator with qparams of its own, on data of the whole range."""
    return variant.named("in_network", data="full", prelude=WIDE_INPUT, core=False)


def _fixed(variants: list[Variant], *, probability: bool) -> list[Variant]:
    """Fixed-qparams functions as the first operator, their input on the same fixed grid, and within a network.

    The fixed grid covers [0, 1) or [-1, 1), so the data ranges of other operators do not apply to it.
    """
    kept = [
        v.named(v.name, data="unit" if probability else "signed_unit")
        for v in variants
        if v.name not in ("positive", "negative", "tiny", "huge")
    ]
    return [*kept, in_network(kept[0])]


def _fixed_table() -> Iterator[tuple[str, list[Variant]]]:
    for name, module in (("hardsigmoid", "nn.Hardsigmoid"), ("sigmoid", "nn.Sigmoid"), ("tanh", "nn.Tanh")):
        probability = name != "tanh"
        yield module, _fixed(_module(module, inplace=name == "hardsigmoid"), probability=probability)
        function = "F.hardsigmoid" if name == "hardsigmoid" else f"torch.{name}"
        functional = _functional(function, inplace=name == "hardsigmoid")
        yield function, _fixed(functional, probability=probability)
        yield f"Tensor.{name}", _fixed(_method(name), probability=probability)
        yield f"Tensor.{name}_", _fixed(_method(f"{name}_"), probability=probability)
    softmax = [
        v.named(v.name, init=f"nn.Softmax(dim={0 if v.name == 'vector' else 1})")
        for v in _module("nn.Softmax", inplace=False)
    ]
    softmax.append(softmax[0].named("matrix", operands=operands((4, 10)), core=False))
    softmax.append(softmax[0].named("last_dimension", init="nn.Softmax(dim=-1)", core=False))
    softmax.append(softmax[0].named("dimension_before_last", init="nn.Softmax(dim=-2)", core=False))
    vector = next(v for v in softmax if v.name == "vector")
    softmax.append(vector.named("empty_vector", batch=0))
    yield "nn.Softmax", _fixed(softmax, probability=True)


def _activation_table() -> Iterator[tuple[str, list[Variant]]]:
    yield "nn.ELU", _module("nn.ELU", "alpha=2.0")
    yield "F.elu", _functional("F.elu", "alpha=2.0", "2.0")
    yield "nn.LeakyReLU", _module("nn.LeakyReLU", "negative_slope=0.25")
    for function in ("F.leaky_relu", "F.leaky_relu_"):
        yield function, _functional(function, "negative_slope=0.25", "0.25", inplace=function == "F.leaky_relu")
    yield "Tensor.leaky_relu", _method("leaky_relu")
    yield "nn.Hardswish", _module("nn.Hardswish")
    yield "F.hardswish", _functional("F.hardswish")
    yield "nn.Dropout", _module("nn.Dropout", "p=0.25")
    yield (
        "F.dropout",
        [
            v.named(v.name, call=replace(call, keywords=(*call.keywords, ("training", "False"))).source)
            for v in _functional("F.dropout", "p=0.25")
            for call in [Call.parse(v.call)]
        ],
    )
    prelu = _unary("self.op(x)", "nn.PReLU()")
    yield (
        "nn.PReLU",
        [
            *prelu,
            prelu[0].named("per_channel_slope", init="nn.PReLU(4)", core=False),
            prelu[0].named("keyword", call="self.op(input=x)", core=False),
        ],
    )
    yield "nn.ReLU", _module("nn.ReLU")
    yield "nn.ReLU6", _module("nn.ReLU6")
    yield "F.relu", _functional("F.relu")
    yield "F.relu6", _functional("F.relu6")
    yield "torch.relu", _functional("torch.relu", inplace=False)
    yield "Tensor.relu", _method("relu")
    yield "Tensor.relu_", _method("relu_")
    yield "nn.Hardtanh", _module("nn.Hardtanh", "-2.0, 3.0", "min_val=-0.5, max_val=0.25")
    yield "F.hardtanh", _functional("F.hardtanh", "-2.0, 3.0", "min_val=-0.5, max_val=0.25")
    yield "F.hardtanh_", _functional("F.hardtanh_", "-2.0, 3.0", "min_val=-2.0", inplace=False)
    yield "nn.Identity", [v for v in _module("nn.Identity", inplace=False) if v.name != "called_twice"]
    for name, variants in (("torch.clamp", "torch.clamp(x, {})"), ("Tensor.clamp", "x.clamp({})")):
        base = _unary(variants.format("-1.5, 2.0"))
        bounds = ("min=-1.5", "max=2.0", "min=0", "min=-1.5, max=2.0", "-100.0, 100.0")
        bounded = [base[0].named(_label(b), call=variants.format(b), core=False) for b in bounds]
        by_keyword = [base[0].named("keyword", call="torch.clamp(input=x, min=-1.5, max=2.0)", core=False)]
        yield name, [*base, *bounded, *(by_keyword if name == "torch.clamp" else [])]


def _binary(symbol: str, call: str) -> list[Variant]:
    """Binary operations of two tensors or a tensor and a number; `call` has places for both operands."""
    two = operands(IMAGE, IMAGE)
    default = Variant("default", call.format("x", "y"), two, core=True, output=IMAGE)
    number = default.named("scalar", call=call.format("x", "0.5"), operands=operands(IMAGE))
    return [
        default,
        number,
        default.named("other_scale", operands=operands(IMAGE, y=Operand(IMAGE, exponent=-3))),
        # with another scale too: exchanging the zero points of tensors of equal scale does not change their sum
        default.named("other_zero_point", operands=operands(IMAGE, y=Operand(IMAGE, exponent=-1, data="positive"))),
        *([default.named("symmetric", data="symmetric")] if symbol == "add" else []),
        default.named("broadcast", operands=operands(IMAGE, (4, 1, 1)), core=False),
        default.named("broadcast_left", operands=operands((4, 1, 1), IMAGE), core=False),
        default.named("broadcast_rows", operands=operands(IMAGE, (*IMAGE[:-1], 1)), core=False),
        default.named("same_tensor", call=call.format("x", "x"), operands=operands(IMAGE)),
        default.named(
            "reused", result="y, x", call=call.format("x", "z"), operands=operands(x=IMAGE, z=IMAGE), core=False
        ),
        default.named("large", operands=operands((4, 3, 67), (4, 3, 67)), core=False),
        default.named("vector", operands=operands((3,), (3,)), core=False),
        *batch_variants(default, 0, 1),
        # after a ReLU, sums of negative numbers are zero, and the output has the least scale
        *(v.named(v.name, core=v.name == "negative" and symbol == "add") for v in data_variants(default)),
        number.named("scalar_negative", call=call.format("x", "-2.0"), core=False),
        number.named("scalar_integer", call=call.format("x", "2"), core=False),
        *([number.named("scalar_zero", call=call.format("x", "0.0"), core=False)] if symbol == "mul" else []),
        # half of the least scale that a config may allow
        *([number.named("scalar_tiny", data="tiny", core=False)] if symbol == "mul" else []),
    ]


def _binary_table() -> Iterator[tuple[str, list[Variant]]]:
    for symbol, sign in (("add", "+"), ("sub", "-"), ("mul", "*")):
        infix = _binary(symbol, f"{{}} {sign} {{}}")
        left = infix[1].named("scalar_left", call=f"1.5 {sign} x", core=False)
        yield f"operator.{symbol}", [*infix, left]
        function = _binary(symbol, f"torch.{symbol}({{}}, {{}})")
        keyword = function[0].named("keyword", call=f"torch.{symbol}(input=x, other=y)", core=False)
        alpha = (
            [] if symbol == "mul" else [function[0].named("alpha_2", call=f"torch.{symbol}(x, y, alpha=2)", core=False)]
        )
        yield f"torch.{symbol}", [*function, keyword, *alpha]
    matmul = Variant("default", "torch.matmul(x, y)", operands((2, 4, 5), (2, 5, 3)), core=True, output=(2, 4, 3))
    yield (
        "torch.matmul",
        [
            matmul,
            matmul.named("matrices", operands=operands((4, 5), (5, 3)), core=False),
            matmul.named("large", operands=operands((33, 64), (64, 48)), core=False),
            matmul.named("rank4", operands=operands((2, 3, 4, 5), (2, 3, 5, 2)), core=False),
            matmul.named("broadcast", operands=operands((2, 4, 5), (5, 3)), core=False),
            matmul.named("vector", operands=operands((4, 5), (5,)), core=False),
            matmul.named("dot", operands=operands((5,), (5,)), core=False),
            matmul.named("other_scale", operands=operands((2, 4, 5), y=Operand((2, 5, 3), exponent=-3)), core=False),
            matmul.named(
                "other_zero_point", operands=operands((2, 4, 5), y=Operand((2, 5, 3), data="positive")), core=False
            ),
            matmul.named("keyword", call="torch.matmul(input=x, other=y)", core=False),
            matmul.named("same_tensor", call="torch.matmul(x, x)", operands=operands((4, 4)), core=False),
            *data_variants(matmul),
        ],
    )


ELEMENTWISE = dict([*_fixed_table(), *_activation_table(), *_binary_table()])
