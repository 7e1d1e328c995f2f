"""The network that is audited: a float model in eval mode, batches to calibrate it with, and one held out."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedParameter
from torch.utils._pytree import tree_leaves

from conformance.errors import UsageError, brief
from conformance.host.callables import attribute_of, result_of
from conformance.models.data import normal

Batch = tuple[Tensor, ...]

LEAST_BATCHES = 2
"""Batches that an audit needs: one to calibrate with, and one held out."""


@dataclass(frozen=True)
class Network:
    """A float model in eval mode with its batches, each a tuple of the model's inputs. The last batch is held out."""

    name: str
    model: nn.Module
    batches: tuple[Batch, ...]

    @property
    def calibration(self) -> tuple[Batch, ...]:
        return self.batches[:-1]

    @property
    def held_out(self) -> Batch:
        return self.batches[-1]


def copied(batch: Sequence[Tensor]) -> Batch:
    """Copies of inputs, because a network may write to them."""
    return tuple(x.clone() for x in batch)


def outputs_of(result: Any) -> list[Tensor]:
    """The tensors in what a model returns, in any nesting of containers, in order."""
    return [leaf for leaf in tree_leaves(result) if isinstance(leaf, Tensor)]


EXTREME = 1e30
"""Magnitude from which an input is a stand-in for infinity, as in masks of attention."""


def extremes(subject: Network) -> Iterator[str]:
    """Yield a sentence for each input whose values take all of the range that an observer gives its codes."""
    for number, inputs in enumerate(zip(*subject.batches, strict=False), 1):
        values = torch.cat([x.detach().flatten() for x in inputs])
        if values.is_floating_point() and values.numel() and float(values.abs().max()) >= EXTREME:
            reached = float(values[values.abs().argmax()])
            yield (
                f"input {number} reaches {reached:.3g}, so that all other values have one code: give a mask a moderate "
                "number, such as -100, or leave its addition in float"
            )


def network(name: str, model: object, batches: object, source: str = "the model") -> Network:
    """Return a network after it has been checked that it can be audited: in eval mode, with at least two batches that it runs
    on. `source` says in errors where the model comes from. Raises UsageError in one line with the fix."""
    if not isinstance(model, nn.Module):
        raise UsageError(f"{source} returned {_kind(model)}: it has to return a torch.nn.Module in eval mode")
    if training := [path for path, module in model.named_modules() if module.training]:
        where = training[0] or "the network itself"
        raise UsageError(
            f"{source} is in training mode ({len(training)} modules, such as {where}): return model.eval()"
        )
    if problem := _unusable(model):
        raise UsageError(f"{source} {problem}")
    checked = Network(name, model, _batches(batches))
    for number, batch in enumerate(checked.batches, 1):
        try:
            with torch.no_grad():
                outputs = outputs_of(model(*copied(batch)))
        except Exception as error:
            shapes = ", ".join(str(tuple(x.shape)) for x in batch)
            raise UsageError(
                f"{source} raises {brief(error)} for batch {number}, inputs of shape {shapes}: give inputs that it accepts"
            ) from error
        if missing := _missing(outputs):
            raise UsageError(f"{source} returns {missing} for batch {number}, so there is nothing to compare")
    return checked


def _unusable(model: nn.Module) -> str:
    """Why a model has no quantized form, whatever the engine; empty if it may have one."""
    if "_orig_mod" in model._modules:  # without importing torch's compiler
        return "is compiled, and FX does not trace what torch.compile returns: return the module that it was made from"
    if isinstance(model, torch.jit.ScriptModule):
        return "is a ScriptModule, which FX does not trace: return the module that it was made from"
    for name, parameter in model.named_parameters():
        if isinstance(parameter, UninitializedParameter):
            return f"has no values in its parameter {name} yet: call the lazy module with a batch first"
        if parameter.is_meta:
            return f"has its parameter {name} on the meta device, which keeps no values: load the weights"
        if not bool(parameter.isfinite().all()):
            return f"has infinite values or NaN in its parameter {name}, for which integers have no codes"
    return ""


def _missing(outputs: Sequence[Tensor]) -> str:
    """What outputs are that nothing can be compared with; empty for others."""
    if not outputs:
        return "no tensor"
    values = torch.cat([output.detach().flatten() for output in outputs])
    if not values.numel():
        return "empty tensors"
    return "NaN" if bool(values.isnan().any()) else "" if bool(values.isfinite().any()) else "infinite values alone"


def _batches(batches: object) -> tuple[Batch, ...]:
    if not isinstance(batches, Sequence) or isinstance(batches, str | Tensor) or len(batches) < LEAST_BATCHES:
        raise UsageError(
            f"inputs are {_kind(batches)}: give a sequence of at least {LEAST_BATCHES} batches, each a tensor or a tuple of "
            "tensors; the last is held out, the others calibrate"
        )
    checked = []
    for number, batch in enumerate(batches, 1):
        batch = (batch,) if isinstance(batch, Tensor) else batch
        if not isinstance(batch, tuple | list) or not batch or not all(isinstance(x, Tensor) for x in batch):
            raise UsageError(f"batch {number} of the inputs is {_kind(batch)}: give a tensor or a tuple of tensors")
        checked.append(tuple(batch))
    return tuple(checked)


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


def mapping_of(path: str) -> Any:
    """Return the QConfigMapping that `module:callable` returns, or is. Raises UsageError if it is none."""
    from torch.ao.quantization import QConfigMapping

    value = attribute_of("--mapping", path)
    value = value if isinstance(value, QConfigMapping) else result_of("--mapping", path)
    if not isinstance(value, QConfigMapping):
        raise UsageError(f"--mapping {path!r} returned {_kind(value)}: it has to return a QConfigMapping")
    return value


def _shape(text: str) -> tuple[int, ...]:
    try:
        sizes = tuple(int(part) for part in text.split(","))
    except ValueError:
        sizes = ()
    if not sizes or min(sizes) < 1:
        raise UsageError(f"--shape {text!r}: write positive sizes separated by commas, such as 1,3,224,224")
    return sizes


def _random(shapes: Sequence[tuple[int, ...]]) -> list[Batch]:
    return [
        tuple(normal(f"audit/batch {number}/input {index}", shape) for index, shape in enumerate(shapes))
        for number in range(LEAST_BATCHES + 1)
    ]
