"""Sweeps: a model executed in turns, each with other scales and zero points, on inputs that hold every code."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import torch
from torch import Tensor
from torch.ao.quantization.backend_config import BackendConfig
from torch.fx import GraphModule

from conformance.cases.operators import RECORDS
from conformance.cases.operators.fused import plain_of
from conformance.cases.operators.record import CODES, SweepKind
from conformance.cases.runs import Run
from conformance.configs.spelling import LINEAR, spelled
from conformance.engines import decomposed
from conformance.engines.protocol import Engine
from conformance.errors import Failure
from conformance.models.build import Subject
from conformance.models.data import laid_out
from conformance.models.observers import observes
from conformance.models.qparams import takes_qparams
from conformance.oracle.arithmetic import Codes, Qparams
from conformance.oracle.scheme import Grid
from conformance.oracle.sweep import GREATEST_CONSTANT, Sweep, quantized
from conformance.results.findings.codes import TensorQparams

from . import grids
from .settings import (
    codes_of,
    dequantized,
    execute_turn,
    numbers,
    observers_of,
    result_codes,
    result_of,
    returning_codes,
    set_observed,
)

TURNS = 39
"""Turns of a sweep over the codes of one tensor."""

PAIR_TURNS = 9
"""Turns of a sweep over all pairs of codes, of which a turn has 256 times as many."""

LAYER_TURNS = 27
"""Turns of a sweep over the codes of an operator with channels, of which a turn has as many outputs for each code."""

CHANNELLED = (SweepKind.WEIGHTS, SweepKind.CHANNELS)
"""Kinds of operators with weights, or with a factor, for each output channel."""


@dataclass(frozen=True, eq=False)
class Operand:
    """An operand in all turns: the number of the code at each place (int64, turns first), and the qparams."""

    name: str
    numbers: Tensor
    qparams: Qparams
    layout: str = "contiguous"

    @cached_property
    def codes(self) -> Tensor:
        return self.numbers + self.qparams.grid.low

    def turn(self, turn: int) -> tuple[Tensor, float, int]:
        """Codes, scale and zero point in one turn."""
        return self.codes[turn], *qparams_in(self.qparams, turn)

    def values(self, turn: int) -> Tensor:
        """The values (float32) in one turn, in the operand's layout."""
        return laid_out(dequantized(*self.turn(turn)), self.layout)

    @cached_property
    def exact(self) -> Tensor:
        """The values (float64) of the codes in all turns."""
        scale, zero_point = self.qparams.like(self.codes)
        return (self.codes - zero_point) * scale


@dataclass(frozen=True, eq=False)
class Plan:
    """What a sweep executes: the operands, and what exact arithmetic says of the output, in all turns.

    `codes` is the number of codes of an input, `pairs` whether all pairs of codes occur. `results` (float64, turns first) are
    not quantized yet; `magnitude` (float64, one for each turn) is the greatest operand or intermediate value. `qparams` are
    those of the output, `declares_qparams` says whether the claim declares them. `in_float` says whether no result is
    quantized; then they count as codes of a fine grid.
    """

    run: Run
    operands: tuple[Operand, ...]
    codes: int
    pairs: bool
    results: Tensor
    magnitude: Tensor
    qparams: Qparams
    declares_qparams: bool
    in_float: bool = False

    @property
    def channels(self) -> int | None:
        """The dimension of the output's channels, behind that of turns; None for an operator that treats all alike."""
        if kind_of(self.run) not in CHANNELLED:
            return None
        return self.results.dim() - 1 if spelled(operator_of(self.run)).computes == LINEAR else 2

    @property
    def pointwise(self) -> bool:
        """Whether a result is a function of its channel and of one code of each operand."""
        shape = self.results.shape
        sizes = [size for operand in self.operands for size in zip(operand.numbers.shape, shape, strict=False)]
        return kind_of(self.run) is not SweepKind.MOVES and all(size in (1, due) for size, due in sizes)

    @property
    def turns(self) -> int:
        return len(self.results)

    def operand_qparams(self, turn: int) -> tuple[TensorQparams, ...]:
        """The qparams of the operands in one turn."""
        return tuple(_tensor(operand.name, operand.qparams, turn) for operand in self.operands)

    def output_qparams(self, turn: int, qparams: Qparams) -> TensorQparams:
        """Those of `qparams`, of the output, in one turn."""
        return _tensor("output", qparams, turn)


def qparams_in(qparams: Qparams, turn: int) -> tuple[float, int]:
    """Scale and zero point in one turn."""
    return float(qparams.scale[turn]), int(qparams.zero_point[turn])


def rescaled(plan: Plan) -> Plan:
    """A plan of one turn: the inputs of the first turn with the output's qparams of the second."""
    operands = tuple(replace(one, numbers=one.numbers[:1], qparams=_slice(one.qparams, 0)) for one in plan.operands)
    results, magnitude, qparams = plan.results[:1], plan.magnitude[:1], _slice(plan.qparams, 1)
    return replace(plan, operands=operands, results=results, magnitude=magnitude, qparams=qparams)


def _slice(qparams: Qparams, turn: int) -> Qparams:
    only = slice(turn, turn + 1)
    return Qparams(qparams.grid, qparams.scale[only], qparams.zero_point[only])


def _tensor(name: str, qparams: Qparams, turn: int) -> TensorQparams:
    return TensorQparams(name, *qparams_in(qparams, turn))


def operator_of(run: Run) -> str:
    """Name of the operator or layer that a run's pattern begins with."""
    return plain_of(run.claim.root)


def kind_of(run: Run) -> SweepKind | None:
    """How the output of that operator depends on codes."""
    return RECORDS[operator_of(run)].sweep


def input_grid(run: Run) -> Grid:
    """The grid of the inputs: all codes of the dtype, but for a layer those of the recipe, because sums of products of
    greater ones may saturate."""
    grid = run.recipe.scheme.others or run.recipe.scheme.activation
    assert grid is not None
    return grid if kind_of(run) is SweepKind.WEIGHTS else grids.whole(grid)


def sweeps_pairs(run: Run) -> bool:
    """Whether a sweep has all pairs of the codes of two inputs."""
    return kind_of(run) is SweepKind.PAIRS and len(run.model.operands) == 2


@lru_cache(8)
def _numbers(count: int, shape: tuple[int, ...], turns: int, operand: int, pairs: bool) -> Tensor:
    return torch.stack([numbers(count, shape, turn, operand, pairs) for turn in range(turns)])


def plan(run: Run, subject: Subject, own_qparams: bool, *, in_float: bool = False) -> Plan:
    """Plan the sweep of a run. `own_qparams` says whether the output takes a scale and zero point, `in_float` whether no
    result is quantized."""
    kind, layer = kind_of(run), kind_of(run) is SweepKind.WEIGHTS
    specs = run.model.operands
    pairs = sweeps_pairs(run)
    places = torch.Size(specs[0][1].shape).numel()
    turns = LAYER_TURNS if kind in CHANNELLED else PAIR_TURNS if pairs else max(TURNS, -(-2 * CODES // places))
    grid = input_grid(run)
    count = grid.high - grid.low + 1
    operands: list[Operand] = []
    for number, (name, spec) in enumerate(specs):
        codes = _numbers(count, spec.shape, turns, number, pairs)
        qparams = grids.of_operand(number, turns, grid, layer=layer)
        if number and run.recipe.scheme.shares and not pairs:
            qparams = operands[0].qparams
        operands.append(Operand(name, codes, qparams, spec.layout))
    sweep = Sweep(subject.model, run.recipe.scheme)
    results, dyadic = _results(sweep, operands, apart=kind is SweepKind.MOVES)
    flat = results.flatten(1)
    greatest = torch.stack([flat.abs().amax(1), *(one.exact.flatten(1).abs().amax(1) for one in operands)]).amax(0)
    magnitude = 3 * greatest if layer else greatest
    if not dyadic:
        magnitude = magnitude.clamp(min=GREATEST_CONSTANT)
    fixed = run.recipe.scheme.activation
    assert fixed is not None
    if fixed.fixed is not None:
        qparams = grids.stacked([fixed.fixed[0]] * turns, [fixed.fixed[1]] * turns, grids.whole(fixed))
    elif in_float:
        qparams = grids.of_floats(flat.abs().amax(1))
    elif own_qparams:
        qparams = grids.of_output(flat.amin(1), flat.amax(1), grids.whole(fixed))
    else:
        qparams = operands[0].qparams
    # kernels that take no qparams may choose those of their output, which is a matter of the exact profile
    declares = own_qparams or fixed.fixed is not None or kind not in (SweepKind.PAIRS, SweepKind.FIXED)
    return Plan(run, tuple(operands), count, pairs, results, magnitude, qparams, declares, in_float)


def _results(sweep: Sweep, operands: Sequence[Operand], *, apart: bool) -> tuple[Tensor, bool]:
    """The exact results of all turns, and whether the operators are dyadic; `apart` evaluates each turn by itself."""
    values = [operand.exact for operand in operands]
    turns = len(values[0])
    if apart:
        each = [sweep.results([x[turn] for x in values]) for turn in range(turns)]
        return torch.stack([result for result, _ in each]), each[0][1]
    results, dyadic = sweep.results([x.flatten(0, 1) for x in values])
    return results.reshape(turns, -1, *results.shape[1:]), dyadic


@dataclass(frozen=True, eq=False)
class Swept:
    """An executed sweep: the codes of the output (int64, turns first), and its qparams.

    `raised` has the failures by turn. The codes of these turns are those of exact arithmetic.
    """

    plan: Plan
    expected: Codes
    got: Tensor
    qparams: Qparams
    raised: dict[int, Failure]


class Executed:
    """A lowered model whose qparams are set in each turn.

    Attributes, as of `Relowered`:
        keeps: whether all turns execute one program, so that a turn may depend on those before.
        own_qparams: whether the output takes a scale and zero point.
        in_float: whether no result is quantized.
    """

    keeps, in_float = True, False

    def __init__(self, lowered: GraphModule) -> None:
        self.model = returning_codes(lowered)
        self.own_qparams = takes_qparams(self.model, result_of(self.model))

    def turn(self, plan: Plan, turn: int) -> Tensor:
        """The output in one turn: quantized, or the codes (int64) of one that the model returns in float. Raises the
        exceptions of the engine."""
        operands = {operand.name: operand.turn(turn) for operand in plan.operands}
        return execute_turn(self.model, operands, qparams_in(plan.qparams, turn))


class Relowered:
    """A calibrated model that is converted and lowered anew in each turn: programs have their qparams as constants."""

    keeps = False

    def __init__(self, used: Engine, calibrated: GraphModule, config: BackendConfig) -> None:
        self.engine, self.calibrated, self.config = used, calibrated, config
        observers = observers_of(calibrated)
        of_inputs = [observer for name, observer in observers if name != "output"]
        self.in_float = not any(name == "output" for name, _ in observers)
        self.own_qparams = any(observer not in of_inputs for _, observer in observers)
        (result,) = decomposed.returned(calibrated)
        self._returns_codes = observes(calibrated, result)

    def turn(self, plan: Plan, turn: int) -> Tensor:
        output_qparams = qparams_in(plan.qparams, turn)
        qparams = {operand.name: qparams_in(operand.qparams, turn) for operand in plan.operands}
        set_observed(self.calibrated, {**qparams, "output": output_qparams})
        inputs = [operand.values(turn) for operand in plan.operands]
        program = self.engine.compile(self.engine.convert(self.calibrated, self.config), inputs)
        (output,) = self.engine.execute(program, inputs).outputs
        if output.quantized is not None:
            return output.quantized
        if self._returns_codes:
            raise TypeError("the output has no codes")
        return codes_of(output.values, *output_qparams)


Model = Executed | Relowered


def executed(model: Model, plan: Plan) -> Swept:
    """Execute all turns of a plan. A turn whose output is not quantized per tensor counts as one that raises."""
    codes: list[Tensor | None] = []
    raised: dict[int, Failure] = {}
    scales, zero_points = plan.qparams.scale.tolist(), plan.qparams.zero_point.tolist()
    with torch.no_grad():
        for turn in range(plan.turns):
            try:
                y = model.turn(plan, turn)
                if y.is_quantized:
                    scales[turn], zero_points[turn] = y.q_scale(), y.q_zero_point()
                codes.append(result_codes(y))
            except MemoryError:
                os.abort()  # models this small never run out of memory: the heap is damaged
            except Exception as error:  # any exception of torch is a finding
                raised[turn] = Failure.of(error)
                codes.append(None)
    qparams = replace(plan.qparams, scale=torch.tensor(scales), zero_point=torch.tensor(zero_points, dtype=torch.int32))
    expected = quantized(plan.results, plan.magnitude, qparams)
    got = torch.stack([expected.low[turn] if y is None else y for turn, y in enumerate(codes)])
    return Swept(plan, expected, got, qparams, raised)
