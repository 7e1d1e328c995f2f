"""Runs scripts in one child interpreter: each in a fork of its own, after source text that makes torch lie to it."""

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass

DRIVER = r"""
import contextlib, copy, io, json, os, sys, warnings
import torch
import torch.ao.quantization.quantize_fx as fx
from torch import nn

torch.set_num_threads(1)  # a fork does not inherit the threads of a pool


def boom(*args, **kwargs):
    raise ValueError("a lie")


def on_result(stage, change):
    honest = getattr(fx, stage)
    setattr(fx, stage, lambda *args, **kwargs: change(honest(*args, **kwargs)))


class Lying(nn.Module):
    def __init__(self, model, change):
        super().__init__()
        self.model, self.change, self.calls = model, change, 0

    def forward(self, *inputs):
        self.calls += 1
        return self.change(self, inputs, self.model(*inputs))


def on_output(change, stage="convert_fx"):
    on_result(stage, lambda model: Lying(model, lambda lying, inputs, y: change(y)))


def on_call(change):
    on_result("convert_fx", lambda model: Lying(model, change))


def codes(y, scale, zero_point, dtype=torch.quint8):
    return torch.quantize_per_tensor(y, scale, zero_point, dtype).dequantize()


def raises_at(number):
    def change(lying, inputs, y):
        return boom() if lying.calls >= number else y
    on_call(change)


def set_on(stage, change):
    def changed(model):
        change(model)
        return model
    on_result(stage, changed)


def observe_output_again(model):
    output = next(node for node in model.graph.nodes if node.op == "output")
    model.add_submodule("extra", copy.deepcopy(model.activation_post_process_0))
    with model.graph.inserting_before(output):
        again = model.graph.call_module("extra", (output.args[0],))
    output.args = (again,)
    model.recompile()


def renamed(model, name):
    for module in model.modules():
        if type(module).__name__ == name:
            module.__class__ = type("Other", (type(module),), {})


def quantizes_to(model, dtype):
    for node in model.graph.nodes:
        node.args = tuple(dtype if isinstance(one, torch.dtype) else one for one in node.args)
    model.recompile()


def nothing_quantized(model, **kwargs):
    return torch.fx.symbolic_trace(nn.Identity())


def overwritten(lying, inputs, y):
    if lying.calls == 1:
        lying.buffer = y + 0
    return lying.buffer.copy_(y)


def writes(x):
    x.add_(1)
    return x.clone()


def run(prelude, text):
    reading, writing = os.pipe()
    process = os.fork()
    if process == 0:
        os.dup2(writing, 1)
        os.dup2(writing, 2)
        status = 70
        try:
            scope = dict(globals())
            exec(prelude, scope)
            exec(compile(text, "script.py", "exec"), {"__name__": "__main__"})
        except SystemExit as end:
            status = int(end.code or 0)
        except BaseException:
            import traceback
            traceback.print_exc()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    os.close(writing)
    with os.fdopen(reading, errors="replace") as file:
        output = file.read()
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), output


pairs = json.load(sys.stdin)
longest = max((text for _, text in pairs), key=len)
with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
    exec(compile(longest, "script.py", "exec"), {"__name__": "__main__"})  # forks inherit modules that torch loads late
torch.set_grad_enabled(True)
print(json.dumps([run(*pair) for pair in pairs]))
"""


@dataclass(frozen=True)
class Ending:
    """The exit status of a script (negative: a signal) and what it printed."""

    status: int
    output: str


def endings(scripts: Sequence[tuple[str, str]]) -> list[Ending]:
    """Run scripts, each after the source text that lies to it (empty: none), without this project on the path."""
    done = subprocess.run(
        [sys.executable, "-I", "-c", DRIVER], input=json.dumps(scripts), capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr
    return [Ending(*ending) for ending in json.loads(done.stdout.splitlines()[-1])]
