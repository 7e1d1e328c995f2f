"""Scripts of findings about properties, and their execution."""

import json
import subprocess
import sys

import pytest

from conformance.cases.runs import describe
from conformance.engines.registry import engine
from conformance.repro.script import script
from conformance.results.findings import Finding, detail_of
from conformance.results.rows import Row
from conformance.results.verdicts import Verdict
from tests.runs_by_id import run

EXECUTE = """
import contextlib, io, json, sys
outputs = []
for text in json.load(sys.stdin):
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        try:
            exec(compile(text, "script", "exec"), {"__name__": "__main__"})
        except SystemExit:
            pass
    outputs.append([line for line in output.getvalue().splitlines() if line.startswith(("DEVIATES", "CONFORMS"))])
print(json.dumps(outputs))
"""


def source(name: str, *findings: Finding) -> str:
    if (reason := engine(run(name).engine).unavailable()) is not None:
        pytest.skip(reason)
    checks = {finding.check: "fail" for finding in findings}
    row = Row(
        **describe(run(name)),
        verdict=Verdict.DEVIATES,
        checks=checks,
        detail=detail_of(findings),
        findings=tuple(findings),
    )
    return script(run(name), row, None)


def executed(*sources: str) -> list[list[str]]:
    """The verdict lines of scripts, executed one after the other in a child."""
    done = subprocess.run(
        [sys.executable, "-I", "-c", EXECUTE], input=json.dumps(sources), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    (printed,) = (line for line in done.stdout.splitlines() if line.startswith("[["))  # native code prints as well
    lines: list[list[str]] = json.loads(printed)
    return lines
