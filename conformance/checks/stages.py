"""Guards around the stages of a run."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from conformance.models import build
from conformance.models.build import Subject
from conformance.models.data import channels_last
from conformance.stopwatch import Stopwatch

from .evidence import Evidence


@contextmanager
def guarded(watch: Stopwatch, failed: Callable[[BaseException], object]) -> Iterator[None]:
    """Time what torch does, and give `failed` what it raises."""
    try:
        with watch():
            yield
    except MemoryError:
        # models this small never run out of memory: the heap is damaged, and how the process ends from here is chance
        os.abort()
    except (Exception, SystemExit) as error:  # whatever torch raises is a finding about torch
        failed(error)


def others(x: Tensor) -> Tensor:
    """Other data of the same shape and range; where bags begin has to stay in order."""
    return x.flip(tuple(range(x.dim()))) if x.is_floating_point() else x


def keeps_to_memory_format(evidence: Evidence, given: Subject) -> bool:
    """Whether the float model gives the same for channels_last; `view` and `resize_`, for two, do not."""
    try:
        outputs = build.float_outputs(given, channels_last(given.fresh_inputs()))
    except RuntimeError:
        return False
    return all(torch.allclose(a, b) for a, b in zip(outputs, evidence.expected, strict=True))
