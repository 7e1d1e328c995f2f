"""A copy of a template equals the prepared model of another float model."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from conformance.cases.claims import backend
from conformance.cases.runs import Run, runs
from conformance.models import build, fx
from conformance.models.templates import Template


def run_named(run_id: str) -> Run:
    (found,) = (run for run in runs(backend("fbgemm"), globs=[run_id]) if run.id == run_id)
    return found


def state(prepared: torch.nn.Module) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in prepared.state_dict().items()}


@pytest.mark.parametrize("flow", ["ptq", "qat"])
def test_a_copy_equals_the_prepared_model(flow: str) -> None:
    first, second = (
        build.subject(run_named(f"fbgemm/nn.Conv2d/static-quint8/{flow}/{variant}/exact@fbgemm"))
        for variant in ("default", "batch0")
    )
    config = first.run.backend.config
    template = Template(first.model, fx.prepare(first, config))
    own, copied = fx.prepare(second, config), template.of(second.model)
    assert copied is not None
    assert copied.training == own.training
    assert copied.code == own.code
    assert not all(map(torch.equal, first.model.parameters(), second.model.parameters()))
    for prepared in (own, copied):
        fx.calibrate(prepared, second)
    expected, got = state(own), state(copied)
    assert expected.keys() == got.keys()
    assert all(torch.equal(expected[name], got[name]) for name in expected)
    # the template is not calibrated by its copies
    assert any(not torch.equal(got[name], value) for name, value in state(template.prepared).items())


def test_a_folded_batch_norm_is_not_copied() -> None:
    subject = build.subject(run_named("fbgemm/nn.Conv2d+nn.BatchNorm2d/static-quint8/ptq/default/exact@fbgemm"))
    template = Template(subject.model, fx.prepare(subject, subject.run.backend.config))
    assert template.of(subject.model) is None


def test_a_model_of_other_shapes_is_not_copied() -> None:
    first, second = (
        build.subject(run_named(f"fbgemm/nn.Conv2d/static-quint8/ptq/{variant}/exact@fbgemm"))
        for variant in ("default", "wide")
    )
    template = Template(first.model, fx.prepare(first, first.run.backend.config))
    assert template.of(second.model) is None
    assert template.of(replace(first).model) is not None
