"""Prepared models as templates: of models with the same modules and QConfigs one is prepared, and the others copy it."""

import copy
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.fx import GraphModule

from conformance.shortcuts import enabled

from .observers import is_observer


@dataclass(frozen=True)
class Template:
    """A prepared model before calibration, and the float model that it was prepared from."""

    model: nn.Module
    prepared: GraphModule

    def of(self, model: nn.Module) -> GraphModule | None:
        """A copy of the prepared model with the tensors of another float model, which has the same modules.

        None if prepare does not copy the tensors as they are: it folds a batch norm into weights.
        """
        if not enabled("templates"):
            return None
        ours, theirs, places = (_tensors(each) for each in (self.model, model, self.prepared))
        if not len(ours) == len(theirs) == len(places):
            return None
        if not all(
            a.shape == b.shape and torch.equal(a, place) for a, b, place in zip(ours, theirs, places, strict=True)
        ):
            return None
        prepared = copy.deepcopy(self.prepared)
        with torch.no_grad():
            for place, value in zip(_tensors(prepared), theirs, strict=True):
                place.copy_(value)
        return prepared


def _tensors(model: nn.Module) -> list[Tensor]:
    """Parameters and buffers of a model without those of observers, parameters first."""
    modules = [module for name, module in model.named_modules() if not _within_observer(model, name)]
    parameters: list[Tensor] = [tensor for module in modules for tensor in module.parameters(recurse=False)]
    return parameters + [tensor for module in modules for tensor in module.buffers(recurse=False)]


def _within_observer(model: nn.Module, name: str) -> bool:
    """Whether a submodule is an observer or inside of one."""
    parts = name.split(".") if name else []
    return any(is_observer(model.get_submodule(".".join(parts[:end]))) for end in range(1, len(parts) + 1))
