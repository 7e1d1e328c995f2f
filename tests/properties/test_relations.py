"""A program that breaks a relation is caught by it, conforming programs break none, and every claim is tested."""

import ctypes
import re
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.ao.nn.intrinsic.quantized as nniq
import torch.ao.nn.quantized as nnq
from torch import Tensor
from torch.fx import GraphModule, Node

from conformance.cases.claims import backend
from conformance.cases.runs import Run, runs
from conformance.cases.variants import missing_operators
from conformance.configs.registry import BACKENDS
from conformance.engines.registry import engine
from conformance.execution import batch
from conformance.host.isolation import Done, run_isolated
from conformance.models import fx
from conformance.properties.metamorphic import relations
from conformance.results.findings import detail_of
from conformance.results.findings.stages import Raises
from conformance.results.rows import Row
from conformance.stopwatch import Stopwatch
from tests.runs_by_id import run

CONV = "fbgemm/nn.Conv2d/static-quint8/ptq/large/laws@fbgemm"
CONV_RELU = "fbgemm/nn.Conv2d+nn.ReLU/static-quint8/ptq/large/laws@fbgemm"
ADD = "fbgemm/torch.add/static-quint8/ptq/large/laws@fbgemm"
HONEST = (
    CONV,
    CONV_RELU,
    ADD,
    "fbgemm/nniqat.ConvBnReLU2d/static-quint8/qat/large/laws@fbgemm",
    "fbgemm/nn.Linear+nn.ReLU/dynamic-quint8/ptq/large/laws@x86",
    "fbgemm/nn.EmbeddingBag/weight-quint8/ptq/large/laws@fbgemm",
    "onednn/nn.LayerNorm/static-quint8/ptq/large/laws@onednn",
    "qnnpack/nn.BatchNorm3d/static-quint8/ptq/large/laws@qnnpack",
    "qnnpack/F.interpolate/static-qint8/ptq/large/laws@qnnpack",
)


def relation_runs(name: str, engines: tuple[str, ...] = ()) -> list[Run]:
    return [run for run in runs(backend(name), engines) if run.profile == "laws"]


def judged(name: str, lie: Callable[[GraphModule], object] | None = None) -> Row:
    """Evaluate the relations on a run in a child, with every lowered model changed by `lie`."""
    subject = run(name)
    if (reason := engine(subject.engine).unavailable()) is not None:
        pytest.skip(f"{subject.engine}: {reason}")
    batch.warm_up()

    def work(subject: Run) -> Row:
        honest = fx.lower

        def lying(*arguments: Any) -> GraphModule:
            graph = honest(*arguments)
            if lie is not None:
                lie(graph)
                graph.recompile()
            return graph

        setattr(fx, "lower", lying)  # noqa: B010
        return relations.row(Stopwatch(), subject)

    (outcome,) = run_isolated([subject], work)
    assert isinstance(outcome, Done), outcome
    assert outcome.value.detail == detail_of(outcome.value.findings)
    return outcome.value


def broken_by(name: str, lie: Callable[[GraphModule], object]) -> set[str]:
    """Names of the relations that a lie breaks."""
    row = judged(name, lie)
    assert row.failed <= {"stable"}, row.detail
    return {
        str(finding.stage if isinstance(finding, Raises) else getattr(finding, "relation", None))
        for finding in row.findings
    }


def on_input(graph: GraphModule, function: Callable[[Tensor], Tensor]) -> None:
    """Apply a function to the first input before any other node uses it."""
    placeholder: Node = next(node for node in graph.graph.nodes if node.op == "placeholder")
    with graph.graph.inserting_after(placeholder):
        inserted = graph.graph.call_function(function, (placeholder,))
    placeholder.replace_all_uses_with(inserted, lambda user: user is not inserted)


def on_output(graph: GraphModule, function: Callable[[Tensor], Tensor]) -> None:
    """Apply a function to the quantized output."""
    last: Node = next(node for node in reversed(graph.graph.nodes) if node.name.startswith("dequantize"))
    with graph.graph.inserting_before(last):
        inserted = graph.graph.call_function(function, (last.args[0],))
    last.args = (inserted,)


def with_codes(change: Callable[[Tensor], Tensor]) -> Callable[[GraphModule], None]:
    """A lowered model that changes its codes, uint8 of the output's shape, before they are dequantized."""

    def lying(x: Tensor) -> Tensor:
        codes = change(x.int_repr().contiguous())
        return torch._make_per_tensor_quantized_tensor(codes, x.q_scale(), x.q_zero_point())

    return lambda graph: on_output(graph, lying)


@pytest.mark.parametrize("name", HONEST)
def test_engines_break_no_relation(name: str) -> None:
    row = judged(name)
    assert (row.verdict, row.detail) == ("conforms", "")
    assert set(row.checks.values()) == {"pass"}


def test_packed_weights_that_torch_load_refuses_are_caught() -> None:
    assert broken_by("fbgemm/nn.LSTM/dynamic-float16/ptq/large/laws@fbgemm", lambda graph: None) == {"torch.load"}


def test_an_item_that_depends_on_the_size_of_the_batch_is_caught() -> None:
    def lying(codes: Tensor) -> Tensor:
        codes[0, 0, 0, 0] = len(codes)
        return codes

    assert broken_by(CONV, with_codes(lying)) >= {"an item alone", "a split batch"}


def test_an_item_that_depends_on_another_is_caught() -> None:
    def lying(codes: Tensor) -> Tensor:
        codes[1, -1, -1, -1] = codes[0, -1, -1, -1]
        return codes

    assert broken_by(CONV, with_codes(lambda codes: lying(codes) if len(codes) > 1 else codes)) >= {"an item alone"}


def test_a_part_of_the_batch_that_is_computed_otherwise_is_caught() -> None:
    def lying(codes: Tensor) -> Tensor:
        if len(codes) == 3:
            codes[2, 1, 1, 1] ^= 64
        return codes

    assert broken_by(ADD, with_codes(lying)) == {"a split batch"}


@pytest.mark.parametrize("name", [CONV, ADD])
def test_swapped_channels_are_caught(name: str) -> None:
    def lying(codes: Tensor) -> Tensor:
        return torch.cat([codes[:, 1:2], codes[:, :1], codes[:, 2:]], 1)

    assert broken_by(name, with_codes(lying)) == {"another order of channels"}


def test_a_model_that_takes_channels_last_for_contiguous_is_caught() -> None:
    def lying(x: Tensor) -> Tensor:
        return x if x.is_contiguous() else x.permute(0, 2, 3, 1).reshape(x.shape)

    assert broken_by(ADD, lambda graph: on_input(graph, lying)) == {"channels_last"}


def test_a_relu_that_clamps_at_code_zero_is_caught() -> None:
    def lying(graph: GraphModule) -> None:
        for module in graph.modules():
            if isinstance(module, nniq.ConvReLU2d):
                module.__class__ = nnq.Conv2d  # type: ignore[assignment]

    assert broken_by(CONV_RELU, lying) == {"ReLU apart"}


def test_a_model_that_writes_to_its_input_is_caught() -> None:
    def lying(x: Tensor) -> Tensor:
        ctypes.memset(x.data_ptr(), 0, 64)  # where no trace sees it
        return x

    row = judged(ADD, lambda graph: on_input(graph, lying))
    assert "a call changes input 0" in row.detail


def test_a_kernel_that_writes_to_its_input_is_caught() -> None:
    library = torch.library.Library("lying", "FRAGMENT")  # type: ignore[no-untyped-call]
    library.define("copied(Tensor x) -> Tensor")  # type: ignore[no-untyped-call]

    def copied(x: Tensor) -> Tensor:
        y = x.clone()
        x.fill_(0.0)
        return y

    library.impl("copied", copied, "QuantizedCPU")  # type: ignore[no-untyped-call]
    row = judged(ADD, lambda graph: on_output(graph, torch.ops.lying.copied))
    assert "a call lying.copied writes to its tensor 0" in row.detail


def test_a_second_call_that_differs_is_caught() -> None:
    calls = Counter[str]()

    def lying(codes: Tensor) -> Tensor:
        calls["all"] += 1
        return codes ^ (calls["all"] % 2)

    row = judged(CONV, with_codes(lying))
    assert row.detail == "stable: a second call changes values"


def test_a_model_that_depends_on_the_number_of_threads_is_caught() -> None:
    caught = broken_by(ADD, with_codes(lambda codes: codes ^ torch.get_num_threads()))
    assert caught == {"a second thread"}


def test_a_state_that_is_forgotten_on_load_is_caught() -> None:
    class Forgetful(nnq.Conv2d):
        def _load_from_state_dict(self, *arguments: Any) -> None:
            return None

    def lying(graph: GraphModule) -> None:
        for module in graph.modules():
            if type(module) is nnq.Conv2d:
                module.__class__ = Forgetful

    assert "a loaded state_dict" in broken_by(CONV, lying)


def test_relations_are_not_evaluated_on_a_model_in_float() -> None:
    def through_float(x: Tensor) -> Tensor:
        return torch.quantize_per_tensor(x.dequantize() * 1.0, x.q_scale(), x.q_zero_point(), x.dtype)

    row = judged(CONV, lambda graph: on_output(graph, through_float))
    assert row.failed == {"lowered"}
    assert row.checks["stable"] == "skip"


# The runs that each relation applies to.

RELATIONS = {relation.name for relation in relations.RELATIONS}
RESTRICTED = {
    "an item alone": {"Tensor.resize_", "nn.GRU", "nn.LSTM"},
    "a split batch": {"Tensor.resize_", "nn.GRU", "nn.LSTM"},
    "another order of channels": {
        *("F.group_norm", "torch.cat", "torch.stack", "torch.flatten", "torch.narrow", "operator.getitem"),
        *(f"{kind}{name}" for kind in ("nn.Pixel", "F.pixel_") for name in ("Shuffle", "Unshuffle", "shuffle", "unshuffle")),
        *(f"{kind}.{name}{_}" for kind in ("torch", "Tensor") for _ in ("", "_") for name in (
            "permute", "repeat", "repeat_interleave", "reshape", "shape", "size", "squeeze", "transpose", "unsqueeze", "view",
        )),
        *(f"nn.{cell}Cell/dynamic-{dtype}" for cell in ("GRU", "LSTM", "RNN") for dtype in ("quint8", "float16")),
    },
}  # fmt: skip
"""The operators that a relation does not apply to; `channels_last` needs four dimensions."""


FUSED_RELU = (
    r"(nn|F|torch)\.(ReLU|relu)\(|.*\+(nn|F|torch)\.(ReLU|relu)$|nni(qat)?\.(Conv|ConvBn|ConvAdd|BN|Linear)ReLU"
)
"""Patterns that continue with a ReLU."""


def excepted(relation: str, subject: Run) -> bool:
    """Whether a relation does not apply to a run."""
    names = {subject.claim.root, f"{subject.claim.root}/{subject.claim.dtype_config}"}
    if relation == "channels_last":
        shapes = [spec.shape for spec in subject.variant.operands.values()] if subject.variant else []
        return not any(len(shape) in (4, 5) for shape in shapes) or bool(names & {"Tensor.view", "Tensor.resize_"})
    if relation == "ReLU apart":
        return not re.match(FUSED_RELU, subject.claim.pattern)
    return bool(names & RESTRICTED.get(relation, set()))


@pytest.mark.parametrize("name", ["qnnpack", "fbgemm", "onednn"])
def test_every_relation_applies_to_every_operator_but_the_listed_ones(name: str) -> None:
    seen = set()
    for subject in relation_runs(name, ("x86",)):
        key = (subject.claim.pattern, subject.claim.dtype_config)
        cannot_occur = ("hardsigmoid" in key[0] and "Tensor." in key[0]) or (
            key[1] == "dynamic-float16" and subject.flow == "qat"
        )
        if key in seen or cannot_occur:
            continue
        seen.add(key)
        with fx.quiet():
            applied = set(relations.applicable(subject))
        assert applied == {relation for relation in RELATIONS if not excepted(relation, subject)}, subject.id


@pytest.mark.parametrize("name", BACKENDS)
def test_every_claim_is_tested_on_every_engine_on_large_shapes(name: str) -> None:
    registered = backend(name)
    covered = [claim for claim in registered.claims if not missing_operators(claim)]
    relation_cases = relation_runs(name)
    assert len(relation_cases) == len(covered) * len(registered.engines)
    assert {run.claim for run in relation_cases} == set(covered)
    assert {run.variant.name for run in relation_cases if run.variant} == {"large"}


@pytest.mark.parametrize("name", BACKENDS)
def test_large_shapes_have_at_least_a_thousand_values(name: str) -> None:
    for subject in relation_runs(name):
        assert subject.variant is not None
        assert max(torch.Size(spec.shape).numel() for spec in subject.variant.operands.values()) > 1000, subject.id
