"""Every output is compared: what is not finite, what is zero in float, complex numbers, and integers beside floats."""

import math
from typing import Any

import torch
from torch import Tensor, nn

from conformance.audit import audit
from conformance.audit.agreement import decibels, joined
from conformance.reports.audit_text import text
from conformance.results.audits import LEAST_DB, Audit


class Linear(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(8, 8, bias=False)


def audited(model: nn.Module) -> Audit:
    batches = [torch.randn(4, 8, generator=torch.Generator().manual_seed(number)) for number in range(3)]
    batches[-1][0] *= 1e-4  # quantized to zero
    return audit(model.eval(), batches, "x86", reduce=False)


def test_infinite_values_and_zeros_leave_nothing_of_what_is_expected() -> None:
    expected = torch.tensor([1.0, 2.0])
    assert decibels(torch.tensor([1.0, math.nan]), expected) == LEAST_DB
    assert decibels(torch.tensor([1.0, math.inf]), expected) == LEAST_DB
    assert decibels(torch.ones(2), torch.zeros(2)) == LEAST_DB
    assert decibels(torch.tensor([1.0, math.inf]), torch.tensor([1.0, math.inf])) is None


def test_an_output_that_is_nan_where_floats_is_not_makes_a_network_unusable() -> None:
    class Normalized(Linear):
        def forward(self, x: Tensor) -> Tensor:
            y = torch.relu(self.linear(x))
            return y / y.sum(-1, keepdim=True)

    found = audited(Normalized())
    assert not found.holds
    assert found.engine_db == LEAST_DB
    assert found.remarks == ("output 1 is NaN or infinite in 8 of 32 elements where the float network's is not",)
    assert "not usable: nothing left of float" in text(found)


def test_integers_beside_floats_that_differ_are_pointed_out() -> None:
    class Above(Linear):
        def forward(self, x: Tensor) -> Any:
            return x, self.linear(x) * 1e6 > 0.5

    assert [one.partition(" in ")[0] for one in audited(Above()).remarks] == [
        "output 2 has other bool values than float's"
    ]


def test_both_parts_of_complex_outputs_are_compared() -> None:
    assert joined([torch.tensor([1 + 2j])]).tolist() == [1.0, 2.0]
