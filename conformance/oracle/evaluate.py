"""A float model evaluated as its quantized form has to be: calibrated, quantized, computed in float64, quantized again."""

import copy
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn
from torch.nn.modules.batchnorm import _BatchNorm

from .arithmetic import (
    EXACT_BAND,
    FLOAT_BAND,
    ROUNDINGS,
    Codes,
    Qparams,
    Rounding,
    dynamic_qparams,
    extremes,
    power_of_two_qparams,
    quantize,
    quantized_weight,
    to_even,
)
from .layers import FUNCTIONS, LAYERS, apply, folded, parts
from .recurrent import cell, layers
from .scheme import Grid, Scheme


class NotCovered(Exception):
    """The oracle has no rule for a model or scheme; the message says for what."""


@dataclass(frozen=True, eq=False)
class Answer:
    """What a quantized model has to give: for each output its codes, or float64 values where it is float.

    `qparams` has what was chosen, by what it is for: an operand by its name, `weight`, `output`; numbered from the second
    on. An answer is not `certain` where a recurrent layer rounds a value so close to .5 that the last bits of float32 decide
    which way, and with it what follows.
    """

    outputs: tuple[Codes | Tensor, ...]
    qparams: Mapping[str, Qparams]
    certain: bool = True


def _tied(positions: Tensor) -> Tensor:
    """Where a position on a grid is so close to .5 that what float32 computed before may fall on either side."""
    return (positions - positions.floor() - 0.5).abs() < FLOAT_BAND / 32


DYADIC = frozenset(
    {
        *FUNCTIONS,
        *(F.relu, torch.relu, F.relu6, F.hardtanh, F.hardtanh_, torch.clamp, F.dropout, F.pad, torch.matmul),
        *(operator.add, operator.sub, operator.mul, torch.add, torch.sub, torch.mul),
        *(torch.cat, torch.concat, torch.concatenate, torch.stack, torch.flatten, torch.narrow, torch.transpose),
        *(torch.permute, torch.squeeze, torch.unsqueeze, torch.repeat_interleave, F.pixel_shuffle, F.pixel_unshuffle),
        *(F.max_pool1d, F.max_pool2d, F.max_pool3d),
    }
)
DYADIC_MODULES = (
    *LAYERS,
    *(nn.ReLU, nn.ReLU6, nn.Hardtanh, nn.Dropout, nn.Identity, nn.PixelShuffle, nn.PixelUnshuffle, nn.Flatten),
    *(nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d, nn.ConstantPad2d),
)
DYADIC_METHODS = frozenset(
    {
        *(
            "relu",
            "clamp",
            "contiguous",
            "detach",
            "permute",
            "repeat",
            "repeat_interleave",
            "reshape",
            "resize",
            "view",
        ),
        *("squeeze", "unsqueeze", "transpose", "narrow", "flatten", "permute_copy"),
    }
)
"""Operators that give dyadic values for dyadic ones, so that a tie is a tie and nothing else is."""

HALF_MAX = 65504.0
"""The greatest float16, where greater weights are put when they are packed (`HandleWeightsSaturation` in
aten/src/ATen/native/quantized/cpu/qlinear_prepack.cpp)."""


class _Tracer(fx.Tracer):
    def is_leaf_module(self, module: nn.Module, name: str) -> bool:
        return True


@dataclass(frozen=True, eq=False)
class _Group:
    """Operators that are quantized as one: their nodes in order, and whether they are the pattern or stand beside it."""

    nodes: tuple[fx.Node, ...]
    pattern: bool = True

    @property
    def result(self) -> fx.Node:
        return self.nodes[-1]

    @property
    def inputs(self) -> list[fx.Node]:
        """What the group takes from outside, each once, parameters left out."""
        taken = [node for mine in self.nodes for node in mine.all_input_nodes if node not in self.nodes]
        return [node for node in dict.fromkeys(taken) if node.op != "get_attr"]


def _attribute(model: nn.Module, name: str) -> Any:
    value: Any = model
    for part in name.split("."):
        value = getattr(value, part)
    return value


@dataclass
class _Graph:
    """The traced model: its groups in the order in which they are computed."""

    model: nn.Module
    scheme: Scheme
    graph: fx.Graph = field(init=False)
    groups: list[_Group] = field(init=False)
    modules: dict[str, nn.Module] = field(init=False)

    def __post_init__(self) -> None:
        self.graph = _Tracer().trace(self.model)
        self.modules = dict(self.model.named_modules())
        computing = [node for node in self.graph.nodes if node.op.startswith("call_") and not _asks_shape(node)]
        beside = [node for node in computing if node.target in ("other", "prelude")]
        if self.scheme.fused:
            mine = [node for node in computing if node not in beside]
            self.groups = [*(_Group((node,), pattern=False) for node in beside), _Group(tuple(mine))]
        else:
            self.groups = [_Group((node,), node not in beside) for node in computing]

    def module(self, node: fx.Node) -> Any:
        return self.modules[str(node.target)] if node.op == "call_module" else None

    def shares(self, group: _Group) -> bool:
        """Whether the output of a group keeps the qparams of its input."""
        if not group.pattern:
            return not isinstance(self.module(group.result), LAYERS)
        first = group.nodes[0]
        return _count((first.args, first.kwargs)) in self.scheme.shares

    def grid(self, group: _Group | None) -> Grid:
        """The grid of what a group gives, or of what the model is given."""
        beside = self.scheme.others if group is None or not group.pattern else None
        grid = beside or self.scheme.activation
        assert grid is not None
        return grid


def _asks_shape(node: fx.Node) -> bool:
    """Whether a node only asks for a tensor's shape."""
    if node.op == "call_method":
        return node.target == "size"
    if node.target is operator.getitem:
        return isinstance(node.args[0], fx.Node) and _asks_shape(node.args[0])
    return node.target is getattr


def _count(arguments: Any) -> int:
    """How many tensors an operator is given, one given twice counted twice, a list of them as one each."""
    if isinstance(arguments, fx.Node):
        return int(not _asks_shape(arguments))
    if isinstance(arguments, dict):
        return sum(map(_count, arguments.values()))
    return sum(map(_count, arguments)) if isinstance(arguments, tuple | list) else 0


class _Evaluation:
    """One pass over a graph: it calibrates, or computes with what calibration chose and notes `qparams`.

    `values` has what every node gives: float64 or integer tensors, `Codes` where it is quantized, or numbers.
    """

    def __init__(self, graph: _Graph, rounding: Rounding, given: Mapping[str, Qparams] | None) -> None:
        self.graph, self.scheme, self.rounding, self.given = graph, graph.scheme, rounding, given
        self.float_weights = False
        self.values: dict[fx.Node, Any] = {}
        self.qparams: dict[str, Qparams] = {}
        self.weights = 0
        self.tied, self.certain = False, True

    def choose(self, name: str, number: int, choice: Callable[[], Qparams]) -> Qparams:
        """The qparams called `name`, the `number`th of this name: those given, or a choice."""
        label = name if not number else f"{name} {number + 1}"
        if self.given is None:
            self.qparams[label] = choice()
        elif label in self.given:
            self.qparams[label] = self.given[label]
        else:
            raise NotCovered(f"no qparams of {label} among {', '.join(self.given)}")
        return self.qparams[label]

    def weight(self, tensor: Tensor) -> Tensor:
        """A weight (float64) as it is after quantization."""
        if self.float_weights:
            return tensor.double()
        if self.scheme.half:
            return tensor.clamp(-HALF_MAX, HALF_MAX).half().double()
        grid = self.scheme.weight
        if grid is None:
            return tensor.double()
        chosen = self.choose("weight", self.weights, lambda: power_of_two_qparams(*extremes(tensor, grid), grid))
        self.weights += 1
        return quantized_weight(tensor, chosen)

    def multiplied(self, x: Tensor, *, recurrent: bool = False) -> Tensor:
        """The input (float64) of a layer with weights: quantized, if that happens at every call."""
        grid = self.scheme.activation
        if self.scheme.kind != "dynamic" or grid is None or not x.numel():
            return x
        chosen = dynamic_qparams(x, grid)
        least, greatest = (end / chosen.scale for end in extremes(x, grid))
        if recurrent:
            self.certain &= not any(bool(_tied(positions).any()) for positions in (x / chosen.scale, least, greatest))
        codes = quantize(x, chosen)
        self.tied |= bool(codes.tied.any())
        return codes.dequantized(self.rounding)

    def compute(self, group: _Group, values: Mapping[fx.Node, Any]) -> tuple[Any, float]:
        """What a group gives for `values` of its inputs, in float64, and how close to .5 a tie is."""
        local = dict(values)
        dyadic = True
        folds: set[fx.Node] = set()
        for node in group.nodes:
            if node in folds:
                local[node] = local[node.args[0]]  # type: ignore[index]
                continue
            given: Any = fx.node.map_arg((node.args, node.kwargs), lambda n: self._argument(local, n))
            args, kwargs = given
            module = self.graph.module(node)
            if module is not None:
                following = [user for user in node.users if isinstance(self.graph.module(user), _BatchNorm)]
                norm = self.graph.module(following[0]) if following and following[0] in group.nodes else None
                folds |= set(following[:1]) if norm is not None else set()
                local[node], exact = self._module(module, norm, args, kwargs)
                dyadic &= exact
            elif node.op == "call_function":
                if node.target in FUNCTIONS:
                    args, kwargs = self._function(args, kwargs)
                function: Any = node.target
                local[node] = function(*args, **kwargs)
                dyadic &= node.target in DYADIC
            else:
                local[node] = getattr(args[0], str(node.target))(*args[1:], **kwargs)
                dyadic &= str(node.target).rstrip("_") in DYADIC_METHODS
        return local[group.result], EXACT_BAND if dyadic else FLOAT_BAND

    def _argument(self, local: Mapping[fx.Node, Any], node: fx.Node) -> Any:
        if node.op == "get_attr":
            return _attribute(self.graph.model, str(node.target)).detach().double()
        return local[node] if node in local else self.values[node]

    def _function(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of a function whose second one is a weight, quantized."""
        args, kwargs = list(args), dict(kwargs)  # type: ignore[assignment]
        for place, key, change in ((0, "input", self.multiplied), (1, "weight", self.weight)):
            if len(args) > place:
                args[place] = change(args[place]) if args[place].is_floating_point() else args[place]  # type: ignore[index]
            elif kwargs[key].is_floating_point():
                kwargs[key] = change(kwargs[key])  # type: ignore[index]
        return tuple(args), dict(kwargs)

    def _module(self, module: nn.Module, norm: Any, args: Any, kwargs: Any) -> tuple[Any, bool]:
        """Call a module, its own batch norm or the one that follows folded in."""
        one = parts(module)
        if one.layer is None:
            result = None
            for part in one.rest:
                copied = _float64(part)
                result = copied(*args, **kwargs) if result is None else copied(result)
            return result, all(isinstance(part, DYADIC_MODULES) for part in one.rest)
        if "input" in kwargs:
            args = (kwargs["input"], *args)
            kwargs = {key: value for key, value in kwargs.items() if key != "input"}
        second = args[1:] if one.add is not None else ()
        result = self._layer(
            one.layer, one.norm if one.norm is not None else norm, args[: len(args) - len(second)], kwargs
        )
        if one.add is not None:
            result = one.add(result, *second)
        for part in one.rest:
            result = part(result)
        return result, all(isinstance(part, DYADIC_MODULES) for part in one.rest)

    def _layer(self, layer: Any, norm: Any, args: Any, kwargs: Any) -> Any:
        x, *rest = args
        if isinstance(layer, nn.RNNBase | nn.RNNCellBase):
            weights = {
                name: self.weight(value.detach()) for name, value in layer.named_parameters() if "weight" in name
            }

            def product(x: Tensor, name: str, bias: Tensor | None) -> Tensor:
                return F.linear(self.multiplied(x, recurrent=True), weights[name], bias)

            state = kwargs.get("hx", rest[0] if rest else None)
            call: Any = layers if isinstance(layer, nn.RNNBase) else cell
            return call(layer, product, x, state)
        weight, bias = (layer.weight, getattr(layer, "bias", None)) if norm is None else folded(layer, norm)
        x = self.multiplied(x) if x.is_floating_point() else x
        bias = None if bias is None else bias.detach().double()
        return apply(layer, self.weight(weight.detach()), bias, x, *rest, **kwargs)

    def result(self) -> tuple[Any, ...]:
        """What the graph's output node is given."""
        (output,) = (node for node in self.graph.graph.nodes if node.op == "output")
        given = fx.node.map_arg(output.args[0], lambda node: self.values[node])
        return tuple(_flat(given))


def _flat(given: Any) -> Iterator[Any]:
    for part in given if isinstance(given, tuple | list) else (given,):
        if isinstance(part, tuple | list):
            yield from _flat(part)
        else:
            yield part


def _float64(module: nn.Module) -> nn.Module:
    return copy.deepcopy(module).double().eval()


def _placeholders(graph: _Graph) -> list[fx.Node]:
    return [node for node in graph.graph.nodes if node.op == "placeholder"]


def _float_inputs(graph: _Graph, inputs: Sequence[Tensor]) -> dict[fx.Node, Any]:
    return {
        node: x.double() if x.is_floating_point() else x for node, x in zip(_placeholders(graph), inputs, strict=True)
    }


@dataclass(eq=False)
class _Observer:
    """What one observer has seen: the least and greatest value of all tensors that it is shown."""

    grid: Grid
    low: Tensor
    high: Tensor

    def see(self, low: Tensor, high: Tensor) -> None:
        self.low, self.high = torch.minimum(self.low, low), torch.maximum(self.high, high)

    @property
    def qparams(self) -> Qparams:
        return power_of_two_qparams(self.low, self.high, self.grid)


def _observed(graph: _Graph, calibration: Sequence[Tensor]) -> dict[fx.Node, Qparams]:
    """Calibrate: show the data to every observer and return the qparams of each tensor that is quantized.

    In a model for QAT each observer is followed by a fake-quantize, so that the next ones see quantized values; otherwise
    they see those of the float model.
    """
    run = _Evaluation(graph, to_even, None)
    run.values |= _float_inputs(graph, calibration)
    run.float_weights = not graph.scheme.qat
    observers: dict[fx.Node, _Observer] = {}

    def observe(node: fx.Node, values: Tensor, grid: Grid) -> Tensor:
        seen = extremes(values, grid)
        if node in observers:
            observers[node].see(*seen)
        else:
            observers[node] = _Observer(grid, *seen)
        if not graph.scheme.qat:
            return values
        return quantize(values, observers[node].qparams, simulated=True).dequantized()

    for group in graph.groups:
        taken = {}
        for node in group.inputs:
            value = _shapes(graph, run.values, node)
            floating = isinstance(value, Tensor) and value.is_floating_point()
            fresh = floating and node not in observers
            taken[node] = observe(node, value, graph.grid(None)) if fresh else value
        observed = [node for node in group.inputs if node in observers]
        if graph.shares(group) and observed:
            shared = observers[observed[0]]
            merged = {id(observers[node]): observers[node] for node in observed[1:]}
            for other in merged.values():
                shared.see(other.low, other.high)
                observers |= {node: shared for node, mine in observers.items() if mine is other}
            observers[group.result] = shared
        result, _ = run.compute(group, _cloned(taken))
        run.values[group.result] = observe(group.result, result, graph.grid(group))
    return {node: observer.qparams for node, observer in observers.items()}


def _shapes(graph: _Graph, values: dict[fx.Node, Any], node: fx.Node) -> Any:
    """The value of a node; one that asks for a shape is answered first."""
    if node not in values:
        given: list[Any] = [_shapes(graph, values, one) if isinstance(one, fx.Node) else one for one in node.args]
        subject = given[0].position if isinstance(given[0], Codes) else given[0]
        function: Any = torch.Tensor.size if node.op == "call_method" else node.target
        values[node] = function(subject, *given[1:], **node.kwargs)
    return values[node]


def _cloned(values: Mapping[fx.Node, Any]) -> dict[fx.Node, Any]:
    """Copies: an in-place operator writes to what it is given."""
    return {node: value.clone() if isinstance(value, Tensor) else value for node, value in values.items()}


def _static(
    graph: _Graph,
    inputs: Sequence[Tensor],
    chosen: Mapping[fx.Node, Qparams] | None,
    given: Mapping[str, Qparams] | None,
    rounding: Rounding,
) -> _Evaluation:
    """Evaluate a statically quantized model; the qparams of activations are `chosen`, or `given` by name."""
    run = _Evaluation(graph, rounding, given)
    floats = _float_inputs(graph, inputs)
    run.values |= floats
    quantized: dict[fx.Node, Codes] = {}
    for number, group in enumerate(graph.groups):
        taken: dict[fx.Node, Any] = {}
        for node in group.inputs:
            value = _shapes(graph, run.values, node)
            if node in floats and value.is_floating_point():
                if node not in quantized:
                    name = str(node.target)
                    mine = run.choose(name, 0, lambda node=node: chosen[node])  # type: ignore[misc,index]
                    quantized[node] = quantize(value, mine)
                value = quantized[node]
            if isinstance(value, Codes):
                run.tied |= bool(value.tied.any())
                value = value.dequantized(rounding)
            taken[node] = value
        result, band = run.compute(group, _cloned(taken))
        mine = run.choose("output", number, lambda group=group: chosen[group.result])  # type: ignore[misc,index]
        run.values[group.result] = quantize(result, mine, band)
    return run


def _in_float(
    graph: _Graph, inputs: Sequence[Tensor], given: Mapping[str, Qparams] | None, rounding: Rounding
) -> _Evaluation:
    """Evaluate a dynamically or weight-only quantized model: between its layers everything is float."""
    run = _Evaluation(graph, rounding, given)
    run.values |= _float_inputs(graph, inputs)
    for group in graph.groups:
        run.values[group.result], _ = run.compute(group, {node: run.values[node] for node in group.inputs})
    return run


def evaluate(
    model: nn.Module,
    calibration: Sequence[Tensor],
    inputs: Sequence[Tensor],
    scheme: Scheme,
    given: Mapping[str, Qparams] | None = None,
) -> Answer:
    """Return what the quantized form of a float model has to give for `inputs`.

    `calibration` is what observers are shown. With `given` (qparams by the names that `Answer.qparams` has) nothing is
    chosen but what dynamic layers choose at each call. Where one quantized operator feeds another, a tie in the first may be
    rounded by any of `ROUNDINGS`, and the answer's codes allow what follows from each.

    Raises NotCovered for a scheme or model that the oracle has no rule for.
    """
    static = scheme.kind == "static"
    if static and scheme.activation is None:
        raise NotCovered("static quantization to a dtype without integers")
    with torch.no_grad():
        graph = _Graph(model, scheme)
        if static and any(node.target is operator.getitem for group in graph.groups for node in group.nodes):
            raise NotCovered("a part of a quantized tensor, taken by index")
        chosen = _observed(graph, calibration) if static and given is None else None

        def run(rounding: Rounding) -> _Evaluation:
            if static:
                return _static(graph, inputs, chosen, given, rounding)
            return _in_float(graph, inputs, given, rounding)

        first = run(to_even)
        outputs = list(first.result())
        if first.tied and static:
            others = [run(rounding).result() for rounding in ROUNDINGS.values() if rounding is not to_even]
            outputs = [_either(same) for same in zip(outputs, *others, strict=True)]
    return Answer(tuple(outputs), first.qparams, first.certain)


def _either(same: Sequence[Any]) -> Any:
    """One output under every rounding: any of their codes."""
    first = same[0]
    if not isinstance(first, Codes):
        return first
    low = torch.stack([codes.low for codes in same]).amin(0)
    high = torch.stack([codes.high for codes in same]).amax(0)
    return Codes(first.qparams, first.position, low, high)
