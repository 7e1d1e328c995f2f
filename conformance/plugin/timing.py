"""Timing what conforms: the options of benchmarks, the cases that are timed, and the file of timings."""

import platform
from collections.abc import Sequence
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from conformance.errors import UsageError, not_installed

from .selecting import Selecting, usage_errors

if TYPE_CHECKING:
    from conformance.bench.plan import Plan
    from conformance.bench.schedule import Bench, Case

AIM = "3%"
"""The default of `--aim`."""
NETWORK, FLOAT = "network", "float"
"""The extent of networks, and what stands in place of an engine in the id of a float model."""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("conformance")
    group.addoption(
        "--bench",
        choices=("quick", "full", "networks"),
        help="time what conforms: only the smallest layers, or all layers; or networks end to end",
    )
    group.addoption(
        "--budget",
        metavar="TIME",
        help="add passes until each case is settled or this time is spent (default 10m; full and networks: 1h)",
    )
    group.addoption("--passes", type=int, metavar="N", help="a fixed number of passes over all cases instead")
    group.addoption(
        "--aim", default=AIM, metavar="PERCENT", help="relative change to tell from none (default %(default)s)"
    )
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
        self._timed: Sequence[Case] = []

    @cached_property
    def cases(self) -> "Sequence[Case]":
        """The cases to time; empty without `--bench`."""
        option = self.config.getoption
        if option("bench") is None:
            return []
        if option("bench") == "networks":
            return self._networks()
        from conformance.bench.schedule import EXTENTS_OF, THREADS_OF, Case

        runs = self.config.stash[Selecting.KEY].selection.timed(EXTENTS_OF[option("bench")])
        return [
            Case(run.id, extent, threads, f"{run.claim.pattern}@{run.engine}")
            for run, extent in runs
            for threads in THREADS_OF[option("bench")]
        ]

    def _networks(self) -> "Sequence[Case]":
        from conformance.bench.networks import cases
        from conformance.bench.schedule import Case
        from conformance.configs.engines import backend_of

        option = self.config.getoption
        if len(option("backend_config")) > 1:
            raise UsageError("--backend-config: networks are timed with one config at a time")
        if theirs := [text for text in option("engine") if ":" in text]:
            raise UsageError(f"--engine {theirs[0]!r}: networks are timed on torch's own engines")
        found = cases()
        if option("engine") or option("backend"):
            found = [
                (case_id, threads)
                for case_id, threads in found
                for engine in [case_id.rpartition("@")[2]]
                if engine in (FLOAT, *option("engine"))
                or (not option("engine") and backend_of(engine) in option("backend"))
            ]
        for glob in option("case"):
            if not any(fnmatchcase(case_id, glob) for case_id, _ in found):
                raise UsageError(f"no network matches {glob!r}: ids are such as {found[0][0]}")
        return [
            Case(case_id, NETWORK, threads, case_id.rpartition("/")[0])
            for case_id, threads in found
            if not option("case") or any(fnmatchcase(case_id, glob) for glob in option("case"))
        ]

    @cached_property
    def plan(self) -> "Plan":
        """How many passes cases get. Raises UsageError for options that cannot be read, or exclude each other."""
        from conformance.bench.plan import plan

        option = self.config.getoption
        return plan(option("bench"), option("passes"), option("budget"), option("aim"))

    @property
    def bench(self) -> "Bench":
        """The benchmarks with their file of timings, opened at the first use.

        Raises UsageError if the file cannot be written, or belongs to an interrupted invocation with other options.
        """
        if self._bench is None:
            from conformance.bench.results import Writer
            from conformance.bench.schedule import Bench, header
            from conformance.bench.workers import hello

            option = self.config.getoption
            base = hello(option("against")) if option("against") else None
            circumstances = self.config.stash[Selecting.KEY].selection.circumstances()
            writer = Writer(
                option("timings") or Path("reports/out") / f"bench-{platform.machine()}.jsonl",
                header(circumstances, option("bench"), self.plan, base),
            )
            declared = [f"--backend-config={path}" for path in option("backend_config")]
            declared += [f"--engine={text}" for text in option("engine")]
            self._bench = Bench(writer, self.plan, option("against"), declared)
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
        with usage_errors():
            if not self.config.pluginmanager.hasplugin("benchmark"):
                raise not_installed("pytest-benchmark", "bench", "bench")
            try:
                _ = self.plan
            except ModuleNotFoundError as error:
                raise not_installed(error.name, "bench", "bench") from error
        if self.config.stash[Selecting.KEY].checked_early:
            with usage_errors():
                _ = self.cases

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        if {"case", "bench"} <= {*metafunc.fixturenames}:
            with usage_errors():
                metafunc.parametrize("case", [pytest.param(case, id=case.name) for case in self.cases])

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> None:
        """Time all cases. The tests then report what was timed."""
        items = [
            item
            for item in session.items
            if isinstance(item, pytest.Function) and {"case", "bench"} <= {*item.fixturenames}
        ]
        cases: list[Case] = [item.callspec.params["case"] for item in items]  # type: ignore[misc]
        if not cases or session.testsfailed or self.config.option.collectonly:
            return
        terminal = self.config.pluginmanager.get_plugin("terminalreporter")
        with usage_errors():
            bench = self.bench
        bench.report = lambda line: terminal.write_line(f"latency: {line}") if terminal else None
        self._timed = cases
        bench.run(cases)

    @pytest.hookimpl(optionalhook=True)
    def pytest_benchmark_update_machine_info(self, machine_info: dict[str, Any]) -> None:
        """Save the header of the file of timings in pytest-benchmark's JSON."""
        if self._bench is not None:
            from conformance.bench.results import HEADER

            machine_info[HEADER] = self._bench.writer.header

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self, terminalreporter: "pytest.TerminalReporter") -> None:
        if self._bench is not None:
            terminalreporter.section("latency")
            for line in self._bench.summary(self._timed):
                terminalreporter.line(line)


@pytest.fixture
def bench(request: pytest.FixtureRequest) -> "Bench":
    """The benchmarks of this invocation."""
    return request.config.stash[Timing.KEY].bench
