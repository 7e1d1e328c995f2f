"""QConfigs and observed models that torch cannot tell apart, so that each kind is prepared and converted once."""

from collections.abc import Hashable, Iterator
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn
from torch.ao.quantization import FakeQuantizeBase, FixedQParamsObserver, PlaceholderObserver
from torch.ao.quantization.backend_config import BackendConfig, DTypeWithConstraints

from conformance.cases.constraints import of_side
from conformance.models import fx
from conformance.models.observers import is_observer
from conformance.results.constraints import FIELDS, SIDES

PREPARE = import_module("torch.ao.quantization.fx.prepare")
"""The module whose names prepare calls; the package has the function of the same name in its place."""


def constrained_dtypes(config: BackendConfig) -> list[tuple[DTypeWithConstraints, bool]]:
    """The different constraints of a config with any field set, each with whether they are on activations."""
    found: list[tuple[DTypeWithConstraints, bool]] = []
    for entry in config.configs:
        for dtypes in entry.dtype_configs:
            for side in SIDES:
                constraints = of_side(dtypes, side), side != "weight"
                if any(getattr(constraints[0], field) is not None for field in FIELDS) and constraints not in found:
                    found.append(constraints)
    return found


def kind_of(qconfig: Any, constrained: list[tuple[DTypeWithConstraints, bool]]) -> Hashable | None:
    """What prepare can tell of a QConfig: the kinds of its observers, and how they compare with constraints.

    The comparisons are torch's own, with whether it warns. None if an observer cannot be built or compared.
    """
    compared: list[tuple[bool, bool]] = []
    with fx.quiet() as caught:
        try:
            observers = _kind_of(qconfig.activation()), _kind_of(qconfig.weight())
            for constraints, is_activation in constrained:
                before = len(caught)
                satisfied = PREPARE._qconfig_satisfies_dtype_config_constraints(qconfig, constraints, is_activation)
                compared.append((satisfied, len(caught) > before))
        except Exception:
            return None
    return *observers, tuple(compared)


def _kind_of(post_process: Any) -> Hashable:
    """An observer or fake-quantize without its numbers and its way to observe."""
    observer = getattr(post_process, "activation_post_process", post_process)
    return (
        isinstance(post_process, FakeQuantizeBase),
        isinstance(observer, FixedQParamsObserver),
        isinstance(observer, PlaceholderObserver),
        observer.dtype,
        getattr(observer, "is_dynamic", None),
        getattr(post_process, "is_dynamic", None),
    )


def observed_qparams(prepared: nn.Module) -> tuple[Hashable, ...]:
    """The qparams of every observer of a prepared model, in order, with their bits; None for an observer without."""
    return tuple(_qparams(module) for module in prepared.modules() if is_observer(module))


def _qparams(observer: Any) -> Hashable:
    try:
        qparams = observer.calculate_qparams()
    except Exception:  # an observer that observes nothing, such as a placeholder
        return None
    return tuple((tuple(x.shape), x.dtype, x.numpy().tobytes()) for x in map(torch.as_tensor, qparams))


def weights_of(model: nn.Module) -> Iterator[Tensor]:
    """The weights of a model: its parameters of two or more dimensions."""
    return (parameter.detach() for parameter in model.parameters() if parameter.dim() > 1)


def keeps_weights(model: nn.Module, prepared: nn.Module) -> bool:
    """Whether a prepared model has the weights of its float model: prepare folds a batch norm into them, or splits them."""
    ours, theirs = [*weights_of(model)], [*weights_of(prepared)]
    return len(ours) == len(theirs) and all(map(torch.equal, ours, theirs))
