"""What sweeps over all codes notice and no run does whose model was chosen by hand."""

import pytest

from conformance.cases.claims import backend
from conformance.cases.runs import runs
from conformance.execution import batch

from .codes import KERNELS
from .fault import alarms_of, run
from .kernels import faulty_kernel

CHOSEN = {"exact", "typical", "laws"}
"""Profiles of models that were chosen by hand."""


@pytest.mark.parametrize("name", KERNELS)
def test_no_run_of_a_model_chosen_by_hand_notices_the_fault(name: str) -> None:
    _, operators, kernel, sweep = KERNELS[name]
    of_sweep = run(sweep)
    others = [
        one
        for one in runs(backend(of_sweep.backend.name), [of_sweep.engine], [f"{of_sweep.claim.id}/*"])
        if one.claim.id == of_sweep.claim.id and one.profile in CHOSEN
    ]
    assert {one.profile for one in others} == CHOSEN
    batch.warm_up()
    with faulty_kernel(operators, kernel).applied():
        assert not alarms_of(others)
