"""Repetitions of an execution that must not change the output: again, in another memory format, in parts of the batch."""

from collections.abc import Sequence
from operator import itemgetter

import torch
from torch import Tensor
from torch.fx import GraphModule
from torch.utils._pytree import tree_map, tree_map_only

from conformance.checks.comparison import differ
from conformance.checks.tolerances import TYPICAL_BAND
from conformance.errors import brief
from conformance.host.poison import fresh_memory_holds
from conformance.results.audits import Stability

from .agreement import decibels, joined, values_of
from .conversion import Converted
from .network import Batch, copied, tensors_of
from .values import Moved

Outputs = Sequence[Tensor]
NAMES = ("repeatable", "memory format", "batch split")


def stability(converted: Converted) -> tuple[Stability, ...]:
    """Every check of stability of a lowered network, on its held-out batch."""
    batch = converted.network.held_out
    with torch.no_grad():
        first = _run(converted.lowered, batch, 0x00)
        again = _run(converted.lowered, batch, 0xAA)
        checks = [same("repeatable", first, again, "a second run, with other contents of fresh memory,")]
        checks.append(_memory_format(converted, batch, first))
        checks.append(_batch_split(converted))
    return tuple(checks)


def skipped(reason: str) -> tuple[Stability, ...]:
    """Every check, skipped for a reason."""
    return tuple(Stability(name, "skip", reason) for name in NAMES)


def _run(model: GraphModule, batch: Batch, byte: int) -> list[Tensor]:
    with fresh_memory_holds(byte):
        return [values_of(x) for x in tensors_of(model(*copied(batch)))]


def same(name: str, first: Outputs, other: Outputs, what: str) -> Stability:
    if [x.shape for x in first] != [x.shape for x in other]:
        return Stability(name, "fail", f"{what} changes the shapes of the outputs")
    changed = sum(int(differ(x, y).sum()) for x, y in zip(first, other, strict=True))
    total = sum(x.numel() for x in first)
    if changed:
        return Stability(name, "fail", f"{what} changes {changed} of {total} values")
    return Stability(name, "pass")


def _memory_format(converted: Converted, batch: Batch, first: Outputs) -> Stability:
    """Compare with inputs in channels-last, unless the reference model's output changes then too."""
    name, formats = "memory format", {4: torch.channels_last, 5: torch.channels_last_3d}
    if not any(x.dim() in formats for x in tensors_of(batch)):
        return Stability(name, "skip", "no input has a channels-last form")
    other = tree_map_only(
        Tensor, lambda x: x.contiguous(memory_format=formats[x.dim()]) if x.dim() in formats else x, batch
    )
    try:
        got = _run(converted.lowered, other, 0x00)
    except Exception as error:
        if _fails(converted, other):
            return Stability(name, "skip", "the float model does not take channels-last inputs either")
        return Stability(name, "fail", f"channels-last inputs raise {brief(error)}")
    what = "the same inputs in channels-last"
    result = same(name, first, got, what)
    if result.outcome == "fail":
        plain, changed = (_run(converted.reference, inputs, 0x00) for inputs in (batch, other))
        if same(name, plain, changed, what).outcome == "fail" or _within_ties(converted, plain, first, got):
            return Stability(name, "skip", f"{what}: {LIKE_TIES}")
    return result


def _fails(converted: Converted, batch: Batch) -> bool:
    try:
        converted.network.model(*copied(batch))
    except Exception:
        return True
    return False


LIKE_TIES = "float operators give other last bits, which decide ties"
"""Why a difference is none of the engine's."""

LEAST_DIFFERENCE_DB = 3.0
"""How much worse than another rounding of ties a difference has to be to count."""


def _within_ties(converted: Converted, plain: Outputs, first: Outputs, got: Outputs) -> bool:
    """Whether outputs differ no more than the reference model's do when values are moved by a tie before they are rounded, in
    a network with float operators, whose last bits depend on the size of the batch and the memory format."""
    if [x.shape for x in first] != [x.shape for x in got] or not _has_float(converted):
        return False
    moved = Moved(converted.reference, TYPICAL_BAND, 1).run(*copied(converted.network.held_out))
    tied = decibels(_joined([values_of(x) for x in tensors_of(moved)]), _joined(plain))
    changed = decibels(_joined(got), _joined(first))
    return tied is not None and changed is not None and changed > tied - LEAST_DIFFERENCE_DB


PERIODS = (1, 2, 1 << 30)
"""Numbers of elements that are moved in the same direction, for each run of `tied_db`."""


def tied_db(reference: GraphModule, batch: Batch, exact: Tensor) -> float | None:
    """The worst SQNR in dB of a reference with values moved by a tie before they are rounded."""
    found = []
    for period in PERIODS:
        with torch.no_grad():
            output = Moved(reference, TYPICAL_BAND, period).run(*copied(batch))
        found.append(decibels(joined(output), exact))
    return min((value for value in found if value is not None), default=None)


def _has_float(converted: Converted) -> bool:
    """Whether the lowered network dequantizes anything but its outputs."""
    dequantized = [node for node in converted.lowered.graph.nodes if node.target == "dequantize"]
    return any(user.op != "output" for node in dequantized for user in node.users)


def _joined(outputs: Outputs) -> Tensor:
    return torch.cat([x.flatten().float() for x in outputs])


def _batch_split(converted: Converted) -> Stability:
    """Compare a batch with its items one by one. A batch of one item is joined with the first one to calibrate."""
    name, batch = "batch split", converted.network.held_out
    sizes = {x.shape[0] if x.dim() else 0 for x in tensors_of(batch)}
    if len(sizes) != 1 or 0 in sizes:
        return Stability(name, "skip", "the inputs have no common batch dimension")
    try:
        if sizes == {1}:
            first = converted.network.calibration[0]
            batch = tree_map(lambda x, y: torch.cat([x, y]) if isinstance(x, Tensor) else x, batch, first)
        count = len(tensors_of(batch)[0])
        items = [tree_map_only(Tensor, itemgetter(slice(i, i + 1)), batch) for i in range(count)]
        result = _split(name, converted.lowered, batch, items)
        if result.outcome == "fail":
            if _split(name, converted.reference, batch, items).outcome != "pass":
                return Stability(name, "skip", "the reference model's output depends on how its batch is split too")
            together, alone = _run(converted.lowered, batch, 0x00), _each(converted.lowered, items)
            if sizes != {1} and _within_ties(converted, _run(converted.reference, batch, 0x00), together, alone):
                return Stability(name, "skip", f"running each item by itself: {LIKE_TIES}")
    except Exception as error:
        return Stability(name, "skip", f"another size of the batch raises {brief(error)}")
    return result


def _split(name: str, model: GraphModule, batch: Batch, items: Sequence[Batch]) -> Stability:
    together = _run(model, batch, 0x00)
    if any(not x.dim() or len(x) != len(items) for x in together):
        return Stability(name, "skip", "an output has no batch dimension")
    return same(name, together, _each(model, items), "running each item by itself")


def _each(model: GraphModule, items: Sequence[Batch]) -> list[Tensor]:
    """The outputs for each item by itself, joined."""
    parts = [_run(model, item, 0x00) for item in items]
    return [torch.cat(column) for column in zip(*parts, strict=True)]
