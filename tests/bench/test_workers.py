"""Worker processes: real ones that time a run, the children that they fork, and interpreters that cannot time models."""

import os
import select
import signal
import sys
from pathlib import Path

import pytest

pytest.importorskip("scipy", reason="`tox -e bench` has it")

from conformance.bench.timer import FEWEST_ROUNDS, PLACEMENTS
from conformance.bench.worker import Server
from conformance.bench.workers import Died, Worker, hello
from conformance.cases.claims import backend
from conformance.cases.runs import benchmarks as timed_runs
from conformance.errors import UsageError


def test_a_real_worker_times_a_run_and_gives_reasons_for_others() -> None:
    runs = timed_runs(backend("fbgemm"), ["x86"], ["small"])
    id_of = {run.claim.pattern: run.id for run in runs if run.claim.dtype_config == "static-quint8"}
    linear, wrong = id_of["nn.Linear"], id_of["torch.matmul"]
    worker = Worker(sys.executable, "1")
    try:
        assert worker.ask(do="hello")["python"] == sys.version.split()[0]
        answer = worker.ask(do="judge", id=linear)
        assert answer["counts"]["kernels"] == ["quantized.linear"]
        assert worker.ask(do="open", id=linear) == {}
        answer = worker.ask(do="time", rounds=FEWEST_ROUNDS, floating=True)
        quantized, floating = (len(answer[name]) for name in ("quantized", "floating"))
        assert quantized == floating >= FEWEST_ROUNDS
        assert "floating" not in worker.ask(do="time", rounds=FEWEST_ROUNDS, floating=False)
        assert worker.ask(do="judge", id=wrong)["reason"].startswith("does not conform: ")
        missing = linear.replace("nn.Linear", "nn.Nonsense")
        assert "KeyError" in worker.ask(do="open", id=missing)["reason"]
        assert worker.ask(do="open", id=linear) == {}
        worker._kill()
        with pytest.raises(Died, match="killed by SIGKILL"):
            worker.ask(do="hello")
    finally:
        worker.end()


def test_a_machine_that_stays_slower_is_undisturbed_after_a_while() -> None:
    server = Server("1")
    assert server.pace is not None
    server.pace.fastest = fastest = 1e-9  # no computation is as fast
    server.prepare({"do": "limits"})
    assert server.pace.fastest == pytest.approx(fastest * 1.0005**PLACEMENTS)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/proc lists the children of a process")
def test_each_case_is_opened_in_a_child_of_its_own_whose_crash_ends_the_worker() -> None:
    runs = timed_runs(backend("fbgemm"), ["x86"], ["small"])
    linear = next(run.id for run in runs if run.claim.pattern == "nn.Linear")
    worker = Worker(sys.executable, "1")

    def child() -> int:
        process = worker._process.pid
        (found,) = Path(f"/proc/{process}/task/{process}/children").read_text().split()
        return int(found)

    try:
        worker.ask(do="open", id=linear)
        first = child()
        worker.ask(do="time", rounds=2, floating=True)
        assert child() == first
        worker.ask(do="open", id=linear)
        assert child() != first
        os.kill(child(), signal.SIGSEGV)
        with pytest.raises(Died, match="killed by SIGSEGV"):
            worker.ask(do="time", rounds=2, floating=True)
    finally:
        worker.end()


def test_a_worker_is_killed_with_its_child() -> None:
    worker = Worker(sys.executable, "1")
    worker.ask(do="limits")
    output = worker._process.stdout
    assert output is not None
    worker._kill()
    # a child that lived on would hold the pipe open
    assert select.select([output], [], [], 60)[0]
    assert output.read() == ""
    worker.end()


def test_an_interpreter_that_cannot_time_models_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"--against .*missing: No such file"):
        hello(str(tmp_path / "missing"))
    broken = tmp_path / "broken"
    broken.write_text("#!/bin/sh\nexit 3\n")
    broken.chmod(0o755)
    with pytest.raises(UsageError, match=r"broken: ended with status 3: it needs torch"):
        hello(str(broken))


THEIRS = """
from conformance.configs.fbgemm import get_fbgemm_backend_config
from conformance.engines.torch_engine import TorchEngine

CONFIG = get_fbgemm_backend_config().set_name("theirs")

class Engine(TorchEngine):
    name = "their-engine"
    quantized_engine = "x86"
"""


def test_a_worker_times_the_config_and_the_engine_of_a_third_party(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "their_backend.py").write_text(THEIRS)
    monkeypatch.chdir(tmp_path)
    runs = timed_runs(backend("fbgemm"), ["x86"], ["small"])
    linear = next(run.id for run in runs if run.claim.pattern == "nn.Linear")
    theirs = linear.replace("fbgemm/", "theirs/").replace("@x86", "@their-engine")
    worker = Worker(sys.executable, "1", ["--backend-config=their_backend:CONFIG", "--engine=their_backend:Engine"])
    try:
        assert worker.ask(do="open", id=theirs) == {}
        assert len(worker.ask(do="time", rounds=2, floating=True)["quantized"]) == 2
    finally:
        worker.end()
