"""Timings as pytest-benchmark's JSON and back: nothing is lost, and what is of something else is refused."""

import json
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


def test_a_package_that_is_missing_is_said_with_where_it_is_had(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "pytest_benchmark.stats", None)
    monkeypatch.delitem(sys.modules, "conformance.reports.exchange", raising=False)
    write(tmp_path / "one.jsonl", passes("nn.Linear", [0.5]))
    assert main(["bench", "export", str(tmp_path / "one.jsonl"), "-o", str(tmp_path / "out.json")]) != 0
    assert "pytest_benchmark.stats is not installed: `tox -q -e bench-report -- …` has it" in capsys.readouterr().err


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    out = tmp_path / "folder" / "saved.json"
    save(read(write(tmp_path / "one.jsonl", passes("nn.Linear", [0.5, 0.6]))), out)
    return out


def test_there_and_back_is_the_same(saved: Path, tmp_path: Path) -> None:
    imported(saved, tmp_path / "two.jsonl")
    one, two = (read(tmp_path / f"{name}.jsonl") for name in ("one", "two"))
    assert (one.timings, one.header, one.finished) == (two.timings, two.header, two.finished)


def test_the_json_has_what_pytest_benchmark_compares(saved: Path) -> None:
    values = json.loads(saved.read_text())
    (first, second) = values["benchmarks"]
    assert first["stats"]["median"] == pytest.approx(0.001, rel=0.02)
    assert (second["stats"]["rounds"], second["stats"]["iterations"]) == (8, 1)
    assert first["fullname"].startswith("conformance/test_benchmarks.py::test_latency[fbgemm/nn.Linear/")
    assert values["machine_info"]["cpu"]["brand_raw"] == HEADER["cpu"]


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
        (lambda values: values["benchmarks"][1]["extra_info"].pop("counts"), "no timing of this suite, or damaged"),
    ],
)
def test_what_is_of_something_else_is_refused(change: Any, message: str, saved: Path, tmp_path: Path) -> None:
    changed(saved, change)
    with pytest.raises(UsageError, match=message) as raised:
        imported(saved, tmp_path / "two.jsonl")
    assert str(saved) in str(raised.value)
    assert not (tmp_path / "two.jsonl").exists()


def test_what_is_no_json_or_missing_is_refused(tmp_path: Path) -> None:
    (tmp_path / "broken.json").write_text("{")
    with pytest.raises(UsageError, match=r"broken\.json: not what pytest-benchmark saves"):
        imported(tmp_path / "broken.json", tmp_path / "two.jsonl")
    with pytest.raises(UsageError, match=r"missing\.json: No such file"):
        imported(tmp_path / "missing.json", tmp_path / "two.jsonl")
