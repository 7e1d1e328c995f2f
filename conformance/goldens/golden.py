"""Goldens: the expected outputs and qparams of a run, as the oracle computed them.

The name of a golden identifies the computation: the case without its backend, and the codes of its activations. Backends
and engines with the same computation share one golden.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor, nn

from conformance.cases.apis import api
from conformance.cases.recipes import RANGES, dtype_name
from conformance.cases.runs import Run
from conformance.models.build import Subject
from conformance.models.trace import Execution, qparams_of
from conformance.oracle import Answer, Codes, Qparams, evaluate
from conformance.oracle.scheme import ALWAYS, Grid, Scheme

STORED = {"quint8": torch.uint8, "qint8": torch.int8}
"""The dtype in which the codes of each quantized dtype are stored."""

DTYPES = {stored: name for name, stored in STORED.items()}


@dataclass(frozen=True, eq=False)
class Expected:
    """One expected output.

    For a quantized output, `low` and `high` (uint8 or int8) are the two neighbours at a tie, and equal elsewhere. For a float
    output, they are the least and the greatest float32 values if an operator before it may round ties either way, and
    equal elsewhere; `scale` and `zero_point` have no meaning.
    """

    low: Tensor
    high: Tensor
    scale: float = 0.0
    zero_point: int = 0
    dtype: str = "float32"

    @property
    def quantized(self) -> bool:
        return self.dtype in STORED

    @cached_property
    def code(self) -> Tensor:
        """The codes with ties rounded to even, or the least float values."""
        if self.low is self.high or not self.quantized:
            return self.low
        return torch.where((self.low % 2 == 0) | (self.low == self.high), self.low, self.high)

    @property
    def values(self) -> Tensor:
        """Dequantized or float values (float64)."""
        return (self.code.double() - self.zero_point) * self.scale if self.quantized else self.low.double()


@dataclass(frozen=True, eq=False)
class Golden:
    """The expected result of one computation.

    Attributes:
        outputs: the expected outputs, in order.
        names: for each output, the name of its qparams, or `float`.
        qparams: scale and zero point (float64, one or one for each index of an axis) of each quantized tensor by name.
    """

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
    """Return the name of a run's golden.

    It consists of the case without its backend, the codes of its activations, and marks if the output keeps the input's
    qparams, for what a quantizer declares, which observes scalars as well, for a quantizer that bounds no scale, or of
    which weights have all codes beside signed activations, and for results in float. Backends differ in the last six.
    """
    scheme = run.recipe.scheme
    grid = scheme.others or scheme.activation
    codes = f":{grid.low}..{grid.high}" if grid is not None else ""
    in_float = "-float" if scheme.float_results else ""
    return f"{run.key}{codes}{'-shared' if scheme.shares == ALWAYS else ''}{api(run.backend).golden_mark(scheme)}{in_float}"


def golden_of(answer: Answer) -> Golden:
    """Convert an answer of the oracle to a golden."""
    outputs, names = [], []
    labels = {id(qparams): name for name, qparams in answer.qparams.items()}
    for number, output in enumerate(answer.outputs):
        if isinstance(output, Codes):
            stored = STORED[output.qparams.grid.dtype]
            scale, zero_point = float(output.qparams.scale), int(output.qparams.zero_point)
            low = output.low.to(stored)
            high = low if output.low is output.high else output.high.to(stored)
            outputs.append(Expected(low, high, scale, zero_point, output.qparams.grid.dtype))
            names.append(labels[id(output.qparams)])
        else:
            low, high = answer.ranges.get(number, (output, output))
            outputs.append(Expected(low.float(), high.float()))
            names.append("float")
    qparams = {name: (chosen.scale.double(), chosen.zero_point.double()) for name, chosen in answer.qparams.items()}
    return Golden(tuple(outputs), tuple(names), qparams)


def compute(subject: Subject, qparams: Mapping[str, Qparams] | None = None, scheme: Scheme | None = None) -> Answer:
    """Return the oracle's answer for a run. With `qparams`, the oracle uses those instead of calibrating; `scheme` is that of
    the run's recipe by default.

    Raises NotCovered if the oracle has no rule for the run.
    """
    return evaluate(subject.model, subject.calibration, subject.inputs, scheme or subject.run.recipe.scheme, qparams)


def qparams_by_name(reference: nn.Module, execution: Execution, subject: Subject) -> dict[str, Qparams]:
    """Return the qparams with which an executed reference model quantized, by the names of `Answer.qparams`."""
    parameters = {parameter.data_ptr() for parameter in (*reference.parameters(), *reference.buffers())}
    operands = dict(zip((name for name, _ in subject.run.model.operands), subject.inputs, strict=True))
    count: Counter[str] = Counter()
    qparams: dict[str, Qparams] = {}
    for source, quantized in execution.quantized:
        if source.data_ptr() in parameters and source.numel():
            kind = "weight"
        else:
            kind = next((name for name, data in operands.items() if torch.equal(source, data)), "output")
        count[kind] += 1
        name = f"{kind} {count[kind]}" if count[kind] > 1 and kind not in operands else kind
        scale, zero_point = qparams_of(quantized)
        axis = None if scale.numel() == 1 else quantized.q_per_channel_axis()
        grid = Grid(dtype_name(quantized.dtype), *RANGES[quantized.dtype], axis=axis)
        qparams[name] = Qparams(grid, scale.float(), zero_point)
    return qparams


def difference(old: Golden, new: Golden) -> Iterator[str]:
    """Yield a sentence for each difference between two versions of a golden."""
    if old.names != new.names:
        yield f"outputs {', '.join(old.names)} become {', '.join(new.names)}"
        return
    for label in dict.fromkeys([*old.qparams, *new.qparams]):
        before, after = old.qparams.get(label), new.qparams.get(label)
        if before is None or after is None:
            yield f"{label} is {'new' if before is None else 'gone'}"
            continue
        for field_name, old_values, new_values in zip(("scale", "zero point"), before, after, strict=True):
            if old_values.shape != new_values.shape or not torch.equal(old_values, new_values):
                yield f"{label} {field_name} {_first(old_values)} becomes {_first(new_values)}"
    for number, (old_output, new_output) in enumerate(zip(old.outputs, new.outputs, strict=True)):
        low, new_low = old_output.low, new_output.low
        if low.shape != new_low.shape or low.dtype != new_low.dtype:
            yield f"output {number} {low.dtype} {tuple(low.shape)} becomes {new_low.dtype} {tuple(new_low.shape)}"
            continue
        changed = (low != new_low) | (old_output.high != new_output.high)
        if bool(changed.any()):
            most = float((low.double() - new_low.double()).abs().max())
            unit = "steps" if new_output.quantized else "at most"
            yield f"output {number}: {int(changed.sum())} of {changed.numel()} elements change, {most:g} {unit}"


def _first(values: Tensor) -> str:
    shown = ", ".join(f"{value!r}" for value in values.tolist()[:4])
    return f"[{shown}{', …' if values.numel() > 4 else ''}]"
