"""How many passes cases get: the options `--passes`, `--budget` and `--aim`."""

import re
from dataclasses import dataclass

from conformance.errors import UsageError

from .results import AIM
from .verdicts import LOOKS

UNITS = {"s": 1, "m": 60, "h": 3600}
"""Seconds of a unit of time."""
DEFAULT_BUDGETS = {"quick": "10m", "full": "1h", "networks": "1h"}
"""The budget of each form of `--bench`."""
LEAST_AIM, MOST_AIM = 0.001, 1.0


@dataclass(frozen=True)
class Plan:
    """How many passes the cases get: as many as `looks` ends with, or fewer if they are settled earlier, within a budget of
    seconds. `aim` is the relative change that they are to tell from none."""

    looks: tuple[int, ...] = LOOKS
    budget: int | None = None
    aim: float = AIM


def plan(form: str, passes: int | None, budget: str | None, aim: str) -> Plan:
    """The plan that options describe, for a form of `--bench`.

    Raises UsageError for a value that cannot be read, or for options that exclude each other.
    """
    if passes is not None and budget is not None:
        raise UsageError(
            "--passes and --budget: give a fixed number of passes, or a time within which cases are settled"
        )
    if passes is not None and passes < 1:
        raise UsageError(f"--passes {passes}: give a positive number")
    if passes is not None:
        return Plan((passes,), None, share(aim))
    return Plan(LOOKS, duration(DEFAULT_BUDGETS[form] if budget is None else budget), share(aim))


def duration(text: str) -> int:
    """The seconds of `90s`, `10m`, `1h` or `1h30m`. Raises UsageError for another text."""
    if not (text and re.fullmatch(r"(\d+h)?(\d+m)?(\d+s)?", text)):
        raise UsageError(f"--budget {text!r}: write a time such as 10m, 90s or 1h30m")
    seconds = sum(int(number) * UNITS[unit] for number, unit in re.findall(r"(\d+)([hms])", text))
    if seconds < 1:
        raise UsageError(f"--budget {text!r}: give at least a second")
    return seconds


def share(text: str) -> float:
    """The share of `3%`. Raises UsageError for another text."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)%", text)
    value = float(found[1]) / 100 if found else 0.0
    if not LEAST_AIM <= value <= MOST_AIM:
        raise UsageError(f"--aim {text!r}: write a percentage from {LEAST_AIM:.1%} to {MOST_AIM:.0%}, such as 3%")
    return value
