"""Processes that have torch already: forks of a server that imports it once, in place of interpreters that import it again.

The server imports third-party packages only, before anything else happens in it. A fork imports the project as a new
interpreter does; it must not depend on environment variables that torch reads when it is loaded.
"""

import multiprocessing
import os
import runpy
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from multiprocessing.context import ForkServerContext
from pathlib import Path

PRELOADED = [
    "hypothesis.strategies",
    "jinja2",
    "pytest",
    "safetensors.torch",
    "torch.ao.quantization.quantize_fx",
    "torch._inductor",  # the first trace of a model imports it
    "tqdm",
]


@dataclass(frozen=True)
class Ending:
    """The exit status of a process (negative: a signal), and what it printed to stdout and stderr."""

    status: int
    output: str
    errors: str


@cache
def server() -> ForkServerContext:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    return context


def _become(
    module: str, arguments: Sequence[str], folder: Path, environment: Mapping[str, str], output: str, errors: str
) -> None:
    """Be `python -m module` in a folder, with this environment and these files for stdout and stderr."""
    for path, descriptor in ((output, 1), (errors, 2)):
        with open(path, "w") as file:
            os.dup2(file.fileno(), descriptor)
    os.environ.clear()
    os.environ.update(environment)
    sys.dont_write_bytecode = bool(environment.get("PYTHONDONTWRITEBYTECODE"))  # read when an interpreter starts
    os.chdir(folder)
    installed = [entry for entry in sys.path if entry.startswith((sys.prefix, sys.base_prefix))]
    sys.path[:] = [str(folder), *filter(None, environment.get("PYTHONPATH", "").split(os.pathsep)), *installed]
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def run_module(
    module: str, arguments: Sequence[str], folder: Path, environment: Mapping[str, str] | None = None
) -> Ending:
    """Run `python -m module` with these arguments in a fork and wait for its end."""
    with tempfile.TemporaryDirectory() as kept:
        output, errors = Path(kept, "output"), Path(kept, "errors")
        variables = dict(os.environ if environment is None else environment)
        process = server().Process(
            target=_become, args=(module, [*arguments], folder, variables, str(output), str(errors))
        )
        process.start()
        process.join()
        assert process.exitcode is not None
        return Ending(process.exitcode, output.read_text(errors="replace"), errors.read_text(errors="replace"))
