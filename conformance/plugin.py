"""pytest options and hooks; what they decide stands in session.py, ledger.py and rows.py."""

import os
import platform
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

from conformance.errors import UsageError
from conformance.host.isa import limit_isa


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("conformance", "conformance of quantized backends")
    group.addoption(
        "--backend", action="append", default=[], metavar="NAME", help="run this backend's claims; repeatable"
    )
    group.addoption(
        "--engine",
        action="append",
        default=[],
        metavar="NAME",
        help="run on this engine instead of those the registry names; repeatable",
    )
    group.addoption(
        "--case",
        action="append",
        default=[],
        metavar="GLOB",
        help="run what matches this glob over run ids; repeatable",
    )
    group.addoption(
        "--backend-config", metavar="MODULE:CALLABLE", help="run the claims of the BackendConfig that this returns"
    )
    group.addoption(
        "--results", type=Path, metavar="PATH", help="rows file (default reports/out/<backend>-<arch>.jsonl)"
    )
    group.addoption("--isa", metavar="NAME", help="limit the instruction set of the process, such as avx2")
    group.addoption("--ledger", type=Path, metavar="DIR", help="folder of known deviations (default conformance/known)")
    group.addoption("--golden", type=Path, metavar="DIR", help="folder of goldens (default golden)")
    group.addoption(
        "--search-minutes",
        type=float,
        metavar="M",
        help="search each family of operators for so long instead of trying a fixed number of drawn cases",
    )
    group.addoption("--bench", choices=("quick", "full"), help="time what conforms: the least layers, or all of them")
    group.addoption("--passes", type=int, default=5, metavar="N", help="pass over what is timed so often (default 5)")
    group.addoption(
        "--against", metavar="PYTHON", help="time the builds of another interpreter in turns with this one's"
    )
    group.addoption(
        "--timings", type=Path, metavar="PATH", help="file of timings (default reports/out/bench-<arch>.jsonl)"
    )
    group.addoption(
        "--found",
        type=Path,
        metavar="DIR",
        default=Path("reports/out/found"),
        help="folder that keeps what a search finds (default reports/out/found)",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Limit the ISA and how threads wait before torch loads."""
    if config.getoption("isa"):
        try:
            limit_isa(config.getoption("isa"))
        except UsageError as error:
            raise pytest.UsageError(str(error)) from error
    # two runs side by side that try two threads each are more than two cores: threads that wait must not spin
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    from conformance.properties import search  # noqa: F401  # its profiles are there when hypothesis' plugin, which comes later, chooses one

    config.stash[Conformance.KEY] = made = Conformance(config)
    config.pluginmanager.register(made, "conformance-session")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if not {"run", "family", "ledger_entry", "config_of", "item"} & set(metafunc.fixturenames):
        return
    conformance = metafunc.config.stash[Conformance.KEY]
    try:
        if "run" in metafunc.fixturenames:
            mine = [run for run in conformance.selection.runs if run.profile in metafunc.module.PROFILES]
            metafunc.parametrize("run", [pytest.param(run, id=run.id) for run in mine])
        elif "family" in metafunc.fixturenames:
            metafunc.parametrize("family", [pytest.param(one, id=one.id) for one in conformance.selection.families])
        elif "item" in metafunc.fixturenames:
            metafunc.parametrize("item", [pytest.param(one, id=one.id) for one in conformance.items])
        elif "config_of" in metafunc.fixturenames:
            metafunc.parametrize("config_of", [pytest.param(one, id=one.name) for one in conformance.selection.whole])
        else:
            entries = conformance.selection.ledger_to_check
            metafunc.parametrize("ledger_entry", [pytest.param(entry, id=entry.id) for entry in entries])
    except UsageError as error:
        raise pytest.UsageError(str(error)) from error


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Take out what the selection leaves nothing of, which pytest would skip as an empty parameter set."""
    items[:] = [item for item in items if not item.name.startswith(EMPTY)]


EMPTY = tuple(
    f"{name}[NOTSET]"
    for name in ("test_run", "test_drawn_cases", "test_ledger_entry", "test_config_is_torchs", "test_latency")
)


class Conformance:
    """What one process of an invocation knows: the selection, judged batches, and, in the controller, the rows file.

    Nothing here loads torch before a test of the suite is collected.
    """

    KEY = pytest.StashKey["Conformance"]()

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.started = time.perf_counter()
        self.worker_seconds = 0.0
        self.torch_seconds = 0.0
        self.collected: list[str] = []
        self.judged: dict[str, Any] = {}
        self.together: dict[str, list[Any]] = {}
        self.writer: Any = None
        self.details: Any = None
        self.unexpected: list[Any] = []
        self.unneeded: list[Any] = []
        self.searches: list[Sequence[int]] = []

    @cached_property
    def selection(self) -> Any:
        import torch

        from conformance.paths import GOLDEN, KNOWN
        from conformance.selection import Selection

        # before a config is loaded: a pool of threads that its module starts would be missing in the children
        torch.set_num_threads(1)
        option = self.config.getoption
        return Selection(
            option("backend"),
            option("engine"),
            option("case"),
            option("backend_config"),
            option("isa"),
            option("results"),
            option("ledger") or KNOWN,
            option("golden") or GOLDEN,
        )

    @cached_property
    def items(self) -> Sequence[Any]:
        """What is timed: nothing where nobody asks for it."""
        from conformance.bench.schedule import EXTENTS_OF, THREADS_OF, items

        option = self.config.getoption
        if option("bench") is None:
            return []
        timed = self.selection.timed(EXTENTS_OF[option("bench")])
        cases = [(run, extent, threads) for run, extent in timed for threads in THREADS_OF[option("bench")]]
        return [*items(cases, option("passes"))]

    @cached_property
    def bench(self) -> Any:
        """What times the items. Raises UsageError if the file of timings cannot be written or continued."""
        from conformance.bench.results import Writer
        from conformance.bench.schedule import Bench, header, hello

        option = self.config.getoption
        base = hello(option("against")) if option("against") else None
        writer = Writer(
            option("timings") or Path("reports/out") / f"bench-{platform.machine()}.jsonl",
            header(self.selection.circumstances(), option("bench"), option("passes"), base),
        )
        return Bench(writer, option("against"), option("backend_config"))

    def pytest_report_collectionfinish(self) -> str | None:
        """Say how long it will take, by the first of it."""
        if not self.items or self.config.getoption("collectonly"):
            return None
        try:
            return str(self.bench.estimate(self.items))
        except UsageError as error:
            raise pytest.UsageError(str(error)) from error

    @pytest.hookimpl(optionalhook=True)
    def pytest_benchmark_update_machine_info(self, machine_info: dict[str, Any]) -> None:
        """Leave in pytest-benchmark's JSON what a file of timings says of the machine."""
        if "bench" in vars(self):
            from conformance.bench.results import HEADER

            machine_info[HEADER] = self.bench.writer.header

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self) -> None:
        """Refuse options that make no sense before anything is collected or a worker started."""
        option = self.config.getoption
        if option("bench") and option("numprocesses", None):
            raise pytest.UsageError("--bench: what runs side by side cannot be timed: leave -n out")
        if option("bench") and not self.config.pluginmanager.hasplugin("benchmark"):
            raise pytest.UsageError("--bench: pytest-benchmark is not there: `tox -e bench` has it")
        if self.controls and any(option(name) for name in ("backend", "engine", "case", "backend_config", "ledger")):
            try:
                _ = self.items if option("bench") else self.selection.runs, self.selection.entries
            except UsageError as error:
                raise pytest.UsageError(str(error)) from error

    @property
    def controls(self) -> bool:
        """Whether this process writes the rows: xdist's controller, or the only process."""
        return not hasattr(self.config, "workerinput")

    @cached_property
    def batches(self) -> dict[str, str]:
        """The batch of every collected run, by id, in the order of collection; runs that are known to crash are alone in
        theirs."""
        from conformance.execution.batch import BATCH

        entries, host = self.selection.entries, self.selection.host
        crashing = [entry for entry in entries if "crashes" in entry.check and entry.applies(host)]
        batches: dict[str, str] = {}
        count = 0
        for run_id in self.collected:
            if any(entry.matches(run_id) for entry in crashing):
                batches[run_id] = f"alone {run_id}"
            else:
                batches[run_id] = f"batch {count // BATCH}"
                count += 1
        return batches

    def judge(self, item: pytest.Item, run: Any) -> Any:
        """Return the judged run; the first of a batch has the whole batch judged in one child."""
        from conformance.execution.batch import judge_runs

        if run.id not in self.judged:
            if not self.together:
                for one in self._runs(item.session):
                    self.together.setdefault(self.batches[one.id], []).append(one)
            batch = self.together[self.batches[run.id]]
            outcomes = judge_runs(batch, self.selection.unavailable.get, self.selection.store)
            self.judged = {one.id: outcome for one, outcome in zip(batch, outcomes, strict=True)}
        return self.judged[run.id]

    @staticmethod
    def _runs(session: pytest.Session) -> Iterator[Any]:
        """The runs that pytest has kept, in its order."""
        for item in session.items:
            run = getattr(item, "callspec", None) and item.callspec.params.get("run")  # type: ignore[attr-defined]
            if run is not None:
                yield run

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: Any) -> Any:
        """Under `-n`, give each batch to one worker; everything else goes test by test."""
        if config.getoption("dist") != "load":
            return None
        from xdist.scheduler import LoadScopeScheduling

        conformance = self

        class ByBatch(LoadScopeScheduling):  # type: ignore[misc]
            def _split_scope(self, nodeid: str) -> str:
                run_id = run_of(nodeid)
                return conformance.batches[run_id] if run_id else nodeid

        return ByBatch(config, log)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Open the rows file before the first test, so that a path that cannot be written costs nothing."""
        self._take(item.nodeid for item in session.items)
        if self.controls and not self.config.getoption("collectonly"):
            self._open()

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        self._take(ids)
        self._open()

    def _take(self, nodeids: Iterable[str]) -> None:
        self.collected = [run_id for nodeid in nodeids if (run_id := run_of(nodeid))]

    def _open(self) -> None:
        if self.writer is not None or not self.collected:
            return
        from conformance.results import diagnostics, rows

        try:
            self.writer = rows.Writer(self.selection.results_path, self.selection.header())
        except UsageError as error:
            raise pytest.UsageError(str(error)) from error
        self.details = diagnostics.Writer()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Any:
        """Attach the row to the report, which is what travels from a worker to the controller."""
        report = yield
        attached = item.stash.get(ROW, None)
        if report.when == "call" and attached is not None:
            report.conformance = attached
        return report

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.when == "call":
            self.searches += [counts for name, counts in report.user_properties if name == DRAWN]
        attached = getattr(report, "conformance", None)
        if attached is None or self.writer is None:
            return
        from conformance.results.rows import Row

        row = Row.from_json(attached["row"])
        self.torch_seconds += attached["torch_seconds"]
        self.writer.add(row)
        if attached["details"] is not None:
            self.details.add(row.id, attached["details"])
        if report.failed:
            self.unexpected.append(row)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        own = time.perf_counter() - self.started
        if not self.controls:
            self.config.workeroutput["seconds"] = own  # type: ignore[attr-defined]
        elif self.writer is not None:
            digest = self.writer.finish(
                {"torch_seconds": round(self.torch_seconds, 3), "seconds": round(self.worker_seconds or own, 3)}
            )
            self.details.finish(self.writer.path, digest)
            if self.selection.whole:
                from conformance.checks.tolerances import TABLE, unneeded

                self.unneeded = unneeded(self.writer.rows.values(), self.selection.runs, TABLE)
            if exitstatus == pytest.ExitCode.OK and (not self.writer.executed or self.unneeded):
                session.exitstatus = pytest.ExitCode.TESTS_FAILED

        if "bench" in vars(self):
            self.bench.close(self.items)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Sum up what the xdist workers took in all."""
        self.worker_seconds += getattr(node, "workeroutput", {}).get("seconds", 0.0)

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        from conformance.terminal import drawn, lines

        if self.writer is not None or self.searches:
            terminalreporter.section("conformance")
        if self.writer is not None:
            left = Counter(run.engine for run in self.selection.not_asked_for)
            for line in lines(self.writer, self.unexpected, self.unneeded, left):
                terminalreporter.line(line)
        if "bench" in vars(self):
            terminalreporter.section("latency")
            for line in self.bench.summary(self.items):
                terminalreporter.line(line)
        if self.searches and self.controls:
            terminalreporter.line(drawn(self.searches))


def run_of(nodeid: str) -> str:
    """The id of the run that a test is of; empty if it is of none."""
    return nodeid.partition("::test_run[")[2].removesuffix("]")


ROW = pytest.StashKey[dict[str, Any]]()
DRAWN = "drawn"
"""The property of a report that counts the cases that a search tried, those without a certain answer, and those new."""


def details_line(run: Any, row: Any, seen: Any, entries: Sequence[Any], isa: str | None) -> str | None:
    """The line of a run in the file of details, with its reproduction if it deviates; None if there is nothing to see."""
    from conformance.repro.script import script

    if seen is None:
        return None
    text = script(run, row, entries[0] if entries else None, isa=isa) if row.failed else ""
    line: str = replace(seen, reproduction=text).line
    return line


@pytest.fixture
def verdict(request: pytest.FixtureRequest, run: Any) -> Any:
    """The judged run held against the ledger: a pair of row and verdict. The row goes into the rows file."""
    from conformance.host.isolation import Raised
    from conformance.results.ledger import judge

    conformance = request.config.stash[Conformance.KEY]
    judged = conformance.judge(request.node, run)
    if isinstance(judged, Raised):
        pytest.fail(f"{run.id}: the suite itself fails on it, which is our fault:\n{judged.traceback}", pytrace=False)
    held = judge(judged.row, conformance.selection.entries, conformance.selection.host)
    row = replace(judged.row, known=held.known)
    # what JUnit XML says of a run besides: there an expected deviation is only one more that was skipped
    said = {"verdict": str(row.verdict), "failed": ", ".join(sorted(row.failed)), "ledger": row.known or ""}
    request.node.user_properties += [(name, value) for name, value in said.items() if value]
    request.node.stash[ROW] = {
        "row": row.to_json(),
        "torch_seconds": judged.torch_seconds,
        "details": details_line(run, row, judged.details, held.entries, request.config.getoption("isa")),
    }
    return row, replace(held, expected=False, message=judged.unusable) if judged.unusable else held


@pytest.fixture
def bench(request: pytest.FixtureRequest) -> Any:
    """What times the items of this invocation."""
    return request.config.stash[Conformance.KEY].bench


@pytest.fixture
def selection(request: pytest.FixtureRequest) -> Any:
    """What this invocation selects."""
    return request.config.stash[Conformance.KEY].selection
