"""The outputs of a quantized model, computed from its float model: calibrate, quantize, compute in float64, requantize."""

import itertools
import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, fx, nn

from .arithmetic import EXACT_BAND, INNER_BAND, INPUT_BAND, ROUNDINGS, Codes, Qparams, Rounding, quantize, to_even
from .calibration import calibrate, cloned
from .graph import Graph, value_of
from .interpreter import Interpreter, NoCodes, NotCovered
from .scheme import Scheme


@dataclass(frozen=True, eq=False)
class Answer:
    """The expected outputs of a quantized model: the codes of each quantized output, the float64 values of each float one.

    `qparams` maps names to the qparams that were used: the name of an operand, `weight` or `output`. From the second use
    on, a number follows (`weight 2`).

    `ranges` has, by the number of an output in float, its least and its greatest values if an operator before it may round
    ties either way.

    `certain` is False where a recurrent layer, or a dynamic layer behind another operator, rounds a value so close to .5 that
    the last bits of float32 decide the rounding, and with it every later step.
    """

    outputs: tuple[Codes | Tensor, ...]
    qparams: Mapping[str, Qparams]
    certain: bool = True
    ranges: Mapping[int, tuple[Tensor, Tensor]] = field(default_factory=dict)


def evaluate(
    model: nn.Module,
    calibration: Sequence[Tensor],
    inputs: Sequence[Tensor],
    scheme: Scheme,
    qparams: Mapping[str, Qparams] | None = None,
) -> Answer:
    """Return the outputs that the quantized form of a float model must produce for `inputs`.

    The observers see `calibration`. With `qparams`, which has the names of `Answer.qparams`, calibration is skipped and
    only dynamic layers choose qparams, at each call.

    Where one quantized operator feeds another, an engine may round a tie of the first by any of `ROUNDINGS`. The codes of
    the answer then cover the results of all of them; of more than `MOST_PRODUCERS` operators, all with the same rule.

    Raises NotCovered for a scheme or model that the oracle has no rule for, and ValueError if the calibration data hold
    an empty tensor.
    """
    static = scheme.kind == "static"
    if static and scheme.activation is None:
        raise NoCodes("static quantization to a dtype without integers")
    with torch.no_grad():
        graph = _traced(model, scheme)
        if static and any(node.target is operator.getitem for group in graph.groups for node in group.nodes):
            raise NotCovered("a part of a quantized tensor, taken by index")
        calibrated = calibrate(graph, calibration) if static and qparams is None else {}
        return _answer(graph, inputs, calibrated, qparams)


@lru_cache(1)
def _traced(model: nn.Module, scheme: Scheme) -> Graph:
    """The graph of a model, which is traced once for consecutive evaluations of it."""
    return Graph(model, scheme)


def _answer(
    graph: Graph,
    inputs: Sequence[Tensor],
    calibrated: Mapping[fx.Node, Qparams],
    qparams: Mapping[str, Qparams] | None,
) -> Answer:
    static = graph.scheme.kind == "static"

    given: dict[fx.Node, Codes] = {}

    def run(roundings: Mapping[fx.Node, Rounding]) -> Interpreter:
        interpreter = Interpreter(graph, roundings, qparams)
        if static:
            _run_static(interpreter, inputs, calibrated, given)
        else:
            _run_float(interpreter, inputs)
        return interpreter

    first = run({})
    outputs, ranges = list(graph.outputs(first.values)), {}
    if first.tied:
        others = [graph.outputs(run(roundings).values) for roundings in _assignments([*first.tied])]
        every = [*zip(outputs, *others, strict=True)]
        outputs = [_union(alternatives) for alternatives in every]
        in_float = {number: torch.stack(each) for number, each in enumerate(every) if isinstance(each[0], Tensor)}
        ranges = {number: (values.amin(0), values.amax(0)) for number, values in in_float.items()}
    # a result in float has no neighbours that could stand for the codes before it
    certain = first.certain and not (first.tied and any(isinstance(output, Tensor) for output in outputs))
    return Answer(tuple(outputs), first.qparams, certain, ranges)


MOST_PRODUCERS = 2
"""Number of operators up to which each may round its ties by a rule of its own, whatever the others do."""


def _assignments(producers: Sequence[fx.Node]) -> Iterator[Mapping[fx.Node, Rounding]]:
    """Rules by which the producers of ties round them: kernels of one engine need not have the same one."""
    if len(producers) <= MOST_PRODUCERS:
        for rules in itertools.product(ROUNDINGS.values(), repeat=len(producers)):
            if any(rule is not to_even for rule in rules):
                yield dict(zip(producers, rules, strict=True))
    else:
        yield from (dict.fromkeys(producers, rule) for rule in ROUNDINGS.values() if rule is not to_even)


def _run_static(
    interpreter: Interpreter,
    inputs: Sequence[Tensor],
    calibrated: Mapping[fx.Node, Qparams],
    given: dict[fx.Node, Codes],
) -> None:
    """Evaluate a statically quantized model: the inputs and the output of every group are quantized. A result in float is
    quantized where a group takes it. `given` gets the codes of the inputs, which are the same however ties are rounded."""
    interpreter.set_inputs(inputs)
    values, graph = interpreter.values, interpreter.graph
    observed = interpreter.known_qparams is not None
    bands = {node: INPUT_BAND if observed else EXACT_BAND for node in values if not graph.stays_float(node)}
    codes = {**given}
    outputs = itertools.count()

    def quantized(node: fx.Node, value: Tensor) -> Codes:
        if node not in codes:
            name, index = (str(node.target), 0) if node.op == "placeholder" else ("output", next(outputs))
            qparams = interpreter.select_qparams(name, index, lambda: calibrated[node])
            codes[node] = quantize(value, qparams, bands[node])
            if node.op == "placeholder":
                given[node] = codes[node]
        return codes[node]

    for group in graph.groups:
        group_inputs: dict[fx.Node, Any] = {}
        for node in group.inputs:
            value = value_of(values, node)
            if node in bands and isinstance(value, Tensor) and value.is_floating_point():
                value = quantized(node, value)
            if isinstance(value, Codes):
                # one kernel quantizes all inputs
                producer = graph.placeholders[0] if node.op == "placeholder" else node
                if value.has_ties:
                    interpreter.tied[producer] = None
                value = value.dequantized(interpreter.roundings.get(producer, to_even))
            group_inputs[node] = value
        result, band = interpreter.evaluate(group, cloned(group_inputs))
        between = observed and graph.is_taken(group.result)
        bands[group.result] = max(band, INNER_BAND) if between else band
        values[group.result] = result if graph.has_float_result(group) else quantized(group.result, result)


def _run_float(interpreter: Interpreter, inputs: Sequence[Tensor]) -> None:
    """Evaluate a dynamically or weight-only quantized model, whose activations between layers are float."""
    interpreter.set_inputs(inputs)
    values, graph = interpreter.values, interpreter.graph
    for group in graph.groups:
        interpreter.computed = any(node.op != "placeholder" for node in group.inputs)
        taken = {node: values[node] for node in group.inputs}
        if graph.scheme.dynamic_inputs and group.pattern:
            taken = {node: interpreter.quantized_at_call(value) for node, value in taken.items()}
        values[group.result], _ = interpreter.evaluate(group, taken)


def _union(alternatives: Sequence[Any]) -> Any:
    """One output whose codes cover the codes of the same output under every rounding. A float output is the first."""
    first = alternatives[0]
    if not isinstance(first, Codes):
        return first
    low = torch.stack([codes.low for codes in alternatives]).amin(0)
    high = torch.stack([codes.high for codes in alternatives]).amax(0)
    return Codes(first.qparams, first.position, low, high)
