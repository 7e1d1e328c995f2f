"""The report of a night: the steps of the nightly's job, executed with rows and timings of two nights."""

import shutil
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from invocation import CONFORMS, WRONG, write
from timed import timing
from timed import write as write_timings
from workflow_steps import Runner

from conformance.results.rows import Row

pytest.importorskip("duckdb", reason="`tox -e tests` has it")
ROOT = Path(__file__).parents[2]
NIGHTLY = ROOT / ".github" / "workflows" / "nightly.yml"
Report = Callable[[Iterable[Row]], dict[str, str]]


@pytest.fixture
def runner(tmp_path: Path) -> Runner:
    repository = tmp_path / "repository"
    repository.mkdir()
    for name in ("conformance", "corpus"):
        (repository / name).symlink_to(ROOT / name)
    return Runner(repository, ROOT, tmp_path)


@pytest.fixture
def report(runner: Runner, tmp_path: Path) -> Report:
    """The report of a night with these rows on x86, and one that conforms on ARM: the output of each step."""

    def made(rows: Iterable[Row]) -> dict[str, str]:
        shutil.rmtree(tmp_path / "report-0", ignore_errors=True)
        now = datetime.now(UTC).isoformat(timespec="seconds")  # the job shows the last week
        arm = {"arch": "aarch64", "isa": "neon"}
        runner.artifacts = {
            "rows-x86": [write(tmp_path / "x86.jsonl", rows, finished=now)],
            "rows-arm": [write(tmp_path / "arm.jsonl", [CONFORMS], arm, finished=now)],
            "timings-x86": [write_timings(tmp_path / "bench-x86.jsonl", [timing()], finished=now)],
        }
        return dict(runner.run(NIGHTLY, {}, "report"))

    return made


def test_rows_are_merged_rendered_and_kept(report: Report, runner: Runner, tmp_path: Path) -> None:
    report([CONFORMS, WRONG])
    summary = (tmp_path / "summary.md").read_text()
    assert "## Verdicts of the last week" in summary
    assert "There is no earlier nightly to compare with." in summary
    kept = {name: [path for folder in paths for path in folder.rglob("*")] for name, paths in runner.artifacts.items()}
    assert {"index.html", "findings.md", "badge.json", "latency"} <= {path.name for path in kept["github-pages"]}
    assert [path.name for path in runner.artifacts["nightly"]] == ["nightly.jsonl"]
    assert any(path.suffix == ".parquet" for path in kept["history-of-rows"])
    assert any(path.suffix == ".parquet" for path in kept["history"])


def test_a_night_that_is_worse_than_the_last_fails_after_its_uploads(
    report: Report, runner: Runner, tmp_path: Path
) -> None:
    report([CONFORMS])
    for name in ("history-of-rows", "history"):
        shutil.copytree(runner.artifacts[name][0], runner.earlier / name)
    (runner.earlier / "nightly").mkdir()
    shutil.copy(runner.artifacts["nightly"][0], runner.earlier / "nightly")
    with pytest.raises(AssertionError, match="Report changes since the last nightly"):
        report([WRONG])
    assert {"nightly", "history-of-rows", "history", "github-pages"} <= runner.artifacts.keys()
    assert "nn.Linear" in (tmp_path / "report-0" / "changes.md").read_text()
