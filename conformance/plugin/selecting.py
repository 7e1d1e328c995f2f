"""Selecting what an invocation covers: the options that narrow it down, and the tests of configs and ledger entries.

Nothing here loads torch before a test of the suite is collected.
"""

import gc
from collections.abc import Collection, Generator, Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from conformance.configs.engines import ENGINES, QUANTIZER_ENGINES, WORKFLOW_ENGINES
from conformance.errors import UsageError
from conformance.host import guard
from conformance.host.isa import limit_isa
from conformance.shortcuts import NAMES, switch_off

if TYPE_CHECKING:
    from conformance.cases.runs import Run
    from conformance.selection import Selection

SELECTING = (
    "backend",
    "engine",
    "case",
    "backend_config",
    "quantizer",
    "operators",
    "ledger",
    "shard",
    "since",
    "only_since",
)
"""Options that are checked before anything is collected."""

PARAMETRIZED = ("test_run", "test_drawn_cases", "test_ledger_entry", "test_config_is_torchs", "test_latency")
"""Tests of the suite that are parametrized with a part of the selection."""


REPEATABLE = (
    ("--backend", "NAME", "run the claims of this backend"),
    ("--engine", "NAME", "run on this engine instead of the backend's own, or on the one that MODULE:ATTRIBUTE names"),
    ("--case", "GLOB", "run only the cases whose run id matches this glob"),
    (
        "--backend-config",
        "MODULE:ATTRIBUTE",
        "run the claims of this BackendConfig, or of the one that this callable returns",
    ),
    (
        "--quantizer",
        "MODULE:ATTRIBUTE",
        "run the claims of this QuantizerConfig for PT2E, or of the one that this callable returns",
    ),
    ("--operators", "MODULE", "add the operators of this module to those that the suite knows"),
)
"""Options that may be given several times, with the metavar and the purpose of each."""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("conformance", "conformance of quantized backends")
    for option, metavar, purpose in REPEATABLE:
        group.addoption(option, action="append", default=[], metavar=metavar, help=f"{purpose}; repeatable")
    group.addoption("--no-shortcuts", action="store_true", help="repeat work whose outcome is known: rows are the same")
    only = {"action": "append", "default": [], "choices": sorted(NAMES), "metavar": "NAME"}
    group.addoption("--no-shortcut", **only, help="repeat the work that this shortcut saves; repeatable")
    group.addoption("--memory", action="store_true", help="check that no kernel leaves its tensors, in every run")
    group.addoption("--isa", metavar="NAME", help="limit the instruction set of the process, for example to avx2")
    group.addoption("--ledger", type=Path, metavar="DIR", help="folder of known deviations (default conformance/known)")
    group.addoption(
        "--shard",
        metavar="I/N",
        help="run part I of N of what the other options select; `merge` puts the parts together",
    )
    group.addoption(
        "--since",
        type=Path,
        metavar="ROWS",
        help="run first what failed in this rows file or is not in it; its seconds balance the parts of --shard",
    )
    group.addoption("--only-since", action="store_true", help="run only what failed in those rows or is not in them")
    group.addoption("--golden", type=Path, metavar="DIR", help="folder of goldens (default golden)")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Limit the instruction set before torch loads, and switch off shortcuts."""
    switch_off(*(NAMES if config.getoption("no_shortcuts") else config.getoption("no_shortcut")))
    if config.getoption("memory"):
        guard.switch_on()
    if config.getoption("isa"):
        with usage_errors():
            limit_isa(config.getoption("isa"))
    config.stash[Selecting.KEY] = selecting = Selecting(config)
    config.pluginmanager.register(selecting, "conformance-selecting")


@contextmanager
def usage_errors() -> Iterator[None]:
    """Turn the suite's usage errors into pytest's, which are printed in one line."""
    try:
        yield
    except UsageError as error:
        raise pytest.UsageError(str(error)) from error


def controls(config: pytest.Config) -> bool:
    """Whether this process writes files and prints: it is xdist's controller, or the only process."""
    return not hasattr(config, "workerinput")


def run_of(item: pytest.Item) -> "Run | None":
    """The run of a test; None for a test without one."""
    callspec = getattr(item, "callspec", None)
    return callspec.params.get("run") if callspec and item.name.startswith("test_run[") else None


class Selecting:
    """The selection of one invocation, made when it is first needed."""

    KEY = pytest.StashKey["Selecting"]()

    def __init__(self, config: pytest.Config) -> None:
        self.config = config

    @cached_property
    def selection(self) -> "Selection":
        import torch

        from conformance.cases.operators.declared import declare
        from conformance.paths import GOLDEN, KNOWN
        from conformance.selection import Selection

        # set before a config is loaded: forked children would miss a thread pool that the config's module starts
        torch.set_num_threads(1)
        option = self.config.getoption
        for module in option("operators"):
            declare(module)
        gc.freeze()  # what torch has loaded stays: a collection would visit a million objects each time
        return Selection(
            option("backend"),
            option("engine"),
            option("case"),
            option("backend_config"),
            option("isa"),
            option("results"),
            option("ledger") or KNOWN,
            option("golden") or GOLDEN,
            option("shard"),
            option("since"),
            option("only_since"),
            option("quantizer"),
            option("search_minutes"),
            option("operators"),
        )

    def nothing_left(self, nodeids: Collection[str]) -> bool:
        """Whether no run is in this shard, or failed or is new, as these collected tests show: no mistake of the options."""
        option = self.config.getoption
        if not (option("shard") or option("only_since")):
            return False
        # a shard may have no run of the tests that are named, but a wrong expression selects nothing as well
        none_here = option("shard") and not (nodeids or option("keyword") or option("markexpr"))
        return bool(none_here) or not self.selection.runs

    @property
    def checked_early(self) -> bool:
        """Whether this process has to check the selection before tests are collected."""
        return controls(self.config) and any(self.config.getoption(name) for name in SELECTING)

    @property
    def _cannot_be_wrong(self) -> bool:
        """Whether nothing but registered backends is selected: what that selects is enumerated while workers start."""
        given = {name for name in SELECTING if self.config.getoption(name)}
        return given == {"backend"} and {*self.config.getoption("backend")} <= {
            *ENGINES,
            *QUANTIZER_ENGINES,
            *WORKFLOW_ENGINES,
        }

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionstart(self) -> Generator[None]:
        """Refuse a selection that makes no sense, before workers are started."""
        if self._cannot_be_wrong:
            yield
            self._check()
        else:
            self._check()
            yield

    def _check(self) -> None:
        if self.checked_early:
            with usage_errors():
                # benchmarks select runs of their own
                _ = None if self.config.getoption("bench") else self.selection.runs
                unknown = self.selection.unknown_platform
            if unknown and (reporter := self.config.pluginmanager.get_plugin("terminalreporter")) is not None:
                reporter.write_line(unknown)

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        with usage_errors():
            if "config_of" in metafunc.fixturenames:
                backends = self.selection.whole
                metafunc.parametrize("config_of", [pytest.param(backend, id=backend.name) for backend in backends])
            elif "ledger_entry" in metafunc.fixturenames:
                entries = self.selection.ledger_to_check
                metafunc.parametrize("ledger_entry", [pytest.param(entry, id=entry.name) for entry in entries])

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Drop tests that the selection leaves without parameters, which pytest would report as skipped, and put first what
        failed or is new since earlier rows. Under xdist the controller orders units."""
        empty = tuple(f"{name}[NOTSET]" for name in PARAMETRIZED)
        items[:] = [item for item in items if not item.name.startswith(empty)]
        ordered = controls(self.config) or self.config.getoption("since")
        # one run needs neither an order nor the rows that decide it
        if ordered and len(items) > 1 and any(map(run_of, items)):
            items.sort(key=self._turn)

    def _turn(self, item: pytest.Item) -> int:
        from conformance.selection import LATER

        run = run_of(item)
        return LATER if run is None else self.selection.turn(run)


@pytest.fixture
def selection(request: pytest.FixtureRequest) -> "Selection":
    """The selection of this invocation."""
    return request.config.stash[Selecting.KEY].selection
