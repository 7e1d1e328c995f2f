"""Evaluation of groups in float64: weights are quantized, batch norm is folded, dynamic layers quantize their inputs."""

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch.nn.functional as F
from torch import Tensor, fx, nn
from torch.nn.modules.batchnorm import _BatchNorm

from .arithmetic import (
    EXACT_BAND,
    FLOAT_BAND,
    Qparams,
    Rounding,
    dynamic_qparams,
    extremes,
    float16_weight,
    near_tie,
    power_of_two_qparams,
    quantize,
    quantized_by_row,
    quantized_weight,
)
from .graph import Graph, Group
from .layers import FUNCTIONS, apply, decompose, foldable, folded, normalized
from .operators import DYADIC_FUNCTIONS, DYADIC_METHODS, DYADIC_MODULES
from .recurrent import cell, layers
from .scheme import Grid


class NotCovered(Exception):
    """The oracle has no rule for a model or scheme. The message names the missing rule."""


class NoCodes(NotCovered):
    """A static scheme quantizes activations to a dtype without codes."""


class NoQparams(NotCovered):
    """The qparams that were given lack those of a tensor that is quantized."""


class Interpreter:
    """One pass over a graph.

    `values` maps each evaluated node to a float64 or integer tensor, to `Codes` where the node is quantized, or to a
    number. `qparams` collects every scale and zero point of the pass by the names that `Answer.qparams` documents.
    Ties of a node are rounded by its rule in `roundings`, or to even. `tied` has the nodes whose ties an operator consumed.
    `certain` is as in `Answer`; `computed` says whether a group's inputs are results of another one.

    With `known_qparams`, the interpreter takes qparams from there and raises NotCovered for a missing one.
    """

    def __init__(
        self, graph: Graph, roundings: Mapping[fx.Node, Rounding], known_qparams: Mapping[str, Qparams] | None
    ) -> None:
        self.graph, self.scheme, self.roundings, self.known_qparams = graph, graph.scheme, roundings, known_qparams
        self.float_weights = False
        self.values: dict[fx.Node, Any] = {}
        self.qparams: dict[str, Qparams] = {}
        self.weight_count = 0
        self.tied: dict[fx.Node, None] = {}
        self.certain, self.computed = True, False

    def set_inputs(self, inputs: Sequence[Tensor]) -> None:
        """Bind the model's inputs to its placeholders, floating-point ones as float64."""
        for node, x in zip(self.graph.placeholders, inputs, strict=True):
            self.values[node] = x.double() if x.is_floating_point() else x

    def select_qparams(self, name: str, index: int, compute: Callable[[], Qparams]) -> Qparams:
        """Record and return the qparams of a name: the known ones, or else computed ones.

        The second use of a name (`index` 1) is labelled `name 2`, and so on.
        """
        label = name if not index else f"{name} {index + 1}"
        if self.known_qparams is None:
            self.qparams[label] = compute()
        elif label in self.known_qparams:
            self.qparams[label] = self.known_qparams[label]
        else:
            raise NoQparams(f"no qparams of {label} among {', '.join(self.known_qparams)}")
        return self.qparams[label]

    def evaluate(self, group: Group, inputs: Mapping[fx.Node, Any]) -> tuple[Any, float]:
        """Return a group's result in float64 for the values of its inputs, and the width of the band around a tie."""
        local = dict(inputs)
        dyadic = True
        folded_norms: set[fx.Node] = set()
        for node in group.nodes:
            if node in folded_norms:
                local[node] = local[node.args[0]]  # type: ignore[index]
                continue
            arguments: Any = fx.node.map_arg((node.args, node.kwargs), lambda n: self._argument(local, n))
            args, kwargs = arguments
            module = self.graph.module(node)
            if module is not None:
                norm = self._norm_after(node, group)
                folded_norms |= {norm} if norm is not None else set()
                local[node], exact = self._call_module(
                    module, None if norm is None else self.graph.module(norm), args, kwargs
                )
                dyadic &= exact
            elif node.op == "call_function":
                if node.target in FUNCTIONS:
                    args, kwargs = self._quantized_arguments(FUNCTIONS[node.target], args, kwargs)
                function: Any = node.target
                local[node] = function(*args, **kwargs)
                dyadic &= node.target in DYADIC_FUNCTIONS
            else:
                local[node] = getattr(args[0], str(node.target))(*args[1:], **kwargs)
                dyadic &= str(node.target).rstrip("_") in DYADIC_METHODS
        return local[group.result], EXACT_BAND if dyadic else FLOAT_BAND

    def _argument(self, local: Mapping[fx.Node, Any], node: fx.Node) -> Any:
        if node.op == "get_attr":
            return self.graph.parameter(node)
        return local[node] if node in local else self.values[node]

    def _norm_after(self, node: fx.Node, group: Group) -> fx.Node | None:
        """The batch norm of the same group that reads a module's result."""
        norms = [user for user in node.users if isinstance(self.graph.module(user), _BatchNorm)]
        return norms[0] if norms and norms[0] in group.nodes else None

    def _weight(self, tensor: Tensor) -> Tensor:
        """A weight after quantization, dequantized to float64."""
        if self.float_weights:
            return tensor.double()
        if self.scheme.half:
            return float16_weight(tensor)
        grid = self.scheme.weight
        if grid is None:
            return tensor.double()
        qparams = self.select_qparams(
            "weight", self.weight_count, lambda: power_of_two_qparams(*extremes(tensor, grid), grid)
        )
        self.weight_count += 1
        return quantized_weight(tensor, qparams)

    def quantized_at_call(self, x: Tensor) -> Tensor:
        """A tensor that a dynamic pattern takes, quantized with qparams of its own; an empty one stays as it is."""
        grid = self.scheme.activation
        if grid is None or not x.is_floating_point() or not x.numel():
            return x
        return self._quantized_dynamically(x, grid, uncertain=self.computed)

    def _layer_input(self, x: Tensor, *, recurrent: bool = False) -> Tensor:
        """The input (float64) of a layer with weights. Dynamic quantization quantizes it at every call."""
        grid = self.scheme.activation
        if self.scheme.kind != "dynamic" or grid is None or not x.numel():
            return x
        part = self.scheme.dynamic_parts
        if part == "tensor":
            return self._quantized_dynamically(x, grid, uncertain=recurrent or self.computed)
        items = x if x.dim() > 1 else x[None]  # an unbatched row is an item
        whole = items.movedim(1, -1) if part == "pixel" else items
        rows, certain = quantized_by_row(whole.flatten(1) if part == "item" else whole.flatten(0, -2), grid)
        self.certain &= certain
        quantized = rows.reshape(whole.shape)
        return (quantized.movedim(-1, 1) if part == "pixel" else quantized).reshape(x.shape)

    def _quantized_dynamically(self, x: Tensor, grid: Grid, *, uncertain: bool) -> Tensor:
        """A tensor quantized with qparams of its own. It is not certain of values that float32 may round to either code."""
        qparams = dynamic_qparams(x, grid)
        low, high = (end / qparams.scale for end in extremes(x, grid))
        if uncertain:
            self.certain &= not any(bool(near_tie(steps).any()) for steps in (x / qparams.scale, low, high))
        return quantize(x, qparams).dequantized()

    def _quantized_arguments(
        self, places: Mapping[str, int], args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of one of `FUNCTIONS` with its input and weight quantized."""
        positional, keywords = list(args), dict(kwargs)
        quantizers: tuple[Callable[[Tensor], Tensor], ...] = (self._layer_input, self._weight)
        for (key, place), quantized in zip(places.items(), quantizers, strict=True):
            if len(positional) > place:
                if positional[place].is_floating_point():
                    positional[place] = quantized(positional[place])
            elif keywords[key].is_floating_point():
                keywords[key] = quantized(keywords[key])
        return tuple(positional), keywords

    def _call_module(self, module: nn.Module, norm: Any, args: Any, kwargs: Any) -> tuple[Any, bool]:
        """Call a module with its own batch norm, or else the following one, folded in.

        Returns the result and whether it is dyadic.
        """
        parts = decompose(module)
        dyadic = all(isinstance(part, DYADIC_MODULES) for part in parts.rest)
        if parts.layer is None:
            result = None
            for part in parts.rest:
                float64_part = self._of_weights(copy.deepcopy(part).double().eval())
                result = float64_part(*args, **kwargs) if result is None else float64_part(result)
            return result, dyadic
        if "input" in kwargs:
            args = (kwargs["input"], *args)
            kwargs = {key: value for key, value in kwargs.items() if key != "input"}
        addends = args[1:] if parts.add is not None else ()
        layer_args = args[: len(args) - len(addends)]
        result = self._call_layer(parts.layer, parts.norm if parts.norm is not None else norm, layer_args, kwargs)
        if parts.add is not None:
            result = parts.add(result, *addends)
        for part in parts.rest:
            result = part(result)
        return result, dyadic

    def _of_weights(self, module: nn.Module) -> nn.Module:
        """A module in float64 with its `weight` quantized, if that is a matrix at least: a layer that torch does not have."""
        weight = module._parameters.get("weight")
        if weight is not None and weight.dim() > 1:
            module._parameters["weight"] = nn.Parameter(self._weight(weight.detach().float()), requires_grad=False)
        return module

    def _call_layer(self, layer: Any, norm: Any, args: Any, kwargs: Any) -> Any:
        """Call a layer with its weights quantized, after `norm`, if any, is folded into them where that is possible."""
        x, *rest = args
        if norm is not None and not foldable(layer, norm, x.dim()):
            return normalized(self._call_layer(layer, None, args, kwargs), norm)
        if isinstance(layer, nn.RNNBase | nn.RNNCellBase):
            weights = {
                name: self._weight(value.detach()) for name, value in layer.named_parameters() if "weight" in name
            }

            def product(x: Tensor, name: str, bias: Tensor | None) -> Tensor:
                return F.linear(self._layer_input(x, recurrent=True), weights[name], bias)

            state = kwargs.get("hx", rest[0] if rest else None)
            call: Any = layers if isinstance(layer, nn.RNNBase) else cell
            return call(layer, product, x, state)
        weight, bias = (layer.weight, getattr(layer, "bias", None)) if norm is None else folded(layer, norm)
        x = self._layer_input(x) if x.is_floating_point() else x
        bias = None if bias is None else bias.detach().double()
        return apply(layer, self._weight(weight.detach()), bias, x, *rest, **kwargs)
