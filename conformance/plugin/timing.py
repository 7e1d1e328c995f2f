"""Timing what conforms: the options of benchmarks, the items that are timed, and the file of timings."""

import platform
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from .selecting import Selecting, usage_errors

if TYPE_CHECKING:
    from conformance.bench.schedule import Bench, Item


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("conformance")
    group.addoption(
        "--bench", choices=("quick", "full"), help="time what conforms: only the smallest layers, or all layers"
    )
    group.addoption("--passes", type=int, default=5, metavar="N", help="passes over all cases (default 5)")
    group.addoption(
        "--against", metavar="PYTHON", help="time the models of another interpreter in turns with this one's"
    )
    group.addoption(
        "--timings", type=Path, metavar="PATH", help="file of timings (default reports/out/bench-<arch>.jsonl)"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    config.stash[Timing.KEY] = timing = Timing(config)
    config.pluginmanager.register(timing, "conformance-timing")


class Timing:
    """The benchmarks of one invocation."""

    KEY = pytest.StashKey["Timing"]()

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self._bench: Bench | None = None

    @cached_property
    def items(self) -> "Sequence[Item]":
        """The items to time, pass by pass; empty without `--bench`."""
        option = self.config.getoption
        if option("bench") is None:
            return []
        from conformance.bench.schedule import EXTENTS_OF, THREADS_OF, items

        runs = self.config.stash[Selecting.KEY].selection.timed(EXTENTS_OF[option("bench")])
        cases = [(run, extent, threads) for run, extent in runs for threads in THREADS_OF[option("bench")]]
        return [*items(cases, option("passes"))]

    @property
    def bench(self) -> "Bench":
        """The benchmarks with their file of timings, opened at the first use.

        Raises UsageError if the file cannot be written, or belongs to an interrupted invocation with other options.
        """
        if self._bench is None:
            from conformance.bench.results import Writer
            from conformance.bench.schedule import Bench, header, hello

            option = self.config.getoption
            base = hello(option("against")) if option("against") else None
            circumstances = self.config.stash[Selecting.KEY].selection.circumstances()
            writer = Writer(
                option("timings") or Path("reports/out") / f"bench-{platform.machine()}.jsonl",
                header(circumstances, option("bench"), option("passes"), base),
            )
            self._bench = Bench(writer, option("against"), option("backend_config"))
        return self._bench

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self) -> None:
        """Refuse benchmarks that cannot be run before anything is collected or a worker is started."""
        option = self.config.getoption
        if option("bench") is None:
            return
        if option("numprocesses", None):
            raise pytest.UsageError("--bench: what runs side by side cannot be timed: leave -n out")
        if option("shard") or option("since") or option("only_since"):
            raise pytest.UsageError("--bench: every case is timed, on one machine: leave --shard and --since out")
        if not self.config.pluginmanager.hasplugin("benchmark"):
            raise pytest.UsageError("--bench: pytest-benchmark is not there: `tox -e bench` has it")
        if self.config.stash[Selecting.KEY].checked_early:
            with usage_errors():
                _ = self.items

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        if "item" in metafunc.fixturenames:
            with usage_errors():
                metafunc.parametrize("item", [pytest.param(item, id=item.id) for item in self.items])

    def pytest_report_collectionfinish(self) -> str | None:
        """Time a sample, and report how long all items will take."""
        if not self.items or self.config.getoption("collectonly"):
            return None
        with usage_errors():
            return self.bench.estimate(self.items)

    @pytest.hookimpl(optionalhook=True)
    def pytest_benchmark_update_machine_info(self, machine_info: dict[str, Any]) -> None:
        """Save the header of the file of timings in pytest-benchmark's JSON."""
        if self._bench is not None:
            from conformance.bench.results import HEADER

            machine_info[HEADER] = self._bench.writer.header

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        if self._bench is not None:
            self._bench.close(self.items)

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self, terminalreporter: "pytest.TerminalReporter") -> None:
        if self._bench is not None:
            terminalreporter.section("latency")
            for line in self._bench.summary(self.items):
                terminalreporter.line(line)


@pytest.fixture
def bench(request: pytest.FixtureRequest) -> "Bench":
    """The benchmarks of this invocation."""
    return request.config.stash[Timing.KEY].bench
