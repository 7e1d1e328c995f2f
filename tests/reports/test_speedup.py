"""The document about speed over float: its summary by family, the share of the machine's limits, and networks."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from timed import COUNTS, HEADER, network, passes, timing, write

pytest.importorskip("scipy", reason="`tox -e bench` has it")

from conformance.__main__ import main
from conformance.bench.results import TimingsFile, read
from conformance.bench.timings import LayerTime, Machine, Memory, NotTimed, Timing
from conformance.reports.end_to_end import settings
from conformance.reports.speedup import document, speeds, summaries

MACHINE = Machine("1", 9e9, 36e9, {"1000000": 1e10})


@pytest.fixture
def file(tmp_path: Path) -> Any:
    def make(timings: list[Timing], *beside: Any) -> TimingsFile:
        return read(write(tmp_path / "timings.jsonl", timings, beside))

    return make


def on(engine: str, ratio: float, name: str = "nn.Linear") -> list[Timing]:
    """Three passes over a layer on an engine."""
    return [
        dataclasses.replace(timed, id=timed.id.replace("@x86", f"@{engine}")) for timed in passes(name, [ratio] * 3)
    ]


def test_a_family_counts_what_is_faster_even_and_slower(file: Any) -> None:
    timings = [
        *passes("nn.Linear", [0.5] * 3),
        *passes("F.linear", [1.02] * 3),
        *passes("nn.Linear+nn.ReLU", [2.0] * 3),
    ]
    (summary,) = summaries(speeds([file(timings)]))
    assert summary.counts["x86"] == {"faster": 1, "even": 1, "slower": 1}
    assert summary.means["x86"] == pytest.approx((2 / 1.02 / 2) ** (1 / 3))


def test_the_fastest_engine_is_that_of_the_layers_all_engines_have(file: Any) -> None:
    timings = [*on("x86", 0.5), *on("fbgemm", 0.6), *on("onednn", 0.505), *on("fbgemm", 0.1, "F.linear")]
    (summary,) = summaries(speeds([file(timings)]))
    assert summary.best == "x86, onednn"
    assert summary.means["fbgemm"] > summary.means["x86"]


def test_without_common_layers_the_greatest_speed_up_is_the_best(file: Any) -> None:
    (summary,) = summaries(speeds([file([*on("x86", 0.5), *on("fbgemm", 0.25, "F.linear")])]))
    assert summary.best == "fbgemm"


def test_the_share_of_the_limit_is_that_of_products_or_of_traffic(file: Any) -> None:
    (speed,) = speeds([file(passes("nn.Linear", [0.5] * 3), MACHINE)])
    assert COUNTS.operations is not None
    assert speed.share == pytest.approx(COUNTS.operations / 36e9 / speed.quantized_seconds)
    assert speed.float_share == pytest.approx(COUNTS.operations / 9e9 / speed.float_seconds)
    assert speeds([file([*passes("nn.Linear", [0.5] * 3, threads="all")], MACHINE)])[0].share is None


def test_the_summary_stands_before_the_tables(file: Any) -> None:
    lines = [*document([file(passes("nn.Linear", [0.5, 0.51, 0.49]), MACHINE)])]
    headings = [line for line in lines if line.startswith("#")]
    assert headings == ["# How much faster than in float", "## Summary", "## linear"]
    assert "| linear | **2.00×**: 1 faster | x86 | x86 50% |" in lines
    (environment,) = [line for line in lines if line.startswith("- ")]
    assert "1 cases, 3 to 3 passes over each; passes differ by 2.0%" in environment
    assert environment.endswith("limits with one thread: 9 GFLOP/s of float, 36 GOP/s of int8")


LAYERS = (
    LayerTime("conv1", "nn.Conv2d", ("quantized.conv2d",), 2e-4, 4e-4),
    LayerTime("fc", "nn.Linear", ("quantized.linear",), 6e-4, 1e-4),
    LayerTime("quantize", "", ("quantize_per_tensor",), 2e-4, 0.0),
)


def networks() -> list[Timing]:
    memory = Memory(20 << 20, 60 << 20, 11 << 20, 44 << 20)
    return [
        network(0, "eager@x86", 0.5, Memory(1, 2, 3, 4), LAYERS),
        network(0, "torchscript@x86", 0.4, memory),
        network(0, "eager@fbgemm", 1.5),
        network(0, "torchscript@float", 0.8),
        network(0, "compile@float", 0.9),
    ]


def test_a_network_is_compared_in_its_fastest_forms(file: Any) -> None:
    (setting,) = settings([file(networks())])
    assert setting.best_float == "torchscript"
    assert setting.best("x86").case.form == "torchscript"
    assert setting.speedup("x86") == pytest.approx(2.0)
    assert setting.best("x86").throughput == pytest.approx(1 / (0.4 * 0.002), rel=0.02)


def test_the_document_has_latency_memory_and_layers_of_networks(file: Any) -> None:
    lines = [*document([file([*networks(), timing()])])]
    assert "### Batch 1, one thread" in lines
    (latency,) = [line for line in lines if "(**2.00×**, torchscript)" in line]
    assert latency.startswith("| `resnet18` | 1.6 (torchscript) | 3.0 (**0.53×**, eager) | 0.8 (")
    assert "| `resnet18` | 60.0, 44.0 |  | 20.0, 11.0 |" in lines
    assert "| `resnet18` | x86 | 20% | `fc` 60%; `conv1` 20% | `fc` 100 → 600 µs |" in lines
    assert not [line for line in lines if "networks/" in line]


def test_conversions_are_no_layers_that_are_slower_than_in_float(file: Any) -> None:
    layered = settings([file(networks())])[0].layered("x86")
    assert layered is not None
    assert [layer.name for layer in layered.slower] == ["fc"]
    assert [layer.name for layer in layered.by_time] == ["fc", "conv1", "quantize"]


def test_the_command_writes_the_document(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    not_timed = NotTimed(timing().id, "all", "small", "does not conform")
    path = write(tmp_path / "timings.jsonl", passes("nn.Linear", [0.5] * 3), [not_timed], header=HEADER)
    assert main(["bench", "speed", str(path), "-o", str(tmp_path / "latency.md")]) == 0
    assert (tmp_path / "latency.md").read_text() == "\n".join(document([read(path)])) + "\n"
    assert main(["bench", "speed", str(path), "-o", str(path / "latency.md")]) != 0
    assert "name a file that can be written" in capsys.readouterr().err
