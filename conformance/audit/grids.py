"""What the grid of a layer's value costs: a range that the config fixes, one that is shared with a wider value, or a grid
that is not the reference's."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

from torch import Tensor
from torch.ao.quantization import FixedQParamsObserver, ObserverBase
from torch.ao.quantization.backend_config import ObservationType
from torch.fx import Node

from conformance.cases.recipes import RANGES
from conformance.checks.tolerances import TYPICAL_BAND
from conformance.results.audits import CLIPPED, LEAST_DB, LOST_DB, Qparams
from conformance.results.findings import Finding
from conformance.results.findings.layers import FixedRangeClips, LayerCoarser, SharedRange

from .agreement import clipped, decibels, qparams
from .conversion import Converted
from .execution import Step
from .origins import SAME_DB, source


class Grids:
    """The observers of a prepared network. `patterns` are the entries of the config by pattern."""

    def __init__(self, converted: Converted, patterns: Mapping[Any, Any]) -> None:
        self.converted = converted
        self.sharing = self._sharing(patterns)

    def _sharing(self, patterns: Mapping[Any, Any]) -> dict[str, tuple[str, ...]]:
        """By the name of a node the others that have its observer, of operands and results of operators that compute with a
        number: the config gives these one observer, although their ranges differ."""
        observed, shared = self.converted.matches.observed, dict[ObserverBase, dict[str, None]]()
        for name, node in self.converted.nodes.items():
            by_count = getattr(patterns.get(observed.get(name)), "_num_tensor_args_to_observation_type", {})
            taken = [one for one in node.args if isinstance(one, Node)]
            if by_count.get(len(taken)) is ObservationType.OUTPUT_SHARE_OBSERVER_WITH_INPUT:
                for one in taken:
                    observer, operand = self.converted.modules.get(str(one.target)), one.args[:1]
                    if isinstance(observer, ObserverBase) and observer in self._behind(node):
                        shared.setdefault(observer, {}).update({str(operand[0]): None, name: None})
        return {name: tuple(one for one in names if one != name) for names in shared.values() for name in names}

    def _behind(self, node: Node) -> list[ObserverBase]:
        used_by = (self.converted.modules.get(str(user.target)) for user in node.users)
        return [module for module in used_by if isinstance(module, ObserverBase)]

    def _is_fixed(self, core: Node, grid: Qparams) -> bool:
        """Whether a grid is the fixed one of an observer of a value. Operators that read a value may have one each."""
        node = self.converted.nodes.get(core.name)
        behind = [] if node is None else self._behind(node)
        fixed = [one for one in behind if isinstance(one, FixedQParamsObserver)]
        return any((float(one.scale), float(one.zero_point)) == (grid.scale, grid.zero_point) for one in fixed)

    def costs(self, step: Step, truth: Tensor) -> Iterator[Finding]:
        """Yield what is wrong with the reference's own grid for a layer whose value in float is `truth`."""
        same, grid = self.converted.equivalents.get(step.node), qparams(step.value)
        sqnr_db = decibels(step.local, truth) if isinstance(step.local, Tensor) else None
        if same is None or grid is None or sqnr_db is None or grid != qparams(step.local):
            return
        core = source(same)
        if self._is_fixed(core, grid):
            yield from _fixed(step, grid, sqnr_db)
        elif core.name in self.sharing:
            yield from self._shared(core.name, truth, grid, sqnr_db)

    def _shared(self, name: str, truth: Tensor, grid: Qparams, sqnr_db: float) -> Iterator[Finding]:
        """The finding that most of the noise of a value is that of the wider ranges which share its observer."""
        values, nodes = self.converted.in_float.values, self.converted.float_nodes
        widths = {one: _width(values.get(nodes[one])) for one in (name, *self.sharing[name]) if one in nodes}
        widest = max(widths, key=lambda one: widths[one], default=name)
        if not widths.get(name) or widths[widest] <= widths[name]:
            return
        ratio = widths[widest] / widths[name]
        own_db = _rounded(truth, grid.scale / ratio)
        total, shared, own = (10 ** (-db / 10) for db in (sqnr_db, _rounded(truth, grid.scale), own_db))
        if 10 * math.log10(total / (max(total - shared, 0.0) + own)) > LOST_DB:
            yield SharedRange("reference", widest, round(ratio, 2), sqnr_db, own_db)


def _fixed(step: Step, grid: Qparams, sqnr_db: float) -> Iterator[Finding]:
    """The finding that a range that nobody observed clips values by more than the step that 1 is beyond the range of a
    sigmoid, whose end is 255/256."""
    share = clipped(step.position, step.value.dtype, beyond=1 + TYPICAL_BAND)
    if share >= CLIPPED:
        low, high = ((end - grid.zero_point) * grid.scale for end in RANGES[step.value.dtype])
        yield FixedRangeClips("reference", round(share, 4), low, high, sqnr_db)


def coarser(value: Tensor, local: Tensor, truth: Tensor) -> Iterator[Finding]:
    """The finding that a value has lost precision by a grid that is not the reference's, beyond float32's own roundings."""
    own, reference = qparams(value), qparams(local)
    if own is None or reference is None or own == reference:
        return
    sqnr_db, reference_db = decibels(value, truth), decibels(local, truth)
    if sqnr_db is None or sqnr_db > SAME_DB or reference_db is None:
        return
    if reference_db - sqnr_db > LOST_DB:
        yield LayerCoarser("numerics", own.text, reference.text, sqnr_db, reference_db)


def _width(value: object) -> float:
    """The width of the range of values and zero, 0 where there are none."""
    if not isinstance(value, Tensor) or not value.is_floating_point() or not value.numel():
        return 0.0
    return float(value.max().clamp(min=0)) - float(value.min().clamp(max=0))


def _rounded(values: Tensor, scale: float) -> float:
    """The SQNR in dB of values that are rounded to a grid with a scale, without ends; that of no noise is as high as that of
    noise alone is low."""
    found = decibels((values / scale).round() * scale, values)
    return -LEAST_DB if found is None else found
