"""The network that is audited: a float model in eval mode, batches to calibrate it with, and one held out."""

import inspect
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch._ops import OpOverload
from torch.fx import GraphModule
from torch.nn.parameter import UninitializedParameter
from torch.utils._pytree import tree_leaves, tree_map_only

from conformance.errors import UsageError, brief
from conformance.host.callables import attribute_of, result_of
from conformance.models.data import normal
from conformance.models.observers import is_observer

Batch = tuple[Any, ...]
"""The positional arguments of a network: tensors, in any nesting of containers, and constants."""

Option = TypeVar("Option")

LEAST_BATCHES = 2
"""Batches that an audit needs: one to calibrate with, and one held out."""


@dataclass(frozen=True)
class Network:
    """A float model in eval mode with its batches. The last one is held out."""

    name: str
    model: nn.Module
    batches: tuple[Batch, ...]

    @property
    def calibration(self) -> tuple[Batch, ...]:
        return self.batches[:-1]

    @property
    def held_out(self) -> Batch:
        return self.batches[-1]


def copied(batch: Sequence[Any]) -> Batch:
    """Copies of inputs, because a network may write to them."""
    return tuple(tree_map_only(Tensor, Tensor.clone, item) for item in batch)


def tensors_of(values: Any) -> list[Tensor]:
    """The tensors in what a model takes or returns, in any nesting of containers, in order."""
    return [leaf for leaf in tree_leaves(values) if isinstance(leaf, Tensor)]


MADE_FROM = "return the module that it was made from"

QUANTIZED = ("torch.ao.nn.quantized.", "torch.ao.nn.intrinsic.quantized.")
"""Where the modules of models that torch has quantized are."""

MOST_ELEMENTS = 2**31
"""The most elements of an input that `--shape` makes."""

EXTREME = 1e30
"""Magnitude from which an input is a stand-in for infinity, as in masks of attention."""

SPAN = 1e6
"""How many times greater than other values it is then."""


def extremes(subject: Network) -> Iterator[str]:
    """Yield a sentence for each input whose values take all of the range that an observer gives its codes."""
    for number, inputs in enumerate(zip(*map(tensors_of, subject.batches), strict=False), 1):
        values = torch.cat([x.detach().flatten() for x in inputs])
        if not values.is_floating_point() or not values.numel():
            continue
        size = values.abs()
        greatest = float(size.max())
        others = int((size < greatest / SPAN).sum())
        if greatest == math.inf or (greatest >= EXTREME and others > len(size) // 10):
            reached = float(values[size.argmax()])
            yield (
                f"input {number} reaches {reached:.3g}, so that all other values have one code: give a mask a moderate "
                "number, such as -100, or leave its addition in float"
            )


def network(name: str, model: object, batches: object, source: str = "the model") -> Network:
    """Return a network after it has been checked that it can be audited: in eval mode, with at least two batches that it runs
    on. `source` says in errors where the model comes from. Raises UsageError in one line with the fix."""
    if not isinstance(model, nn.Module):
        raise UsageError(f"{source} returned {_kind(model)}: it has to return a torch.nn.Module in eval mode")
    if isinstance(model, torch.jit.ScriptModule):
        raise UsageError(f"{source} is a ScriptModule, which FX does not trace: {MADE_FROM}")
    if isinstance(model, nn.DataParallel):
        raise UsageError(f"{source} is a DataParallel, which FX does not trace: return its module")
    if isinstance(model, GraphModule) and any(isinstance(node.target, OpOverload) for node in model.graph.nodes):
        raise UsageError(f"{source} is an exported graph, in whose operators no config has patterns: {MADE_FROM}")
    if observers := [path for path, module in model.named_modules() if is_observer(module)]:
        raise UsageError(f"{source} is prepared already, as its observer {observers[0]} shows: return the float model")
    if lowered := next((one for one in model.modules() if type(one).__module__.startswith(QUANTIZED)), None):
        raise UsageError(f"{source} is quantized already, as its {type(lowered).__name__} is: return the float model")
    if training := [path for path, module in model.named_modules() if module.training]:
        where = training[0] or "the network itself"
        raise UsageError(
            f"{source} is in training mode ({len(training)} modules, such as {where}): return model.eval()"
        )
    if problem := _unusable(model):
        raise UsageError(f"{source} {problem}")
    checked = Network(name, model, _batches(batches, model))
    for number, batch in enumerate(checked.batches, 1):
        if problem := next(filter(None, map(_worthless, tensors_of(batch))), ""):
            raise UsageError(f"batch {number} of the inputs {problem}")
        outputs = _outputs(model, batch, source, f"batch {number}")
        if missing := _missing(outputs):
            raise UsageError(f"{source} returns {missing} for batch {number}, so there is nothing to compare")
    again = _outputs(model, checked.held_out, source, "a second call")
    pairs = zip(outputs, again, strict=False)
    if len(outputs) != len(again) or not all(torch.equal(x.nan_to_num(), y.nan_to_num()) for x, y in pairs):
        raise UsageError(
            f"{source} returns something else in a second call, because it draws random numbers or changes its state: "
            "there is nothing to compare with"
        )
    return checked


def _outputs(model: nn.Module, batch: Batch, source: str, called: str) -> list[Tensor]:
    """The tensors that a model returns; its prints go to stderr, and what it sets of torch is as before. Raises UsageError
    with what it raises, a call of sys.exit included."""
    threads, dtype = torch.get_num_threads(), torch.get_default_dtype()
    try:
        with torch.no_grad(), redirect_stdout(sys.stderr):
            return tensors_of(model(*copied(batch)))
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        shapes = ", ".join(str(tuple(x.shape)) for x in tensors_of(batch))
        raise UsageError(
            f"{source} raises {brief(error)} for {called}, inputs of shape {shapes}: give inputs that it accepts"
        ) from error
    finally:
        torch.set_num_threads(threads)
        torch.set_default_dtype(dtype)


def _kept(x: Tensor) -> str:
    """How a tensor keeps its values, if it is not dense and of numbers that torch computes with; empty for others."""
    if x.is_quantized or x.layout is not torch.strided:
        return "quantized" if x.is_quantized else "nested" if x.is_nested else "sparse"
    if x.is_meta or x.is_nested:
        return "meta" if x.is_meta else "nested"
    return "8-bit float" if x.is_floating_point() and x.element_size() == 1 else ""


def _worthless(x: Tensor) -> str:
    """Why an input is of no use, empty if it is."""
    if kept := _kept(x):
        return f"has a {kept} tensor: give it dense and in float"
    return "has NaN, for which integers have no code: leave it out" if bool(x.isnan().any()) else ""


def _unusable(model: nn.Module) -> str:
    """Why a model has no quantized form, whatever the engine; empty if it may have one."""
    for path, module in model.named_modules():
        if "_orig_mod" in module._modules:  # without importing torch's compiler
            where = f"has the compiled module {path}" if path else "is compiled"
            return f"{where}, and FX does not trace what torch.compile returns: {MADE_FROM}"
    for name, parameter in model.named_parameters():
        if isinstance(parameter, UninitializedParameter):
            return f"has no values in its parameter {name} yet: call the lazy module with a batch first"
        if parameter.is_meta:
            return f"has its parameter {name} on the meta device, which keeps no values: load the weights"
        if kept := _kept(parameter):
            return f"has a {kept} parameter, {name}: give it dense and in float"
        if not bool(parameter.isfinite().all()):
            return f"has infinite values or NaN in its parameter {name}, for which integers have no codes"
    return ""


def _missing(outputs: Sequence[Tensor]) -> str:
    """What outputs are that nothing can be compared with; empty for others."""
    if not outputs:
        return "no tensor"
    if kept := next(filter(None, map(_kept, outputs)), ""):
        return f"a {kept} tensor"
    values = torch.cat([output.detach().flatten() for output in outputs])
    if not values.numel():
        return "empty tensors"
    return "NaN" if bool(values.isnan().any()) else "" if bool(values.isfinite().any()) else "infinite values alone"


FORMS = "a tensor, a tuple of arguments, or a dict of keyword arguments"


def _batches(batches: object, model: nn.Module) -> tuple[Batch, ...]:
    if not isinstance(batches, Sequence) or isinstance(batches, str | Tensor) or len(batches) < LEAST_BATCHES:
        raise UsageError(
            f"inputs are {_kind(batches)}: give a sequence of at least {LEAST_BATCHES} batches, each {FORMS}; "
            "the last is held out, the others calibrate"
        )
    checked = []
    for number, batch in enumerate(batches, 1):
        arguments = _positional(batch, model) if isinstance(batch, Mapping) else batch
        arguments = (arguments,) if isinstance(arguments, Tensor) else arguments
        if not isinstance(arguments, tuple | list) or not tensors_of(arguments):
            raise UsageError(f"batch {number} of the inputs is {_kind(batch)}: give {FORMS}")
        checked.append(tuple(arguments))
    return tuple(checked)


def _positional(batch: Mapping[Any, Any], model: nn.Module) -> Batch:
    """The arguments of a call in order: of keyword arguments, which what FX traces has none of, or the dict itself where it
    is the only argument. Raises UsageError for an argument that is taken by keyword alone."""
    signature = inspect.signature(model.forward)
    try:
        bound = signature.bind(**batch)
    except TypeError:
        return (batch,)
    if bound.kwargs:
        name = next(iter(bound.kwargs))
        raise UsageError(
            f"{name!r} is taken by keyword alone, and what FX traces by position: give it a place of its own"
        )
    last = max(number for number, name in enumerate(signature.parameters) if name in batch)
    bound.apply_defaults()
    return bound.args[: last + 1]


def _kind(value: object) -> str:
    if isinstance(value, tuple | list) and value and len({type(item) for item in value}) > 1:
        return f"a {type(value).__name__} with a {next(type(x).__name__ for x in value if not isinstance(x, Tensor))}"
    size = f" of {len(value)}" if isinstance(value, tuple | list) else ""
    return "None" if value is None else f"a {type(value).__name__}{size}"


def loaded(path: str, inputs: str | None, shapes: Sequence[str]) -> Network:
    """Return the network that `module:callable` returns, or is, with batches from another callable or of the given shapes.

    A shape is written `1,3,224,224`, one for each input of the model; its batches are three of normally distributed data.
    Raises UsageError for what cannot be audited.
    """
    if bool(inputs) == bool(shapes):
        given = "both --inputs and --shape" if inputs else "no inputs"
        raise UsageError(f"{given}: give either --inputs module:callable or --shape, such as --shape 1,3,224,224")
    named = attribute_of("audit", path)
    model = named if isinstance(named, nn.Module) else result_of("audit", path)
    batches = result_of("--inputs", inputs) if inputs else _random([_shape(text) for text in shapes])
    return network(path, model, batches, f"audit {path!r}")


def option_of(name: str, path: str, kind: type[Option]) -> Option:
    """Return the value of a class that `module:callable` returns, or is, for an option. Raises UsageError if it is none."""
    value = attribute_of(name, path)
    value = value if isinstance(value, kind) else result_of(name, path)
    if not isinstance(value, kind):
        raise UsageError(f"{name} {path!r} returned {_kind(value)}: it has to return a {kind.__name__}")
    return value


def _shape(text: str) -> tuple[int, ...]:
    try:
        sizes = tuple(int(part) for part in text.split(","))
    except ValueError:
        sizes = ()
    if not sizes or min(sizes) < 1 or math.prod(sizes) > MOST_ELEMENTS:
        raise UsageError(f"--shape {text!r}: write positive sizes separated by commas, such as 1,3,224,224")
    return sizes


def _random(shapes: Sequence[tuple[int, ...]]) -> list[Batch]:
    return [
        tuple(normal(f"audit/batch {number}/input {index}", shape) for index, shape in enumerate(shapes))
        for number in range(LEAST_BATCHES + 1)
    ]
