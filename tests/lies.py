"""Models that lie: stages of the pipeline replaced by false ones, and the outcomes of the checks on them."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.fx import GraphModule, Node

from conformance.cases.runs import Run
from conformance.checks.evidence import Outcome
from conformance.checks.judge import CHECKS, Judge
from conformance.engines.registry import engine
from conformance.execution import batch
from conformance.host.isolation import Done, run_isolated
from conformance.models import fx

LINEAR = "fbgemm/nn.Linear/static-quint8/ptq/default/exact@fbgemm"
LINEAR_QAT = "fbgemm/nn.Linear/static-quint8/qat/default/exact@fbgemm"
LINEAR_RELU = "fbgemm/nn.Linear+nn.ReLU/static-quint8/ptq/default/exact@fbgemm"
DYNAMIC = "fbgemm/nn.Linear/dynamic-quint8/ptq/default/exact@fbgemm"
RELU = "fbgemm/nn.ReLU/static-quint8/ptq/default/exact@fbgemm"
SIGMOID = "fbgemm/nn.Sigmoid/static-quint8/ptq/default/exact@fbgemm"
POOLING = "fbgemm/nn.MaxPool2d/static-quint8/ptq/default/exact@fbgemm"
CONV = "fbgemm/nn.Conv2d/static-quint8/ptq/default/exact@fbgemm"
SYMMETRIC = "qnnpack/nn.Linear/static-qint8/ptq/default/exact@fbgemm"

Stage = Callable[..., Any]
Lie = tuple[str, Callable[[Stage], Stage]]
"""The name of a function of the module `fx`, and the function that makes its replacement from it."""


def judged(subject: Run, *lies: Lie) -> dict[str, Outcome]:
    """Take a run through the stages in a child process, with lies in place of some, and return the outcome of each check."""
    if (reason := engine(subject.engine).unavailable()) is not None:
        pytest.skip(f"{subject.engine}: {reason}")
    batch.warm_up()

    def work(run: Run) -> dict[str, Outcome]:
        for stage, lie in lies:
            setattr(fx, stage, lie(getattr(fx, stage)))
        evidence = Judge().evidence(run)
        return {name: CHECKS[name](evidence) for name in evidence.run.checks}

    (outcome,) = run_isolated([subject], work)
    assert isinstance(outcome, Done), outcome
    return outcome.value


def failed(outcomes: dict[str, Outcome]) -> set[str]:
    return {name for name, outcome in outcomes.items() if outcome.result == "fail"}


def after(stage: str, change: Callable[[GraphModule], GraphModule | None]) -> Lie:
    """A lie that changes the product of a stage, or replaces it if `change` returns another."""

    def lie(honest: Stage) -> Stage:
        def lying(*arguments: Any) -> GraphModule:
            product: GraphModule = honest(*arguments)
            changed = change(product)
            result = product if changed is None else changed
            if isinstance(result, GraphModule):
                result.recompile()
            return result

        return lying

    return stage, lie


def instead(stage: str, replacement: Stage) -> Lie:
    return stage, lambda honest: replacement


def call(graph: GraphModule, name: str) -> Node:
    """The last node of a graph whose name starts with `name`."""
    nodes: list[Node] = [node for node in graph.graph.nodes if node.name.startswith(name)]
    return nodes[-1]


def with_codes(change: Callable[[Tensor], Tensor]) -> Lie:
    """A lowered model that changes its codes before they are dequantized."""

    def lying(x: Tensor) -> Tensor:
        codes = change(x.int_repr().clone())
        return torch._make_per_tensor_quantized_tensor(codes, x.q_scale(), x.q_zero_point())

    return after("lower", lambda graph: applied(graph, lying))


def applied(graph: GraphModule, function: Callable[[Tensor], Tensor]) -> None:
    """Apply a function to the argument of the last dequantize call."""
    last = call(graph, "dequantize")
    with graph.graph.inserting_before(last):
        inserted = graph.graph.call_function(function, (last.args[0],))
    last.args = (inserted,)


class Applied(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


def erased(name: str) -> Callable[[GraphModule], None]:
    """A change that replaces a node of a graph by its first argument."""

    def erase(graph: GraphModule) -> None:
        node = call(graph, name)
        node.replace_all_uses_with(node.args[0])  # type: ignore[arg-type]
        graph.graph.erase_node(node)

    return erase


def first_code_one_up(codes: Tensor) -> Tensor:
    codes.view(-1)[0] += 1
    return codes


def by_input(change: Callable[[Tensor, Tensor], Tensor]) -> Lie:
    """A lie that changes the codes of the last output, given the model's first input."""

    def changed(x: Tensor, model_input: Tensor) -> Tensor:
        codes = change(x.int_repr().clone(), model_input)
        return torch._make_per_tensor_quantized_tensor(codes, x.q_scale(), x.q_zero_point())

    def lie(graph: GraphModule) -> None:
        last, (first, *_) = call(graph, "dequantize"), graph.graph.nodes
        with graph.graph.inserting_before(last):
            last.args = (graph.graph.call_function(changed, (last.args[0], first)),)

    return after("lower", lie)
