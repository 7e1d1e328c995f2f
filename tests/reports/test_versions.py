"""Known findings by version: since when each shows, and in which version it is mended."""

from pathlib import Path

import pytest
from invocation import LEDGER, row, write

from conformance.reports.load import Report
from conformance.reports.versions import Record, document, records

SHOWS, MENDED = row("nn.Linear", fails=["numerics"]), row("nn.Linear")


def of(folder: Path, *versions: tuple[str, bool | None]) -> list[Record]:
    """The records of a finding in versions of torch: whether each shows it, or None if it did not run the case."""
    (folder / "known.toml").write_text(LEDGER)
    paths = []
    for version, shows in versions:
        rows = [row("nn.ReLU")] if shows is None else [SHOWS if shows else MENDED]
        paths.append(write(folder / f"{version}.jsonl", rows, {"torch": f"{version}+cpu"}))
    return records(Report(paths, [folder]))


@pytest.mark.parametrize(
    ("versions", "since", "state"),
    [
        ((("2.9.1", True), ("2.10.0", True)), "≤ 2.9.1", "in 2.10.0"),
        ((("2.9.1", False), ("2.10.0", True)), "2.10.0", "in 2.10.0"),
        ((("2.9.1", True), ("2.10.0", False), ("2.11.0", False)), "≤ 2.9.1", "mended in 2.10.0"),
        ((("2.9.1", None), ("2.10.0", True), ("2.11.0", None)), "≤ 2.10.0", "in 2.10.0"),
    ],
)
def test_versions_tell_since_when_and_whether_it_is_mended(
    tmp_path: Path, versions: tuple[tuple[str, bool | None], ...], since: str, state: str
) -> None:
    """Versions are in the order of their numbers, and one that did not run the case says nothing."""
    (record,) = of(tmp_path, *versions[::-1])
    assert (record.package, record.since, record.state) == ("torch", since, state)
    assert record.others == tuple(version for version, shows in versions if shows is None)


def test_an_engine_that_comes_in_a_package_has_its_versions(tmp_path: Path) -> None:
    (tmp_path / "known.toml").write_text(
        LEDGER.replace('backend = "fbgemm", engine = "fbgemm"', 'backend = "executorch"')
    )
    theirs = {"backend": "executorch", "engine": "executorch"}
    paths = [
        write(
            tmp_path / f"{version}.jsonl",
            [row("nn.Linear", fails=fails, **theirs)],
            {"packages": {"executorch": version}},
        )
        for version, fails in (("1.4.1", ["numerics"]), ("1.5.1", []))
    ]
    (record,) = records(Report(paths, [tmp_path]))
    assert (record.package, record.since, record.state) == ("executorch", "≤ 1.4.1", "mended in 1.5.1")


def test_the_page_lists_every_defect_with_its_issue(tmp_path: Path) -> None:
    of(tmp_path, ("2.9.1", True), ("2.10.0", True))
    text = "\n".join(document(Report([*tmp_path.glob("*.jsonl")], [tmp_path])))
    assert "these versions: torch 2.9.1, 2.10.0." in text
    assert "| ⊘ Linear is off (`linear-is-off`) | torch | ≤ 2.9.1 | in 2.10.0 | [pytorch/pytorch" in text
