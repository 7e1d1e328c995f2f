"""Covering arrays: points of option spaces that have, together, every pair of values that a valid point can have.

Operators that are computed alike, such as `nn.ReLU` and `F.relu`, share an array: which of them is called is one more thing
that is chosen. The arrays are stored, because ids name their points: a value that is added to a space adds points and
changes none.
`python -m conformance.cases.operators.arrays` completes them after a change of the spaces; that needs covertable.
"""

import argparse
import json
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Any

from conformance.configs.spelling import computation

from . import SPACES
from .space import APART, JOINT, Point, Space

PATH = Path(__file__).with_name("arrays.json")

OPERATOR = "operator"
"""The name of the factor that says which operator of a group is called."""

KINDS: Mapping[str, str] = {
    "convolution": "conv1d conv2d conv3d",
    "transposed convolution": "convtranspose1d convtranspose2d convtranspose3d",
    "sum or product": "add sub mul",
    "fixed qparams": "sigmoid tanh hardsigmoid",
    "piecewise linear": "relu relu6 hardtanh leakyrelu",
    "activation": "elu hardswish dropout identity",
    "average pooling": "avgpool1d avgpool2d avgpool3d",
    "maximum pooling": "maxpool1d maxpool2d maxpool3d",
    "adaptive pooling": "adaptiveavgpool1d adaptiveavgpool2d adaptiveavgpool3d",
    "pixel shuffle": "pixelshuffle pixelunshuffle",
    "padding": "pad constantpad2d",
    "joining": "cat concat concatenate stack",
    "dimension": "unsqueeze transpose repeatinterleave flatten narrow",
    "view": "detach contiguous permute permutecopy repeat reshape view resize size shape squeeze floordiv",
    "instance norm": "instancenorm1d instancenorm2d instancenorm3d instancenorm",
    "batch norm": "batchnorm2d batchnorm3d",
    "group of rows norm": "layernorm groupnorm",
    "cell": "grucell lstmcell rnncell",
    "recurrent": "lstm gru",
}
"""Operators that are computed alike and have the same options, by their names without prefix, underscores and capitals."""

Label = tuple[str, str]
"""A factor and the label of one of its values."""


@cache
def arrays() -> Mapping[str, Sequence[str]]:
    """Names of each operator's points in the covering array of its group."""
    loaded: dict[str, list[str]] = json.loads(PATH.read_text(encoding="utf-8"))
    return loaded


@cache
def groups() -> Mapping[str, Sequence[str]]:
    """Operators that share an array, by kind or by their common name: modules, functions, methods, in place or not."""
    kinds = {name: kind for kind, names in KINDS.items() for name in names.split()}
    found: dict[str, list[str]] = defaultdict(list)
    for operator in SPACES:
        name = computation(operator)
        found[kinds.get(name, name)].append(operator)
    return found


class Group:
    """The joint option space of operators that share an array."""

    def __init__(self, operators: Sequence[str]) -> None:
        self.spaces = {operator: SPACES[operator] for operator in operators}
        self.labels: dict[str, list[str]] = {OPERATOR: list(operators)}
        for space in self.spaces.values():
            for factor in space.factors:
                known = self.labels.setdefault(factor.name, [""])
                known += [label for label in factor.combined if label not in known]

    def pairs(self) -> set[frozenset[Label]]:
        """Every pair of values that a valid point of some operator has, and every value with every operator that has it."""
        return {pair for operator, space in self.spaces.items() for pair in self._pairs_of_all(operator, space)}

    def _pairs_of_all(self, operator: str, space: Space) -> Iterator[frozenset[Label]]:
        yield from space.pairs()
        for factor in space.factors:
            for label in factor.combined:
                if space.completed({factor.name: label}) is not None:
                    yield frozenset({(OPERATOR, operator), (factor.name, label)})

    def pairs_of(self, operator: str, point: Point) -> Iterator[frozenset[Label]]:
        """The pairs of values that a point of an operator has. A factor that the operator lacks has its default."""
        labels = [(name, operator if name == OPERATOR else point.get(name, "")) for name in self.labels]
        return map(frozenset, combinations(labels, 2))

    def covered(self, stored: Mapping[str, Sequence[str]]) -> set[frozenset[Label]]:
        """The pairs of values that the default points and the stored ones of all operators have."""
        points = [(operator, point) for operator in self.spaces for point in ({}, *self._kept(operator, stored))]
        return {pair for operator, point in points for pair in self.pairs_of(operator, point)}

    def _kept(self, operator: str, stored: Mapping[str, Sequence[str]]) -> Iterator[Point]:
        """The stored points that the space of an operator still has."""
        space = self.spaces[operator]
        for name in stored.get(operator, ()):
            labels = name.split(JOINT)
            if all(label in space.factor_of and label not in APART for label in labels):
                point = space.point(name)
                if space.holds(space.values(point)):
                    yield point

    def conditions(self) -> Iterator[dict[str, Any]]:
        """The constraints of all operators as covertable's conditions: each holds where its operator is called."""
        for operator, space in self.spaces.items():
            for name in self.labels:
                if name != OPERATOR:
                    has = space.by_name[name].values if name in space.by_name else ("",)
                    yield _condition((OPERATOR, name), _has(operator, name, has))
            for constraint, names in zip(space.constraints, space.related, strict=True):
                yield _condition((OPERATOR, *names), _guarded(operator, space, constraint, names))

    def completed(self, stored: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
        """The names of each operator's points in a covering array that begins with the stored ones."""
        from covertable import make

        kept = [(operator, point) for operator in self.spaces for point in self._kept(operator, stored)]
        if self.pairs() - self.covered(stored):
            presets = [
                {name: point.get(name, "") for name in self.labels} | {OPERATOR: operator} for operator, point in kept
            ]
            rows = make(self.labels, constraints=[*self.conditions()], presets=presets)
            kept += [
                (row[OPERATOR], {name: row[name] for name in row if name != OPERATOR}) for row in rows[len(kept) :]
            ]
        named: dict[str, list[str]] = {operator: [] for operator in self.spaces}
        for operator, point in kept:
            space = self.spaces[operator]
            name = space.name({factor: label for factor, label in point.items() if factor in space.by_name})
            if name and name not in named[operator]:
                named[operator].append(name)
        return named


def _condition(names: Sequence[str], evaluate: Callable[[Mapping[str, str]], bool]) -> dict[str, Any]:
    return {"operator": "fn", "requires": list(names), "evaluate": evaluate}


def _has(operator: str, name: str, labels: Collection[str]) -> Callable[[Mapping[str, str]], bool]:
    """The condition that an operator has one of its own labels of a factor."""

    def evaluate(row: Mapping[str, str]) -> bool:
        return row[OPERATOR] != operator or row[name] in labels

    return evaluate


def _guarded(
    operator: str, space: Space, constraint: Callable[..., bool], names: Sequence[str]
) -> Callable[[Mapping[str, str]], bool]:
    def evaluate(row: Mapping[str, str]) -> bool:
        if row[OPERATOR] != operator or any(row[name] not in space.by_name[name].values for name in names):
            return True
        return constraint(*(space.by_name[name].values[row[name]] for name in names))

    return evaluate


def main() -> None:
    argparse.ArgumentParser(
        description="Complete the stored covering arrays after a change of the spaces."
    ).parse_args()
    stored = arrays() if PATH.exists() else {}
    made: dict[str, list[str]] = {}
    for operators in groups().values():
        made |= Group(operators).completed(stored)
    partial = PATH.with_suffix(".partial")
    ordered = {operator: made[operator] for operator in (*stored, *SPACES) if operator in made}
    partial.write_text(json.dumps(ordered, indent=0) + "\n", encoding="utf-8")
    partial.replace(PATH)


if __name__ == "__main__":
    main()
