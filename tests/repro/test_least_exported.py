"""Least scripts of exported models, as far as they need none of the packages that export and lower."""

import pytest
import torch
from torch import nn
from torch.fx import symbolic_trace

from conformance.cases.claims import backend
from conformance.cases.runs import Run, runs
from conformance.configs.registry import QUANTIZERS
from conformance.engines.programs import PROGRAMS
from conformance.repro.least.candidate import Candidate, Data
from conformance.repro.least.lines import LeastPt2eLines, imported, least_lines, steps

IDENTITY = Candidate((), ("return x",), ("x",), (Data("zeros", (1,)),), "None", "quantizer")


def of(name: str, flow: str = "ptq") -> Run:
    return next(one for one in runs(backend(name)) if one.flow == flow and one.variant is not None)


@pytest.mark.parametrize("name", QUANTIZERS)
def test_every_engine_of_a_registered_quantizer_has_lines(name: str) -> None:
    assert {*QUANTIZERS[name].engines} <= PROGRAMS.keys()
    assert isinstance(least_lines(of(name), IDENTITY), LeastPt2eLines)
    assert not isinstance(least_lines(of("fbgemm"), IDENTITY), LeastPt2eLines)


@pytest.mark.parametrize(
    ("name", "module"),
    [
        ("XNNPACKQuantizer", "executorch.backends.xnnpack.quantizer.xnnpack_quantizer"),
        ("TOSAQuantizer", "executorch.backends.arm.quantizer.arm_quantizer"),
    ],
)
def test_names_that_several_packages_have_are_those_of_the_quantizer(name: str, module: str) -> None:
    statements = imported(frozenset({name, "get_symmetric_quantization_config", "prepare_pt2e"}))
    assert statements[name] == f"from {module} import {name}"
    assert statements["prepare_pt2e"] == "from torchao.quantization.pt2e.quantize_pt2e import prepare_pt2e"
    assert imported(frozenset({"prepare_fx", "torch"})) == {}


def test_stages_are_those_of_the_flow() -> None:
    assert "prepare_qat_pt2e(exported, quantizer)" in LeastPt2eLines(of("x86inductor", "qat"), IDENTITY).prepare()
    lines = LeastPt2eLines(of("x86inductor"), IDENTITY)
    assert lines.prepare().splitlines() == [
        "exported = torch.export.export(model, (x,)).module(check_guards=False)",
        "prepared = prepare_pt2e(exported, quantizer)",
    ]
    assert lines.converted.endswith("converted = convert_pt2e(prepared)\n")


def test_the_step_of_an_output_is_the_scale_that_dequantizes_it() -> None:
    class Model(nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            dequantize = torch.ops.quantized_decomposed.dequantize_per_tensor.default
            return dequantize(x, 0.5, 0, -128, 127, torch.int8), x

    assert [*steps(symbolic_trace(Model()))] == [0.5, None]


def test_what_lowers_is_defined_before_it_is_called_and_nowhere_else() -> None:
    lines = LeastPt2eLines(of("tosa"), IDENTITY)
    assert lines.lower.index("class Tosa(Interpreter):") < lines.lower.index("lowered = Tosa(converted, (x,))")
    assert "class Tosa" not in lines.converted
