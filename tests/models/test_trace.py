"""Traces: the kinds of kernels, the codes of outputs, and kernels that write to their inputs."""

from collections.abc import Callable
from typing import Any, TypeVar

import pytest
import torch
from torch import Tensor, nn
from torch.ao.quantization import QConfigMapping, get_default_qconfig
from torch.ao.quantization.quantize_fx import convert_fx, convert_to_reference_fx, prepare_fx

from conformance.engines.registry import engine
from conformance.host.isolation import Done, run_isolated
from conformance.models.fx import quiet
from conformance.models.mutation import Write
from conformance.models.trace import Execution, Kernel, Output, execute, nested_kernels, qparams_of

T = TypeVar("T")
X = torch.tensor([[0.5, -1.0, 0.25, 2.0]])


def on_fbgemm(work: Callable[[], T]) -> T:
    """Run `work` in fbgemm's scope in a child."""
    fbgemm = engine("fbgemm")
    if (reason := fbgemm.unavailable()) is not None:
        pytest.skip(f"fbgemm: {reason}")

    def scoped(job: Callable[[], T]) -> T:
        with fbgemm.scope(), quiet():
            return job()

    (outcome,) = run_isolated([work], scoped)
    assert isinstance(outcome, Done), outcome
    return outcome.value


class Tail(nn.Module):
    """Two linear layers, of which the first is quantized."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 3), nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.second(self.first(x))
        return result


def prepared() -> Any:
    qconfig = get_default_qconfig("fbgemm")  # type: ignore[no-untyped-call]
    mapping = QConfigMapping().set_global(qconfig).set_module_name("second", None)
    model = prepare_fx(Tail().eval(), mapping, (X,))
    model(X)
    return model


def kernels(execution: Execution) -> list[str]:
    return [kernel.name for kernel in execution.kernels]


def test_quantized_kernels_float_kernels_and_conversions_are_distinguished() -> None:
    execution = on_fbgemm(lambda: execute(convert_fx(prepared()), [X]))
    by_name = {kernel.name: kernel for kernel in execution.kernels}
    assert kernels(execution)[:3] == ["aten.quantize_per_tensor", "quantized.linear", "aten.dequantize"]
    assert by_name["quantized.linear"].quantized
    assert not by_name["quantized.linear"].in_float
    assert by_name["aten.addmm"].computes_in_float
    assert not by_name["aten.addmm"].quantized
    assert not by_name["aten.quantize_per_tensor"].in_float
    assert not by_name["aten.dequantize"].in_float
    assert execution.names() == ["quantized.linear"]


def test_a_reference_model_computes_in_float() -> None:
    execution = on_fbgemm(lambda: execute(convert_to_reference_fx(prepared()), [X]))
    assert execution.names() == []
    assert [kernel.name for kernel in execution.kernels if kernel.computes_in_float] == ["aten.addmm", "aten.addmm"]


def test_a_copy_of_a_float_tensor_is_in_float_but_computes_nothing() -> None:
    (clone,) = execute(lambda x: x.clone(), [X]).kernels
    assert (clone.in_float, clone.computes_in_float) == (True, False)


def test_a_kernel_on_integers_is_neither_quantized_nor_in_float() -> None:
    (add,) = execute(lambda x: x + 1, [torch.tensor([1, 2])]).kernels
    assert (add.quantized, add.in_float, add.computes_in_float) == (False, False, False)


def test_an_aten_kernel_with_a_quantized_argument_is_quantized() -> None:
    x = torch.quantize_per_tensor(X, 0.25, 8, torch.quint8)
    execution = execute(torch.relu, [x])
    assert execution.kernels == (Kernel("aten.relu", takes_quantized=True, takes_float=False),)
    assert execution.names() == ["aten.relu"]


def test_tensors_in_lists_are_arguments() -> None:
    assert execute(lambda x: torch.cat([x, x]), [X]).kernels == (Kernel("aten.cat", False, True),)


def requantized(x: Tensor) -> Tensor:
    return torch.quantize_per_tensor(x, 0.25, 8, torch.quint8).dequantize()


def test_a_dequantized_output_has_codes() -> None:
    (output,) = execute(requantized, [X + 0.1]).outputs
    assert output.quantized is not None
    assert output.quantized.int_repr().tolist() == [[10, 4, 9, 16]]
    assert (output.quantized.q_scale(), output.quantized.q_zero_point()) == (0.25, 8)
    assert torch.equal(output.values, output.quantized.dequantize())


def test_a_quantized_output_has_codes() -> None:
    (output,) = execute(torch.relu, [torch.quantize_per_tensor(X, 0.25, 8, torch.quint8)]).outputs
    assert output.quantized is not None
    assert output.quantized.int_repr().tolist() == [[10, 8, 9, 16]]
    assert torch.equal(output.values, output.quantized.dequantize())


def test_an_output_without_a_dequantize_call_is_left_quantized() -> None:
    x = torch.quantize_per_tensor(X, 0.25, 8, torch.quint8)
    assert [output.left_quantized for output in execute(lambda x: (x.dequantize(), x), [x]).outputs] == [False, True]


def test_a_copied_output_does_not_share_memory() -> None:
    for tensor in (X.clone(), torch.quantize_per_tensor(X, 0.25, 8, torch.quint8)):
        (output,) = execute(lambda x: x.view(-1), [tensor]).outputs
        copied, before = output.copied(), output.raw.dequantize().clone()
        tensor.relu_()
        assert torch.equal(copied.raw.dequantize(), before)
        assert not torch.equal(output.raw.dequantize(), before)


def test_a_kernel_that_writes_to_an_argument_without_declaring_it_is_named() -> None:
    lies = torch.library.Library("lies", "FRAGMENT")  # type: ignore[no-untyped-call]
    for schema in ("over(Tensor x) -> Tensor", "declared(Tensor(a!) x) -> Tensor"):
        name = lies.define(schema)  # type: ignore[no-untyped-call]
        for key in ("CPU", "QuantizedCPU"):
            lies.impl(name.rpartition(":")[2], lambda x: x.relu_().clone(), key)  # type: ignore[no-untyped-call]
    for tensor in (X.clone(), torch.quantize_per_tensor(X, 0.25, 8, torch.quint8)):
        assert execute(torch.ops.lies.declared, [tensor.clone()]).writes == ()
        assert execute(torch.ops.lies.over, [tensor.clone()]).writes == (Write("lies.over", 0),)
        assert execute(torch.ops.lies.over, [tensor.relu_()]).writes == ()  # the values do not change
    assert execute(torch.relu, [torch.tensor([float("nan")])]).writes == ()


def test_an_output_computed_from_a_dequantized_tensor_has_no_codes() -> None:
    (output,) = execute(lambda x: requantized(x) + 1, [X]).outputs
    assert output.quantized is None
    assert torch.equal(output.values, requantized(X) + 1)


def test_a_dequantized_output_that_was_changed_in_place_has_no_codes() -> None:
    (output,) = execute(lambda x: requantized(x).relu_(), [X]).outputs
    assert output == Output(output.values)
    assert torch.equal(output.values, requantized(X).relu())


def test_quantize_calls_are_recorded_with_argument_and_result() -> None:
    x = X + 0.1
    (pair,) = execute(requantized, [x]).quantized
    assert torch.equal(pair[0], x)
    assert [part.tolist() for part in qparams_of(pair[1])] == [[0.25], [8.0]]
    by_row = torch.quantize_per_channel(X, torch.tensor([0.5]), torch.tensor([3]), 0, torch.quint8)
    assert [part.tolist() for part in qparams_of(by_row)] == [[0.5], [3.0]]


def test_every_output_has_its_own_codes() -> None:
    first, plain, second = execute(lambda x: (requantized(x), x + 0, [requantized(2 * x)]), [X]).outputs
    assert first.quantized is not None
    assert second.quantized is not None
    assert first.quantized.int_repr().tolist() != second.quantized.int_repr().tolist()
    assert plain == Output(plain.values)


def test_conversions_of_freed_tensors_are_not_confused() -> None:
    def many(x: Tensor) -> Tensor:
        for shift in range(300):
            requantized(x + shift)
        return x.clone()

    (output,) = execute(many, [X]).outputs
    assert output.quantized is None


def test_outputs_require_no_gradient() -> None:
    layer = nn.Linear(4, 2)
    (output,) = execute(layer, [X]).outputs
    assert not output.values.requires_grad


def quantized(x: Tensor, scale: float = 0.25) -> Tensor:
    return torch.quantize_per_tensor(x, scale, 8, torch.quint8)


def test_a_conversion_to_float_inside_a_kernel_is_nested() -> None:
    def matmul() -> tuple[str, ...]:
        a, b = quantized(torch.ones(3, 3)), quantized(torch.ones(3, 3))
        return nested_kernels(lambda x, y: torch.ops.quantized.matmul(x, y, 0.5, 8), [a, b])[1]

    assert on_fbgemm(matmul) == (
        "quantized.matmul > aten.dequantize",
        "quantized.matmul > aten.dequantize",
        "quantized.matmul > aten.quantize_per_tensor",
    )


def test_the_conversions_of_a_concatenation_in_float_are_nested() -> None:
    def cat() -> tuple[str, ...]:
        return nested_kernels(lambda x, y: torch.cat([x, y]), [quantized(X), quantized(X, 0.5)])[1]

    assert set(on_fbgemm(cat)) == {"aten.cat > aten.dequantize", "aten.cat > aten.quantize_per_tensor"}


def test_conversions_between_kernels_are_not_nested() -> None:
    def lowered() -> tuple[list[Tensor], tuple[str, ...], Tensor]:
        model = convert_fx(prepared())
        outputs, inside = nested_kernels(model, [X])
        return outputs, inside, model(X).detach()

    outputs, inside, expected = on_fbgemm(lowered)
    assert inside == ()
    assert torch.equal(outputs[0], expected)
