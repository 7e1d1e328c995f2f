"""A job that dies or hangs loses its own outcome and no other."""

import faulthandler
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

import pytest

from conformance.host import isolation
from conformance.host.isolation import Child, Death, Done, Raised, run_isolated


def doubled(number: int) -> int:
    return 2 * number


def work(job: object) -> object:
    """Double a number, or call a function, without pytest's fault handler: deaths here are intended."""
    faulthandler.disable()
    if callable(job):
        return job()
    assert isinstance(job, int)
    return doubled(job)


def segfault() -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


def divide_by_zero() -> None:
    os.kill(os.getpid(), signal.SIGFPE)


def abort() -> NoReturn:
    os.write(1, b"loading\n")
    os.write(2, b"corrupted size vs. prev_size\n\n")
    os.abort()


def leave() -> NoReturn:
    os._exit(7)


def leave_quietly() -> NoReturn:
    os._exit(0)


def hang() -> None:
    time.sleep(60)


def spin() -> NoReturn:
    while True:
        pass


def fail() -> NoReturn:
    raise LookupError("no such kernel")


def own_process() -> int:
    return os.getpid()


PATIENT = 300.0
DEATHS: dict[str, tuple[Callable[[], object], str]] = {
    "SIGSEGV": (segfault, "SIGSEGV"),
    "SIGFPE": (divide_by_zero, "SIGFPE"),
    "abort": (abort, "SIGABRT: corrupted size vs. prev_size"),
    "exit": (leave, "exit status 7"),
    "exit without an error": (leave_quietly, "exit status 0"),
    "hang": (hang, "hangs: no result after 2 s"),
    "endless loop": (spin, "hangs: SIGXCPU"),
}


def test_outcomes_are_in_the_order_of_the_jobs() -> None:
    assert run_isolated([3, 1, 2], work) == [Done(6), Done(2), Done(4)]


def test_without_jobs_there_are_no_outcomes() -> None:
    assert run_isolated([], work) == []


def test_jobs_run_in_a_child_that_they_share() -> None:
    first, second = run_isolated([own_process, own_process], work)
    assert first == second
    assert first != Done(os.getpid())


@pytest.mark.parametrize("place", ["first", "between", "last", "alone"])
@pytest.mark.parametrize("death", DEATHS)
def test_a_job_that_dies_loses_its_own_outcome_and_no_other(
    death: str, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, reason = DEATHS[death]
    if job is not hang:  # the other jobs hit their CPU limit first, however busy the host is
        monkeypatch.setattr(isolation, "PATIENCE", PATIENT)
    before = [1, 2] if place in ("between", "last") else []
    after = [3, 4] if place in ("between", "first") else []
    outcomes = run_isolated([*before, job, *after], work, seconds=0.7 if reason.startswith("hangs") else 60)
    assert outcomes == [*map(Done, map(doubled, before)), Death(reason), *map(Done, map(doubled, after))]


def test_each_of_several_deaths_has_its_own_reason() -> None:
    outcomes = run_isolated([segfault, 1, abort, leave, 2, divide_by_zero], work)
    assert outcomes == [
        Death("SIGSEGV"),
        Done(2),
        Death("SIGABRT: corrupted size vs. prev_size"),
        Death("exit status 7"),
        Done(4),
        Death("SIGFPE"),
    ]


def compute() -> None:
    end = time.process_time() + 0.8
    while time.process_time() < end:
        pass


@pytest.mark.parametrize("job", [lambda: time.sleep(1.2), compute])
def test_every_job_has_its_own_time_limit(job: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    if job is compute:
        monkeypatch.setattr(isolation, "PATIENCE", PATIENT)
    assert run_isolated([job] * 3, work, seconds=1.1) == [Done(None)] * 3


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not say whether a process sleeps")
def test_a_deadlock_is_noticed_long_before_the_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolation, "DEADLOCK_SECONDS", 2)
    assert run_isolated([1, hang, 2], work) == [Done(2), Death("hangs: asleep for 2 s"), Done(4)]
    child = Child(work)
    try:
        assert child.do(hang) == Death("hangs: asleep for 2 s")
        assert child.do(3) == Done(6)
    finally:
        child.close()


def busy_now_and_then() -> None:
    for _ in range(3):
        time.sleep(1.5)
        compute()


def test_a_job_that_goes_on_after_a_pause_is_no_deadlock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolation, "DEADLOCK_SECONDS", 3)
    assert run_isolated([busy_now_and_then], work) == [Done(None)]


def test_a_job_that_waits_for_a_child_of_its_own_is_no_deadlock() -> None:
    busy = f"{sys.executable!r}, '-c', 'while True: pass'"
    waiting = subprocess.Popen([sys.executable, "-c", f"import subprocess; subprocess.run([{busy}])"])
    processes = {str(waiting.pid)}
    try:
        while len(processes) < 2:
            processes = {thread.parent.parent.name for thread in isolation._threads(str(waiting.pid))}
        watch = isolation._Watch(waiting.pid, 60.0)
        assert any(watch._cpu() is None for _ in range(1000)), "the child of the child is running"
    finally:
        for process in processes:
            os.kill(int(process), signal.SIGKILL)
        waiting.wait()


def test_an_exception_of_a_job_is_returned_with_its_traceback() -> None:
    first, raised, last = run_isolated([1, fail, 2], work)
    assert (first, last) == (Done(2), Done(4))
    assert isinstance(raised, Raised)
    assert raised.traceback.startswith("Traceback")
    assert "in fail" in raised.traceback
    assert "LookupError: no such kernel" in raised.traceback


POISONED: list[bool] = []


def poison() -> str:
    POISONED.append(True)
    return "done"


def fragile() -> str:
    if POISONED:
        os.kill(os.getpid(), signal.SIGSEGV)
    return "well"


def test_a_job_that_dies_only_after_an_earlier_one_does_not_crash() -> None:
    assert run_isolated([1, poison, fragile, 2], work) == [Done(2), Done("done"), Done("well"), Done(4)]
    assert run_isolated([poison, fragile, poison, fragile], work) == [Done("done"), Done("well")] * 2


def test_all_jobs_are_repeated_alone_after_a_death_that_an_earlier_job_caused() -> None:
    first, second, _, _ = run_isolated([own_process, own_process, poison, fragile], work)
    assert first != second


DAMAGED: list[bool] = []


def damage() -> str:
    """Damage memory; a second call in the same process dies."""
    if DAMAGED:
        os.kill(os.getpid(), signal.SIGSEGV)
    DAMAGED.append(True)
    return "done"


def test_jobs_that_cannot_share_a_process_are_done_in_separate_ones() -> None:
    assert run_isolated([damage, 1, damage], work) == [Done("done"), Done(2), Done("done")]


def test_a_job_does_not_change_the_parent() -> None:
    run_isolated([poison], work)
    assert POISONED == []


def test_results_of_megabytes_are_returned() -> None:
    size = 5 << 20
    first, second = run_isolated([lambda: b"x" * size, lambda: bytes(size)], work)
    assert first == Done(b"x" * size)
    assert second == Done(bytes(size))


def test_the_output_of_a_child_is_not_printed(capfd: pytest.CaptureFixture[str]) -> None:
    run_isolated([lambda: os.write(1, b"to stdout\n"), lambda: os.write(2, b"to stderr\n"), abort], work)
    assert capfd.readouterr() == ("", "")


def test_no_child_and_no_file_descriptor_is_left() -> None:
    def leftovers(_: object) -> tuple[bool, int]:
        """Whether a child is left, and how many file descriptors, in a process that has no children of other tests."""
        descriptors = Path("/proc/self/fd")
        before = len([*descriptors.glob("*")])
        run_isolated([1, segfault, 2, hang, fail], work, seconds=0.5)
        try:
            os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return False, len([*descriptors.glob("*")]) - before
        return True, len([*descriptors.glob("*")]) - before

    assert run_isolated([None], leftovers) == [Done((False, 0))]


@pytest.mark.parametrize(
    "fork", [lambda: run_isolated([hang], work), lambda: Child(work).do(hang)], ids=["run_isolated", "Child"]
)
def test_ctrl_c_while_a_child_is_forked_is_not_lost(fork: Callable[[], object]) -> None:
    arriving = [signal.SIGINT]  # sent once: what is registered stays
    os.register_at_fork(before=lambda: signal.raise_signal(arriving.pop()) if arriving else None)
    sessions = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            fork()
    finally:
        signal.signal(signal.SIGINT, sessions)
    assert not arriving


def test_the_last_line_of_output_is_cut_to_200_characters() -> None:
    def talk() -> NoReturn:
        os.write(2, b"?" * 1000)
        os.abort()

    (death,) = run_isolated([talk], work)
    assert death == Death("SIGABRT: " + "?" * 200)


def answers(job: str) -> str:
    """The work of a `Child` in these tests."""
    if job == "die":
        os.kill(os.getpid(), signal.SIGSEGV)
    if job == "leave":
        os._exit(3)
    if job == "raise":
        raise ValueError("no such job")
    if job == "exit":
        sys.exit("leaving")
    if job == "wait":
        time.sleep(60)
    return f"{job} done"


@pytest.fixture
def child() -> Iterator[Child[str, str]]:
    child: Child[str, str] = Child(answers, seconds=5)
    yield child
    child.close()


def test_a_child_does_one_job_after_another(child: Child[str, str]) -> None:
    assert [child.do(job) for job in ("first", "second")] == [Done("first done"), Done("second done")]


@pytest.mark.parametrize(("job", "reason"), [("die", "SIGSEGV"), ("leave", "exit status 3")])
def test_a_death_has_its_reason_and_the_next_job_has_another_child(
    child: Child[str, str], job: str, reason: str
) -> None:
    assert child.do("first") == Done("first done")
    assert child.do(job) == Death(reason)
    assert child.do("next") == Done("next done")


@pytest.mark.parametrize("job", ["raise", "exit"])
def test_an_exception_of_a_job_is_returned_and_the_child_continues(child: Child[str, str], job: str) -> None:
    outcome = child.do(job)
    assert isinstance(outcome, Raised)
    assert outcome.traceback.strip().endswith({"raise": "ValueError: no such job", "exit": "SystemExit: leaving"}[job])
    assert child.do("next") == Done("next done")


def test_a_job_that_hangs_is_a_death() -> None:
    child: Child[str, str] = Child(answers, seconds=0.2)
    assert child.do("wait") == Death("hangs: no result after 1 s")
    child.close()


def test_a_child_has_the_parents_state_of_its_first_job_and_does_not_change_the_parents() -> None:
    known = [1]
    child: Child[int, int] = Child(lambda job: known.append(job) or len(known))  # type: ignore[func-returns-value]
    known.append(2)
    assert child.do(3) == Done(3)
    known.append(4)
    assert child.do(5) == Done(4)
    assert known == [1, 2, 4]
    child.close()


@pytest.mark.parametrize("others", [0, 2], ids=["a batch of one", "among others"])
def test_a_job_whose_child_is_killed_once_from_outside_is_repeated(others: int, tmp_path: Path) -> None:
    def killed_once_or_alone_too() -> str:
        """Be killed as the kernel kills when memory is short, unless it was done as often as there may be accidents."""
        tries = tmp_path / "tries"
        tries.write_text(tries.read_text() + "." if tries.exists() else ".")
        if len(tries.read_text()) < 2 + bool(others):
            os.kill(os.getpid(), signal.SIGKILL)
        return "done"

    expected = [*map(Done, map(doubled, range(others))), Done("done"), Done(8)]
    assert run_isolated([*range(others), killed_once_or_alone_too, 4], work) == expected


def test_a_job_that_dies_of_sigkill_every_time_dies() -> None:
    def killed() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    assert run_isolated([killed], work) == [Death("SIGKILL")]
    assert run_isolated([1, killed, 2], work) == [Done(2), Death("SIGKILL"), Done(4)]


def test_a_fault_of_a_job_alone_counts_at_once(tmp_path: Path) -> None:
    """Whether a damaged heap ends a process is chance: a second try may hide what the first one has shown."""

    def faults_once() -> None:
        if not (tmp_path / "tried").exists():
            (tmp_path / "tried").touch()
            segfault()

    assert run_isolated([faults_once], work) == [Death("SIGSEGV")]
