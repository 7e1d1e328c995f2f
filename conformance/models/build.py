"""The subject of a run: its float model with deterministic parameters, calibration data and inputs."""

import copy
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
import torch.ao.nn.intrinsic as nni
import torch.ao.nn.intrinsic.qat as nniqat
import torch.ao.nn.qat as nnqat
import torch.ao.quantization as ao
import torch.nn.functional as F
from torch import Tensor, nn

from conformance.cases import recipes
from conformance.cases.apis import api
from conformance.cases.operators import Operand
from conformance.cases.recipes import Recipe
from conformance.cases.runs import Run
from conformance.oracle.scheme import ALWAYS
from conformance.results.profiles import PROFILES
from conformance.shortcuts import enabled

from .data import (
    activations,
    beyond,
    degenerate,
    degenerate_indices,
    ends_alone,
    fill,
    fill_initialized,
    fill_trained,
    fill_typical,
    grid,
    integer,
    integers,
    laid_out,
    normal,
    with_unequal_channels,
)


def names() -> dict[str, Any]:
    """Return the namespace in which the sources of models and recipes are executed."""
    return {
        "torch": torch,
        "nn": nn,
        "F": F,
        "operator": operator,
        "nni": nni,
        "nnqat": nnqat,
        "nniqat": nniqat,
        "PowerOfTwoObserver": recipes.PowerOfTwoObserver,
        "PowerOfTwoPerChannelObserver": recipes.PowerOfTwoPerChannelObserver,
        **{name: getattr(ao, name) for name in recipes.NAMES},
    }


@lru_cache(256)
def _evaluated(source: str, namespace: tuple[tuple[str, Any], ...]) -> Any:
    return eval(source, dict(namespace))


def evaluated(source: str, namespace: dict[str, Any]) -> Any:
    """Evaluate the source of a QConfig, once in a process: torch keeps what it derives from the object."""
    if not enabled("copies"):
        return eval(source, dict(namespace))
    # Python adds its builtins to a namespace in which it has evaluated anything
    return _evaluated(source, tuple(item for item in namespace.items() if item[0] != "__builtins__"))


@lru_cache(256)
def _compiled(source: str, mode: str) -> Any:
    """The code of a model or a recipe, which runs on several engines share."""
    return compile(source, "<string>", mode)


def operand(run: Run, name: str, spec: Operand, *, executed: bool) -> Tensor:
    """Return the data of one operand, for execution or else for calibration, in the operand's shape and layout."""
    assert run.variant is not None
    spec = run.variant.executed_operand(name) if executed else spec
    data = _values(run, name, spec, executed=executed)
    if (change := changed(run, spec, executed=executed)) is not None:
        data = change(data)
    return laid_out(data, spec.layout)


def changed(run: Run, spec: Operand, *, executed: bool) -> Callable[[Tensor], Tensor] | None:
    """What makes the execution of a variant that saturates exceed what calibration saw: there is less in the calibration if
    data are dyadic, else more in the execution. None if the operand stays as it is."""
    assert run.variant is not None
    if not run.variant.saturates or spec.kind != "activation":
        return None
    if PROFILES[run.profile].data == "dyadic":
        return None if executed else ends_alone
    return beyond if executed else None


def _values(run: Run, name: str, spec: Operand, *, executed: bool) -> Tensor:
    assert run.variant is not None
    key = f"{run.key}/{label(run, name, executed=executed)}"
    shape = spec.shape
    if spec.kind == "indices":
        indices = integers(key, torch.Size(shape).numel(), 0, spec.limit - 1).reshape(shape)
        return degenerate_indices(spec.degenerate, indices, spec.limit) if spec.degenerate else indices
    if spec.kind == "offsets":
        drawn = integers(key, shape[0] - 1, 0, spec.limit).sort().values
        return torch.cat([torch.zeros(1, dtype=torch.int64), drawn]).to(torch.int32 if spec.degenerate else torch.int64)
    if spec.kind == "weights":
        return grid(key, shape, 1, 4, -1)
    data = PROFILES[run.profile].data
    if spec.degenerate:
        return degenerate(spec.degenerate, key, shape, *run.bounds(spec))
    if data == "normal":
        return _made(normal, key, shape).clone()
    if data == "dyadic":
        return _made(grid, key, shape, *run.bounds(spec)).clone()
    return _made(
        activations, key, shape, *range_in_use(run, name, spec), tails=data == "trained", clipped=clipped(run, executed)
    ).clone()


@lru_cache(64)
def _made(make: Callable[..., Tensor], *arguments: Any, **options: Any) -> Tensor:
    """Data, which are made once for calibration and execution, and for all engines."""
    return make(*arguments, **options)


def label(run: Run, name: str, *, executed: bool) -> str:
    """What the data of an operand are a function of, beside the run's key: its name, and the execution's own sizes."""
    assert run.variant is not None
    if executed and run.variant.batch is not None:
        return f"{name}/batch{run.variant.batch}"
    if executed and name in run.variant.executed:
        return f"{name}/{'x'.join(map(str, run.variant.executed[name].shape))}"
    return name


def clipped(run: Run, executed: bool) -> bool:
    """Whether activations stay in the observed range: what an observer sees, and what a dynamic kernel takes the range of."""
    return not executed or run.recipe.kind != "static"


def range_in_use(run: Run, name: str, spec: Operand) -> tuple[int, int, float]:
    """The lowest and highest code of an operand of a layer in use, and the size of a step, which is no power of two.

    Half of the layers follow a ReLU, the others have a zero point of their own. Where the output has the qparams of the
    inputs, all of these have the same.
    """
    assert run.variant is not None
    low, high, exponent = run.bounds(spec)
    label = run.key if run.recipe.scheme.shares == ALWAYS else f"{run.key}/{name}"
    if (spec.data or run.variant.data) == "full":
        below = max(0, integer(f"{label}/below", -7, 8)) * (high - low) // 16
        exponent += integer(f"{label}/exponent", -1, 1)
        low, high = -below, high - low - below
    return low, high, 2.0**exponent * (1 + integer(f"{label}/step", 1, 255) / 256)


def unequal_channels(run: Run) -> bool:
    """Whether the output channels of a layer get unequal ranges, because its weights are quantized per channel."""
    weight = run.recipe.scheme.weight
    return weight is not None and weight.axis == 0 and run.recipe.kind != "weight"


FILLS = {"normal": fill_typical, "initialized": fill_initialized, "trained": fill_trained}
"""The functions that set parameters and buffers, by a profile's data; `fill` sets dyadic ones."""


class CannotBeBuilt(Exception):
    """The constructor of the model raised. `args[0]` is its exception."""


@dataclass(frozen=True)
class Subject:
    """A run's float model with its data. `model` is in training mode for the flow `qat`, else in eval mode.

    `qconfig` and `mapping` are None for what a quantizer declares: its recipe is of torchao, which need not be installed.
    """

    run: Run
    qconfig: Any
    mapping: Any
    model: nn.Module
    calibration: tuple[Tensor, ...]
    inputs: tuple[Tensor, ...]

    def fresh_inputs(self) -> tuple[Tensor, ...]:
        """Copies of the inputs in the same layout, because in-place operators write to their inputs."""
        return tuple(map(_copied, self.inputs))


def _copied(x: Tensor) -> Tensor:
    """A copy in the same layout: a clone has that of a tensor without gaps."""
    dense = x.untyped_storage().nbytes() == x.numel() * x.element_size()
    return x.clone() if dense else copy.deepcopy(x)


def subject(run: Run, recipe: Recipe | None = None) -> Subject:
    """Build the float model of a run from its source, with deterministic parameters and data; `recipe` replaces the run's.

    Raises CannotBeBuilt if the model's constructor raises.
    """
    recipe = recipe or run.recipe
    scope, qconfig, mapping = names(), None, None
    if not api(run.backend).exports:
        scope["qconfig"] = qconfig = evaluated(recipe.qconfig, scope)
        mapping = eval(_compiled(recipe.mapping, "eval"), scope)
    exec(_compiled(run.model.source, "exec"), scope)
    try:
        model: nn.Module = scope["Model"]()
    except Exception as error:
        raise CannotBeBuilt(error) from error
    if filled := FILLS.get(PROFILES[run.profile].data):
        filled(model, run.key)
    else:
        fill(model, run.key, run.recipe.weight_levels)
        if unequal_channels(run):
            with_unequal_channels(model)
    model.train(run.flow == "qat")
    calibration = tuple(operand(run, name, spec, executed=False) for name, spec in run.model.operands)
    inputs = tuple(operand(run, name, spec, executed=True) for name, spec in run.model.operands)
    return Subject(run, qconfig, mapping, model, calibration, inputs)


def floating(subject: Subject) -> nn.Module:
    """Return a copy of the unfused float model in eval mode, without the fake-quantizes of QAT modules."""
    model = copy.deepcopy(subject.model).eval()
    for module in model.modules():
        if hasattr(module, "weight_fake_quant"):
            module.weight_fake_quant = nn.Identity()
    return model


def float_outputs(subject: Subject, inputs: Sequence[Tensor] | None = None) -> list[Tensor]:
    """Run the unfused float model in eval mode and return its outputs.

    The inputs default to the subject's. The dtype is that of `FloatModel`. Raises the exceptions of the model.
    """
    return FloatModel(subject)(subject.fresh_inputs() if inputs is None else inputs)


class FloatModel:
    """The unfused float model of a subject in eval mode.

    The dtype is float64, or float32 for a model with an `nn.EmbeddingBag`, whose float64 kernel ignores the last offset of
    `include_last_offset`.
    """

    def __init__(self, subject: Subject) -> None:
        self.model = floating(subject)
        self.double = not any(isinstance(module, nn.EmbeddingBag) for module in self.model.modules())
        if self.double:
            self.model.double()

    def __call__(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        """Return the outputs for some inputs. Raises the exceptions of the model."""
        default_dtype = torch.get_default_dtype()
        if self.double:
            inputs = [x.double() if x.is_floating_point() else x for x in inputs]
            torch.set_default_dtype(torch.float64)  # some QAT modules create a bias in `forward`
        try:
            with torch.no_grad():
                return tensors(self.model(*inputs))
        finally:
            torch.set_default_dtype(default_dtype)


def by_value(subject: Subject, inputs: Sequence[Tensor]) -> bool:
    """Whether the float model, in the dtype of its inputs, depends on their values alone. With `view` or `resize_` it depends
    on strides; in place it does not accept all of them."""
    model = floating(subject)
    contiguous = [x.clone(memory_format=torch.contiguous_format) for x in inputs]
    try:
        with torch.no_grad():
            outputs, expected = tensors(model(*map(_copied, inputs))), tensors(model(*contiguous))
    except RuntimeError:
        return False
    return all(torch.allclose(a, b) for a, b in zip(outputs, expected, strict=True))


def tensors(outputs: Any) -> list[Tensor]:
    """Return the tensors in the output of a model, flattened, in order."""
    if isinstance(outputs, Tensor):
        return [outputs]
    if isinstance(outputs, tuple | list):
        return [tensor for part in outputs for tensor in tensors(part)]
    return []
