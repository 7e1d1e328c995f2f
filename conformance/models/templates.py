"""Prepared models as templates: of models with the same modules and QConfigs one is prepared, and the others copy it."""

import copy
from dataclasses import dataclass
from functools import cached_property

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
        theirs = _tensors(model)
        if not enabled("templates") or not self._keeps_tensors or [x.shape for x in theirs] != self._shapes:
            return None
        prepared = copy.deepcopy(self.prepared)
        with torch.no_grad():
            for place, value in zip(_tensors(prepared), theirs, strict=True):
                place.copy_(value)
        return prepared

    @cached_property
    def _shapes(self) -> list[torch.Size]:
        return [x.shape for x in _tensors(self.model)]

    @cached_property
    def _keeps_tensors(self) -> bool:
        """Whether the prepared model has the tensors of its float model, in the same order."""
        ours, places = _tensors(self.model), _tensors(self.prepared)
        return len(ours) == len(places) and all(map(torch.equal, ours, places))


def _tensors(model: nn.Module) -> list[Tensor]:
    """Parameters and buffers of a model without those of observers, parameters first."""
    modules = [module for name, module in model.named_modules() if not _within_observer(model, name)]
    parameters: list[Tensor] = [tensor for module in modules for tensor in module.parameters(recurse=False)]
    return parameters + [tensor for module in modules for tensor in module.buffers(recurse=False)]


def _within_observer(model: nn.Module, name: str) -> bool:
    """Whether a submodule is an observer or inside of one."""
    parts = name.split(".") if name else []
    return any(is_observer(model.get_submodule(".".join(parts[:end]))) for end in range(1, len(parts) + 1))
