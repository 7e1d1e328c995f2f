"""An earlier rows file says which runs failed, and how long each took."""

from pathlib import Path

import pytest
from invocation import CONFORMS, DIES, LEDGER, WRONG, row, write

from conformance.errors import UsageError
from conformance.results.earlier import read_earlier
from conformance.results.ledger_file import load
from conformance.results.profiles import CHECKS
from conformance.results.rows import Row, digest_of

UNCOMPARED = row("nn.ELU", checks={**dict.fromkeys(CHECKS, "pass"), "numerics": "skip"})
FAILED = {
    "an unlisted deviation": (WRONG, True),
    "a crash": (DIES, True),
    "a listed deviation": (row("nn.Linear", fails=["numerics"], known="linear-is-off"), False),
    "a listed deviation in another check too": (
        row("nn.Linear", fails=["numerics", "stable"], known="linear-is-off"),
        True,
    ),
    "a listed deviation that is gone": (row("nn.Linear", known="linear-is-off"), True),
    "a run that conforms": (CONFORMS, False),
    "a run without a usable golden": (row(verdict="unjudged"), True),
    "a run without a usable golden in an earlier version": (UNCOMPARED, True),
    "a run that was not executed": (row(verdict="unavailable"), False),
}


@pytest.mark.parametrize("case", FAILED)
def test_runs_failed_that_the_ledger_did_not_expect(case: str, tmp_path: Path, ledger: Path) -> None:
    one, failed = FAILED[case]
    earlier = read_earlier(write(tmp_path / "rows.jsonl", [one]), ["fbgemm"], load(ledger))
    assert earlier.failed == ({one.id} if failed else frozenset())
    assert earlier.ids == {one.id}


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    (tmp_path / "known").mkdir()
    (tmp_path / "known" / "known.toml").write_text(LEDGER)
    return tmp_path / "known"


def test_every_part_of_a_merged_file_counts(tmp_path: Path, ledger: Path) -> None:
    def timed(seconds: float, **fields: object) -> Row:
        timed: Row = row("nn.Linear", seconds=seconds, **fields)
        return timed

    parts = [
        write(tmp_path / "one.jsonl", [timed(1.0)]),
        write(tmp_path / "other.jsonl", [timed(2.0, fails=["numerics"])], {"arch": "aarch64"}),
        write(tmp_path / "third.jsonl", [timed(0.0, verdict="unavailable")], {"torch": "2.14.0"}),
    ]
    merged = tmp_path / "merged.jsonl"
    merged.write_text("".join(part.read_text() for part in parts))
    earlier = read_earlier(merged, ["fbgemm"], load(ledger))
    assert earlier.failed == {WRONG.id}
    assert earlier.seconds == {WRONG.id: 1.5}
    assert earlier.digest == digest_of(merged.read_text())


def test_a_listed_deviation_is_expected_on_the_host_of_its_row(tmp_path: Path, ledger: Path) -> None:
    (ledger / "known.toml").write_text(LEDGER.replace(" }]", ', when = { arch = "aarch64" } }]'))
    listed = row("nn.Linear", fails=["numerics"], known="linear-is-off")
    for arch, failed in (("aarch64", set()), ("x86_64", {listed.id})):
        path = write(tmp_path / f"{arch}.jsonl", [listed], {"arch": arch})
        assert read_earlier(path, ["fbgemm"], load(ledger)).failed == failed


def test_rows_of_other_backends_say_nothing(tmp_path: Path) -> None:
    path = write(tmp_path / "rows.jsonl", [WRONG])
    with pytest.raises(UsageError, match=r"^--since .*rows\.jsonl: it has no run of qnnpack, onednn: name a rows file"):
        read_earlier(path, ["qnnpack", "onednn"], ())


def test_files_that_cannot_be_used_are_named_with_the_option(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"^--since .*nowhere\.jsonl: no such file: name the rows file of an earlier"):
        read_earlier(tmp_path / "nowhere.jsonl", ["fbgemm"], ())
    path = write(tmp_path / "rows.jsonl", [WRONG], {"torch": 2})
    with pytest.raises(UsageError, match=r"^--since .*rows\.jsonl: damaged: torch of its header is 2"):
        read_earlier(path, ["fbgemm"], ())
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))
    with pytest.raises(UsageError, match=r"^--since .*rows\.jsonl: truncated"):
        read_earlier(path, ["fbgemm"], ())
