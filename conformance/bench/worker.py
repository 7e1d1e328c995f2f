"""The process that times models: `python -m conformance.bench.worker` answers each request, a line of JSON, with a line.

Every pass starts a new process, so that passes vary in everything that varies between processes, such as addresses of memory.
To compare two builds of torch, a second interpreter runs another worker.
"""

import gc
import json
import os
import sys
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import torch

from conformance.cases.claims import backend, third_party
from conformance.cases.runs import Run, benchmarks
from conformance.checks.judge import Judge
from conformance.engines.registry import engine
from conformance.errors import brief
from conformance.models import fx

from .timer import Pace, Timed


class Server:
    """Answers requests. One case is open at a time."""

    def __init__(self, threads: str, backend_config: str | None = None) -> None:
        self.threads, self.backend_config = 1 if threads == "1" else os.cpu_count() or 1, backend_config
        use_threads(self.threads)
        self.pace = Pace.of_torch()
        self.judge = Judge()
        self.runs: dict[tuple[str, str], dict[str, Run]] = {}
        self.timed: Timed | None = None

    def find(self, run_id: str) -> Run:
        """Return the benchmark run with this id. Raises KeyError if there is none."""
        key = backend_name, engine_name = run_id.partition("/")[0], run_id.rpartition("@")[2]
        if key not in self.runs:
            claims = third_party(self.backend_config) if self.backend_config else backend(backend_name)
            self.runs[key] = {run.id: run for run in benchmarks(claims, [engine_name])}
        return self.runs[key][run_id]

    def answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Answer one request: `hello` with versions, `open` with the counts of a run, `time` with rounds of the open run."""
        if request["do"] == "hello":
            return {"torch": torch.__version__, "python": sys.version.split()[0]}
        if request["do"] == "open":
            self.timed = None
            # modules and caches outlive a case; a later collection would take longer than the rounds
            gc.collect()
            gc.freeze()
            return self._open(self.find(request["id"]), judged=request["judged"])
        assert self.timed is not None
        with torch.no_grad(), self.timed.engine.scope(), fx.quiet():
            (quantized, floating), disturbed = self.timed.rounds(self.pace, request["rounds"])
        return {"quantized": quantized, "floating": floating, "disturbed": disturbed}

    def _open(self, run: Run, *, judged: bool) -> dict[str, Any]:
        """Build a run. With `judged` it must conform. The answer has its counts, or a reason why it is not timed."""
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
            return {"counts": asdict(self.timed.counts())}


def use_threads(count: int) -> None:
    """Have torch compute with `count` threads.

    QNNPACK's thread pool keeps the number of its first use, so QNNPACK is used once (pytorch/pytorch#45418 is related).
    """
    torch.set_num_threads(count)
    if "qnnpack" in torch.backends.quantized.supported_engines:
        with engine("qnnpack").scope():
            torch.relu(torch.quantize_per_tensor(torch.ones(64), 0.1, 0, torch.quint8))


def main() -> None:
    """Answer requests from stdin on stdout until stdin is closed."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # libraries print to stdout
    server = Server(*sys.argv[1:])
    for line in sys.stdin:
        try:
            answer = server.answer(json.loads(line))
        except Exception as error:  # any exception of torch is the reason why a run is not timed
            answer = {"reason": brief(error)}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
