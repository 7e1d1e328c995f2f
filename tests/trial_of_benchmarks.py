"""Try whether benchmarks cry wolf, and whether they notice: what the README says of both is what this prints.

    python tests/trial_of_benchmarks.py same [--times N]     compare identical code with itself
    python tests/trial_of_benchmarks.py avx2                 oneDNN limited to AVX2 against oneDNN as it is
    python tests/trial_of_benchmarks.py delay                one kernel's call takes a tenth longer

Each times a selection of cases with two interpreters in turns (`--against`), of which one is this one in disguise. `same`
exits with 1 if more verdicts are wrong than the stated rate allows, the others if less than nine tenths of what is affected
is found, or anything is that is not.
"""

import argparse
import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from conformance.bench.results import TimingsFile, read
from conformance.reports.regression import Regression, compare, counted

ROOT = Path(__file__).parent.parent
SHARE_FOUND = 0.9
DELAYED = "linear"
DELAY = """
import time
import timeit

import conformance.latency as latency

calls = latency.Timed.calls

def delayed(self):
    lowered, floating = calls(self)
    kernels = self.engine.execute(self.program, self.inputs).kernels
    if not any("{name}" in kernel.name for kernel in kernels):
        return lowered, floating
    tenth = min(timeit.repeat(lowered, number=10, repeat=9)) / 100

    def slower():
        result = lowered()
        end = time.perf_counter() + tenth
        while time.perf_counter() < end:
            pass
        return result

    return slower, floating

latency.Timed.calls = delayed
"""
"""What makes the wrapper of one kernel's call a tenth slower: it waits for a tenth of the time that the call takes."""


def disguised(folder: Path, variables: dict[str, str], code: str = "") -> Path:
    """An interpreter that is this one with other variables in its environment, and code that runs when it times models."""
    main = folder / "measuring.py"
    main.write_text(f"{code}\nimport sys\nfrom conformance.bench.worker import main\nmain()\n")
    python = folder / "python"
    exports = "".join(f"export {name}={value}\n" for name, value in variables.items())
    # -m conformance.bench.worker becomes this file; what else is asked goes on as it is
    python.write_text(
        f'#!/bin/sh\n{exports}[ "$4" = conformance.bench.worker ] || exec "{sys.executable}" "$@"\n'
        f'shift 4\nexec "{sys.executable}" -W ignore "{main}" "$@"\n'
    )
    python.chmod(python.stat().st_mode | stat.S_IXUSR)
    return python


def timed(base: Path, selection: Sequence[str], folder: Path, passes: int) -> TimingsFile:
    """Time a selection with this interpreter and, as the base, with another one."""
    out = folder / "timings.jsonl"
    out.unlink(missing_ok=True)
    command = [sys.executable, "-m", "pytest", "conformance/test_benchmarks.py", "-q", "-p", "no:cacheprovider"]
    options = ["--bench", "quick", "--passes", str(passes), "--benchmark-quiet"]
    paths = ["--timings", str(out), "--against", str(base)]
    subprocess.run([*command, *options, *paths, *selection], cwd=ROOT, check=True, stdout=sys.stderr)
    return read(out)


def running(file: TimingsFile, name: str) -> set[str]:
    """The cases that run a kernel with this in its name."""
    return {case for case, taken in file.cases.items() if any(name in one for one in taken[0].counts.kernels)}


def told(regression: Regression) -> str:
    return ", ".join(f"{count} {verdict}" for verdict, count in counted(regression).items())


def same(times: int, folder: Path, selection: Sequence[str], passes: int) -> bool:
    """Whether no more comparisons of identical code have a verdict than the rate allows."""
    wrong = 0
    for number in range(times):
        made = compare(timed(disguised(folder, {}), selection, folder, passes))
        wrong += any(one.verdict in ("slower", "faster") for one in made.cases)
        print(f"{number + 1}/{times}: {told(made)}", flush=True)
    print(f"{wrong} of {times} comparisons of identical code have a verdict; the rate is {made.rate:.0%}")
    return wrong <= max(1, round(times * made.rate))


def found(made: Regression, affected: set[str], way: str) -> bool:
    """Whether most of what is affected is found, and nothing else."""
    verdicts = {one.case: one.verdict for one in made.cases}
    seen = {case for case in affected if verdicts[case] == way}
    wrong = {case for case, verdict in verdicts.items() if case not in affected and verdict in ("slower", "faster")}
    print(told(made))
    print(f"{len(seen)} of {len(affected)} affected cases are {way}; {len(wrong)} others have a verdict")
    return len(seen) >= SHARE_FOUND * len(affected) and len(wrong) <= made.rate * max(1, len(seen) + len(wrong))


def avx2(folder: Path, selection: Sequence[str], passes: int) -> bool:
    """Whether it is found that oneDNN as it is is faster than limited to AVX2, where its kernels multiply 8-bit integers."""
    file = timed(disguised(folder, {"ONEDNN_MAX_CPU_ISA": "AVX2"}), selection, folder, passes)
    return found(compare(file), running(file, "linear") | running(file, "conv"), "faster")


def delay(folder: Path, selection: Sequence[str], passes: int) -> bool:
    """Whether it is found that this interpreter is faster than one in which one kernel's call takes a tenth longer."""
    code = DELAY.format(name=DELAYED)
    file = timed(disguised(folder, {}, code), selection, folder, passes)
    return found(compare(file), running(file, DELAYED), "faster")


SELECTIONS = {
    "same": ["--backend", "onednn"],
    "avx2": ["--backend", "onednn", "--case", "*/nn.Linear*", "--case", "*/nn.Conv?d*"],
    "delay": ["--backend", "fbgemm", "--engine", "x86", "--case", "*Linear*", "--case", "*elu*", "--case", "*ELU*"],
}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("trial", choices=SELECTIONS)
    parser.add_argument("--times", type=int, default=10, help="how often identical code is compared (default 10)")
    parser.add_argument("--passes", type=int, default=5, metavar="N", help="passes of each comparison (default 5)")
    parser.add_argument("selection", nargs="*", help="pytest's options for the cases, after --")
    arguments = parser.parse_args()
    selection = arguments.selection or SELECTIONS[arguments.trial]
    os.environ["PYTHONPATH"] = str(ROOT)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        if arguments.trial == "same":
            return int(not same(arguments.times, folder, selection, arguments.passes))
        trial = avx2 if arguments.trial == "avx2" else delay
        return int(not trial(folder, selection, arguments.passes))


if __name__ == "__main__":
    sys.exit(main())
