"""The process that times models: `python -m conformance.bench.worker` answers each request, a line of JSON, with another.

It is started anew for every pass, so that passes differ in what differs from process to process, such as where memory lies;
and by another interpreter, where two builds of torch are compared.
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
        name, used = run_id.partition("/")[0], run_id.rpartition("@")[2]
        if (name, used) not in self.runs:
            claims = third_party(self.backend_config) if self.backend_config else backend(name)
            self.runs[name, used] = {run.id: run for run in benchmarks(claims, [used])}
        return self.runs[name, used][run_id]

    def answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        if request["do"] == "hello":
            return {"torch": torch.__version__, "python": sys.version.split()[0]}
        if request["do"] == "open":
            self.timed = None
            # what outlives a case is modules and caches, which to look through takes longer than the rounds
            gc.collect()
            gc.freeze()
            return self._open(self.find(request["id"]), judged=request["judged"])
        assert self.timed is not None
        with torch.no_grad(), self.timed.engine.scope(), fx.quiet():
            (quantized, floating), disturbed = self.timed.rounds(self.pace, request["rounds"])
        return {"quantized": quantized, "floating": floating, "disturbed": disturbed}

    def _open(self, run: Run, *, judged: bool) -> dict[str, Any]:
        """Build a case, if it conforms or that is known. The answer has its counts, or a reason why it is not timed."""
        used = engine(run.engine)
        used.warm_up()
        if reason := used.unavailable():
            return {"reason": f"engine {run.engine} is unavailable: {reason}"}
        with torch.no_grad(), used.scope(), fx.quiet():
            if judged:
                torch.set_num_threads(1)
                evidence, row = self.judge.judged(run)
                unusable = evidence.expectation.unusable
                if unusable or row.failed:
                    return {"reason": unusable or f"does not conform: {row.detail}"}
            torch.set_num_threads(self.threads)
            torch.set_flush_denormal(True)  # what is multiplied in place again and again ends in them
            self.timed = Timed.of(run)
            return {"counts": asdict(self.timed.counts())}


def use_threads(count: int) -> None:
    """Let torch compute with `count` threads from now on. QNNPACK's pool keeps the number that it
    first worked with, whatever is set later (pytorch/pytorch#45418 is related)."""
    torch.set_num_threads(count)
    if "qnnpack" in torch.backends.quantized.supported_engines:
        with engine("qnnpack").scope():
            torch.relu(torch.quantize_per_tensor(torch.ones(64), 0.1, 0, torch.quint8))


def main() -> None:
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what libraries print is no answer
    server = Server(*sys.argv[1:])
    for line in sys.stdin:
        try:
            answer = server.answer(json.loads(line))
        except Exception as error:  # whatever torch raises is why a case is not timed
            answer = {"reason": brief(error)}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
