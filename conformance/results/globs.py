"""Globs over run ids, and run ids indexed by their parts: a ledger matches every id with more than a thousand globs."""

import fnmatch
import re
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache, cached_property

from conformance.configs.engines import QUANTIZER_ENGINES

from .profiles import profile_names

SLASHES = 5
"""The slashes of a run id: between backend, pattern, dtype config, flow, variant, and profile with engine."""


@dataclass(frozen=True)
class Glob:
    """A glob, compiled when it is first needed. `plain` is its longest part without wildcards, searched first; `properties`
    says for each property whether the glob names its profile, and for each quantizer whether it names that."""

    text: str
    plain: str
    properties: tuple[bool, ...]

    @cached_property
    def whole(self) -> Callable[[str], object]:
        return re.compile(fnmatch.translate(self.text)).match

    def matches(self, run_id: str) -> bool:
        return self.plain in run_id and self.whole(run_id) is not None

    def reaches(self, run_id: str) -> bool:
        """Whether it matches a run as an item of `match`: a property only if the glob names its profile, and a run of a
        quantizer only if it names that."""
        return self.matches(run_id) and self.properties == _properties(run_id)


@cache
def glob_of(text: str) -> Glob:
    """A glob of a ledger, compiled once."""
    plain = "" if "[" in text else max(re.split(r"[*?]", text), key=len)
    return Glob(text, plain, _properties(text))


def _properties(text: str) -> tuple[bool, ...]:
    """For each property whether a glob or an id names its profile, and for each quantizer whether it names that: what is
    known of the configs of FX says nothing about a quantizer."""
    profiles = (f"/{profile}@" in text for profile in profile_names("property"))
    return (*profiles, *(text.startswith(f"{name}/") for name in QUANTIZER_ENGINES))


class Ids:
    """Run ids that many globs are matched with.

    A glob with as many slashes as an id can match it only part by part, and the parts of ids have few values. So the values
    of each part are matched, and of the ids only those that have a value of the part that the fewest ids match.
    """

    def __init__(self, ids: Iterable[str]) -> None:
        self.ids = list(ids)
        self._parts: list[list[str]] = []
        self._regular: list[int] = []
        self._others: list[int] = []
        self._numbers: list[dict[str, list[int]]] = [defaultdict(list) for _ in range(SLASHES + 1)]
        for number, run_id in enumerate(self.ids):
            parts = run_id.split("/")
            self._parts.append(parts)
            if len(parts) != SLASHES + 1:
                self._others.append(number)
                continue
            for numbers, part in zip(self._numbers, parts, strict=True):
                numbers[part].append(number)
        self._values = cache(self._matching_values)

    def _matching_values(self, place: int, glob: str) -> frozenset[str]:
        matches = re.compile(fnmatch.translate(glob)).match
        return frozenset(value for value in self._numbers[place] if matches(value))

    def reached(self, glob: Glob) -> list[str]:
        """The ids that a glob reaches, in order."""
        if glob.text.count("/") != SLASHES or "[" in glob.text:
            return [run_id for run_id in self.ids if glob.reaches(run_id)]
        wanted = {
            place: self._values(place, part) for place, part in enumerate(glob.text.split("/")) if part.strip("*")
        }
        counts = {place: sum(len(self._numbers[place][value]) for value in values) for place, values in wanted.items()}
        if not wanted:
            candidates = sorted(number for numbers in self._numbers[0].values() for number in numbers)
        else:
            rarest = min(counts, key=counts.__getitem__)
            candidates = sorted(number for value in wanted[rarest] for number in self._numbers[rarest][value])
        found = []
        for number in candidates:
            parts = self._parts[number]
            if all(parts[place] in values for place, values in wanted.items()):
                run_id = self.ids[number]
                if glob.properties == _properties(run_id):
                    found.append(run_id)
        return found
