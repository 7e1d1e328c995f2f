"""Measure how often benchmarks report a change of identical code, and whether they report real ones.

    python tests/trial_of_benchmarks.py same [--times N]       identical code against itself
    python tests/trial_of_benchmarks.py avx2                   oneDNN limited to AVX2 against oneDNN as it is
    python tests/trial_of_benchmarks.py delay [--slower 5%]    one kernel's call takes so much longer

Each trial times a selection of cases with two interpreters in turns (`--against`). One of them is a script that runs this
interpreter with a change. The exit status of `same` is 1 if more verdicts are wrong than the stated rate allows, or too few
cases are settled; that of the others is 1 if too few of the affected cases are reported, or too many others are.
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

from conformance.bench.plan import share
from conformance.bench.results import TimingsFile, read
from conformance.reports.regression import Regression, compare, counted

ROOT = Path(__file__).parent.parent
SHARE_SETTLED, SHARE_REPORTED = 0.9, 0.8
DELAYED = "linear"
DELAY = """
import time
import timeit

from conformance.bench import timer

calls = timer.Timed.calls

def delayed(self):
    lowered, floating = calls(self)
    if not hasattr(self, "delay"):
        kernels = self.engine.execute(self.program, self.inputs).kernels
        concerned = any("{name}" in kernel.name for kernel in kernels)
        self.delay = {share} * min(timeit.repeat(lowered, number=10, repeat=9)) / 10 if concerned else 0.0
    if not self.delay:
        return lowered, floating

    def slower():
        result = lowered()
        end = time.perf_counter() + self.delay
        while time.perf_counter() < end:
            pass
        return result

    return slower, floating

timer.Timed.calls = delayed
"""
"""Code that makes programs with one kernel slower: each call waits for a share of its own time."""


def disguised(folder: Path, variables: dict[str, str], code: str = "") -> Path:
    """Write a script that runs this interpreter with other environment variables, and with `code` before it times models."""
    main = folder / "timing_worker.py"
    main.write_text(f"{code}\nimport sys\nfrom conformance.bench.worker import main\nmain()\n")
    python = folder / "python"
    exports = "".join(f"export {name}={value}\n" for name, value in variables.items())
    # run this file in place of -m conformance.bench.worker; pass every other command on
    python.write_text(
        f'#!/bin/sh\n{exports}[ "$4" = conformance.bench.worker ] || exec "{sys.executable}" "$@"\n'
        f'shift 4\nexec "{sys.executable}" -W ignore "{main}" "$@"\n'
    )
    python.chmod(python.stat().st_mode | stat.S_IXUSR)
    return python


def timed(base: Path, selection: Sequence[str], folder: Path, budget: str) -> TimingsFile:
    """Time a selection with this interpreter and with `base`."""
    out = folder / "timings.jsonl"
    out.unlink(missing_ok=True)
    command = [sys.executable, "-m", "pytest", "conformance/test_benchmarks.py", "-q", "-p", "no:cacheprovider"]
    options = ["--bench", "quick", "--budget", budget, "--benchmark-quiet"]
    paths = ["--timings", str(out), "--against", str(base)]
    subprocess.run([*command, *options, *paths, *selection], cwd=ROOT, check=True, stdout=sys.stderr)
    return read(out)


def running(file: TimingsFile, name: str) -> set[str]:
    """Return the cases that run a kernel whose name contains `name`."""
    return {case for case, passes in file.cases.items() if any(name in kernel for kernel in passes[0].counts.kernels)}


def verdicts(regression: Regression) -> str:
    """Return the number of cases of each verdict."""
    return ", ".join(f"{count} {verdict}" for verdict, count in counted(regression).items())


def same(times: int, folder: Path, selection: Sequence[str], budget: str) -> bool:
    """Return whether most cases of identical code are settled, and no more comparisons are wrong than the rate allows."""
    wrong, settled = 0, []
    for number in range(times):
        regression = compare(timed(disguised(folder, {}), selection, folder, budget))
        counts = counted(regression)
        wrong += bool(counts["slower"] or counts["faster"])
        settled.append(counts["same"] / sum(counts.values()))
        print(f"{number + 1}/{times}: {verdicts(regression)}; {settled[-1]:.1%} settled", flush=True)
    print(f"{wrong} of {times} comparisons of identical code have a verdict; the rate is {regression.rate:.0%}")
    return wrong <= max(1, round(times * regression.rate)) and min(settled) >= SHARE_SETTLED


def reported(regression: Regression, affected: set[str], expected: str) -> bool:
    """Return whether most of the affected cases have the expected verdict, and no more others than the rate allows."""
    verdict_of = {case.case: case.verdict for case in regression.cases}
    affected &= verdict_of.keys()
    right = {case for case in affected if verdict_of[case] == expected}
    wrong = {case for case, verdict in verdict_of.items() if case not in affected and verdict in ("slower", "faster")}
    print(verdicts(regression))
    print(f"{len(right)} of {len(affected)} affected cases are {expected}; {len(wrong)} others have a verdict")
    return len(right) >= SHARE_REPORTED * len(affected) and len(wrong) <= regression.rate * max(
        1, len(right) + len(wrong)
    )


def avx2(folder: Path, selection: Sequence[str], budget: str) -> bool:
    """Return whether oneDNN is reported as faster than oneDNN limited to AVX2, for kernels that multiply 8-bit integers."""
    file = timed(disguised(folder, {"ONEDNN_MAX_CPU_ISA": "AVX2"}), selection, folder, budget)
    return reported(compare(file), running(file, "linear") | running(file, "conv"), "faster")


def delay(folder: Path, selection: Sequence[str], budget: str, slower: float) -> bool:
    """Return whether this interpreter is reported as faster than one that calls one kernel slower by this share."""
    code = DELAY.format(name=DELAYED, share=slower)
    file = timed(disguised(folder, {}, code), selection, folder, budget)
    return reported(compare(file), running(file, DELAYED), "faster")


SELECTIONS = {
    "same": ["--backend", "fbgemm", "--engine", "fbgemm"],
    "avx2": ["--backend", "onednn", "--case", "*/nn.Linear*", "--case", "*/nn.Conv?d*"],
    "delay": ["--backend", "fbgemm", "--engine", "x86", "--case", "*Linear*", "--case", "*elu*", "--case", "*ELU*"],
}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("trial", choices=SELECTIONS)
    parser.add_argument("--times", type=int, default=10, help="number of comparisons of identical code (default 10)")
    parser.add_argument("--budget", default="15m", metavar="TIME", help="time of each comparison (default 15m)")
    parser.add_argument("--slower", type=share, default=0.05, metavar="PERCENT", help="the delay (default 5%%)")
    parser.add_argument("selection", nargs="*", help="pytest's options for the cases, after --")
    arguments = parser.parse_args()
    selection = arguments.selection or SELECTIONS[arguments.trial]
    os.environ["PYTHONPATH"] = str(ROOT)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        if arguments.trial == "same":
            return int(not same(arguments.times, folder, selection, arguments.budget))
        if arguments.trial == "avx2":
            return int(not avx2(folder, selection, arguments.budget))
        return int(not delay(folder, selection, arguments.budget, arguments.slower))


if __name__ == "__main__":
    sys.exit(main())
