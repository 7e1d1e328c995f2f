"""Repetitions of the execution of a whole network."""

from typing import Any

import pytest
import torch
from audited_networks import images, residual
from torch import Tensor, nn

from conformance.audit import audit
from conformance.models import fx
from conformance.results.audits import Audit, Stability


def changed(monkeypatch: pytest.MonkeyPatch, change: Any) -> dict[str, Stability]:
    """The outcomes of a network whose lowered form passes the input of its last layer through a function."""
    lower = fx.lower_network

    def lowered(*arguments: Any) -> Any:
        reference, model, same = lower(*arguments)
        model.get_submodule("head").register_forward_pre_hook(lambda _, inputs: (change(inputs[0]),))
        return reference, model, same

    monkeypatch.setattr(fx, "lower_network", lowered)
    audited: Audit = audit(residual(), images(), "x86", reduce=False)
    return {check.name: check for check in audited.stability}


def scaled(x: Tensor, factor: float) -> Tensor:
    codes = (x.int_repr() * factor).to(torch.uint8)
    return torch._make_per_tensor_quantized_tensor(codes, x.q_scale(), x.q_zero_point())


def test_a_network_that_gives_something_else_each_time_is_not_repeatable(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []

    def otherwise(x: Tensor) -> Tensor:
        calls.append(1)
        return scaled(x, 0.5 if len(calls) % 2 else 1.0)

    outcome = changed(monkeypatch, otherwise)["repeatable"]
    assert outcome.outcome == "fail"
    assert "changes" in outcome.text


def test_a_network_whose_items_depend_on_each_other_fails_the_batch_split(monkeypatch: pytest.MonkeyPatch) -> None:
    def mixed(x: Tensor) -> Tensor:
        return scaled(x, 1.0 if len(x) == 1 else 0.5)

    outcomes = changed(monkeypatch, mixed)
    assert outcomes["batch split"].outcome == "fail"
    assert outcomes["repeatable"].outcome == "pass"


def test_a_single_item_is_joined_with_one_to_calibrate() -> None:
    audited = audit(residual(), images(items=1), "x86")
    assert {check.name: check.outcome for check in audited.stability}["batch split"] == "pass"


def test_a_network_without_images_has_no_memory_format() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU()).eval()
    audited = audit(model, [torch.ones(2, 4), torch.ones(2, 4) * 2], "x86")
    assert {check.name: check.outcome for check in audited.stability}["memory format"] == "skip"
