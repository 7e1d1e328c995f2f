"""Shards and what failed or is new since earlier rows, in invocations of the suite."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from invocation import row, write
from invoking import Invocation, cases, invoke, side_by_side

from conformance.reports.merge import merge
from conformance.results.rows import read
from conformance.results.verdicts import Verdict

pytestmark = pytest.mark.xdist_group("parts")  # one worker: its fixture takes seconds

ONE = "fbgemm/nn.ReLU/static-quint8/ptq/default/exact@x86"
TWO = "fbgemm/nn.ReLU/static-quint8/ptq/large/laws@x86"
EARLIER = {
    "relu": [row("nn.ReLU", engine="x86"), row("nn.ReLU", engine="x86", variant="large", profile="laws")],
    "cases": [row("nn.ReLU", engine="x86")],
}
"""Rows of an earlier invocation."""


@pytest.fixture(scope="module")
def invocations(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Invocation]:
    folder = tmp_path_factory.mktemp("parts")
    since = {name: str(write(folder / f"{name}.jsonl", rows)) for name, rows in EARLIER.items()}
    arguments = {
        "full shard": ["--shard", "1/2", *cases(ONE)],
        "empty shard": ["--shard", "2/2", *cases(ONE)],
        "shard without the test": ["--shard", "2/2", *cases(ONE, TWO)],
        "wrong expression": ["--shard", "1/2", "-k", "nothing", *cases(ONE)],
        "nothing new": ["--since", since["relu"], "--only-since", "-n", "1", *cases(ONE, TWO)],
        "new first": ["--since", since["cases"], "--collect-only", "-q", *cases(ONE, TWO)],
    }
    suites = {"shard without the test": "conformance/test_constraints.py"}
    parts: Mapping[str, Invocation] = side_by_side(
        arguments,
        lambda name: invoke(
            folder / name, "--backend", "fbgemm", *arguments[name], suite=suites.get(name, "conformance")
        ),
    )
    return parts


def test_a_shard_without_runs_is_no_failure_and_has_its_file(invocations: Mapping[str, Invocation]) -> None:
    for name, notes in (
        ("empty shard", "shard 2/2: 0 of 1 runs"),
        ("shard without the test", "shard 2/2: 1 of 2 runs"),
    ):
        invocation = invocations[name]
        assert invocation.status == pytest.ExitCode.OK, invocation.output
        assert invocation.rows == {}
        assert notes in invocation.output


def test_merged_shards_are_the_whole(invocations: Mapping[str, Invocation], tmp_path: Path) -> None:
    full, empty = invocations["full shard"], invocations["empty shard"]
    assert full.file.header["shard"] == "1/2"
    merge([empty.results, full.results], tmp_path / "merged.jsonl")
    merged = read(tmp_path / "merged.jsonl")
    assert [row.id for row in merged.rows] == [ONE]
    assert "shard" not in merged.header


def test_an_expression_that_selects_nothing_is_a_failure(invocations: Mapping[str, Invocation]) -> None:
    invocation = invocations["wrong expression"]
    assert invocation.status == pytest.ExitCode.NO_TESTS_COLLECTED
    assert not invocation.results.exists()


def test_nothing_failed_or_new_is_said_and_no_failure(invocations: Mapping[str, Invocation]) -> None:
    invocation = invocations["nothing new"]
    assert invocation.status == pytest.ExitCode.OK, invocation.output
    assert "relu.jsonl: 0 runs failed there, 0 are new: nothing to run" in invocation.output
    assert invocation.file.header["only_since"] is True


def test_what_is_new_runs_before_the_tests_of_earlier_modules(invocations: Mapping[str, Invocation]) -> None:
    collected = [line for line in invocations["new first"].output.splitlines() if "::test_run[" in line]
    assert [line.partition("::test_run[")[2] for line in collected] == [f"{TWO}]", f"{ONE}]"]


@pytest.mark.parametrize("first", [0, 1])
def test_what_was_not_expected_last_time_comes_first(first: int, tmp_path: Path) -> None:
    rows = [*EARLIER["relu"]]
    rows[first] = replace(rows[first], verdict=Verdict.DEVIATES)
    results = write(tmp_path / "rows.jsonl", rows)
    options = ("--backend", "fbgemm", "--collect-only", "-q", *cases(ONE, TWO))
    collected = invoke(tmp_path / "again", *options, results=results, suite="conformance").output
    assert collected.index(f"test_run[{rows[first].id}]") < collected.index(f"test_run[{rows[1 - first].id}]")
