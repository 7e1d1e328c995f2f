"""Running cases: batches of runs in children, the rows file, and the lines that close an invocation."""

import copy
import json
import os
import signal
import time
from collections import Counter
from collections.abc import Collection, Generator, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, TypedDict

import pytest
from _pytest.runner import runtestprotocol

from conformance.results.profiles import PROFILES

from .pooling import Pooling, run_id_of
from .selecting import Selecting, controls, usage_errors

if TYPE_CHECKING:
    from conformance.cases.runs import Run
    from conformance.checks.likeness import Likeness
    from conformance.checks.tolerances import Tolerance
    from conformance.execution.batch import Judged
    from conformance.host.isolation import Raised
    from conformance.results import diagnostics, rows
    from conformance.results.diagnostics import Details
    from conformance.results.known import Entry
    from conformance.results.ledger import Expectation
    from conformance.results.rows import Row
    from conformance.selection import Selection


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("conformance")
    group.addoption(
        "--results", type=Path, metavar="PATH", help="rows file (default reports/out/<backend>-<arch>.jsonl)"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Choose how threads wait before torch loads."""
    # two runs side by side that try two threads each are more than two cores: threads that wait must not spin
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    config.stash[Running.KEY] = running = Running(config)
    config.pluginmanager.register(running, "conformance-running")


class Attachment(TypedDict):
    """The result of a run, attached to its test report, which travels from worker to controller.

    `row` is the row in JSON: execnet takes longer for each value of an object than for the whole text.
    """

    row: str
    torch_seconds: float
    details: str | None


ATTACHMENT = pytest.StashKey[Attachment]()
ATTRIBUTE = "conformance"
"""The attribute of a test report that holds its attachment."""
TORN_DOWN = "conformance_torn_down"
"""The attribute of a call's report with the seconds of a teardown that passed and has no report yet."""
TORCH_SECONDS = "torch_seconds"
"""The user property with the seconds that a test without a run spent in torch."""


class Running:
    """The runs of one process: judged batches and, in the controller, the rows file."""

    KEY = pytest.StashKey["Running"]()

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.started = time.perf_counter()
        self.worker_seconds = 0.0
        self.torch_seconds = 0.0
        self.nothing_left = False
        self.judged: dict[str, Judged | Raised] = {}
        self.likeness: Likeness | None = None
        self.writer: rows.Writer | None = None
        self.details: diagnostics.Writer | None = None
        self.unexpected: list[Row] = []
        self.outstanding: set[str] = set()
        self.unneeded: Sequence[Tolerance] = ()

    @property
    def selection(self) -> "Selection":
        return self.config.stash[Selecting.KEY].selection

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        """Have Ctrl-C end the session even where its exception is lost: in destructors, in callbacks, and where torch imports
        a package that it can do without."""

        def interrupt(number: int, frame: FrameType | None) -> None:
            session.shouldstop = "interrupted"
            signal.default_int_handler(number, frame)

        def restore() -> None:
            signal.signal(signal.SIGINT, signal.default_int_handler)

        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            with suppress(ValueError):  # a thread that is not the main one has no handlers
                signal.signal(signal.SIGINT, interrupt)
                self.config.add_cleanup(restore)

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        if "run" in metafunc.fixturenames:
            with usage_errors():
                runs = [run for run in self.selection.runs if run.profile in metafunc.module.PROFILES]
            metafunc.parametrize("run", [pytest.param(run, id=run.id) for run in runs])

    def judge(self, run: "Run") -> "Judged | Raised":
        """Return the judged run. The first run of a unit has the whole unit judged, in one child."""
        from conformance.execution.batch import judge_runs

        if run.id not in self.judged:
            batch = self.config.stash[Pooling.KEY].batches[run.id]
            results = judge_runs(batch, self.selection.unavailable.get, self.selection.store)
            self.judged |= {judged.id: result for judged, result in zip(batch, results, strict=True)}
        return self.judged.pop(run.id)

    def compared(self, run: "Run", row: "Row") -> "Expectation":
        """The row of a run compared with the ledger."""
        from conformance.checks.likeness import Likeness

        self.likeness = self.likeness or Likeness(self.selection.applying)
        expectation = self.likeness.expectation(run, row, self.selection.host)
        if expectation.expected or not self.selection.unknown_platform:
            return expectation
        return replace(expectation, message=f"unknown platform: {expectation.message}")

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Open the rows file before the first test runs, to fail early if it cannot be written."""
        if controls(self.config) and not self.config.getoption("collectonly"):
            self._open([item.nodeid for item in session.items])

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        self._open(ids)

    def _open(self, nodeids: Collection[str]) -> None:
        collected = any(map(run_id_of, nodeids))
        self.nothing_left = not collected and self.config.stash[Selecting.KEY].nothing_left(nodeids)
        if self.writer is not None or not (collected or self.nothing_left):
            return
        from conformance.results import diagnostics, rows

        self.outstanding = {nodeid for nodeid in nodeids if run_id_of(nodeid)}
        with usage_errors():
            self.writer = rows.Writer(self.selection.results_path, self.selection.header())
        self.details = diagnostics.Writer()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
        """Have a worker send no start, no end, and no setup and teardown of a run if they pass: for most runs, to send them
        takes longer than everything else that pytest does. The call's report has the setup's seconds, and says that there was
        a teardown, of which the controller makes a report."""
        if controls(self.config) or not run_id_of(item.nodeid):
            return None
        setup, *reports = runtestprotocol(item, log=False, nextitem=nextitem)
        if not setup.passed:
            reports.insert(0, setup)
        elif reports[0].when == "call" and reports[1].passed:
            reports[0].duration += setup.duration
            setattr(reports[0], TORN_DOWN, reports.pop().duration)
        for report in reports:
            item.ihook.pytest_runtest_logreport(report=report)
        return True

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        if call.excinfo is not None and isinstance(call.excinfo.value, pytest.xfail.Exception):
            # pytest resolves the path of every frame, of which it shows none
            call.excinfo.traceback = call.excinfo.traceback[-1:]
        report = yield
        attachment = item.stash.get(ATTACHMENT, None)
        if report.when == "call" and attachment is not None:
            setattr(report, ATTRIBUTE, attachment)
        return report

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> Generator[None]:
        yield
        self._record(report)
        if controls(self.config) and (seconds := getattr(report, TORN_DOWN, None)) is not None:
            self.config.hook.pytest_runtest_logreport(report=_teardown_of(report, seconds))

    def _record(self, report: pytest.TestReport) -> None:
        """Write the row of a run, and count what its report says."""
        attachment: Attachment | None = getattr(report, ATTRIBUTE, None)
        if report.when == "call":
            self.torch_seconds += sum(
                float(str(value)) for name, value in report.user_properties if name == TORCH_SECONDS
            )
        if attachment is None or self.writer is None or self.details is None:
            if report.when == "call" or not report.passed:
                self.outstanding.discard(report.nodeid)
            return
        from conformance.results.rows import Row

        row = Row.from_json(json.loads(attachment["row"]))
        self.torch_seconds += attachment["torch_seconds"]
        with usage_errors():
            self.writer.add(row)
        self.outstanding.discard(report.nodeid)
        if attachment["details"] is not None:
            self.details.add(row.id, attachment["details"])
        if report.failed:
            self.unexpected.append(row)
            self._show(report)

    def _show(self, report: pytest.TestReport) -> None:
        """Print the message of a run that fails when it happens."""
        if (terminal := self.config.pluginmanager.get_plugin("terminalreporter")) is not None:
            if terminal.isatty:
                terminal.rewrite("", erase=True)
            terminal.write(f"\n{report.longreprtext}\n", red=True)

    def _shared(self) -> Iterator[str]:
        """What several new deviations of a kernel share that have findings of the same kinds, and what conforms does not."""
        from conformance.cases.conditions import kernel, shared
        from conformance.results.verdicts import Verdict

        if self.writer is None or not self.unexpected:
            return
        new = {row.id: row for row in self.unexpected if row.verdict is not Verdict.CONFORMS}
        rows = self.writer.rows
        groups: dict[tuple[tuple[str, ...], tuple[object, ...]], list[Run]] = {}
        conforming: dict[tuple[object, ...], list[Run]] = {}
        for run in (run for run in self.selection.runs if run.variant is not None and run.id in rows):
            if run.id in new:
                kinds = tuple(dict.fromkeys(f"{one.check} {one.kind}" for one in new[run.id].findings))
                groups.setdefault((kinds, kernel(run)), []).append(run)
            elif rows[run.id].verdict is Verdict.CONFORMS:
                conforming.setdefault(kernel(run), []).append(run)
        for (kinds, of_kernel), deviating in groups.items():
            others = conforming.get(of_kernel, [])
            if len(deviating) > 1 and others:
                common, also = shared(deviating, others)
                name = f"{deviating[0].claim.root} on {deviating[0].engine} ({', '.join(kinds)})"
                stated = f"{', '.join(common)}; of {len(others)} that conform {also} too" if common else ""
                yield f"all {len(deviating)} new of {name}: {stated or 'nothing that all have sets them apart'}"

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Complete the rows file, or leave it partial if a run has no report: Ctrl-C, `-x` and errors of pytest end early.

        An invocation fails if it executed nothing, or if a tolerance is not needed.
        """
        seconds = time.perf_counter() - self.started
        if not controls(self.config):
            self.config.workeroutput["seconds"] = seconds  # type: ignore[attr-defined]
        elif self.writer is not None and self.outstanding:
            with usage_errors():
                self.writer.finish_early(len(self.outstanding))
        elif self.writer is not None and self.details is not None:
            spent = {"torch_seconds": round(self.torch_seconds, 3), "seconds": round(self.worker_seconds or seconds, 3)}
            with usage_errors():
                digest = self.writer.finish(spent)
                self.details.finish(self.writer.path, digest)
            if self.selection.complete:
                from conformance.checks.tolerances import TABLE, unneeded

                self.unneeded = unneeded(self.writer.rows.values(), self.selection.runs, TABLE)
            if exitstatus == pytest.ExitCode.OK and (self.unneeded or not (self.writer.executed or self.nothing_left)):
                session.exitstatus = pytest.ExitCode.TESTS_FAILED
            elif exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and self.nothing_left:
                session.exitstatus = pytest.ExitCode.OK

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Add up the seconds of all xdist workers."""
        self.worker_seconds += getattr(node, "workeroutput", {}).get("seconds", 0.0)

    @pytest.hookimpl(tryfirst=True)
    def pytest_terminal_summary(self, terminalreporter: "pytest.TerminalReporter") -> None:
        if self.writer is None:
            return
        from conformance.terminal import lines

        terminalreporter.section("conformance")
        not_selected = Counter(run.engine for run in self.selection.not_asked_for)
        unknown = self.selection.unknown_platform
        options = self.selection.repro_options
        text = lines(self.writer, self.unexpected, self.unneeded, not_selected, bool(unknown), options)
        for line in (*filter(None, [unknown]), *self.selection.notes, *self._shared(), *text):
            terminalreporter.line(line)


def _teardown_of(call: pytest.TestReport, seconds: float) -> pytest.TestReport:
    """The report of a teardown that passed, from that of its call."""
    report = copy.copy(call)
    for name in (ATTRIBUTE, TORN_DOWN, "wasxfail"):
        vars(report).pop(name, None)
    report.when, report.outcome, report.longrepr, report.duration = "teardown", "passed", None, seconds
    return report


def details_line(
    run: "Run", row: "Row", details: "Details | None", entries: "Sequence[Entry]", isa: str | None
) -> str | None:
    """The line of a run in the file of details, with a reproduction if the run deviates; None without details."""
    from conformance.repro.script import script

    if details is None:
        return None
    text = script(run, row, entries[0] if entries else None, isa=isa) if row.failed else ""
    return replace(details, reproduction=text).line


@pytest.fixture
def verdict(request: pytest.FixtureRequest, run: "Run") -> "tuple[Row, Expectation, str]":
    """The row of a run, which goes into the rows file, what the ledger expects of it, and the command that reproduces it."""
    from conformance.cases.conditions import inputs
    from conformance.cases.forms import form
    from conformance.execution.batch import undefined_row, unjudged_row
    from conformance.host.isolation import Raised
    from conformance.results.rows import repro_command

    running = request.config.stash[Running.KEY]
    judged = running.judge(run)
    if isinstance(judged, Raised):
        pytest.fail(f"{run.id}: the suite itself fails on it, which is our fault:\n{judged.traceback}", pytrace=False)
    expectation = running.compared(run, judged.row)
    if expectation.undefined:
        judged = replace(judged, row=undefined_row(run, expectation.undefined))
    elif judged.unusable and not PROFILES[run.profile].certain_only:
        # of a case that nobody chose by hand, `numerics` is skipped where the oracle is uncertain
        judged = replace(judged, row=unjudged_row(run, judged.unusable))
        expectation = running.compared(run, judged.row)
    if not expectation.expected:
        expectation = replace(
            expectation, message=f"{expectation.message or judged.row.detail} (inputs: {inputs(run)})"
        )
    # readers of the row take its word for what covers it by its features
    named = expectation.expected or not PROFILES[judged.row.profile].by_features
    row = replace(judged.row, known=expectation.known if named else None, form=form(run) if judged.row.failed else "")
    # JUnit XML shows an expected deviation as skipped: the properties tell what it is
    properties = {"verdict": str(row.verdict), "failed": ", ".join(sorted(row.failed)), "ledger": row.known or ""}
    request.node.user_properties += [(name, value) for name, value in properties.items() if value]
    request.node.stash[ATTACHMENT] = {
        "row": json.dumps(row.to_json()),
        "torch_seconds": judged.torch_seconds,
        "details": details_line(run, row, judged.details, expectation.entries, request.config.getoption("isa")),
    }
    return row, expectation, repro_command(run.id, running.selection.repro_options)
