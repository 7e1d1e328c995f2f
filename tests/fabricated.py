"""Rows of runs with fabricated findings."""

from conformance.cases.runs import Run, describe
from conformance.results.findings import Finding, detail_of
from conformance.results.profiles import CHECKS, OF_MAPPINGS
from conformance.results.rows import Row
from conformance.results.verdicts import Verdict


def row_of(run: Run, *findings: Finding) -> Row:
    """A row of a run that fails the checks of these findings."""
    failed = {finding.check for finding in findings}
    crashes = "crashes" in failed
    due = [check for check in CHECKS if check not in OF_MAPPINGS]
    checks = {} if crashes else {check: "fail" if check in failed else "pass" for check in due}
    identity = describe(run)
    return Row(
        identity["id"], identity["backend"], identity["pattern"], identity["dtype_config"], identity["flow"],
        identity["variant"], identity["profile"], identity["engine"],
        Verdict.CRASHES if crashes else Verdict.of(findings), checks, detail_of(findings), findings,
    )  # fmt: skip
