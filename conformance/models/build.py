"""A run's float model with deterministic parameters and data."""

import copy
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.ao.nn.intrinsic as nni
import torch.ao.nn.intrinsic.qat as nniqat
import torch.ao.nn.qat as nnqat
import torch.ao.quantization as ao
import torch.nn.functional as F
from torch import Tensor, nn

from conformance.cases import recipes
from conformance.cases.operators import Operand
from conformance.cases.recipes import Recipe
from conformance.cases.runs import Run
from conformance.results.profiles import PROFILES

from .data import ends_alone, fill, fill_typical, grid, integers, laid_out, normal, with_unequal_channels


def names() -> dict[str, Any]:
    """Return what the sources of models and recipes refer to."""
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


def operand(run: Run, name: str, spec: Operand, *, executed: bool) -> Tensor:
    """Return the data of one operand: those it is calibrated with, or those it is executed with."""
    assert run.variant is not None
    data = _values(run, name, spec, executed=executed)
    if run.variant.saturates and not executed and spec.kind == "activation":
        data = ends_alone(data)
    return data if spec.layout == "contiguous" else laid_out(data, spec.layout)


def _values(run: Run, name: str, spec: Operand, *, executed: bool) -> Tensor:
    assert run.variant is not None
    shape, key = spec.shape, f"{run.key}/{name}"
    if executed and run.variant.batch is not None:
        shape, key = (run.variant.batch, *shape[1:]), f"{key}/batch{run.variant.batch}"
    if spec.kind == "indices":
        return integers(key, torch.Size(shape).numel(), 0, spec.limit - 1).reshape(shape)
    if spec.kind == "offsets":
        return torch.cat([torch.zeros(1, dtype=torch.int64), integers(key, shape[0] - 1, 0, spec.limit).sort().values])
    if spec.kind == "weights":
        return grid(key, shape, 1, 4, -1)
    if PROFILES[run.profile].data == "normal":
        return normal(key, shape)
    return grid(key, shape, *run.bounds(spec))


def unequal_channels(run: Run) -> bool:
    """Whether the channels of a layer get scales of their own: where its weights are quantized per channel."""
    weight = run.recipe.scheme.weight
    return weight is not None and weight.axis == 0 and run.recipe.kind != "weight"


class CannotBeBuilt(Exception):
    """torch refuses to construct the model; `args[0]` is its error."""


@dataclass(frozen=True)
class Subject:
    """A run's float model with its example inputs; `model` is in eval mode, or in training mode for qat."""

    run: Run
    qconfig: Any
    mapping: Any
    model: nn.Module
    calibration: tuple[Tensor, ...]
    inputs: tuple[Tensor, ...]

    def fresh_inputs(self) -> tuple[Tensor, ...]:
        """Copies of the inputs, laid out as they are: in-place operators write to what they are given."""
        return copy.deepcopy(self.inputs)


def subject(run: Run, recipe: Recipe | None = None) -> Subject:
    """Build the float model of a run from its source, with deterministic parameters and data; `recipe` replaces the run's."""
    recipe = recipe or run.recipe
    scope = names()
    scope["qconfig"] = qconfig = eval(recipe.qconfig, scope)
    mapping = eval(recipe.mapping, scope)
    exec(run.model.source, scope)
    try:
        model: nn.Module = scope["Model"]()
    except Exception as error:
        raise CannotBeBuilt(error) from error
    if PROFILES[run.profile].data == "normal":
        fill_typical(model, run.key)
    else:
        fill(model, run.key, run.recipe.weight_levels)
        if unequal_channels(run):
            with_unequal_channels(model)
    model.train(run.flow == "qat")
    calibration = tuple(operand(run, name, spec, executed=False) for name, spec in run.model.operands)
    inputs = tuple(operand(run, name, spec, executed=True) for name, spec in run.model.operands)
    return Subject(run, qconfig, mapping, model, calibration, inputs)


def floating(given: Subject) -> nn.Module:
    """A copy of the unfused float model in eval mode, without what a QAT module rounds."""
    model = copy.deepcopy(given.model).eval()
    for module in model.modules():
        if hasattr(module, "weight_fake_quant"):
            module.weight_fake_quant = nn.Identity()
    return model


def float_outputs(given: Subject, inputs: Sequence[Tensor] | None = None) -> list[Tensor]:
    """Run the unfused float model in eval mode and float64, on its own inputs or on others."""
    model = floating(given)
    data = given.fresh_inputs() if inputs is None else inputs
    usual = torch.get_default_dtype()
    # for float64 torch does not end the last bag at the last offset
    if not any(isinstance(module, nn.EmbeddingBag) for module in model.modules()):
        model, data = model.double(), [x.double() if x.is_floating_point() else x for x in data]
        torch.set_default_dtype(torch.float64)  # some modules for QAT make a bias of their own
    try:
        with torch.no_grad():
            return tensors(model(*data))
    finally:
        torch.set_default_dtype(usual)


def tensors(outputs: Any) -> list[Tensor]:
    """Flatten what a model returns into its tensors, in order."""
    if isinstance(outputs, Tensor):
        return [outputs]
    if isinstance(outputs, tuple | list):
        return [tensor for part in outputs for tensor in tensors(part)]
    return []
