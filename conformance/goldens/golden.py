"""Stored goldens: what the oracle said, with digests of what went in and of what came out.

A golden is named by what is computed: the case without its backend, and the range of its activations. Backends and engines
that compute the same share it. `golden/` holds one safetensors file for each pattern, and MANIFEST.json, which has a line
for each golden.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from conformance.cases.recipes import RANGES, dtype_name
from conformance.cases.runs import Run
from conformance.engines.trace import Execution, qparams_of
from conformance.models.build import Subject
from conformance.oracle import Answer, Codes, Qparams, evaluate
from conformance.oracle.scheme import ALWAYS, Grid

STORED = {"quint8": torch.uint8, "qint8": torch.int8}


DTYPES = {stored: name for name, stored in STORED.items()}


@dataclass(frozen=True, eq=False)
class Expected:
    """One output. Quantized: the code `low` and, at a tie, its other neighbour `high`, with scale and zero point.
    Float: `low` and `high` are its float32 values."""

    low: Tensor
    high: Tensor
    scale: float = 0.0
    zero_point: int = 0
    dtype: str = "float32"

    @property
    def quantized(self) -> bool:
        return self.dtype in STORED

    @property
    def code(self) -> Tensor:
        """The one code of each element that rounding half to even gives, or its float value."""
        return torch.where((self.low % 2 == 0) | (self.low == self.high), self.low, self.high)

    @property
    def values(self) -> Tensor:
        """Values in real units (float64)."""
        return (self.code.double() - self.zero_point) * self.scale if self.quantized else self.low.double()


@dataclass(frozen=True, eq=False)
class Golden:
    """What one computation has to give: its outputs with the names of their qparams (or `float`), and by name scales and
    zero points (float64, one or one for each index of an axis) of all that is quantized."""

    outputs: tuple[Expected, ...]
    names: tuple[str, ...]
    qparams: Mapping[str, tuple[Tensor, Tensor]] = field(default_factory=dict)

    @property
    def elements(self) -> int:
        return sum(output.low.numel() for output in self.outputs)

    @property
    def ties(self) -> int:
        return sum(int((output.low != output.high).sum()) for output in self.outputs)


def name_of(run: Run) -> str:
    """The name of what a run computes: its case without the backend, the codes that its activations have, and whether its
    output keeps the input's qparams, in which backends differ."""
    scheme = run.recipe.scheme
    grid = scheme.others or scheme.activation
    codes = f":{grid.low}..{grid.high}" if grid is not None else ""
    return f"{run.key}{codes}{'-shared' if scheme.shares == ALWAYS else ''}"


def golden_of(answer: Answer) -> Golden:
    """An oracle's answer as a golden."""
    outputs, names = [], []
    labels = {id(qparams): name for name, qparams in answer.qparams.items()}
    for output in answer.outputs:
        if isinstance(output, Codes):
            stored = STORED[output.qparams.grid.dtype]
            scale, zero_point = float(output.qparams.scale), int(output.qparams.zero_point)
            outputs.append(
                Expected(output.low.to(stored), output.high.to(stored), scale, zero_point, output.qparams.grid.dtype)
            )
            names.append(labels[id(output.qparams)])
        else:
            outputs.append(Expected(output.float(), output.float()))
            names.append("float")
    qparams = {name: (one.scale.double(), one.zero_point.double()) for name, one in answer.qparams.items()}
    return Golden(tuple(outputs), tuple(names), qparams)


def compute(given: Subject, qparams: Mapping[str, Qparams] | None = None) -> Answer:
    """Ask the oracle about a run. With `qparams` it takes those instead of choosing its own."""
    return evaluate(given.model, given.calibration, given.inputs, given.run.recipe.scheme, qparams)


def qparams_by_name(reference: nn.Module, execution: Execution, given: Subject) -> dict[str, Qparams]:
    """The qparams with which a reference model quantizes, by the names that `Answer.qparams` has."""
    parameters = {parameter.data_ptr() for parameter in (*reference.parameters(), *reference.buffers())}
    operands = dict(zip((name for name, _ in given.run.model.operands), given.inputs, strict=True))
    count: Counter[str] = Counter()
    found: dict[str, Qparams] = {}
    for taken, made in execution.quantized:
        if taken.data_ptr() in parameters and taken.numel():
            kind = "weight"
        else:
            kind = next((name for name, data in operands.items() if torch.equal(taken, data)), "output")
        count[kind] += 1
        name = f"{kind} {count[kind]}" if count[kind] > 1 and kind not in operands else kind
        scale, zero_point = qparams_of(made)
        axis = None if scale.numel() == 1 else made.q_per_channel_axis()
        grid = Grid(dtype_name(made.dtype), *RANGES[made.dtype], axis=axis)
        found[name] = Qparams(grid, scale.float(), zero_point)
    return found


def difference(one: Golden, other: Golden) -> Iterator[str]:
    """Yield in words how a golden differs from a former one."""
    if one.names != other.names:
        yield f"outputs {', '.join(one.names)} become {', '.join(other.names)}"
        return
    for label in dict.fromkeys([*one.qparams, *other.qparams]):
        before, after = one.qparams.get(label), other.qparams.get(label)
        if before is None or after is None:
            yield f"{label} is {'new' if before is None else 'gone'}"
            continue
        for what, was, is_now in zip(("scale", "zero point"), before, after, strict=True):
            if was.shape != is_now.shape or not torch.equal(was, is_now):
                yield f"{label} {what} {_few(was)} becomes {_few(is_now)}"
    for number, (was_output, now_output) in enumerate(zip(one.outputs, other.outputs, strict=True)):
        was, now = was_output.low, now_output.low
        if was.shape != now.shape or was.dtype != now.dtype:
            yield f"output {number} {was.dtype} {tuple(was.shape)} becomes {now.dtype} {tuple(now.shape)}"
            continue
        changed = (was != now) | (was_output.high != now_output.high)
        if bool(changed.any()):
            by = float((was.double() - now.double()).abs().max())
            unit = "steps" if now_output.quantized else "at most"
            yield f"output {number}: {int(changed.sum())} of {changed.numel()} elements change, {by:g} {unit}"


def _few(values: Tensor) -> str:
    shown = ", ".join(f"{value!r}" for value in values.tolist()[:4])
    return f"[{shown}{', …' if values.numel() > 4 else ''}]"
