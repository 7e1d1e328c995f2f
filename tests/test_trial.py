"""The delay that trial_of_benchmarks.py adds to a kernel."""

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("scipy", reason="`tox -e bench` has it")

from trial_of_benchmarks import DELAY, disguised

ROOT = Path(__file__).parents[1]


def test_the_delay_replaces_the_calls_of_timed_models() -> None:
    code = DELAY.format(name="linear", share=0.05) + "\nprint(timer.Timed.calls is delayed)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("True\n", "")


def test_a_disguised_interpreter_has_the_variables(tmp_path: Path) -> None:
    python = disguised(tmp_path, {"ONEDNN_MAX_CPU_ISA": "AVX2"})
    code = "import os; print(os.environ['ONEDNN_MAX_CPU_ISA'])"
    assert subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout == "AVX2\n"
