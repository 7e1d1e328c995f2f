"""Globs over run ids, compiled together: which of two thousand globs reach an id is found in microseconds."""

import fnmatch
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property

from conformance.configs.engines import QUANTIZER_ENGINES

from .profiles import profile_names

SLASHES = 5
"""The slashes of a run id: between backend, pattern, dtype config, flow, variant, and profile with engine."""


PROPERTIES = frozenset(profile_names("property"))


@dataclass(frozen=True)
class Glob:
    """A glob, compiled when it is first needed. `plain` is its longest part without wildcards, searched first; `properties`
    are the property and the quantizer that it names."""

    text: str
    plain: str
    properties: tuple[str, str]

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


def _properties(text: str) -> tuple[str, str]:
    """The property whose profile a glob or an id names, and the quantizer that it names; empty if none: what is known of the
    configs of FX says nothing about a quantizer."""
    profile = text.rpartition("/")[2].partition("@")[0]
    quantizer = text.partition("/")[0]
    return profile if profile in PROPERTIES else "", quantizer if quantizer in QUANTIZER_ENGINES else ""


class _Part:
    """The globs of one part of an id. A set of globs is a number that has the bit of each of them."""

    def __init__(self) -> None:
        self._literal: defaultdict[str, int] = defaultdict(int)
        self._wild: defaultdict[str, int] = defaultdict(int)
        self._matching: dict[str, int] = {}

    def add(self, text: str, bit: int) -> None:
        (self._wild if any(wild in text for wild in "*?[") else self._literal)[text] |= bit

    def matching(self, value: str) -> int:
        """The globs that this value of the part does not rule out."""
        found = self._matching.get(value)
        if found is None:
            found = self._literal.get(value, 0)
            for text, bits in self._wild.items():
                if glob_of(text).matches(value):
                    found |= bits
            self._matching[value] = found
        return found


class Globs:
    """Globs that many ids are matched with.

    A glob with as many slashes as an id can match it only part by part, and the parts of ids have few values: which globs a
    value does not rule out is found once, and the globs that match an id are those that none of its parts rules out.
    """

    def __init__(self, texts: Iterable[str]) -> None:
        self._globs = [glob_of(text) for text in dict.fromkeys(texts)]
        self._parts = [_Part() for _ in range(SLASHES + 1)]
        self._whole: list[tuple[Glob, int]] = []
        self._of_properties: defaultdict[tuple[str, str], int] = defaultdict(int)
        for number, glob in enumerate(self._globs):
            bit = 1 << number
            self._of_properties[glob.properties] |= bit
            texts = glob.text.split("/")
            if len(texts) != SLASHES + 1 or any(text.count("[") != text.count("]") for text in texts):
                self._whole.append((glob, bit))
                continue
            for part, text in zip(self._parts, texts, strict=True):
                part.add(text, bit)

    def matching(self, run_id: str) -> int:
        """The set of the globs that match an id."""
        values = run_id.split("/")
        if len(values) != SLASHES + 1:
            return sum(1 << number for number, glob in enumerate(self._globs) if glob.matches(run_id))
        found = -1
        for part, value in zip(self._parts, values, strict=True):
            found &= part.matching(value)
        for glob, bit in self._whole:
            if glob.matches(run_id):
                found |= bit
        return found

    def reaching(self, run_id: str, matching: int) -> int:
        """Those of the set of globs that match an id which reach it, as `Glob.reaches` says."""
        return matching & self._of_properties.get(_properties(run_id), 0)

    def texts(self, globs: int) -> Iterator[str]:
        """The globs of a set."""
        while globs:
            lowest = globs & -globs
            yield self._globs[lowest.bit_length() - 1].text
            globs ^= lowest
