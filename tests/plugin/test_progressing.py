"""Progress: one line on a terminal, nothing elsewhere."""

from types import SimpleNamespace
from typing import Any

import pytest

from conformance.plugin.pooling import Pooling
from conformance.plugin.progressing import Progressing

NODES = [f"conformance/test_conformance.py::test_run[{name}]" for name in "abcd"]
SEARCH = "conformance/test_operators.py::test_drawn_cases[all]"


class Terminal:
    """What Progressing uses of pytest's terminal reporter."""

    def __init__(self, *, isatty: bool = True, verbosity: int = -1, fullwidth: int = 60) -> None:
        self.isatty, self.verbosity, self.fullwidth = isatty, verbosity, fullwidth
        self.showfspath = True
        self.text = ""

    def rewrite(self, line: str, *, erase: bool = False) -> None:
        self.text += f"\r{line.ljust(self.fullwidth - 1) if erase else line}"

    def flush(self) -> None:
        pass

    @property
    def lines(self) -> list[str]:
        return [line.rstrip() for line in self.text.split("\r")]


def progressing(terminal: Terminal | None, times: list[float], nodeids: list[str] | None = None) -> Progressing:
    """The progress of four runs of a second each and a search of six."""
    config: Any = SimpleNamespace(stash=pytest.Stash(), getoption={"collectonly": False}.get)
    config.pluginmanager = SimpleNamespace(get_plugin={"terminalreporter": terminal}.get)
    config.get_terminal_writer = lambda: terminal
    config.stash[Pooling.KEY] = SimpleNamespace(
        nodeids=[*NODES, SEARCH] if nodeids is None else nodeids, seconds={**dict.fromkeys(NODES, 1.0), SEARCH: 6.0}
    )
    clock = iter(times)
    progress = Progressing(config, lambda: next(clock))
    progress.pytest_collection_finish()
    return progress


def report(nodeid: str, *, failed: bool = False, when: str = "teardown") -> Any:
    return SimpleNamespace(nodeid=nodeid, when=when, failed=failed)


def shown(category: str, progress: Progressing) -> tuple[Any, ...]:
    """What pytest shows for a report."""
    generator: Any = progress.pytest_report_teststatus()
    next(generator)
    with pytest.raises(StopIteration) as stop:
        generator.send((category, "F", "FAILED"))
    return tuple(stop.value.value)


def test_the_time_left_follows_from_the_expected_work() -> None:
    terminal = Terminal()
    progress = progressing(terminal, [0.0, 0.0, 12.0, 12.0, 14.0, 14.0])
    progress.pytest_runtest_logreport(report(SEARCH))
    progress.pytest_runtest_logreport(report(NODES[0], when="call", failed=True))
    progress.pytest_runtest_logreport(report(NODES[0]))
    assert terminal.lines == [
        "",
        "0/4 runs [60%] 00:12, about 00:08 left",
        "1/4 runs, 1 unexpected [70%] 00:14, about 00:06 left",
    ]
    assert terminal.showfspath is False
    assert shown("failed", progress) == ("failed", "", "")


def test_the_line_is_rewritten_a_few_times_a_second_and_erased_at_the_end() -> None:
    terminal = Terminal()
    progress = progressing(terminal, [0.0, 0.0, 0.1, 0.15, 0.3, 0.3])
    for nodeid in NODES[:3]:
        progress.pytest_runtest_logreport(report(nodeid))
    assert len(terminal.lines) == 2
    loop: Any = progress.pytest_runtestloop()
    next(loop)
    with pytest.raises(StopIteration):
        loop.send(True)
    assert terminal.lines[-2:] == ["", ""]
    assert shown("failed", progress) == ("failed", "F", "FAILED")


def test_a_line_is_never_wider_than_the_terminal() -> None:
    terminal = Terminal(fullwidth=20)
    progress = progressing(terminal, [0.0, 0.0, 12.0, 12.0])
    progress.pytest_runtest_logreport(report(NODES[0]))
    assert max(map(len, terminal.lines)) == 19


@pytest.mark.parametrize(
    ("terminal", "nodeids"),
    [
        (None, None),
        (Terminal(), [SEARCH]),
        (Terminal(isatty=False), None),
        (Terminal(verbosity=1), None),
    ],
)
def test_nothing_is_shown_without_a_terminal_with_v_or_without_runs(
    terminal: Terminal | None, nodeids: list[str] | None
) -> None:
    progress = progressing(terminal, [0.0, 0.0], nodeids)
    progress.pytest_runtest_logreport(report(NODES[0], failed=True))
    assert shown("failed", progress) == ("failed", "F", "FAILED")
    assert terminal is None or not terminal.text
