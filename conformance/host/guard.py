"""Guarded memory: a kernel that reads or writes outside of the memory of a tensor is recorded, and goes on.

`guard.c` gives each allocation of torch pages of its own, once so that it ends at an inaccessible page, and once so that it
begins behind one. It is compiled when it is first needed, and from then on replaces the allocator that torch calls in this
process, for good: fork a child to keep another process as it is.

An allocation is what torch asks for. To operands of QNNPACK torch adds 64 bytes before and 16 beyond, which the kernels may
read (`DefaultMobileCPUAllocator` in c10/mobile).

Other tools do not fit: Electric Fence and DUMA guard every allocation of the process, for which Python's alone need more maps
than Linux has, and end it at the first access; GWP-ASan, and scudo with it, draw samples and align to 16 bytes, which hides
the tails of vectors; valgrind knows no AVX-512 and is 50 times slower.
"""

import ctypes
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

SOURCE = Path(__file__).with_suffix(".c").read_text(encoding="utf-8")

PLACEMENTS = {"beyond": 1, "before": 2}
"""Where allocations have an inaccessible page that they touch, by the side of it."""

SIDES = ("before", "beyond", "freed")
"""Where an access is, by its number in `guard.c`."""


class Unavailable(Exception):
    """Raised where memory cannot be guarded; the message says why."""


@dataclass(frozen=True, order=True)
class Access:
    """An access outside of an allocation of so many bytes: `reads` or `writes`, `before` or `beyond` it, or after it is
    `freed`."""

    access: str
    side: str
    bytes: int


class Record(ctypes.Structure):
    """A record of `guard.c`."""

    _fields_ = (
        ("bytes", ctypes.c_uint64),
        ("place", ctypes.c_uint32),
        ("write", ctypes.c_uint32),
    )


class Scope:
    """What is recorded in a scope. After it, `missed` is the number of allocations and accesses that no room was left for."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library, self._taken, self.missed = library, 0, 0

    def taken(self) -> set[Access]:
        """The accesses that were recorded since the last call."""
        first, self._taken = self._taken, self._library.guard_recorded()
        records = self._library.guard_records()[first : self._taken]
        return {Access("writes" if one.write else "reads", SIDES[one.place], int(one.bytes)) for one in records}


def compiler() -> list[str]:
    """The command of the C compiler: CC, or the first of the usual names. Raises Unavailable if there is none."""
    names = [shlex.split(os.environ["CC"])] if os.environ.get("CC") else [["cc"], ["gcc"], ["clang"]]
    for command in names:
        if shutil.which(command[0]) is not None:
            return command
    missing = " or ".join(command[0] for command in names)
    raise Unavailable(f"no C compiler ({missing}): install one, or name it in CC")


def compile_to(path: Path) -> None:
    """Compile the library. Raises Unavailable if the compiler fails."""
    command = [*compiler(), "-O2", "-shared", "-fPIC", "-x", "c", "-", "-o", str(path), "-ldl"]
    process = subprocess.run(command, input=SOURCE, capture_output=True, text=True, errors="replace")
    if process.returncode:
        said = next((line for line in process.stderr.splitlines() if "error" in line), f"status {process.returncode}")
        raise Unavailable(f"the C compiler {command[0]} fails: {said}")


def cache_folders() -> Iterator[Path]:
    """Yield folders for the compiled library, the best first."""
    if cached := os.environ.get("XDG_CACHE_HOME"):
        yield Path(cached, "quantized-backend-conformance")
    elif home := os.environ.get("HOME"):
        yield Path(home, ".cache", "quantized-backend-conformance")
    yield Path(tempfile.gettempdir(), f"quantized-backend-conformance-{os.getuid()}")


def compiled() -> Path:
    """The library, compiled unless it is cached. Raises Unavailable if it cannot be."""
    if sys.platform != "linux":
        raise Unavailable(f"memory is guarded on Linux only, and this is {sys.platform}")
    name = f"guard-{hashlib.sha256((SOURCE + platform.machine()).encode()).hexdigest()[:16]}.so"
    problem = "it belongs to another user"
    for folder in cache_folders():
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if folder.stat().st_uid != os.getuid():  # who may have put another library there
                continue
            if not (path := folder / name).exists():
                with tempfile.TemporaryDirectory(dir=folder) as aside:
                    compile_to(Path(aside, name))
                    Path(aside, name).replace(path)  # at once, so that nobody loads half a library
            return path
        except OSError as error:
            problem = str(error.strerror)
    raise Unavailable(f"no folder for the compiled guard: {problem}: name one that can be written in XDG_CACHE_HOME")


@cache
def unavailable() -> str | None:
    """Why memory cannot be guarded on this host, or None. Compiles the guard."""
    try:
        compiled()
    except Unavailable as error:
        return str(error)
    return None


@cache
def installed() -> ctypes.CDLL:
    """The library, which has replaced the allocator of this process. Raises Unavailable if it cannot."""
    path = compiled()
    try:
        library = ctypes.CDLL(str(path))
    except OSError as error:
        raise Unavailable(f"the compiled guard cannot be loaded: {error}") from error
    library.guard_records.restype = ctypes.POINTER(Record)
    if library.guard_install() != 0:
        raise Unavailable("torch's libraries do not call the allocator as the guard expects, or memory is refused")
    return library


@contextmanager
def guarded(side: str) -> Iterator[Scope]:
    """Guard this side of what torch allocates in this scope. Raises Unavailable if that is not possible."""
    library = installed()
    scope = Scope(library)
    library.guard_begin(PLACEMENTS[side])
    try:
        yield scope
    finally:
        library.guard_end()
        scope.missed = library.guard_missed()


_EVERY_RUN = [False]


def switch_on() -> None:
    """Guard every run in this process and in those that it forks."""
    _EVERY_RUN[0] = True


@contextmanager
def every_run() -> Iterator[None]:
    """Guard every run in this scope."""
    before = _EVERY_RUN[0]
    switch_on()
    try:
        yield
    finally:
        _EVERY_RUN[0] = before


def switched_on() -> bool:
    """Whether every run is guarded."""
    return _EVERY_RUN[0]
