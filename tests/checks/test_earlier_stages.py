"""An exception before lowering is reported by `lowered` where the profile lacks the check that reports it."""

import pytest

from conformance.checks.evidence import Evidence, Front
from conformance.checks.lowering import EARLIER, lowered
from conformance.errors import Failure
from tests.runs_by_id import run

EXACT = "fbgemm/nn.Linear/static-quint8/ptq/default/exact@fbgemm"
PAIRS = "fbgemm/nn.Linear/static-quint8/ptq/features_128x96+positive/pairs@fbgemm"


@pytest.mark.parametrize("stage", EARLIER)
def test_a_stage_that_raises_is_reported_once(stage: str) -> None:
    front = Front(failures={stage: Failure("ValueError", "no such thing")})
    alone = lowered(Evidence(run(PAIRS), front))
    assert alone.result == "fail"
    assert [(finding.check, finding.stage) for finding in alone.findings] == [("lowered", stage)]  # type: ignore[attr-defined]
    assert lowered(Evidence(run(EXACT), front)).result == "skip"
