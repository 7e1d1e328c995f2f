"""What a quantized network costs beside its float model: the time of a pass, and the size of its weights."""

import time
from collections.abc import Callable

import torch
from torch import nn

from conformance.engines.protocol import Engine, Program
from conformance.errors import brief

from .network import Batch, copied

PASSES = 5
"""Passes of each that are timed in turn, after one that is not; the fastest counts."""

ENOUGH_SECONDS = 2.0
"""Seconds after which no further pass is timed."""


def time_ratio(quantized: Callable[[Batch], object], model: nn.Module, batch: Batch) -> float:
    """The time of a pass of a quantized network, which is called with a copy of the batch, beside that of its float model in
    eager mode."""

    def seconds(call: Callable[[Batch], object]) -> float:
        inputs = copied(batch)
        started = time.perf_counter()
        call(inputs)
        return time.perf_counter() - started

    def pair() -> tuple[float, float]:
        return seconds(quantized), seconds(lambda inputs: model(*inputs))

    began = time.perf_counter()
    with torch.no_grad():
        pair()
        passes = [pair()]
        while len(passes) < PASSES and time.perf_counter() - began < ENOUGH_SECONDS:
            passes.append(pair())
    return min(own for own, _ in passes) / min(floating for _, floating in passes)


def size_ratio(engine: Engine, program: Program, model: nn.Module) -> tuple[float | None, tuple[str, ...]]:
    """The size of a quantized network as saved beside that of the float model's parameters and buffers, None for a model
    without any, and sentences about why it cannot be saved: some kernels do not give their weights back."""
    own = sum(x.nbytes for x in model.state_dict().values())
    try:
        saved = engine.weight_bytes(program)
    except Exception as error:
        return None, (f"the quantized network cannot be saved: {brief(error)}",)
    return saved / own if own else None, ()
