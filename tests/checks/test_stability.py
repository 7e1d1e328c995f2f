"""Models whose outputs change when they are executed again fail the check `stable`."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.fx import GraphModule

from conformance.checks.evidence import Back, Evidence, Expectation
from conformance.checks.stability import stable
from conformance.goldens.golden import Expected, Golden
from conformance.models.build import subject
from conformance.models.scripting import compiles
from conformance.models.trace import Execution, Output
from tests.lies import (
    CONV,
    LINEAR,
    RELU,
    Applied,
    after,
    applied,
    by_input,
    failed,
    first_code_one_up,
    judged,
    with_codes,
)
from tests.runs_by_id import run

NO_BIAS = LINEAR.replace("default", "no_bias")
"""A run whose program is executed on no further inputs."""


def test_a_kernel_that_writes_to_its_input_is_caught_by_stable_alone() -> None:
    library = torch.library.Library("lies", "FRAGMENT")  # type: ignore[no-untyped-call]
    library.define("relu(Tensor x) -> Tensor")  # type: ignore[no-untyped-call]
    library.impl("relu", lambda x: x.relu_().clone(), "QuantizedCPU")  # type: ignore[no-untyped-call]

    def lie(graph: GraphModule) -> None:
        graph.set_submodule("op", Applied(torch.ops.lies.relu))

    outcomes = judged(run(RELU), after("lower", lie))
    assert failed(outcomes) == {"stable"}
    assert outcomes["stable"].detail == "lies.relu writes to its tensor 0"


def test_an_output_that_the_next_call_overwrites_is_caught_by_stable_alone() -> None:
    buffer: list[Tensor] = []

    def same(x: Tensor) -> Tensor:
        buffer[:] = buffer or [x]
        return buffer[0].copy_(x)

    outcomes = judged(run(NO_BIAS), after("lower", lambda graph: applied(graph, same)))
    assert failed(outcomes) == {"stable"}
    assert "another call changes 32 of 32 values" in outcomes["stable"].detail


def every_second() -> Callable[[Tensor], Tensor]:
    """One code up in every second call."""
    calls: list[int] = []

    def change(codes: Tensor) -> Tensor:
        calls.append(1)
        return first_code_one_up(codes) if len(calls) % 2 == 0 else codes

    return change


def test_an_output_that_changes_in_every_second_call_is_caught_by_stable_alone() -> None:
    outcomes = judged(run(NO_BIAS), with_codes(every_second()))
    assert failed(outcomes) == {"stable"}
    assert "second run changes 1 of 32 values" in outcomes["stable"].detail


def scripted_lie(x: Tensor) -> Tensor:
    if torch.jit.is_scripting():  # type: ignore[attr-defined]
        return torch.relu(x)
    return x


def test_a_model_that_computes_something_else_as_torchscript_is_caught_by_stable_alone() -> None:
    outcomes = judged(run(LINEAR), after("lower", lambda graph: applied(graph, scripted_lie)))
    assert failed(outcomes) == {"stable"}
    assert "torch.jit changes " in outcomes["stable"].detail


def test_a_program_is_not_compiled_by_torchscript_if_the_float_model_is_not() -> None:
    of_float_scale = run("fbgemm/F.interpolate/static-quint8/ptq/default/exact@fbgemm")
    assert not compiles(subject(of_float_scale).model)
    assert judged(of_float_scale)["stable"].result == "pass"


def test_a_kernel_that_does_not_write_all_of_its_output_is_caught_by_stable() -> None:
    def unwritten(codes: Tensor) -> Tensor:
        result = torch.empty(40_000, dtype=torch.uint8)
        codes.view(-1)[-1] = result[20_000]
        return codes

    outcomes = judged(run(LINEAR), with_codes(unwritten))
    assert "second run changes 1 of 32 values" in outcomes["stable"].detail


def test_a_result_that_depends_on_the_memory_format_is_caught_by_stable_alone() -> None:
    def choosy(codes: Tensor, model_input: Tensor) -> Tensor:
        return codes if model_input.is_contiguous() else codes + 1

    outcomes = judged(run(CONV.replace("default", "no_bias")), by_input(choosy))
    assert failed(outcomes) == {"stable"}
    assert outcomes["stable"].detail.startswith("channels_last changes ")


def test_a_model_that_does_not_load_its_state_is_caught_by_stable_alone() -> None:
    def forgets(graph: GraphModule) -> None:
        graph.get_submodule("op")._load_from_state_dict = lambda *_, **__: None  # type: ignore[method-assign, assignment]

    outcomes = judged(run(LINEAR), after("lower", forgets))
    assert failed(outcomes) == {"stable"}
    assert outcomes["stable"].detail.startswith("state_dict changes ")


def test_a_model_that_cannot_load_its_state_is_caught_by_stable_alone() -> None:
    def refuses(graph: GraphModule) -> None:
        def load(*_: object, **__: object) -> None:
            raise KeyError("packed_params")

        graph.get_submodule("op")._load_from_state_dict = load  # type: ignore[method-assign, assignment]

    outcomes = judged(run(LINEAR), after("lower", refuses))
    assert failed(outcomes) == {"stable"}
    assert outcomes["stable"].detail == "state_dict raises KeyError: 'packed_params'"


@pytest.mark.parametrize(
    ("repetition", "changed", "result"),
    [
        ("channels_last", "tie", "pass"),
        ("channels_last", "other", "fail"),
        ("second run", "tie", "fail"),
        ("state_dict", "tie", "fail"),
        ("second run", "nothing", "pass"),
    ],
)
def test_only_another_memory_format_may_change_codes_and_only_at_ties(
    repetition: str, changed: str, result: str
) -> None:
    quantized = torch.quantize_per_tensor(torch.tensor([4.0, 7.0]), 1.0, 0, torch.quint8)
    outputs = (Output(quantized.dequantize(), quantized),)
    codes = torch.tensor([4, 7], dtype=torch.uint8)
    golden = Golden((Expected(codes, codes + torch.tensor([1, 0], dtype=torch.uint8), 1.0, 0, "quint8"),), ("output",))
    again = quantized.dequantize() + torch.tensor(
        {"tie": [1.0, 0.0], "other": [0.0, 1.0], "nothing": [0.0, 0.0]}[changed]
    )
    back = Back(execution=Execution((), outputs), repetitions={repetition: (again,)})
    assert stable(Evidence(run(LINEAR), back=back, expectation=Expectation(golden))).result == result


@pytest.mark.parametrize(
    ("run_id", "step", "result"),
    [
        ("fbgemm/nn.Sigmoid/static-quint8/ptq/default/exact@fbgemm", 2.0**-23, "pass"),
        ("fbgemm/nn.Sigmoid/static-quint8/ptq/default/exact@fbgemm", 2.0**-18, "fail"),
        ("fbgemm/nn.Sigmoid/static-quint8/ptq/default/exact@fbgemm", float("nan"), "fail"),
        (LINEAR, 2.0**-23, "fail"),
    ],
)
def test_float_outputs_of_functions_that_round_may_change_by_the_error_of_float32(
    run_id: str, step: float, result: str
) -> None:
    values = torch.tensor([0.25, 0.75, float("inf")])
    again = values + torch.tensor([step, 0.0, 0.0])
    back = Back(execution=Execution((), (Output(values),)), repetitions={"second run": (again,)})
    assert stable(Evidence(run(run_id), back=back, expectation=Expectation(None))).result == result
