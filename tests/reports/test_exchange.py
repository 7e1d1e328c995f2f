"""Timings survive export to pytest-benchmark's JSON and import from it, and JSON of other benchmarks is refused."""

import json
import math
import sys
from pathlib import Path
from typing import Any

import pytest
from timed import HEADER, passes, write

pytest.importorskip("pytest_benchmark", reason="`tox -e bench` has it")

from conformance.__main__ import main
from conformance.bench.results import read
from conformance.errors import UsageError
from conformance.reports.exchange import imported, save


def test_an_error_about_a_missing_package_names_the_environment_that_has_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "pytest_benchmark.stats", None)
    monkeypatch.delitem(sys.modules, "conformance.reports.exchange", raising=False)
    write(tmp_path / "one.jsonl", passes("nn.Linear", [0.5]))
    assert main(["bench", "export", str(tmp_path / "one.jsonl"), "-o", str(tmp_path / "out.json")]) != 0
    error = capsys.readouterr().err
    assert "pytest_benchmark.stats is not installed: `pip install 'apache-otava>=0.8,<0.9' " in error


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    out = tmp_path / "folder" / "saved.json"
    save(read(write(tmp_path / "one.jsonl", passes("nn.Linear", [0.5, 0.6]))), out)
    return out


def test_import_restores_what_export_wrote(saved: Path, tmp_path: Path) -> None:
    imported(saved, tmp_path / "two.jsonl")
    exported, read_back = (read(tmp_path / f"{name}.jsonl") for name in ("one", "two"))
    assert (exported.timings, exported.header, exported.finished) == (
        read_back.timings,
        read_back.header,
        read_back.finished,
    )


def test_the_json_has_the_fields_that_pytest_benchmark_compares(saved: Path) -> None:
    values = json.loads(saved.read_text())
    (benchmark,) = values["benchmarks"]
    assert benchmark["stats"]["data"] == pytest.approx([0.001, 0.0012], rel=0.02)
    assert (benchmark["stats"]["rounds"], benchmark["stats"]["iterations"]) == (2, 1)
    assert benchmark["fullname"].startswith("conformance/test_benchmarks.py::test_latency[fbgemm/nn.Linear/")
    assert values["machine_info"]["cpu"]["brand_raw"] == HEADER["cpu"]


def test_json_of_before_with_a_benchmark_for_each_pass_is_imported(saved: Path, tmp_path: Path) -> None:
    def older(values: dict[str, Any]) -> None:
        (benchmark,) = values["benchmarks"]
        passes_of = benchmark["extra_info"]["passes"]
        for timing in passes_of:
            timing["new"] = {model: placements[0] for model, placements in timing["new"].items()}
            for name in ("pace", "memory", "layers"):
                del timing[name]
            for name in ("operations", "traffic"):
                del timing["counts"][name]
        values["benchmarks"] = [{**benchmark, "extra_info": timing} for timing in passes_of]
        values["machine_info"]["conformance"]["schema"] = 1

    changed(saved, older)
    imported(saved, tmp_path / "two.jsonl")
    assert [timing.new.log_ratio for timing in read(tmp_path / "two.jsonl").timings] == pytest.approx(
        [math.log(0.5), math.log(0.6)]
    )


def changed(path: Path, change: Any) -> None:
    values = json.loads(path.read_text())
    change(values)
    path.write_text(json.dumps(values))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda values: values.pop("benchmarks"), "not what pytest-benchmark saves"),
        (lambda values: values["machine_info"].pop("conformance"), "benchmarks of something else"),
        (lambda values: values["benchmarks"][0].update(extra_info={}), "no timing of this suite, or damaged"),
        (
            lambda values: values["benchmarks"][0]["extra_info"]["passes"][1].pop("counts"),
            "no timing of this suite, or damaged",
        ),
    ],
)
def test_json_that_is_damaged_or_of_other_benchmarks_is_refused(
    change: Any, message: str, saved: Path, tmp_path: Path
) -> None:
    changed(saved, change)
    with pytest.raises(UsageError, match=message) as raised:
        imported(saved, tmp_path / "two.jsonl")
    assert str(saved) in str(raised.value)
    assert not (tmp_path / "two.jsonl").exists()


def test_a_file_that_is_missing_or_not_json_is_refused(tmp_path: Path) -> None:
    (tmp_path / "broken.json").write_text("{")
    with pytest.raises(UsageError, match=r"broken\.json: not what pytest-benchmark saves"):
        imported(tmp_path / "broken.json", tmp_path / "two.jsonl")
    with pytest.raises(UsageError, match=r"missing\.json: No such file"):
        imported(tmp_path / "missing.json", tmp_path / "two.jsonl")
