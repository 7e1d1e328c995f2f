"""Work that is done once for several runs, each kind with the reason why no row changes. Any of it can be switched off."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True)
class Shortcut:
    """A kind of work that is saved, and why the rows are the same without it."""

    name: str
    reason: str


TABLE: tuple[Shortcut, ...] = (
    Shortcut(
        "listed-examples",
        "the examples of a bounded search for a violated constraint are finite: tried from the simplest to the largest, the "
        "first that violates is the smallest, as drawing and shrinking finds it",
    ),
    Shortcut(
        "alike-qconfigs",
        "prepare compares the range, eps and fixed qparams of a QConfig with constraints, and never asks how its observers "
        "observe: QConfigs of the same dtypes and kinds that compare alike with every constraint of the config have the same "
        "outcome",
    ),
    Shortcut(
        "rewritten-weights",
        "prepare copies weights, or folds a batch norm into them, whatever the QConfig: a prepared model whose weights are "
        "rewritten, or replaced by folded ones, equals the prepared model of rewritten weights",
    ),
    Shortcut(
        "equal-qparams",
        "conversion reads the qparams of observers and nothing else that they observed: a model whose observers have equal "
        "qparams has the same reference model",
    ),
    Shortcut(
        "lowered-reference",
        "convert_fx makes the model that convert_to_reference_fx returns, and lowers it",
    ),
    Shortcut(
        "engines-share-constraints",
        "prepare and the conversion to a reference model do not depend on the engine: engines with the same recipe differ in "
        "packed weights alone",
    ),
    Shortcut(
        "engines-share-laws",
        "the float model, prepare and calibration do not depend on the engine: engines with the same recipe have the same",
    ),
    Shortcut(
        "replaced-tensors",
        "prepare copies parameters and buffers unless it folds a batch norm into them: the prepared model of a model with "
        "permuted channels equals the prepared model with permuted tensors",
    ),
    Shortcut(
        "remembered-annotations",
        "the types that a function names in its annotations do not change while it exists",
    ),
)

_off: set[str] = set()


def enabled(name: str) -> bool:
    """Whether a shortcut of the table is taken. Raises KeyError for a name that the table lacks."""
    if all(shortcut.name != name for shortcut in TABLE):
        raise KeyError(name)
    return name not in _off


@contextmanager
def without(*names: str) -> Iterator[None]:
    """Switch shortcuts off in this scope; without names, all of them. Raises KeyError for a name that the table lacks."""
    global _off
    before = _off
    switched_off = {name for name in names or [shortcut.name for shortcut in TABLE] if enabled(name) or name in before}
    _off = before | switched_off
    try:
        yield
    finally:
        _off = before
