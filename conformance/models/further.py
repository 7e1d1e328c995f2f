"""Further inputs of a model, in other sizes, and with other scales and zero points, than it is calibrated with.

Which sizes may change is found with the float model: an axis may if the model accepts another size of it.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from conformance.cases.combined import exponents, placed
from conformance.cases.features import features
from conformance.cases.operators import Operand, Variant
from conformance.cases.operators.variant import in_degenerate_data, in_sizes
from conformance.cases.ranges import MAGNITUDES, in_range, magnitude, range_of
from conformance.results.findings.stages import VIEWS
from conformance.results.profiles import PROFILES

from .build import FloatModel, Subject, by_value, operand
from .data import integer, integers, laid_out

ELEMENTS = (12_000, 1_500, 200)
"""The most elements of an operand, for each further input in turn."""

LARGE = 150_000
"""About the number of elements of an operand in the first further input of the point `long`, as of images in networks."""

Axes = Sequence[tuple[str, int]]
"""Axes of one size that change together: the name of each operand with the axis, counted from the last."""


@dataclass(frozen=True)
class Free:
    """Axes that may change together: the multiples of `step` from `least` on are sizes that they may have."""

    axes: Axes
    step: int
    least: int


class Sizes:
    """The sizes that the operands of a subject may have instead of their own."""

    def __init__(self, subject: Subject) -> None:
        assert subject.run.variant is not None
        self.run, self.variant = subject.run, subject.run.variant
        self.model = FloatModel(subject)
        self.shapes = {name: tuple(x.shape) for (name, _), x in zip(self._specs, subject.inputs, strict=True)}
        self.own = self.results(self.shapes)

    @property
    def _specs(self) -> Sequence[tuple[str, Operand]]:
        return self.run.model.operands

    def results(self, shapes: Mapping[str, tuple[int, ...]]) -> list[tuple[int, ...]] | None:
        """The shapes of the float model's outputs for operands of these shapes; None if it raises or an output is empty."""
        inputs = [_blank(spec, shapes[name]) for name, spec in self._specs]
        try:
            results = [tuple(output.shape) for output in self.model(inputs)]
        except Exception:  # a float model refuses sizes with exceptions of many types; no quantized kernel runs here
            return None
        return results if all(map(math.prod, results)) else None

    @cached_property
    def free(self) -> list[Free]:
        """The axes that may change, each once: those of one size at one place in all operands, or else one alone."""
        found: list[Free] = []
        taken: set[tuple[str, int]] = set()
        for name, shape in self.shapes.items():
            for axis in range(-len(shape), 0):
                if (name, axis) not in taken and (free := self._free(name, axis)) is not None:
                    found.append(free)
                    taken.update(free.axes)
        return found

    def _free(self, name: str, axis: int) -> Free | None:
        size = self.shapes[name][axis]
        if size < 2:  # an operand of one element in an axis may be broadcast, and stays so
            return None
        aligned = [(n, axis) for n, s in self.shapes.items() if len(s) >= -axis and s[axis] == size]
        others = [
            [(name, axis), (n, a)]
            for n, s in self.shapes.items()
            for a in range(-len(s), 0)
            if n != name and a != axis and s[a] == size
        ]
        for axes in (aligned, [(name, axis)], *others):
            for step in (1, size):
                results = self.results(self._changed(self.shapes, axes, size + step))
                if results is not None:
                    # what does not depend on a size may, like resize_, read beyond the end of a smaller tensor
                    return Free(axes, step, size if results == self.own else step)
        return None

    @staticmethod
    def _changed(shapes: Mapping[str, tuple[int, ...]], axes: Axes, size: int) -> dict[str, tuple[int, ...]]:
        changed = {name: list(shape) for name, shape in shapes.items()}
        for name, axis in axes:
            changed[name][axis] = size
        return {name: tuple(shape) for name, shape in changed.items()}

    def drawn(self, number: int) -> Variant | None:
        """Further input `number`: its sizes are a function of the run's key. None if they are the run's own, or unlike them.

        A size is uniform in its logarithm, up to what `ELEMENTS` leaves of the operands, or is an equal part of `LARGE`. Half
        of them are the nearest power of two, or beside it, where kernels have paths of their own.
        """
        key, shapes = f"{self.run.key}/further{number}", dict(self.shapes)
        large = number == 0 and self.variant.name == "long"
        elements = LARGE if large else ELEMENTS[number % len(ELEMENTS)]
        order = integers(f"{key}/order", len(self.free), 0, 1 << 20).tolist()
        drawn = sorted(zip(order, self.free, strict=True), key=lambda pair: pair[0])
        for left, (_, free) in zip(range(len(drawn), 0, -1), drawn, strict=True):
            name, axis = free.axes[0]
            rest = max(math.prod(shapes[n]) for n, _ in free.axes) // shapes[name][axis]
            most = max(free.least, elements // max(rest, 1))
            part = 1 / left if large else integer(f"{key}/{name}/{axis}", 0, 1 << 16) / (1 << 16)
            size = round(free.least * (most / free.least) ** part)
            beside = integer(f"{key}/{name}/{axis}/beside", -4, 1)
            if beside >= -1:
                size = min(most, 2 ** round(math.log2(size)) + beside)
            shapes = self._changed(shapes, free.axes, max(free.least, size // free.step * free.step))
        if shapes == self.shapes:
            return None
        variant = in_sizes(self.variant, shapes)
        return variant if self._alike(variant) else None

    @cached_property
    def steps(self) -> list[int]:
        """The exponents of the steps that data may have, in turns: those of the magnitude of the run's own, which come last.

        There are none where the qparams of the calibration stay: of operators without any, of fixed ones, and of models of
        several operators.
        """
        scheme, variant = self.run.recipe.scheme, self.variant
        grid, own = scheme.activation, range_of(variant.data)
        if scheme.kind != "static" or grid is None or grid.fixed is not None or scheme.others is not None:
            return []
        if variant.saturates or grid.zero_point != "affine" or variant.has_other_operators:
            return []
        if PROFILES[self.run.profile].mapping != "exact" or not (own.covers.isdecimal() or own.covers == "both"):
            return []
        of_size = MAGNITUDES[magnitude(own.exponent)]
        others = [
            exponent for exponent in exponents(self.run.claim) if exponent in of_size and exponent != own.exponent
        ]
        return [*others, own.exponent] if others else []

    def data(self, turn: int) -> str:
        """The range of the data of the execution in this turn: its scale is not that of the one before it, because kernels
        may keep what they derive from the scale of their input."""
        return placed(f"{self.run.key}/range{turn}", [self.steps[turn % len(self.steps)]])

    def _alike(self, variant: Variant) -> bool:
        """Whether the execution has the features of the run, by which the ledger covers it."""
        return self._features == self._features_of(replace(self.variant, operands=variant.executed))

    @cached_property
    def _features(self) -> frozenset[str]:
        return self._features_of(self.variant)

    def _features_of(self, variant: Variant) -> frozenset[str]:
        return features(self.run.claim.root, replace(variant, batch=None), self.run.recipe.steps)


def _blank(spec: Operand, shape: tuple[int, ...]) -> Tensor:
    """Zeros in a shape and the layout of an operand."""
    integral = spec.kind in ("indices", "offsets")
    zeros = torch.zeros(shape, dtype=torch.int64 if integral else torch.float32)
    return laid_out(zeros, spec.layout)


def further(subject: Subject, count: int, data: Iterable[str], *, in_ranges: bool) -> Iterator[Subject]:
    """Yield subjects of the same model with degenerate `data`, and with up to `count` further inputs.

    If `in_ranges`, the data of further inputs have other ranges, which they are calibrated with, where the run allows that.
    """
    assert subject.run.variant is not None
    for name in data if all(x.numel() for x in subject.inputs) else ():
        other = _executing(subject, in_degenerate_data(subject.run.variant, name))
        if name not in VIEWS or by_value(subject, other.inputs):
            yield other
    if count:
        yield from in_other_sizes(subject, count, in_ranges=in_ranges)


def in_other_sizes(subject: Subject, count: int, *, in_ranges: bool) -> Iterator[Subject]:
    """Yield subjects of the same model with up to `count` inputs in other sizes, and maybe ranges, as in `further`."""
    sizes = Sizes(subject)
    drawn = map(sizes.drawn, range(count if sizes.free else 0))
    for turn, variant in enumerate(filter(None, drawn)):
        if in_ranges and sizes.steps:
            variant = in_range(variant, sizes.data(turn))
        other = _executing(subject, variant)
        if variant.data != sizes.variant.data:
            specs = other.run.model.operands
            calibration = tuple(operand(other.run, name, spec, executed=False) for name, spec in specs)
            other = replace(other, calibration=calibration)
        yield other


def _executing(subject: Subject, variant: Variant) -> Subject:
    """The subject with the inputs of a variant that its execution has."""
    run = replace(subject.run, variant=variant)
    return replace(
        subject, run=run, inputs=tuple(operand(run, name, spec, executed=True) for name, spec in run.model.operands)
    )


def accepted(subject: Subject) -> bool:
    """Whether the float model accepts the inputs of a subject: each axis may have another size, but not all of them any."""
    try:
        FloatModel(subject)(subject.fresh_inputs())
    except Exception:  # of many types, as of `Sizes.results`
        return False
    return True
