"""Reports count runs that are covered by their features as their invocation did."""

from pathlib import Path

import pytest
from invoking import cases, entry, invoke

from conformance.reports.load import Report

COVERED = "fbgemm/F.adaptive_avg_pool3d/static-quint8/ptq/output_size_3+spread/pairs@fbgemm"
LIKE = "fbgemm/F.adaptive_avg_pool3d/static-quint8/ptq/spread/exact@fbgemm"


@pytest.mark.parametrize("listed", [True, False])
def test_a_run_is_new_only_if_its_invocation_did_not_expect_it(tmp_path: Path, listed: bool) -> None:
    ledger = entry("like", LIKE, "numerics", "accuracy") if listed else ""
    invocation = invoke(tmp_path, "--backend", "fbgemm", "--engine", "fbgemm", *cases(COVERED), ledger=ledger)
    assert invocation.status == (0 if listed else 1), invocation.output
    row = invocation.rows[COVERED]
    assert row.failed == {"numerics"}
    assert row.known == ("like" if listed else None)
    (result,) = Report([invocation.results], [tmp_path / "known"]).results
    assert result.new is not listed
