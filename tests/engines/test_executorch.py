"""The ExecuTorch engine. Tests that need executorch run in `tox -e executorch` and are skipped elsewhere."""

import importlib.util
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from conformance.engines.decomposed import Grid
from conformance.engines.executorch import runtime
from conformance.engines.executorch.runtime import Refused
from conformance.engines.executorch.shortcuts import shortcuts
from conformance.engines.registry import engine
from conformance.host.isolation import Done, run_isolated

QUANTIZED = torch.ops.quantized_decomposed
installed = pytest.mark.skipif(importlib.util.find_spec("executorch") is None, reason="executorch is not installed")


def test_without_executorch_the_reason_names_the_installation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    used = engine("executorch")
    used.warm_up()
    assert "pip install executorch==1.4.1 torch==2.13.0 torchao==0.18.0" in (used.unavailable() or "")
    assert "tox -e executorch" in (used.unavailable() or "")


def test_a_grid_finds_the_codes_that_dequantize_to_the_values() -> None:
    grid = Grid(0.25, -3, -128, 127, torch.int8)
    codes = grid.codes(torch.tensor([-31.25, 0.0, 32.5]))
    assert codes is not None
    assert codes.int_repr().tolist() == [-128, -3, 127]
    assert (codes.q_scale(), codes.q_zero_point(), codes.dtype) == (0.25, -3, torch.qint8)
    assert grid.codes(torch.tensor([0.1])) is None, "between two codes"
    assert grid.codes(torch.tensor([32.75])) is None, "beyond the last code"
    assert grid.codes(torch.tensor([float("nan")])) is None


class Between(nn.Module):
    """A function between quantize and dequantize."""

    def __init__(
        self, function: Callable[[Tensor], Tensor], zero_point: int = 0, dtype: torch.dtype = torch.int8
    ) -> None:
        super().__init__()
        self.function, info = function, torch.iinfo(dtype)
        self.grid = (0.125, zero_point, info.min, info.max, dtype)

    def quantized(self, x: Tensor) -> Tensor:
        codes = QUANTIZED.quantize_per_tensor.default(x, *self.grid)
        return QUANTIZED.dequantize_per_tensor.default(codes, *self.grid)  # type: ignore[no-any-return]

    def forward(self, x: Tensor) -> Tensor:
        return self.quantized(self.function(self.quantized(x)))


class Floating(nn.Module):
    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


def alone(work: Callable[[], Any]) -> Any:
    """Run `work` in a child, because the parent must not execute kernels."""
    engine("executorch").warm_up()
    (outcome,) = run_isolated([work], lambda task: task())
    assert isinstance(outcome, Done), outcome
    return outcome.value


def execution(model: nn.Module, inputs: Sequence[Tensor]) -> tuple[list[tuple[str, bool, bool]], bool]:
    """The kernels of a model as (name, takes_quantized, takes_float), and whether its outputs are torch's."""
    used = engine("executorch")
    with torch.no_grad():
        program = used.compile(torch.fx.symbolic_trace(model), inputs)
        executed = used.execute(program, inputs)
        again = used.reload(program, None, None)(*inputs)  # type: ignore[arg-type]
        same = torch.equal(executed.outputs[0].values, model(*inputs)) and torch.equal(again[0], model(*inputs))
    assert not executed.writes
    assert executed.outputs[0].quantized is not None
    return [(kernel.name, kernel.takes_quantized, kernel.takes_float) for kernel in executed.kernels], same


X = torch.arange(-16, 16).reshape(2, 16) / 8


@installed
def test_the_engine_is_available() -> None:
    assert alone(lambda: engine("executorch").unavailable()) is None


@installed
def test_delegated_operators_run_on_integers() -> None:
    kernels, same = alone(lambda: execution(Between(torch.relu), (X,)))
    assert same
    assert kernels == [
        ("xnnpack.Convert", False, True),
        ("xnnpack.Clamp", True, False),
        ("xnnpack.Convert", True, False),
    ]


@installed
def test_float_kernels_of_the_delegate_are_reported() -> None:
    kernels, same = alone(lambda: execution(Between(lambda x: nn.functional.leaky_relu(x, 0.5)), (X,)))
    assert same
    assert ("xnnpack.LeakyReLU", False, True) in kernels


@installed
def test_portable_kernels_are_reported() -> None:
    kernels, same = alone(lambda: execution(Between(lambda x: nn.functional.elu(x).round()), (X,)))
    assert same
    assert ("portable.aten.elu", False, True) in kernels


@installed
def test_a_refusal_names_the_stage_and_quotes_the_runtime() -> None:
    def refused() -> str:
        try:
            execution(Between(torch.relu, 128, torch.uint8), (X,))
        except Refused as error:
            return str(error)
        return ""

    message = alone(refused)
    assert message.startswith("load: RuntimeError: Failed to load method forward")
    assert "xnn_status_invalid_parameter" in message


def cat_of_more_than_five(x: Tensor) -> Tensor:
    return torch.cat([x] * 6)


def normalized(x: Tensor) -> Tensor:
    """A convolution, batch norm, activation and view, which several passes change."""
    image = nn.functional.conv2d(x.reshape(1, 2, 16, 1), torch.ones(2, 2, 1, 1))
    return nn.functional.batch_norm(image, torch.zeros(2), torch.ones(2)).relu().mean((2, 3)).t() + 1


@installed
@pytest.mark.parametrize(
    "model",
    [
        Between(torch.relu),
        Between(nn.functional.elu),
        Between(cat_of_more_than_five),
        Between(normalized),
        nn.Linear(16, 3),
        nn.Embedding(8, 4),
    ],
)
def test_optimized_lowering_gives_the_same_program(model: nn.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.tensor([1, 5]) if isinstance(model, nn.Embedding) else X
    short = runtime.lowered(model.eval(), (x,))
    monkeypatch.setattr(runtime, "shortcuts", nullcontext)
    assert runtime.lowered(model, (x,)) == short


@installed
def test_a_pass_retraces_a_graph_only_to_change_it() -> None:
    from executorch.exir import to_edge
    from executorch.exir.pass_base import ExportPass

    class Second(ExportPass):  # type: ignore[misc]
        """Replaces the second argument of every operator."""

        def __init__(self, argument: object) -> None:
            super().__init__()
            self.argument = argument

        def call_operator(self, op: Any, args: Any, kwargs: Any, meta: Any) -> Any:
            return super().call_operator(op, (args[0], self.argument, *args[2:]), kwargs, meta)

    class Inputs(ExportPass):  # type: ignore[misc]
        """Overrides a hook other than `call_operator`."""

        def placeholder(self, name: str, arg: Any, meta: Any) -> Any:
            return super().placeholder(name, arg, meta)

    exported = torch.export.export(Floating(lambda x: torch.clamp(x, 1)), (X,))
    before = to_edge(exported).exported_program().graph_module
    with shortcuts():
        traced = ExportPass()(before).graph_module
        assert traced is not before
        assert ExportPass()(traced).graph_module is traced
        assert Second(1)(traced).graph_module is traced
        assert Inputs()(traced).graph_module is not traced
        for argument in (2, True, 1.0):
            (clamp,) = (
                node for node in Second(argument)(traced).graph_module.graph.nodes if node.op == "call_function"
            )
            assert clamp.args[1] == argument
            assert type(clamp.args[1]) is type(argument)
        (clamp,) = (node for node in traced.graph.nodes if node.op == "call_function")
        clamp.update_arg(1, 2)
        assert ExportPass()(traced).graph_module is not traced, "somebody changed it"
    assert ExportPass()(traced).graph_module is not traced, "out of the scope"


@installed
def test_a_program_is_decomposed_only_if_an_operator_can_be_decomposed() -> None:
    exported = torch.export.export(Floating(nn.functional.silu), (X,))
    with shortcuts():
        functional = exported.run_decompositions({})
        assert functional is not exported
        assert functional.run_decompositions({}) is functional
        decomposed = functional.run_decompositions()
        assert decomposed.run_decompositions() is decomposed
    assert [str(node.target) for node in functional.graph.nodes if node.op == "call_function"] == ["aten.silu.default"]
    assert [str(node.target) for node in decomposed.graph.nodes if node.op == "call_function"] == [
        "aten.sigmoid.default",
        "aten.mul.Tensor",
    ]
    assert decomposed.run_decompositions() is not decomposed, "out of the scope"
