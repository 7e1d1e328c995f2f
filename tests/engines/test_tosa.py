"""The TOSA engine. It runs in `tox -e pt2e-tosa` alone, but for what missing packages mean."""

import importlib.util

import pytest
import torch
from torch.fx import GraphModule

from conformance.cases.claims import backend
from conformance.cases.runs import Run, runs
from conformance.checks.judge import Judge
from conformance.engines import tosa
from conformance.engines.registry import engine
from conformance.models import apis, build, pt2e
from conformance.repro.execution import execute
from conformance.repro.script import script
from conformance.results.verdicts import Verdict

missing = importlib.util.find_spec("tosa_reference_model") is None
installed = pytest.mark.skipif(missing, reason="tosa-tools is not installed")
CONV = "nn.Conv2d+nn.ReLU/static-qint8/ptq/default"
NORM = "nn.LayerNorm/static-qint8/ptq/default"


def run(case: str) -> Run:
    return next(run for run in runs(backend("tosa"), ["tosa"]) if run.id == f"tosa/{case}/exact@tosa")


def converted(case: str) -> tuple[build.Subject, GraphModule]:
    subject = build.subject(run(case))
    prepared = apis.of(subject.run.backend).prepare(subject)
    apis.of(subject.run.backend).calibrate(prepared, subject)
    return subject, pt2e.converted(prepared)


@pytest.mark.skipif(not missing, reason="tosa-tools is installed")
def test_without_its_packages_the_engine_is_unavailable() -> None:
    assert "use `tox -e pt2e-tosa`" in (engine("tosa").unavailable() or "")


@installed
@pytest.mark.parametrize(
    ("case", "kernel"),
    [
        (CONV, "tosa.CONV2D"),
        ("nn.Linear/static-qint8/ptq/default", "tosa.CONV2D"),
        ("torch.add/static-qint8/ptq/default", "tosa.ADD"),
        ("nn.Sigmoid/static-qint8/ptq/default", "tosa.TABLE"),
    ],
)
def test_a_claim_that_holds_conforms(case: str, kernel: str) -> None:
    row, unusable = Judge().row(run(case))
    assert (row.verdict, row.detail, unusable) == (Verdict.CONFORMS, "", "")
    assert kernel in row.kernels


@installed
@pytest.mark.parametrize("case", [CONV, NORM, "nn.Conv3d/static-qint8/ptq/default"])
def test_graphs_are_the_same_without_the_shortcuts(case: str) -> None:
    subject, model = converted(case)
    fast = tosa.TosaEngine().lower_for(model, subject.fresh_inputs())
    slow = tosa.lowered(model, subject.fresh_inputs())
    assert isinstance(fast, tosa.Lowered)
    assert [*fast.graphs] == [*slow.graphs]
    assert [graph.operators for graph in fast.graphs.values()] == [graph.operators for graph in slow.graphs.values()]


@installed
def test_lowering_leaves_the_converted_model_as_it_is() -> None:
    subject, model = converted(CONV)
    before = model.code
    tosa.lowered(model, subject.fresh_inputs())
    assert model.code == before


@installed
def test_a_graph_that_is_no_valid_tosa_is_refused() -> None:
    with pytest.raises((RuntimeError, ValueError)):
        tosa.Graph(b"no graph", (), ())(torch.ones(1, dtype=torch.int8))


@installed
def test_a_script_shows_what_its_run_showed() -> None:
    case = run("F.conv2d+nn.ReLU6/static-qint8/ptq/default")
    row, _ = Judge().row(case)
    assert row.failed == {"numerics", "accuracy"}
    output = execute(script(case, row, None)).output
    assert "DEVIATES numerics" in output
    assert "DEVIATES accuracy" in output


@installed
def test_an_image_in_channels_last_format_has_its_dimensions_in_that_order_in_the_graph() -> None:
    for name in ("nn.Hardsigmoid", "torch.permute"):
        row, _ = Judge().row(run(f"{name}/static-qint8/ptq/channels_last"))
        assert (row.verdict, row.detail) == (Verdict.CONFORMS, "")


@installed
def test_norms_behind_two_calls_of_a_layer_are_folded_into_its_one_weight() -> None:
    every = runs(backend("tosa"), ["tosa"])
    shared = next(
        one for one in every if one.variant is not None and one.variant.name == "other_norm" and "nn.Linear" in one.id
    )
    row, _ = Judge().row(shared)
    assert row.failed == frozenset({"numerics"})
    assert "output 1" in row.detail
