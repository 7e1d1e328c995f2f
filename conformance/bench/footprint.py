"""Memory of a saved program: `python -m conformance.bench.footprint PATH` loads and executes it in a new process.

The process imports what the program consists of before it measures, so that memory is that of the program: its weights, its
buffers, and the code of the kernels that it executes.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from conformance.errors import UsageError
from conformance.networks.operators import define_torchvision_operators
from conformance.results.jsonl import opened

from .saved import loaded

EXECUTIONS = 3
"""Executions of a program. Some kernels prepare their weights in the first one, TorchScript optimizes in the second one."""

IMPORTED = ("torch.fx", "torch.ao.quantization", "torch.ao.nn.intrinsic.quantized")
"""Modules that saved programs are made of."""

SECONDS = 120.0
"""Seconds after which the process is killed."""

_ROOT = Path(__file__).parents[2]
_STATUS, _RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def peak(program: Path, inputs: Path, engine: str | None, modules: Iterable[str] = ()) -> int | None:
    """Return the bytes that a new process with one thread needs at most to load and execute a program, beyond what it had.

    `inputs` is a file with a tuple of tensors, `engine` the quantized engine; `modules` are imported before. None on
    systems without /proc, and if the process fails.
    """
    if not _RESET.exists():
        return None
    command = [sys.executable, "-W", "ignore", "-m", "conformance.bench.footprint", str(program), f"--inputs={inputs}"]
    command += [f"--engine={engine}"] if engine else []
    command += [f"--module={module}" for module in modules]
    # the allocator as in a deployment, not as in the processes that time
    environment = {name: of for name, of in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_"))}
    how: dict[str, Any] = {"cwd": _ROOT, "env": environment, "stdin": subprocess.DEVNULL, "timeout": SECONDS}
    try:
        done = subprocess.run(command, capture_output=True, text=True, **how)
    except subprocess.TimeoutExpired:
        return None
    return int(json.loads(done.stdout)["peak"]) if done.returncode == 0 else None


def _status(name: str) -> int:
    """A field of this process's status in bytes."""
    line = next(line for line in _STATUS.read_text().splitlines() if line.startswith(f"{name}:"))
    return int(line.split()[1]) * 1024


def _measured(program: Path, inputs: tuple[torch.Tensor, ...]) -> int:
    _RESET.write_text("5")  # the peak is that since now
    before = _status("VmRSS")
    with torch.no_grad():
        model = loaded(program)
        for _ in range(EXECUTIONS):
            model(*inputs)
    return max(0, _status("VmHWM") - before)


def main() -> None:
    """Measure the program that the command line names, and print a line of JSON with its peak memory and size in bytes."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    text = "TorchScript archive, or module saved by this invocation"
    parser.add_argument("program", type=Path, metavar="PATH", help=text)
    parser.add_argument("--inputs", type=Path, required=True, help="file with a tuple of tensors")
    parser.add_argument("--engine", help="torch.backends.quantized.engine")
    parser.add_argument("--module", action="append", default=[], help="module that is imported before")
    options = parser.parse_args()
    torch.set_num_threads(1)
    define_torchvision_operators()
    for name in (*IMPORTED, *options.module):
        import_module(name)
    if options.engine:
        torch.backends.quantized.engine = options.engine
    with opened(options.inputs):
        inputs = torch.load(options.inputs, weights_only=True)
    with opened(options.program):
        print(json.dumps({"peak": _measured(options.program, inputs), "saved": options.program.stat().st_size}))


if __name__ == "__main__":
    try:
        main()
    except UsageError as error:
        sys.exit(f"footprint: error: {error}")
