"""Batches of any form that a network takes, and what `prepare_fx` is told about its modules."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.ao.quantization import get_default_qconfig_mapping
from torch.ao.quantization.fx.custom_config import PrepareCustomConfig

from conformance.audit import audit
from conformance.results.audits import Audit, State


class Scaled(nn.Module):
    """A layer with arguments that have defaults."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 4)

    def forward(self, x: Tensor, mask: Tensor | None = None, factor: float = 2.0) -> Tensor:
        y: Tensor = self.linear(x) * factor
        return y if mask is None else y * mask


class OfDict(nn.Module):
    """A network with one argument, a dict that has a list in it."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 4)

    def forward(self, batch: dict[str, Any]) -> dict[str, Tensor]:
        return {"y": self.linear(batch["parts"][0] + batch["parts"][1])}


class InFloat(nn.Module):
    """A module that FX is told not to trace."""

    def __init__(self, operator: nn.Module) -> None:
        super().__init__()
        self.operator = operator

    def forward(self, x: Tensor) -> Tensor:
        return self.operator(x)  # type: ignore[no-any-return]


def rows(number: int = 0) -> Tensor:
    return torch.randn(4, 8, generator=torch.Generator().manual_seed(number))


def of_dict(batches: list[Any]) -> Audit:
    torch.manual_seed(0)
    return audit(OfDict().eval(), batches, "x86", reduce=False)


def test_a_dict_of_lists_is_an_argument() -> None:
    parts = [{"parts": [rows(number), rows(number + 3)]} for number in range(3)]
    audited = of_dict(parts)
    assert audited.holds
    assert [check.outcome for check in audited.stability] == ["pass", "skip", "pass"]
    assert of_dict([(batch,) for batch in parts]).engine_db == audited.engine_db


def test_keyword_arguments_are_put_in_order() -> None:
    torch.manual_seed(0)
    batches = [{"mask": torch.ones(4, 4), "x": rows(number)} for number in range(3)]
    audited = audit(Masked().eval(), batches, "x86", reduce=False)
    assert audited.holds


@pytest.mark.parametrize("given", [{"factor": 3.0}, {}])
def test_a_number_is_no_argument(given: dict[str, float]) -> None:
    batches = [{**given, "x": rows(number), "mask": torch.ones(4, 4)} for number in range(3)]
    audited = audit(Scaled().eval(), batches, "x86", reduce=False)
    assert audited.advice.startswith("prepare_fx observes the argument 'factor' as a tensor, which it is not")


def test_an_argument_that_only_the_traced_network_needs_is_named() -> None:
    audited = audit(Scaled().eval(), [rows(number) for number in range(3)], "x86")
    assert (audited.state, audited.stage) == (State.UNCONVERTED, "tracing")
    assert "takes the branch where 'mask' is not None: give 'mask' in --inputs" in audited.advice


@pytest.mark.parametrize("operator", [nn.PReLU(), nn.ELU(), nn.LayerNorm(8)])
def test_a_module_that_is_not_traced_stays_in_float(operator: nn.Module) -> None:
    """What the ledger advises where a mapping has no effect."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(8, 8), InFloat(operator), nn.Linear(8, 4)).eval()
    mapping = get_default_qconfig_mapping("x86").set_object_type(type(operator), None)
    custom = PrepareCustomConfig().set_non_traceable_module_classes([InFloat])
    batches = [rows(number) for number in range(3)]
    audited = audit(network, batches, "x86", mapping=mapping, custom_config=custom, reduce=False)
    assert audited.holds
    assert [layer.name for layer in audited.computing if layer.arithmetic == "float"] == ["1"]


def test_an_input_that_takes_the_range_of_all_codes_is_named_whatever_becomes_of_the_network() -> None:
    batches = [(rows(number), torch.full((4, 4), -torch.inf)) for number in range(3)]
    audited = audit(Masked().eval(), batches, "x86", reduce=False)
    assert "input 2 reaches -inf" in audited.remarks[0]


class Masked(Scaled):
    def forward(self, x: Tensor, mask: Tensor) -> Tensor:  # type: ignore[override]
        return torch.softmax(torch.cat([self.linear(x), self.linear(x) + mask], 1), 1)


class Class(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        return torch.argmax(self.linear(x), 1)


def test_classes_are_compared() -> None:
    torch.manual_seed(0)
    batches = [rows(number) / 1e6 for number in range(2)]
    audited = audit(Class().eval(), [*batches, rows(3) * 100], "x86", reduce=False)
    assert audited.engine_db is not None
    assert not audited.holds
