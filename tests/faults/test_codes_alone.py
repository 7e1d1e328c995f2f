"""What only sweeps over all codes notice: no other run of the same operator does."""

import pytest

from conformance.cases.claims import backend
from conformance.cases.runs import runs
from conformance.execution import batch
from conformance.results.profiles import CODES

from .codes import KERNELS
from .fault import alarms_of, run
from .kernels import faulty_kernel


@pytest.mark.parametrize("name", KERNELS)
def test_no_other_run_of_the_operator_notices_the_fault(name: str) -> None:
    _, operators, kernel, sweep = KERNELS[name]
    of_sweep = run(sweep)
    others = [
        one
        for one in runs(backend(of_sweep.backend.name), [of_sweep.engine], [f"{of_sweep.claim.id}/*"])
        if one.claim.id == of_sweep.claim.id and one.profile != CODES.name
    ]
    assert {one.profile for one in others} >= {"exact", "typical", "laws"}
    batch.warm_up()
    with faulty_kernel(operators, kernel).applied():
        assert not alarms_of(others)
