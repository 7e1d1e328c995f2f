"""Layers of networks that show a known deviation, described by what causes it."""

import fnmatch
import operator
import re
from collections.abc import Mapping
from dataclasses import dataclass

RELATIONS = {">=": operator.ge, "<=": operator.le, "==": operator.eq, "<": operator.lt, ">": operator.gt}
NUMBER_RELATION = re.compile(r"(>=|<=|==|<|>)\s*(-?[\d.]+(?:e-?\d+)?)")


@dataclass(frozen=True)
class LayerCause:
    """Layers of networks that show a deviation, by what causes it: the engine, the check that fails, and features of the
    layer.

    `features` are conditions by the name of the feature. Each is a glob, or a relation to a number such as `>=256`; of
    several one has to hold. With `foretells` it says what will happen to a layer with the other features: its `finding` and
    the `stage` that raises are no conditions.
    """

    engine: tuple[str, ...]
    check: tuple[str, ...]
    features: Mapping[str, tuple[str, ...]]
    foretells: bool = False

    def explains(self, engine: str, check: str, features: Mapping[str, str]) -> bool:
        """Whether a layer with these features that fails a check on an engine is such a layer."""
        if engine not in self.engine or check not in self.check:
            return False
        return all(
            name in features and any(fulfils(features[name], condition) for condition in conditions)
            for name, conditions in self.features.items()
        )


def fulfils(value: str, condition: str) -> bool:
    """Whether a feature fulfils a condition: a relation to a number, or else a glob."""
    if (relation := NUMBER_RELATION.fullmatch(condition)) is None:
        return fnmatch.fnmatchcase(value, condition)
    try:
        return bool(RELATIONS[relation[1]](float(value), float(relation[2])))
    except ValueError:
        return False
