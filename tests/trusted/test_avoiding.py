"""Trusted configs of x86_64: what their rules say of layers is avoided, and nothing else is changed."""

import importlib
from dataclasses import replace
from typing import Any

import pytest
import torch
from audited_networks import images, relu6, residual
from torch import Tensor, nn

from conformance.audit.auditing import Fx, Settings, claims_in
from conformance.audit.causes import explained
from conformance.audit.network import Network, network
from conformance.results.audits import Audit
from conformance.results.ledger_file import load
from tests.audit.causes import Cause
from tests.prediction.test_predicting import HOST, OF_FX
from tests.repair.test_repairing import causes

ENTRIES = load()
ENGINES = ("x86", "fbgemm", "onednn", "qnnpack")

UNTOLD = {
    "add-overflows": "the scale tells it",
    "forward-hooks-dropped": "hooks are not in the graph",
    "inplace-alias": "a layer in float writes to a copy too",
    "norm-without-statistics": "prepare_fx refuses it",
    "parameter-read-after-fusion": "prepare_fx refuses it",
    "qnnpack-add-scale": "ranges tell it",
    "weight-read-after-lowering": "the network reads the parameter itself, and no property of it",
}
"""Findings that no rule avoids, and why."""

LEAST = [*{(cause.id, cause.engine): cause for cause in OF_FX if cause.mapping is None}.values()]


def is_theirs(engine: str) -> bool:
    """Whether the trusted config of an engine is of this platform."""
    vnni = HOST.arch == "x86_64" and HOST.isa.startswith("avx512_vnni")
    return vnni and engine in torch.backends.quantized.supported_engines


def of_engine(name: str) -> Any:
    return importlib.import_module(f"conformance.configs.trusted.{name}")


def audited(subject: Network, engine: str) -> Audit:
    """The audit of a network with the trusted config of an engine."""
    module = of_engine(engine)
    graph = module.trusted(subject.model, subject.calibration[0])
    config = claims_in(module.backend_config(), engine)
    settings = Settings(module.qconfig_mapping(graph), config, module.custom_config(), stable=False, reduce=False)
    return explained(Fx(engine, settings).audit(replace(subject, model=graph)), ENTRIES, HOST)


@pytest.mark.parametrize("cause", LEAST, ids=[cause.name for cause in LEAST])
def test_the_finding_of_a_minimal_model_is_avoided(cause: Cause) -> None:
    if not is_theirs(cause.engine):
        pytest.skip(f"the trusted configs are of x86_64 with AVX-512 VNNI, and this is {HOST.platform}")
    torch.manual_seed(0)
    subject = network(cause.id, nn.Sequential(cause.model()).eval(), cause.batches())
    assert (cause.id in causes(audited(subject, cause.engine))) == (cause.id in UNTOLD)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_network_without_faults_is_as_it_was(engine: str) -> None:
    subject = network("residual", residual(), images())
    graph = of_engine(engine).trusted(subject.model, subject.calibration[0])
    assert [node.target for node in graph.graph.nodes] == [
        node.target for node in torch.fx.symbolic_trace(subject.model).graph.nodes
    ]


def test_a_layer_that_is_left_out_stays_in_float_between_quantized_ones() -> None:
    subject = network("relu6", relu6(), images())
    found = audited(subject, "qnnpack")
    assert not found.blamed
    assert found.integer_share == pytest.approx(2 / 3)


class Mixed(nn.Module):
    """Numbers that are sizes, a value that is multiplied, one module that is called twice, and a view."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(4, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv(self.conv(x)) * 2
        viewed: Tensor = y.view(x.size(0), 2 * x.size(2), -1)
        return viewed


def test_a_rewritten_network_computes_the_same_and_its_sizes_stay_numbers() -> None:
    torch.manual_seed(0)
    model, x = Mixed().eval(), torch.randn(2, 4, 6, 6)
    module = of_engine("x86")
    graph = module.trusted(model, (x,))
    torch.testing.assert_close(graph(x), model(x))
    called = [str(node.target) for node in graph.graph.nodes]
    assert len({name for name in called if name.startswith("conv")}) == 2
    assert "reshape" in called
    assert "view" not in called
    module.quantize(model, [(x,)])(x)
