"""Conditions on runs by what they are, compiled together: which of a thousand hold for a run is found in microseconds."""

import fnmatch
import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache, reduce
from operator import and_

from conformance.configs.engines import QUANTIZER_ENGINES, WORKFLOW_ENGINES
from conformance.configs.spelling import root_named, spelled

from .profiles import profile_names

FIELDS = ("backend", "engine", "computes", "rank", "operator", "pattern", "config", "flow", "variant", "profile")
"""Fields of a run, in the order in which a ledger names them.

`backend`, `engine`, `pattern`, `config` (of dtypes), `flow`, `variant` and `profile` are the parts of its id, `operator` is
the root operator of the pattern, `computes` and `rank` are those of its name (`conformance.configs.spelling.Spelling`).
"""

PLACES = {field: place for place, field in enumerate(FIELDS)}

Values = tuple[str, ...]
"""Values of the fields of a run, in order."""

ANY = ("*",)
NAMED = ("backend", "profile")
"""Fields with values that have to be named."""
PROPERTIES = frozenset(profile_names("property"))


@lru_cache(8192)
def values_of(run_id: str) -> Values:
    """The values of a run's fields."""
    backend, engine, pattern, *rest = _parts_of(run_id)
    return (backend, engine, *_of_pattern(pattern), *rest)


def _parts_of(run_id: str) -> Values:
    """Backend, engine, pattern, config, flow, variant and profile of a run."""
    backend, pattern, config, flow, rest = run_id.split("/", 4)
    variant, _, rest = rest.rpartition("/")
    profile, _, engine = rest.partition("@")
    return backend, engine, pattern, config, flow, variant, profile


@cache
def _of_pattern(pattern: str) -> Values:
    """What the root operator of a pattern computes, its rank, its name, and the pattern."""
    operator = root_named(pattern)
    name = spelled(operator)
    return name.computes, str(name.rank or ""), operator, pattern


def has_to_be_named(field: str, value: str) -> bool:
    """Whether only conditions that name a value of a field hold for it: what is known of the configs of FX says nothing about
    a quantizer or a workflow, nor what is known of cases about a property."""
    if field == "backend":
        return value in QUANTIZER_ENGINES or value in WORKFLOW_ENGINES
    return field == "profile" and value in PROPERTIES


@cache
def _matcher(glob: str) -> Callable[[str], object]:
    """What is true of the values that a glob matches."""
    if not any(wild in glob for wild in "*?["):
        return glob.__eq__
    return re.compile(fnmatch.translate(glob)).match


@cache
def _matchers(alternatives: tuple[str, ...]) -> tuple[list[Callable[[str], object]], list[Callable[[str], object]]]:
    """What is true of the values that match one of the globs, and of those that match one behind `!`."""
    excluding = [glob[1:] for glob in alternatives if glob.startswith("!")]
    including = [glob for glob in alternatives if not glob.startswith("!")] or ANY
    return [*map(_matcher, including)], [*map(_matcher, excluding)]


def _allowed(alternatives: tuple[str, ...], value: str) -> bool:
    """Whether a value matches one of the globs, if there are any, and none of those behind `!`."""
    including, excluding = _matchers(alternatives)
    return any(matches(value) for matches in including) and not any(matches(value) for matches in excluding)


def _named(field: str, alternatives: tuple[str, ...], value: str) -> bool:
    """Whether alternatives of a field name a value, if it has to be named."""
    return value in alternatives or not has_to_be_named(field, value)


@dataclass(frozen=True)
class Where:
    """A condition on runs: each field that it names has to have one of the values.

    `alternatives` are globs by the name of the field, in the order of FIELDS; `!` before a glob excludes what it matches.
    """

    alternatives: tuple[tuple[str, tuple[str, ...]], ...]

    @classmethod
    def of(cls, fields: Mapping[str, str | Iterable[str]]) -> "Where":
        """The condition with these alternatives. Raises KeyError for a name that is no field."""
        if unknown := [name for name in fields if name not in FIELDS]:
            raise KeyError(unknown[0])
        named = {name: (globs,) if isinstance(globs, str) else tuple(globs) for name, globs in fields.items()}
        return cls(tuple((name, named[name]) for name in FIELDS if name in named))

    def __getitem__(self, field: str) -> tuple[str, ...]:
        """The alternatives of a field; those that match anything if it is left open."""
        return self._by_field.get(field, ANY)

    @cached_property
    def _by_field(self) -> dict[str, tuple[str, ...]]:
        return dict(self.alternatives)

    def names(self, field: str, value: str) -> bool:
        """Whether the condition names a value of a field, without a wildcard."""
        return value in self[field]

    def holds(self, values: Values) -> bool:
        """Whether the fields have these values, of a run that need not be named."""
        return all(_allowed(globs, values[PLACES[field]]) for field, globs in self.alternatives)

    def reaches(self, values: Values) -> bool:
        """Whether the condition holds for a run, and names the values that have to be named."""
        return self.holds(values) and all(_named(field, self[field], values[PLACES[field]]) for field in NAMED)

    def matches(self, run_id: str) -> bool:
        """Whether the condition reaches the run with this id."""
        return self.reaches(values_of(run_id))

    def parts(self) -> Iterator["Where"]:
        """The conditions with a single alternative of one field, for each alternative that is not the only one. One that
        excludes values is turned around: it holds for what it excludes."""
        for field, globs in self.alternatives:
            for glob in globs if len(globs) > 1 or globs[0].startswith("!") else ():
                others = {name: kept for name, kept in self.alternatives if name != field}
                excluding = tuple(one for one in globs if one.startswith("!") and one != glob)
                yield Where.of({**others, field: (glob.removeprefix("!"), *excluding)})

    def __str__(self) -> str:
        """The condition as an inline table of TOML."""
        return f"{{ {', '.join(f'{field} = {array(globs)}' for field, globs in self.alternatives)} }}"


def array(values: Iterable[str]) -> str:
    """Strings as an array of TOML, or a single one as a string."""
    texts = [json.dumps(value, ensure_ascii=False) for value in values]
    return texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"


class _Field(dict[str, int]):
    """The conditions on a field that a value does not rule out, by value; of those that have to name it those that do. A set
    of conditions is a number that has the bit of each of them."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name = name
        self._literal: defaultdict[str, int] = defaultdict(int)
        self._others: defaultdict[tuple[tuple[str, ...], bool], int] = defaultdict(int)

    def add(self, where: Where, naming: bool, bit: int) -> None:
        alternatives = where[self._name]
        if any(wild in glob for glob in alternatives for wild in "*?[!"):
            self._others[alternatives, naming] |= bit
            return
        for value in alternatives:
            self._literal[value] |= bit

    def __missing__(self, value: str) -> int:
        found = self._literal.get(value, 0)
        for (alternatives, naming), bits in self._others.items():
            if _allowed(alternatives, value) and (not naming or _named(self._name, alternatives, value)):
                found |= bits
        self[value] = found
        return found


class _Pattern(dict[str, int]):
    """The same for the fields that a pattern decides."""

    def __init__(self, fields: Iterable[_Field]) -> None:
        super().__init__()
        self._fields = tuple(fields)

    def __missing__(self, pattern: str) -> int:
        fields = zip(self._fields, _of_pattern(pattern), strict=True)
        found = self[pattern] = reduce(and_, (field[value] for field, value in fields))
        return found


class Conditions:
    """Conditions that many runs are compared with.

    The fields have few values: which conditions a value does not rule out is found once, and the conditions that hold for a
    run are those that none of its values rules out. Those of `reaching` have to name what has to be named.
    """

    def __init__(self, reaching: Iterable[Where], holding: Iterable[Where] = ()) -> None:
        self.reaching = tuple(dict.fromkeys(reaching))
        self._bits: dict[tuple[Where, bool], int] = {}
        fields = [*map(_Field, FIELDS)]
        for where, naming in (
            *((one, True) for one in self.reaching),
            *((one, False) for one in dict.fromkeys(holding)),
        ):
            bit = self._bits[where, naming] = 1 << len(self._bits)
            for field in fields:
                field.add(where, naming, bit)
        self._parts = (*fields[:2], _Pattern(fields[2:6]), *fields[6:])

    def set_of(self, wheres: Iterable[Where], *, reaching: bool) -> int:
        """The set that has these conditions."""
        return sum({self._bits[where, reaching] for where in wheres})

    def of(self, run_id: str) -> int:
        """The set of the conditions that hold for a run."""
        found = -1
        for part, value in zip(self._parts, _parts_of(run_id), strict=True):
            found &= part[value]
        return found

    @staticmethod
    def places(found: int) -> Iterator[int]:
        """The places in `reaching` of the conditions of a set that has no others."""
        while found:
            lowest = found & -found
            yield lowest.bit_length() - 1
            found ^= lowest
