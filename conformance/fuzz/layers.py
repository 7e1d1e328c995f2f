"""Hypothesis strategies for convolutions and linear layers: geometry, options and the way they are called."""

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from conformance.cases.operators import Operand, Shape, Variant
from conformance.cases.operators.variant import arguments, called_twice
from conformance.cases.operators.weighted import Geometry, linear, plain_of, positional, wrapped

SIZES = st.one_of(st.integers(1, 9), st.sampled_from((1, 8, 16, 17, 31, 32, 33, 64, 65)))
"""Numbers of channels, features and elements: small ones, and those around the widths of vector registers."""


@st.composite
def _lengths(draw: DrawFn, rank: int, values: SearchStrategy[int]) -> Any:
    """One length for all spatial dimensions, or a tuple of one length for each."""
    if rank == 1 or draw(st.booleans()):
        return draw(values)
    return tuple(draw(values) for _ in range(rank))


@st.composite
def geometries(draw: DrawFn, rank: int, *, transposed: bool, functional: bool) -> Geometry:
    """Channels, kernel, options and spatial size of a convolution."""
    groups = draw(st.sampled_from((1, 1, 2, 3, 4, 8)))
    left, right = (draw(st.integers(1, 4) if groups > 1 else SIZES) * groups for _ in range(2))
    options: dict[str, object] = {}
    kernel = draw(_lengths(rank, st.integers(1, 4)))
    for name, values in (
        ("stride", st.integers(1, 3)),
        ("dilation", st.integers(1, 3)),
        ("padding", st.integers(0, 3)),
    ):
        if draw(st.booleans()):
            options[name] = draw(_lengths(rank, values))
    if transposed and draw(st.booleans()):
        options["output_padding"] = draw(_lengths(rank, st.integers(0, 2)))
    if not transposed and draw(st.integers(0, 7)) == 0:
        options["padding"] = draw(st.sampled_from(("same", "valid")))
    if groups > 1:
        options["groups"] = groups
    if draw(st.booleans()):
        options["bias"] = False
    if not transposed and not functional and draw(st.integers(0, 7)) == 0:
        options["padding_mode"] = draw(st.sampled_from(("reflect", "replicate", "circular")))
    spatial = tuple(draw(st.integers(1, 12)) for _ in range(rank))
    return Geometry(rank, (left, right), kernel, transposed=transposed, spatial=spatial, **options)


def functional_calls(geometry: Geometry) -> list[str]:
    """Ways to call a convolution: options by position or keyword, bias by keyword, everything by keyword."""
    function = f"F.conv{'_transpose' * geometry.transposed}{geometry.rank}d"
    bias = "self.bias" if "bias" in geometry.parameters else "None"
    options = arguments(**{name: value for name, value in geometry.options.items() if name != "bias"})
    return [
        f"{function}(x, self.weight, {bias}{positional(geometry)})",
        f"{function}(x, self.weight, {bias}{options})",
        f"{function}(x, self.weight, bias={bias}{options})",
        f"{function}(input=x, weight=self.weight, bias={bias}{options})",
    ]


@st.composite
def convolutions(draw: DrawFn, operator: str, *, alone: bool) -> Variant:
    """A variant of a convolution as module, fused or QAT module, or functional.

    Only `alone`, without further operators in its pattern, it is called in different ways and without a batch dimension.
    """
    plain = plain_of(operator)
    rank, transposed, functional = int(plain[-2]), "ranspose" in plain, plain.startswith("F.")
    geometry = draw(geometries(rank, transposed=transposed, functional=functional))
    shape: Shape = (draw(st.integers(1, 3)), geometry.channels[0], *geometry.spatial)
    variant = Variant(
        "drawn",
        draw(st.sampled_from(functional_calls(geometry))) if functional else "self.op(x)",
        {"x": Operand(shape)},
        "" if functional else geometry.module,
        geometry.parameters if functional else {},
        (shape[0], *geometry.output[1:]),
    )
    if not functional and alone:
        style = draw(st.sampled_from(("default", "default", "keyword", "called_twice")))
        if style == "keyword":
            variant = replace(variant, call="self.op(input=x)")
        elif style == "called_twice" and geometry.channels[0] == geometry.channels[1]:
            variant = called_twice(variant, variant.name)
    if alone and draw(st.integers(0, 9)) == 0:
        variant = replace(variant, operands={"x": Operand(shape[1:])}, output=())
    return wrapped(variant, operator)


@st.composite
def linears(draw: DrawFn, operator: str, *, alone: bool) -> Variant:
    """A variant of a linear layer as module, fused or QAT module, or functional; `alone` as in `convolutions`."""
    features = draw(SIZES), draw(SIZES)
    leading = draw(st.lists(st.integers(1, 9), min_size=0 if alone else 1, max_size=3 if alone else 1))
    bias = draw(st.booleans())
    variant = linear(features, *leading, **({} if bias else {"bias": False})).named("drawn")
    if plain_of(operator) == "F.linear":
        calls = (
            (
                "F.linear(x, self.weight, self.bias)",
                "F.linear(x, self.weight, bias=self.bias)",
                "F.linear(input=x, weight=self.weight, bias=self.bias)",
            )
            if bias
            else ("F.linear(x, self.weight)",)
        )
        parameters = {"weight": (features[1], features[0])} | ({"bias": (features[1],)} if bias else {})
        return replace(variant, init="", call=draw(st.sampled_from(calls)), parameters=parameters)
    if alone and draw(st.integers(0, 7)) == 0:
        variant = replace(variant, call="self.op(input=x)")
    return wrapped(variant, operator)
