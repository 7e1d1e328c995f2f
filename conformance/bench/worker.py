"""The process that times models: `python -m conformance.bench.worker` answers each request, a line of JSON, with a line.

Every pass starts a new process, so that passes vary in everything that varies between processes, such as addresses of memory.
It forks a child for each case. A process that has opened hundreds of cases is up to a tenth slower than a new one, and how
many it has opened would depend on how many cases still need passes.
To compare two builds of torch, a second interpreter runs another worker.
"""

import argparse
import gc
import json
import math
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import torch

from conformance.cases.claims import backend, third_parties
from conformance.cases.runs import Run, benchmarks
from conformance.checks.judge import Judge
from conformance.engines.registry import engine, engine_name
from conformance.errors import brief
from conformance.models import fx

from . import limits
from .timer import IMPATIENCE_SECONDS, PATIENCE_SECONDS, PLACEMENTS, Pace, Timed, lowered
from .timings import FORKS, is_network


class Server:
    """Answers requests. One case is open at a time."""

    def __init__(self, threads: str, backend_configs: Sequence[str] = (), engines: Sequence[str] = ()) -> None:
        self.threads, self.backend_configs = 1 if threads == "1" else os.cpu_count() or 1, backend_configs
        self.pace: Pace | None = None
        self.judge = Judge()
        self.runs: dict[tuple[str, str], dict[str, Run]] = {}
        self.timed: Timed | None = None
        self._prepared: set[object] = set()
        torch.set_num_threads(1)  # a child would miss the threads of a pool
        for path in engines:
            engine_name(path)
        if self.threads == 1:
            self.begin()

    def begin(self) -> None:
        """Have torch compute with all threads, in a child, and measure the pace, unless that is done."""
        if self.pace is None:
            use_threads(self.threads)
            self.pace = Pace.of_torch()

    def moved(self) -> None:
        """Measure the pace again in a child."""
        if self.pace is not None:
            self.pace.moved()

    def prepare(self, request: Mapping[str, Any]) -> None:
        """Do what children inherit, before one is forked for a request: import, look up runs, and lower a first run.

        The pace is measured anew: if the machine has become slower, no child could tell its process so.
        """
        if self.pace is not None:
            for _ in range(PLACEMENTS):
                self.pace.forget()
                self.pace.now()
        if request["do"] != "open":
            return
        run = None if is_network(request["id"]) else self.find(request["id"])
        kind = (run.engine, run.flow) if run else request["id"].partition("/batch_")[0]
        if kind in self._prepared:
            return
        self._prepared.add(kind)
        if run is None:
            from . import networks

            networks.imported(request["id"])
        else:
            engine(run.engine).warm_up()
            with torch.no_grad(), engine(run.engine).scope(), fx.quiet():
                lowered(run)
        gc.collect()
        gc.freeze()  # a collection in a child would write to all pages

    def find(self, run_id: str) -> Run:
        """Return the benchmark run with this id. Raises KeyError if there is none."""
        key = backend_name, engine_name = run_id.partition("/")[0], run_id.rpartition("@")[2]
        if key not in self.runs:
            theirs = {claims.name: claims for claims in third_parties(self.backend_configs)}
            claims = theirs[backend_name] if theirs else backend(backend_name)
            self.runs[key] = {run.id: run for run in benchmarks(claims, [engine_name])}
        return self.runs[key][run_id]

    def answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Answer one request: `hello` with versions, `limits` with what the machine can do, `judge` with the counts of a run,
        `open` with nothing, `time` with rounds of the open run at a new place in memory.

        `open` may have the fastest time of the pace's probe that another worker of this interpreter has found. A pass is
        `repeatable` if the schedule can do without it where the machine is disturbed.
        """
        if request["do"] == "hello":
            return {"torch": torch.__version__, "python": sys.version.split()[0]}
        if request["do"] == "time":
            return self._time(request)
        self.begin()
        assert self.pace is not None
        if request["do"] == "limits":
            return {name: value for name, value in asdict(limits.measured("")).items() if name != "threads"}
        self.timed, judged = None, request["do"] == "judge"
        self.pace.fastest_probe = min(self.pace.fastest_probe, request.get("probe", math.inf))
        if not is_network(request["id"]):
            return self._open(self.find(request["id"]), judged=judged)
        from . import networks  # loads the audit, which takes longer than a pass over a layer

        config = next(iter(self.backend_configs), None)
        self.timed, answer = networks.opened(request["id"], self.threads, judged=judged, backend_config=config)
        return answer

    def _time(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Rounds of the open run, and what the pace was meanwhile."""
        assert self.timed is not None
        assert self.pace is not None
        patience = IMPATIENCE_SECONDS if request.get("repeatable") else PATIENCE_SECONDS
        how = {"floating": request["floating"], "patience": patience}
        with torch.no_grad(), self.timed.engine.scope(), fx.quiet():
            rounds, disturbed = self.timed.rounds(self.pace, request["rounds"], **how)
        # the float model has no rounds if it was not asked for
        models = dict(zip(("quantized", "floating"), rounds, strict=False))
        pace = {"pace": self.pace.latest, "quiet": self.pace.quiet, "probe": self.pace.fastest_probe}
        return {**models, "disturbed": disturbed, **pace}

    def _open(self, run: Run, *, judged: bool) -> dict[str, Any]:
        """Build a run. With `judged` it must conform, and the answer has its counts. If it is not timed, the answer has
        a reason."""
        run_engine = engine(run.engine)
        run_engine.warm_up()
        if reason := run_engine.unavailable():
            return {"reason": f"engine {run.engine} is unavailable: {reason}"}
        with torch.no_grad(), run_engine.scope(), fx.quiet():
            if judged:
                torch.set_num_threads(1)
                evidence, row = self.judge.judged(run)
                unusable = evidence.expectation.unusable
                if unusable or row.failed:
                    return {"reason": unusable or f"does not conform: {row.detail}"}
            torch.set_num_threads(self.threads)
            torch.set_flush_denormal(True)  # repeated multiplication in place ends in denormals, which are slow
            self.timed = Timed.of(run)
            return {"counts": asdict(self.timed.counts())} if judged else {}


def use_threads(count: int) -> None:
    """Have torch compute with `count` threads.

    QNNPACK's thread pool keeps the number of its first use, so QNNPACK is used once (pytorch/pytorch#45418 is related).
    """
    torch.set_num_threads(count)
    if "qnnpack" in torch.backends.quantized.supported_engines:
        with engine("qnnpack").scope():
            torch.relu(torch.quantize_per_tensor(torch.ones(64), 0.1, 0, torch.quint8))


def main() -> None:
    """Answer requests from stdin on stdout until stdin is closed. From `open` or `limits` until `close` a child answers.

    A process that judges forks no children: it may have computed with several threads."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # libraries print to stdout
    parser = argparse.ArgumentParser()
    parser.add_argument("threads")
    parser.add_argument("--backend-config", action="append", default=[])
    parser.add_argument("--engine", action="append", default=[])
    options = parser.parse_args()
    server, in_child = Server(options.threads, options.backend_config, options.engine), False

    def send(answer: Mapping[str, Any]) -> None:
        answers.write(json.dumps(answer) + "\n")
        answers.flush()

    for line in sys.stdin:
        request = json.loads(line)
        if request["do"] == "close" and in_child:
            os._exit(0)  # without the destructors of libraries
        try:
            if request["do"] == "close":  # no child was forked, because the preparation failed
                send({"closed": True})
                continue
            if not in_child and request["do"] in FORKS:
                server.prepare(request)
                if child := os.fork():
                    send({"closed": ended(child)})
                    continue
                in_child = True
                server.moved()
            send(server.answer(request))
        except Exception as error:  # any exception of torch is the reason why a run is not timed
            send({"reason": brief(error)})


def ended(child: int) -> bool:
    """Wait for a child and return True. If it crashed, end this process in the same way."""
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        signal.signal(os.WTERMSIG(status), signal.SIG_DFL)
        os.kill(os.getpid(), os.WTERMSIG(status))
    elif status:
        os._exit(os.waitstatus_to_exitcode(status))
    return True


if __name__ == "__main__":
    main()
