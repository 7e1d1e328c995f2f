"""Lowered models with other qparams than they were lowered with, and calibrated ones with others than they observed.

torch-only, because reproduction scripts inline this source.
"""

import copy
import math
from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule, Node

from conformance.models.observers import observes
from conformance.models.qparams import operands_of, set_qparams


def returning_codes(lowered: GraphModule) -> GraphModule:
    """A copy of a lowered model of one output that returns it quantized, without the dequantize call."""
    model = GraphModule(lowered, copy.deepcopy(lowered.graph))
    (output,) = (node for node in model.graph.nodes if node.op == "output")
    (last,) = output.all_input_nodes
    if last.op == "call_method" and last.target == "dequantize":
        output.replace_input_with(last, last.args[0])
        model.graph.erase_node(last)
    model.recompile()
    return model


def result_of(lowered: GraphModule) -> Node:
    """The node whose quantized tensor a lowered model returns, dequantized or not."""
    (output,) = (node for node in lowered.graph.nodes if node.op == "output")
    (last,) = output.all_input_nodes
    source: Node = last.args[0] if last.op == "call_method" and last.target == "dequantize" else last
    return source


def dequantized(codes: Tensor, scale: float, zero_point: int) -> Tensor:
    """The values (float32) of codes."""
    return (codes - zero_point).float() * scale


def execute_turn(
    model: GraphModule, operands: Mapping[str, tuple[Tensor, float, int]], output: tuple[float, int]
) -> Tensor:
    """The quantized output of a model from `returning_codes`.

    `operands` has the codes (int64), scale and zero point of each input by name, in order. `output` has the scale and zero
    point of the output, without effect if it takes none.
    """
    calls = operands_of(model)
    for name, (_, scale, zero_point) in operands.items():
        set_qparams(model, calls[name], scale, zero_point)
    set_qparams(model, result_of(model), *output)
    result: Tensor = model(*(dequantized(*operand) for operand in operands.values()))
    return result


def observers_of(calibrated: GraphModule) -> list[tuple[str, Any]]:
    """The observers of activations in a calibrated model with their names: `output`, then those of the inputs by the names of
    these. A tensor that stays in float has none."""
    found: list[tuple[str, Any]] = []
    activations: set[Node] = set()
    for node in calibrated.graph.nodes:
        if node.op == "placeholder" or activations & {*node.all_input_nodes}:
            activations.add(node)
            if observes(calibrated, node):
                (source,) = node.all_input_nodes
                name = str(source.target) if source.op == "placeholder" else "output"
                found.append((name, calibrated.get_submodule(str(node.target))))
    return sorted(found, key=lambda one: one[0] != "output")


def set_observed(calibrated: GraphModule, qparams: Mapping[str, tuple[float, int]]) -> GraphModule:
    """Have observers observe the scales and zero points of their names. Returns the model.

    An observer that an operator shares with an input has those of the input.
    """
    for name, observer in observers_of(calibrated):
        scale, zero_point = (torch.tensor([value]) for value in qparams[name])
        observer.calculate_qparams = partial(_both, scale, zero_point)
    return calibrated


def _both(scale: Tensor, zero_point: Tensor) -> tuple[Tensor, Tensor]:
    return scale, zero_point


def codes_of(values: Tensor, scale: float, zero_point: int) -> Tensor:
    """The nearest codes (int64) of float results on a grid without ends."""
    return (values.double() / scale).round().long() + zero_point


def result_codes(result: Tensor) -> Tensor:
    """The codes (int64) of a turn's result: a quantized tensor, or codes already."""
    return result.int_repr().long() if result.is_quantized else result


def numbers(count: int, shape: tuple[int, ...], turn: int, operand: int, pairs: bool) -> Tensor:
    """The number of a code (int64, below `count`) at each place of an operand in one turn; `operand` is the operand's number.

    With `pairs`, the first and the second operand have all pairs of codes.
    """
    size = math.prod(shape)
    if not pairs:
        return placed(count, size, turn + 3 * operand).reshape(shape)
    both = placed(count * count, size, turn).reshape(shape)
    return both % count if operand else both // count


def placed(count: int, places: int, turn: int) -> Tensor:
    """The number of a code (int64, below `count`) at each of so many places, in another order in each turn.

    First all numbers in one order, then in another, and so on, as often as they fit. The rest of the places, the tail, has
    consecutive numbers in every turn, from where the tail of an earlier one has ended; too few places for all numbers are a
    tail.
    """
    body = places // count * count
    order = torch.arange(body)
    factors = [coprime(count, round(count * 0.618) + 2 * turn + 7 * block) for block in range(places // count)]
    if factors and turn % 2 == 0:
        factors[0] = 1
    factor = torch.tensor(factors, dtype=torch.int64).repeat_interleave(count)
    tail = torch.arange(places - body) + turn * max(1, (places - body) // 2)
    return torch.cat([(order * factor + 5 * turn) % count, tail * coprime(count, 3) % count])


def coprime(count: int, least: int) -> int:
    """The least number from `least` on that has no divisor in common with `count`: its multiples reach every remainder."""
    return next(number for number in range(least, least + count + 1) if math.gcd(number, count) == 1)
