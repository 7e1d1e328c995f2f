"""Operators that torchvision's Python code names when it is imported."""

import importlib.util
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

_SCHEMA = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
_OPERATORS = ("nms", "qnms")

_libraries: list[Any] = []  # an operator is removed together with its library


def define_torchvision_operators() -> None:
    """Define `torchvision::nms` and `torchvision::qnms` without kernels, unless torchvision's own library defines them.

    PyPI has torchvision for CUDA only. Its library of operators does not load beside a torch for CPUs, and then torchvision
    cannot be imported, because it registers fake kernels for operators that are not defined. No network of the corpus calls
    them. A later call has no effect.
    """
    _load_own_library()
    missing = [name for name in _OPERATORS if not hasattr(torch.ops.torchvision, name)]
    if missing:
        library: Any = torch.library.Library("torchvision", "FRAGMENT")  # type: ignore[no-untyped-call]
        for name in missing:
            library.define(name + _SCHEMA)
        _libraries.append(library)


def _load_own_library() -> None:
    """Load torchvision's library as torchvision does, because operators that are defined first would prevent it later."""
    operators: Any = torch.ops
    spec = importlib.util.find_spec("torchvision")
    for folder in (spec and spec.submodule_search_locations) or ():
        for path in Path(folder).glob("_C*.so"):
            with suppress(OSError):
                operators.load_library(path)
