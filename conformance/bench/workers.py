"""Worker processes: an interpreter that runs `conformance.bench.worker`, and its answers."""

import json
import os
import signal
import subprocess
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from conformance.errors import UsageError

from .timings import CACHE, FORKS, KEY, key

ROOT = Path(__file__).parents[2]
PATIENCE_SECONDS = 300.0
"""Seconds to wait for the answer of a worker before it is killed."""
ALLOCATOR = {"MALLOC_TRIM_THRESHOLD_": str(1 << 30), "MALLOC_MMAP_THRESHOLD_": str(32 << 20)}
"""Has glibc keep freed memory. Otherwise some calls fault in their pages anew, depending on addresses, which takes as long
as many kernels."""
HUGE_PAGES = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
"""Has glibc ask for huge pages. The physical addresses of small ones are random, and with them what shares a place in the
outer caches."""


class Died(Exception):
    """A worker ended or did not answer. The message says how it ended."""


class Worker:
    """A process that times models: `conformance.bench.worker`, run by any interpreter that has torch. `declared` are the
    options that name the configs and engines of third parties."""

    def __init__(self, python: str, threads: str, declared: Sequence[str] = (), cache: str = "") -> None:
        paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(paths),
            "KINETO_LOG_LEVEL": "99",
            **({CACHE: cache, KEY: key()} if cache else {}),
            **ALLOCATOR,
            **HUGE_PAGES,
        }
        environment.pop("OMP_WAIT_POLICY", None)  # as in a deployment
        self._process = subprocess.Popen(
            [python, "-W", "ignore", "-m", "conformance.bench.worker", threads, *declared],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
            start_new_session=True,  # a group of processes, with the children that it forks
        )
        self.python, self._forked = python, False

    def ask(self, **request: Any) -> dict[str, Any]:
        """Send a request and return the answer; `open` and `limits` close what was open before.

        Raises Died if the process ends or takes more than PATIENCE_SECONDS.
        """
        if self._forked and request["do"] in FORKS:
            self._forked = False
            self.ask(do="close")
        self._forked = self._forked or request["do"] in FORKS
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        timer = threading.Timer(PATIENCE_SECONDS, self._kill)
        timer.start()
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        finally:
            timer.cancel()
        if not line:
            status = self._process.wait()
            raise Died(f"killed by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def end(self) -> None:
        self._kill()
        self._process.communicate()

    def _kill(self) -> None:
        """Kill the process and the child that it has forked."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)


def hello(python: str) -> dict[str, Any]:
    """Return the versions of torch and Python of an interpreter. Raises UsageError if it cannot time models."""
    try:
        worker = Worker(python, "1")
    except OSError as error:
        raise UsageError(f"--against {python}: {error.strerror}") from error
    try:
        return worker.ask(do="hello")
    except Died as death:
        raise UsageError(
            f"--against {python}: {death}: it needs torch and what this suite's runs need (pyproject.toml, group run)"
        ) from death
    finally:
        worker.end()
