"""Options that say how many passes cases get, and errors for values that cannot be read."""

import pytest

from conformance.bench.plan import Plan, duration, plan, share
from conformance.bench.verdicts import LOOKS
from conformance.errors import UsageError


@pytest.mark.parametrize(("form", "seconds"), [("quick", 600), ("full", 3600), ("networks", 3600)])
def test_without_options_passes_are_added_within_the_budget_of_the_form(form: str, seconds: int) -> None:
    assert plan(form, None, None, "3%") == Plan(LOOKS, seconds, 0.03)


def test_a_fixed_number_of_passes_has_one_look_and_no_budget() -> None:
    assert plan("full", 5, None, "10%") == Plan((5,), None, 0.1)


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90), ("10m", 600), ("1h", 3600), ("1h30m", 5400), ("2m5s", 125)])
def test_a_time_has_units(text: str, seconds: int) -> None:
    assert duration(text) == seconds


@pytest.mark.parametrize("text", ["", "10", "m", "5m1h", "-3s", "1.5m", "0s", "ten"])
def test_another_time_is_an_error_that_shows_one(text: str) -> None:
    with pytest.raises(UsageError, match=r"--budget .*: (write a time such as 10m|give at least a second)"):
        duration(text)


@pytest.mark.parametrize("text", ["3", "3 %", "0%", "0.05%", "101%", "-1%", "%", "x%"])
def test_another_share_is_an_error_that_shows_one(text: str) -> None:
    with pytest.raises(UsageError, match=r"--aim .*: write a percentage from 0\.1% to 100%, such as 3%"):
        share(text)


def test_options_that_exclude_each_other_are_refused() -> None:
    with pytest.raises(UsageError, match="--passes and --budget: give a fixed number of passes, or a time"):
        plan("quick", 3, "10m", "3%")
    with pytest.raises(UsageError, match="--passes 0: give a positive number"):
        plan("quick", 0, None, "3%")
