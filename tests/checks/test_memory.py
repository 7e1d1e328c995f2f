"""Kernels that leave their operands fail the check `memory`, by name; what is not guarded is skipped, with the reason."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor

from conformance.checks.evidence import Guarded
from conformance.checks.judge import Judge
from conformance.execution.batch import Judged, judge_runs
from conformance.host import guard
from conformance.results.findings.memory import OutOfBounds
from conformance.results.rows import Row
from tests.lies import LINEAR, Lie, after, applied, failed, judged
from tests.planted import Planted
from tests.runs_by_id import run

needs_guard = pytest.mark.skipif(guard.unavailable() is not None, reason=str(guard.unavailable()))

PAIRS = "qnnpack/nn.Linear/static-quint8/ptq/features_3x5/pairs@qnnpack"
CANNOT_BE_SAVED = "qnnpack/nn.Conv3d/static-quint8/ptq/default/exact@qnnpack"
LAW = "fbgemm/nn.Linear/static-quint8/ptq/large/laws@x86"
OTHER_ENGINE = "executorch/nn.Linear/static-qint8/ptq/default/exact@executorch"
PROJECTION = "qnnpack/nn.LSTM/dynamic-quint8/ptq/projection/exact@qnnpack"


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Planted:
    return Planted(tmp_path_factory.mktemp("planted"))


@pytest.fixture
def _every_run() -> Iterator[None]:
    with guard.every_run():
        yield


def row_of(name: str) -> Row:
    """The row of a run that is judged as an invocation does."""
    (outcome,) = judge_runs([run(name)], lambda engine: None)
    assert isinstance(outcome, Judged), outcome
    return outcome.row


def calling(planted: Planted, kernel: str) -> Lie:
    """A lowered model that passes its codes through an operator `planted::<kernel>`."""

    def through_operator(x: Tensor) -> Tensor:
        if not hasattr(torch.ops.planted, kernel):
            library.define(f"{kernel}(Tensor x) -> Tensor")  # type: ignore[no-untyped-call]
            library.impl(kernel, implementation, "CompositeExplicitAutograd")  # type: ignore[no-untyped-call]
        passed: Tensor = getattr(torch.ops.planted, kernel)(x)
        return passed

    def implementation(x: Tensor) -> Tensor:
        planted.call(kernel, x)
        return x.clone()

    library = torch.library.Library("planted", "FRAGMENT")  # type: ignore[no-untyped-call]
    return after("lower", lambda graph: applied(graph, through_operator))


@needs_guard
@pytest.mark.parametrize("side", ["before", "beyond"])
def test_a_kernel_that_leaves_its_operand_is_named(planted: Planted, side: str) -> None:
    outcome = judged(run(LINEAR), calling(planted, f"reads_{side}"))["memory"]
    assert outcome.findings == (OutOfBounds("memory", f"planted.reads_{side}", "reads", side, 32),)


@needs_guard
def test_a_kernel_that_stays_inside_of_its_operand_passes(planted: Planted) -> None:
    outcomes = judged(run(LINEAR), calling(planted, "sum"))
    assert failed(outcomes) == {"stable"}  # TorchScript does not compile the planted call
    assert outcomes["memory"].result == "pass"


@needs_guard
@pytest.mark.usefixtures("_every_run")
def test_weights_are_packed_into_guarded_memory() -> None:
    """QNNPACK's linear layers read beyond the packed weight if the input has more features than it."""
    row = row_of(PROJECTION)
    assert OutOfBounds("memory", "aten.quantized_lstm", "reads", "beyond", 176) in row.findings
    assert row.checks["memory"] == "fail"


@needs_guard
def test_weights_that_cannot_be_saved_are_packed_by_another_conversion() -> None:
    assert row_of(CANNOT_BE_SAVED).checks["memory"] == "pass"


def test_only_runs_of_core_variants_are_guarded_unless_every_run_is() -> None:
    assert "memory" in run(LINEAR).checks
    assert "memory" not in run(PAIRS).checks
    assert "memory" not in run(LINEAR.replace("exact", "typical")).checks


@pytest.mark.usefixtures("_every_run")
def test_every_run_of_a_case_on_an_engine_of_torch_is_guarded_if_it_is_asked_for() -> None:
    for name in (LINEAR, PAIRS, LINEAR.replace("exact", "typical")):
        assert run(name).checks[-1] == "memory"
    assert "memory" not in run(LAW).checks
    assert "memory" not in run(OTHER_ENGINE).checks


@needs_guard
@pytest.mark.usefixtures("_every_run")
def test_a_run_that_is_asked_for_it_has_an_outcome() -> None:
    row = row_of(PAIRS)
    assert row.checks["memory"] == "pass"
    assert "memory" not in row.failed


def test_where_memory_cannot_be_guarded_the_row_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("CC", "no-such-compiler")
    row = row_of(LINEAR)
    assert (row.verdict, row.checks["memory"]) == ("conforms", "skip")
    assert row.detail == "memory is not guarded: no C compiler (no-such-compiler): install one, or name it in CC"


def test_this_process_is_not_guarded() -> None:
    assert Judge().evidence(run(LINEAR)).guarded == Guarded(reason="memory is guarded in forked children only")
    assert "guard-" not in Path("/proc/self/maps").read_text()


@needs_guard
def test_a_model_that_raises_in_guarded_memory_alone_is_skipped_with_the_reason() -> None:
    def raising(x: Tensor) -> Tensor:
        if x.data_ptr() % 64:  # as torch never allocates a result itself
            raise ValueError("not aligned")
        return x

    outcome = judged(run(LINEAR), after("lower", lambda graph: applied(graph, raising)))["memory"]
    assert (outcome.result, outcome.detail) == ("skip", "execute raises ValueError: not aligned")
