"""The guard records every access outside of a tensor, none inside of it, and leaves other processes alone."""

import ctypes
import os
import platform
import shlex
import signal
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import pytest
import torch

from conformance.host import guard
from conformance.host.guard import Access, Unavailable, guarded
from conformance.host.isolation import Death, Done, run_isolated
from tests.planted import Planted

needs_guard = pytest.mark.skipif(guard.unavailable() is not None, reason=str(guard.unavailable()))

TAILS = (1, 3, 7, 13, 33)
"""Bytes that are no multiple of a vector."""
T = TypeVar("T")

PAGES = 4099
"""Bytes of more than one page."""


def in_child(work: Callable[[], T]) -> T:
    """What a function returns in a child, whose allocator the guard may replace."""
    (outcome,) = run_isolated([None], lambda _: work())
    assert isinstance(outcome, Done), outcome
    return outcome.value


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Planted:
    return Planted(tmp_path_factory.mktemp("planted"))


def recorded(planted: Planted, kernel: str, side: str, size: int) -> set[Access]:
    """The accesses of a kernel out of its operand with this side guarded."""
    with guarded(side) as scope:
        operand = torch.ones(size, dtype=torch.uint8)
        planted.call(kernel, operand)
        return scope.taken()


@needs_guard
@pytest.mark.parametrize("size", [*TAILS, PAGES])
@pytest.mark.parametrize("kernel", ["reads_before", "reads_beyond", "writes_before", "writes_beyond"])
def test_a_kernel_that_leaves_its_operand_by_one_element_is_caught(planted: Planted, kernel: str, size: int) -> None:
    access, _, side = kernel.partition("_")
    expected = {Access(access, side, size)}
    assert in_child(lambda: [recorded(planted, kernel, side, size) for _ in range(3)]) == [expected] * 3


@needs_guard
@pytest.mark.parametrize("side", guard.PLACEMENTS)
@pytest.mark.parametrize("kernel", ["sum", "fill"])
def test_a_right_kernel_is_not(planted: Planted, kernel: str, side: str) -> None:
    assert in_child(lambda: [recorded(planted, kernel, side, size) for size in TAILS]) == [set()] * len(TAILS)


@needs_guard
def test_accesses_are_taken_once_and_those_of_the_next_kernel_are_its_own(planted: Planted) -> None:
    def work() -> list[set[Access]]:
        with guarded("beyond") as scope:
            operand = torch.ones(3, dtype=torch.uint8)
            takes = []
            for kernel in ("reads_beyond", "sum", "reads_beyond", "writes_beyond"):
                planted.call(kernel, operand)
                takes.append(scope.taken())
            return takes

    read, written = {Access("reads", "beyond", 3)}, {Access("writes", "beyond", 3)}
    assert in_child(work) == [read, set(), read, written]


@needs_guard
def test_a_kernel_goes_on_with_its_own_result(planted: Planted) -> None:
    """Memory out of bounds reads as zero, and what is written there changes no other tensor."""

    def work() -> tuple[int, list[int], list[int]]:
        with guarded("beyond"):
            operand, other = torch.ones(5, dtype=torch.uint8), torch.ones(5, dtype=torch.uint8)
            total = planted.call("reads_beyond", operand)
            planted.call("writes_beyond", operand)
            return total, operand.tolist(), other.tolist()

    assert in_child(work) == (5, [7] * 5, [1] * 5)


@needs_guard
def test_memory_that_is_freed_is_out_of_bounds(planted: Planted) -> None:
    def work() -> set[Access]:
        with guarded("beyond") as scope:
            operand, kept = torch.ones(8, dtype=torch.uint8), torch.ones(1)
            address = operand.data_ptr()
            del operand
            ctypes.string_at(address, 8)
            assert kept.item() == 1
            return scope.taken()

    assert in_child(work) == {Access("reads", "freed", 8)}


@needs_guard
def test_what_is_allocated_outside_of_the_scope_is_not_guarded(planted: Planted) -> None:
    def work() -> set[Access]:
        before = torch.ones(3, dtype=torch.uint8)
        with guarded("beyond") as scope:
            planted.call("reads_beyond", before)
        after = torch.ones(3, dtype=torch.uint8)
        planted.call("reads_beyond", after)
        return scope.taken()

    assert in_child(work) == set()


@needs_guard
@pytest.mark.skipif("qnnpack" not in torch.backends.quantized.supported_engines, reason="no QNNPACK")
@pytest.mark.parametrize(("side", "added"), [("before", 64), ("beyond", 16)])
def test_bytes_that_torch_adds_to_operands_of_qnnpack_are_theirs(side: str, added: int) -> None:

    def work() -> list[set[Access]]:
        torch.backends.quantized.engine = "qnnpack"
        found = []
        for outside in (added, added + 1):
            with guarded(side) as scope:
                operand = torch.quantize_per_tensor(torch.ones(3), 1.0, 0, torch.quint8)
                first = operand.data_ptr() - (outside if side == "before" else 0)
                ctypes.string_at(first, outside + 3)
                found.append(scope.taken())
        return found

    assert in_child(work) == [set(), {Access("reads", side, 64 + 3 + 16)}]


@needs_guard
def test_kernels_of_several_threads_are_guarded(planted: Planted) -> None:
    def work() -> set[Access]:
        with guarded("beyond") as scope, ThreadPoolExecutor(4) as pool:
            operands = [torch.ones(size, dtype=torch.uint8) for size in range(1, 41)]
            [*pool.map(lambda x: planted.call("reads_beyond", x), operands)]
            return scope.taken()

    assert in_child(work) == {Access("reads", "beyond", size) for size in range(1, 41)}


@needs_guard
def test_an_operator_on_two_threads_has_its_result_and_no_access() -> None:
    def work() -> tuple[float, set[Access], int]:
        torch.set_num_threads(2)
        with guarded("before") as scope:
            x = torch.ones(1_000_001)
            total = float((x + x).sum())
            accesses = scope.taken()
        return total, accesses, scope.missed

    assert in_child(work) == (2_000_002.0, set(), 0)


COPIES = (
    "movaps", "movaps_rex", "movapd", "movdqa", "movdqa_rex", "vmovaps", "vmovdqa", "vmovdqa_rex", "vmovaps_evex",
    "vmovdqa_evex",
)  # fmt: skip


@needs_guard
@pytest.mark.skipif(platform.machine() != "x86_64", reason="instructions of x86")
@pytest.mark.parametrize("instruction", COPIES)
def test_a_kernel_may_rely_on_the_alignment_of_what_torch_allocates(planted: Planted, instruction: str) -> None:
    def work() -> tuple[int, set[Access]]:
        with guarded("beyond") as scope:
            operand = torch.arange(131, dtype=torch.uint8)
            assert operand.data_ptr() % 16
            same = planted.call(instruction, operand)
            return same, scope.taken()

    same, accesses = in_child(work)
    if same == -1:
        pytest.skip(f"this CPU lacks {instruction}")
    assert (same, accesses) == (1, set())


@needs_guard
def test_allocations_without_room_are_counted() -> None:
    def work() -> int:
        with guarded("beyond") as scope, suppress(RuntimeError):  # torch may have no room either
            torch.empty(1 << 36, dtype=torch.uint8)
        return scope.missed

    assert in_child(work) == 1


@needs_guard
def test_more_allocations_than_linux_has_maps_for_are_counted_and_made() -> None:
    def work() -> tuple[int, float]:
        with guarded("before") as scope:
            tensors = [torch.ones(1) for _ in range(16_100)]
            total = float(torch.stack(tensors).sum())
            del tensors
        return scope.missed, total

    missed, total = in_child(work)
    assert total == 16_100
    assert 100 <= missed < 200


@needs_guard
def test_another_fault_still_ends_the_process() -> None:
    def work() -> None:
        with guarded("beyond"):
            ctypes.string_at(8, 1)

    (outcome,) = run_isolated([None], lambda _: work())
    assert isinstance(outcome, Death)
    assert outcome.reason.startswith("SIGSEGV")


@needs_guard
def test_the_parent_keeps_its_allocator() -> None:
    handler = signal.getsignal(signal.SIGSEGV)
    assert "guard-" in in_child(guarded_maps)
    assert "guard-" not in Path("/proc/self/maps").read_text()
    assert signal.getsignal(signal.SIGSEGV) == handler


def guarded_maps() -> str:
    """The maps of a process that is guarded."""
    with guarded("beyond"):
        return Path("/proc/self/maps").read_text()


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder for the compiled guard."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "quantized-backend-conformance"


@needs_guard
def test_the_guard_is_compiled_once(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = guard.compiled()
    assert [*cache.iterdir()] == [path]
    monkeypatch.setattr(guard, "compile_to", None)
    assert guard.compiled() == path


@needs_guard
def test_two_first_compilations_at_a_time_give_one_library(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A compiler that waits until another one has compiled as well."""
    done = tmp_path / "done"
    done.mkdir()
    script = tmp_path / "slow-cc"
    folder = shlex.quote(str(done))
    waits = f"touch {folder}/$$\nwhile [ $(ls {folder} | wc -l) -lt 2 ]; do sleep 0.01; done\n"
    script.write_text(f'#!/bin/sh\n{shlex.join(guard.compiler())} "$@" || exit 1\n{waits}')
    script.chmod(0o700)
    monkeypatch.setenv("CC", shlex.quote(str(script)))
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(lambda _: guard.compiled(), range(2))
    assert first == second
    assert [*cache.iterdir()] == [first]
    assert "guard-" in in_child(guarded_maps)


@pytest.mark.parametrize(
    ("compiler", "reason"),
    [
        ("no-such-compiler -g", r"no C compiler \(no-such-compiler\): install one, or name it in CC"),
        ("false", "the C compiler false fails: status 1"),
        (
            f"{shlex.quote(sys.executable)} -c 'raise SystemExit(\"error: no\")'",
            "the C compiler .*python.* fails: error: no",
        ),
    ],
)
@pytest.mark.skipif(sys.platform != "linux", reason="memory is guarded on Linux only")
def test_a_compiler_that_is_missing_or_fails_is_the_reason(
    cache: Path, monkeypatch: pytest.MonkeyPatch, compiler: str, reason: str
) -> None:
    monkeypatch.setenv("CC", compiler)
    with pytest.raises(Unavailable, match=reason):
        guard.compiled()
    assert [*cache.iterdir()] == []


@pytest.mark.skipif(sys.platform != "linux", reason="memory is guarded on Linux only")
def test_no_compiler_at_all_is_the_reason(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(Unavailable, match=r"no C compiler \(cc or gcc or clang\)"):
        guard.compiled()


@needs_guard
def test_a_cache_that_cannot_be_written_is_left_for_the_temporary_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert guard.compiled().parent == tmp_path / f"quantized-backend-conformance-{os.getuid()}"


@pytest.mark.skipif(sys.platform != "linux", reason="memory is guarded on Linux only")
def test_without_a_folder_that_can_be_written_the_reason_names_the_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "file"))
    with pytest.raises(Unavailable, match=r"no folder for the compiled guard: Not a directory: .*XDG_CACHE_HOME"):
        guard.compiled()


@pytest.mark.skipif(sys.platform != "linux", reason="memory is guarded on Linux only")
def test_a_folder_of_another_user_is_not_used(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("os.getuid", lambda: os.geteuid() + 1)
    with pytest.raises(Unavailable, match="it belongs to another user"):
        guard.compiled()


def test_another_system_is_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "darwin")
    with pytest.raises(Unavailable, match="on Linux only, and this is darwin"):
        guard.compiled()


@needs_guard
def test_a_library_that_cannot_be_loaded_is_the_reason(cache: Path) -> None:
    path = guard.compiled()
    path.write_bytes(b"not a library")

    def work() -> str:
        with pytest.raises(Unavailable) as raised, guarded("beyond"):
            pass
        return str(raised.value)

    assert "the compiled guard cannot be loaded" in str(in_child(work))


@needs_guard
def test_a_process_without_torchs_allocator_is_not_guarded(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither at the first attempt nor at the second."""
    monkeypatch.setattr(guard, "SOURCE", guard.SOURCE.replace('"libc10.so"', '"libother.so"'))

    def attempt() -> str:
        with pytest.raises(Unavailable) as raised, guarded("beyond"):
            pass
        return str(raised.value)

    reasons = in_child(lambda: [attempt(), attempt()])
    assert reasons == ["torch's libraries do not call the allocator as the guard expects, or memory is refused"] * 2
