"""Verdicts on runs, worst first."""

from collections.abc import Iterable
from enum import StrEnum
from typing import Self


class Shown(StrEnum):
    """Values that are shown: `phrase` says one in words, `symbol` stands for it where there is no room for words."""

    phrase: str
    symbol: str

    def __new__(cls, value: str, phrase: str = "", symbol: str = "") -> Self:  # defaults are for looking up a member
        member = str.__new__(cls, value)
        member._value_ = value
        member.phrase, member.symbol = phrase, symbol
        return member


class Verdict(StrEnum):
    """Verdict on a run, or on several runs together. Members are in the order of `worst`.

    `executed` says whether the run tells what its claim does, `fails` whether it broke the claim, `judged` whether its row
    has checks. `symbol` stands for it where there is no room for a word. What an undefined run does, memory, threads or time
    decide: it may crash, raise, be wrong or conform. An unjudged run lacks the golden that it has to be compared with.
    """

    executed: bool
    fails: bool
    judged: bool
    symbol: str

    CRASHES = "crashes", True, True, False, "‼"
    UNDEFINED = "undefined", True, True, False, "?"
    DEVIATES = "deviates", True, True, True, "✗"
    UNJUDGED = "unjudged", False, False, False, "∅"
    CONFORMS = "conforms", True, False, True, "✓"
    UNAVAILABLE = "unavailable", False, False, False, "–"

    def __new__(  # defaults are for looking up a member by its value
        cls,
        value: str,
        executed: bool = True,
        fails: bool = False,
        judged: bool = True,
        symbol: str = "",
    ) -> "Verdict":
        verdict = str.__new__(cls, value)
        verdict._value_ = value
        verdict.executed, verdict.fails, verdict.judged = executed, fails, judged
        verdict.symbol = symbol
        return verdict

    def __repr__(self) -> str:
        """The quoted text, as messages show it."""
        return repr(str(self))

    @classmethod
    def worst(cls, verdicts: Iterable["Verdict"]) -> "Verdict":
        """The verdict on several runs together. A run that was not executed counts only if none was."""
        return min(verdicts, key=[*cls].index)

    @classmethod
    def of(cls, failed: object) -> "Verdict":
        """The verdict on a run that was executed to its end, by whether any check failed."""
        return cls.DEVIATES if failed else cls.CONFORMS


IN_ORDER = (*(verdict for verdict in reversed(Verdict) if verdict.executed), Verdict.UNJUDGED, Verdict.UNAVAILABLE)
"""Verdicts from good to bad, as they are counted and shown. The last two may hide any other."""

AS_CHECKS = tuple(verdict for verdict in Verdict if verdict.fails and not verdict.judged)
"""Verdicts of failing runs without checks, each of which counts as the failed check of its name."""
