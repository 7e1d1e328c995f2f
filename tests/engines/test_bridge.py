"""Conversion to integer weights: every quantized weight becomes a buffer of codes, and the outputs stay the same."""

from collections.abc import Callable

import pytest
import torch
import torch.ao.nn.quantized.reference as nnqr
import torch.nn.functional as F
from torch import Tensor, nn
from torch.fx import Graph, GraphModule, symbolic_trace

from conformance.cases.claims import backend
from conformance.cases.runs import Run, runs
from conformance.engines.executorch.bridge import with_integer_weights
from conformance.models import build, fx

QUANTIZED = torch.ops.quantized_decomposed
WEIGHTS = {
    "per_tensor": {"qscheme": torch.per_tensor_affine, "dtype": torch.qint8, "scale": 0.125, "zero_point": 0},
    "per_channel": {
        "qscheme": torch.per_channel_affine,
        "dtype": torch.qint8,
        "scale": torch.tensor([0.125, 0.25, 0.5, 0.125]),
        "zero_point": torch.zeros(4, dtype=torch.int64),
        "axis": 0,
    },
}
LAYERS: dict[str, tuple[Callable[[], nn.Module], type[nn.Module], tuple[int, ...]]] = {
    "linear": (lambda: nn.Linear(3, 4), nnqr.Linear, (2, 3)),
    "conv1d": (lambda: nn.Conv1d(3, 4, 2), nnqr.Conv1d, (2, 3, 5)),
    "conv2d": (lambda: nn.Conv2d(3, 4, 2), nnqr.Conv2d, (2, 3, 5, 5)),
    "conv3d": (lambda: nn.Conv3d(3, 4, 2), nnqr.Conv3d, (2, 3, 5, 5, 5)),
    "transposed": (lambda: nn.ConvTranspose2d(4, 3, 2), nnqr.ConvTranspose2d, (2, 4, 5, 5)),
}


def calling(layer: nn.Module) -> GraphModule:
    """A model that calls one layer."""
    graph = Graph()
    graph.output(graph.call_module("layer", (graph.placeholder("x"),)))
    return GraphModule(nn.ModuleDict({"layer": layer}), graph)


def quantizes_weights(model: GraphModule) -> list[str]:
    """Names of the quantize calls of parameters or buffers."""
    return [
        node.name
        for node in model.graph.nodes
        if "quantized_decomposed.quantize" in str(node.target) and node.args[0].op == "get_attr"
    ]


def integers(model: GraphModule) -> list[Tensor]:
    return [value for value in model.buffers() if value.dtype in (torch.int8, torch.uint8)]


@pytest.mark.parametrize("scheme", WEIGHTS)
@pytest.mark.parametrize("layer", LAYERS)
def test_a_reference_module_gets_integer_weights(layer: str, scheme: str) -> None:
    make, reference, shape = LAYERS[layer]
    module = reference.from_float(make(), {**WEIGHTS[scheme], "is_decomposed": True})  # type: ignore[attr-defined]
    model = calling(module)
    x = torch.randn(shape)
    expected = model(x)
    converted = with_integer_weights(model)
    assert torch.equal(converted(x), expected)
    assert not quantizes_weights(converted)
    (codes,) = integers(converted)
    assert torch.equal(codes, module.get_quantized_weight())


def test_a_container_of_a_reference_module_is_inlined() -> None:
    module = nnqr.Linear.from_float(nn.Linear(3, 4), {**WEIGHTS["per_tensor"], "is_decomposed": True})
    converted = with_integer_weights(calling(nn.Sequential(module, nn.ReLU())))
    assert not quantizes_weights(converted)
    assert [type(module) for module in converted.modules() if isinstance(module, nn.ReLU)] == [nn.ReLU]


def test_a_function_gets_integer_weights_and_keeps_its_quantized_inputs() -> None:
    class Functional(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(4, 3))

        def forward(self, x: Tensor) -> Tensor:
            x = QUANTIZED.quantize_per_tensor(x, 0.125, 0, -128, 127, torch.int8)
            w = QUANTIZED.quantize_per_tensor(self.weight, 0.125, 0, -127, 127, torch.int8)
            x = QUANTIZED.dequantize_per_tensor(x, 0.125, 0, -128, 127, torch.int8)
            return F.linear(x, QUANTIZED.dequantize_per_tensor(w, 0.125, 0, -127, 127, torch.int8))

    model, x = symbolic_trace(Functional()), torch.randn(2, 3)
    expected = model(x)
    converted = with_integer_weights(model)
    assert torch.equal(converted(x), expected)
    assert len(integers(converted)) == 1
    assert sum("quantized_decomposed.quantize" in str(node.target) for node in converted.graph.nodes) == 1


def test_per_tensor_qparams_are_numbers() -> None:
    module = nnqr.Linear.from_float(nn.Linear(3, 4), {**WEIGHTS["per_tensor"], "is_decomposed": True})
    converted = with_integer_weights(calling(module))
    (dequantize,) = [node for node in converted.graph.nodes if "dequantize" in str(node.target)]
    assert dequantize.args[1:3] == (0.125, 0)


WEIGHTED = {
    run.claim.id: run
    for run in runs(backend("executorch"))
    if run.profile == "exact" and run.flow == "ptq" and run.claim.dtypes.weight_dtype in (torch.qint8, torch.quint8)
}


@pytest.mark.parametrize("case", WEIGHTED.values(), ids=WEIGHTED)
def test_no_claim_of_the_config_quantizes_a_weight_at_run_time(case: Run) -> None:
    with fx.quiet(), torch.no_grad():
        subject = build.subject(case)
        prepared = fx.prepare(subject, case.backend.config)
        fx.calibrate(prepared, subject)
        model = fx.decomposed(prepared, case.backend.config)
        converted = with_integer_weights(model)
        assert not quantizes_weights(converted)
        if case.variant is not None and case.variant.batch != 0:
            expected, got = (build.tensors(version(*subject.fresh_inputs())) for version in (model, converted))
            assert all(torch.equal(a, b) for a, b in zip(expected, got, strict=True))
