"""Progress on a terminal: how many runs are done, how many were unexpected, and about how long the rest takes."""

import time
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING

import pytest

from .pooling import Pooling, run_id_of
from .selecting import controls

if TYPE_CHECKING:
    from _pytest.terminal import TerminalReporter

INTERVAL = 0.2
"""Least seconds between two versions of the line."""

Status = tuple[str, str, str | tuple[str, dict[str, bool]]]
"""The category, the letter and the word that pytest shows for a report."""


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    if controls(config):
        config.pluginmanager.register(Progressing(config), "conformance-progressing")


class Progressing:
    """The line of an invocation: a single one that is rewritten, in place of pytest's letters.

    It is shown on a terminal without `-v`, where there are runs.
    """

    def __init__(self, config: pytest.Config, clock: Callable[[], float] = time.monotonic) -> None:
        self.config, self.clock = config, clock
        self.terminal: TerminalReporter | None = None
        self.total, self.work = 0, 0.0
        self.done, self.unexpected, self.worked = 0, 0, 0.0
        self.started = self.shown = clock()

    @pytest.hookimpl(trylast=True)
    def pytest_collection_finish(self) -> None:
        self._start()

    @pytest.hookimpl(optionalhook=True, trylast=True)
    def pytest_xdist_node_collection_finished(self) -> None:
        self._start()

    def _start(self) -> None:
        pooling = self.config.stash[Pooling.KEY]
        terminal: TerminalReporter | None = self.config.pluginmanager.get_plugin("terminalreporter")
        if terminal is None or not terminal.isatty or terminal.verbosity > 0 or self.config.getoption("collectonly"):
            return
        self.total = sum(bool(run_id_of(nodeid)) for nodeid in pooling.nodeids)
        if not self.total:
            return
        self.terminal, self.work, self.started = terminal, sum(pooling.seconds.values()), self.clock()
        terminal.showfspath = False

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_report_teststatus(self) -> Generator[None, Status, Status]:
        category, letter, word = yield
        return (category, letter, word) if self.terminal is None else (category, "", "")

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if self.terminal is None:
            return
        self.unexpected += report.failed
        if report.when == "teardown":
            self.done += bool(run_id_of(report.nodeid))
            self.worked += self.config.stash[Pooling.KEY].seconds.get(report.nodeid, 0.0)
            if self.clock() - self.shown >= INTERVAL:
                self._show(self.terminal)

    def _show(self, terminal: "TerminalReporter") -> None:
        self.shown = self.clock()
        width = self.config.get_terminal_writer().fullwidth - 1
        terminal.rewrite(self.line(self.shown - self.started)[:width], erase=True)
        terminal.flush()

    def line(self, elapsed: float) -> str:
        """The line after so many seconds. The time left follows from the expected work, not from the number of runs."""
        from tqdm import tqdm

        new = f", {self.unexpected} unexpected" if self.unexpected else ""
        text = f"{self.done}/{self.total} runs{new}"
        if not self.worked:
            return text
        left = tqdm.format_interval(elapsed * (self.work - self.worked) / self.worked)
        return f"{text} [{100 * self.worked / self.work:.0f}%] {tqdm.format_interval(elapsed)}, about {left} left"

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtestloop(self) -> Generator[None, object, object]:
        """Erase the line at the end, and have pytest print as usual."""
        try:
            return (yield)
        finally:
            if self.terminal is not None:
                self.terminal.rewrite("", erase=True)
                self.terminal.rewrite("")
                self.terminal = None
