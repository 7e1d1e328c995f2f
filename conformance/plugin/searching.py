"""Searching with drawn cases: the options of a search, and the count of cases that closes an invocation."""

import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from .running import Running
from .selecting import Selecting, controls, usage_errors

if TYPE_CHECKING:
    from conformance.cases.families import Family
    from conformance.fuzz.campaign import Draws

DRAWN = "drawn"
"""The user property with the counts of a search: cases tried, cases without a certain answer, new deviations."""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("conformance")
    group.addoption(
        "--search-minutes",
        type=float,
        metavar="M",
        help="search each family of operators at random for M minutes instead of a fixed number of drawn cases",
    )
    group.addoption(
        "--found",
        type=Path,
        metavar="DIR",
        default=Path("reports/out/found"),
        help="folder for the new deviations that a search finds (default reports/out/found)",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Register hypothesis profiles before hypothesis' own plugin, which is configured later, applies its options.

    Without any of them hypothesis is loaded where a search is selected: it takes as long as a run. A search of some minutes
    is random, because the bounded profile would draw the same cases over and over.
    """
    minutes = config.getoption("search_minutes")
    if minutes is not None and not 0 < minutes < math.inf:
        raise pytest.UsageError(f"--search-minutes {minutes:g}: give a number above 0, such as 10")
    if minutes is not None or any(
        value for name, value in vars(config.option).items() if name.startswith("hypothesis")
    ):
        from hypothesis import settings

        from conformance.properties import search  # noqa: F401

        if minutes:
            settings.load_profile("nightly")

    config.stash[Searching.KEY] = searching = Searching(config)
    config.pluginmanager.register(searching, "conformance-searching")


class Searching:
    """The searches of one invocation."""

    KEY = pytest.StashKey["Searching"]()

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.searches: list[Sequence[int]] = []
        self._draws: dict[str, Draws] = {}

    def draws(self, family: "Family") -> "Draws":
        """What searches of a family draw on the selected engines of this host."""
        from conformance.engines.availability import probe
        from conformance.fuzz.campaign import Draws

        name, _, _ = family.id.rpartition("@")
        if name not in self._draws:
            families = self.config.stash[Selecting.KEY].selection.families
            here = [other for other in families if other.id.startswith(f"{name}@") and probe(other.engine) is None]
            self._draws = {name: Draws(here)}  # the draws of other families are not needed any more
        return self._draws[name]

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        if "family" in metafunc.fixturenames:
            with usage_errors():
                families = self.config.stash[Selecting.KEY].selection.families
            metafunc.parametrize("family", [pytest.param(family, id=family.id) for family in families])

    def pytest_sessionfinish(self) -> None:
        """Leave out hypothesis' summary where cases were selected and none needed hypothesis: it would load it to print
        nothing."""
        if self.config.getoption("case") and "hypothesis" not in sys.modules:
            self.config.pluginmanager.unregister(name="hypothesispytest")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call":
            for name, counts in report.user_properties:
                if name == DRAWN:
                    assert isinstance(counts, Sequence)
                    self.searches.append(counts)

    def pytest_terminal_summary(self, terminalreporter: "pytest.TerminalReporter") -> None:
        if not self.searches or not controls(self.config):
            return
        from conformance.terminal import drawn

        if self.config.stash[Running.KEY].writer is None:
            terminalreporter.section("conformance")
        terminalreporter.line(drawn(self.searches))
