"""New deviations as tables of a ledger: globs that match them alone, in a file that stays a ledger."""

from pathlib import Path

import pytest

from conformance.errors import UsageError
from conformance.results.acceptance import Place, add, causes, described, globs, places
from conformance.results.ledger_file import load
from conformance.results.rows import Row
from conformance.results.verdicts import Verdict

LINEAR = "edge/nn.Linear/static-quint8/ptq"
VALUES = {"id": "floors", "title": "Edge floors", "reason": 'It "floors".', "upstream": "unreported"}


def row(run_id: str, *failed: str) -> Row:
    backend, pattern, dtype_config, flow, variant, rest = run_id.split("/")
    profile, _, engine = rest.partition("@")
    checks = dict.fromkeys(failed, "fail")
    return Row(
        run_id,
        backend,
        pattern,
        dtype_config,
        flow,
        variant,
        profile,
        engine,
        Verdict.of(failed),
        checks,
        "numerics: off",
    )


@pytest.mark.parametrize(
    ("others", "expected"),
    [
        ([], ["edge/nn.Linear/*/*/*/*@edge"]),
        (["edge/nn.Linear/static-qint8/ptq/default/exact@edge"], [f"{LINEAR.replace('ptq', '*')}/*/*@edge"]),
        ([f"{LINEAR}/rank3/exact@edge"], ["edge/nn.Linear/*/*/default/*@edge", "edge/nn.Linear/*/*/wide/*@edge"]),
        ([f"{LINEAR}/default/typical@edge"], ["edge/nn.Linear/*/*/*/exact@edge"]),
        (["edge/nn.ReLU/static-quint8/ptq/default/exact@edge"], ["edge/nn.Linear/*/*/*/*@edge"]),
    ],
)
def test_globs_are_as_wide_as_the_other_runs_allow(others: list[str], expected: list[str]) -> None:
    assert [*globs([f"{LINEAR}/default/exact@edge", f"{LINEAR}/wide/exact@edge"], others)] == expected


def test_a_pattern_that_several_runs_have_in_common_is_left_open() -> None:
    ids = [f"edge/{pattern}/static-quint8/ptq/wide/exact@edge" for pattern in ("nn.Linear", "nn.ReLU")]
    other = f"{LINEAR}/rank3/exact@edge"
    assert globs(ids, [other]) == ["edge/*/*/*/wide/*@edge"]
    assert globs(ids, [other, other.replace("Linear/static-quint8/ptq/rank3", "GELU/static-quint8/ptq/wide")]) == [
        "edge/nn.Linear/*/*/wide/*@edge",
        "edge/nn.ReLU/*/*/*/*@edge",
    ]


def test_a_pattern_whose_runs_fail_but_for_a_few_has_exceptions() -> None:
    failing = [row(f"{LINEAR}/{name}/exact@edge", "numerics") for name in ("default", "wide", "rank4", "rank5")]
    conforming = row(f"{LINEAR}/rank3/exact@edge")
    assert places(failing, [*failing, conforming]) == [
        Place(("edge/nn.Linear/*/*/*/*@edge",), ("numerics",), ("edge/nn.Linear/*/*/rank3/*@edge",))
    ]


def test_deviations_of_several_kinds_are_several_causes_each_with_a_sentence() -> None:
    off = [row(f"{LINEAR}/{name}/exact@edge", "numerics") for name in ("default", "wide")]
    refused = row("edge/nn.GELU/static-quint8/ptq/default/exact@edge", "lowered")
    assert causes([refused, *off]) == [off, [refused]]
    assert described(off) == {
        "title": "nn.Linear on edge: off",
        "reason": "In 2 runs of nn.Linear on edge the check numerics fails: off.",
    }


def test_a_place_has_the_runs_that_fail_the_same_checks_and_no_run_that_conforms() -> None:
    accepted = [row(f"{LINEAR}/default/exact@edge", "numerics"), row(f"{LINEAR}/wide/exact@edge", "numerics", "stable")]
    conforming = row(f"{LINEAR}/rank3/exact@edge")
    unavailable = Row(
        *(f"{LINEAR}/rank4/exact@edge", "edge", "nn.Linear", "static-quint8", "ptq", "rank4", "exact", "edge"),
        Verdict("unavailable"),
    )
    assert places(accepted, [*accepted, conforming, unavailable]) == [
        Place(("edge/nn.Linear/*/*/default/*@edge",), ("numerics",)),
        Place(("edge/nn.Linear/*/*/wide/*@edge",), ("numerics", "stable")),
    ]


def test_a_finding_is_added_to_a_ledger_that_stays_one(tmp_path: Path) -> None:
    folder = tmp_path / "known"
    place = Place(("edge/nn.Linear/*@edge",), ("numerics",))
    assert add(folder, "edge", VALUES, [place]) == folder / "edge.toml"
    add(folder, "edge", {**VALUES, "id": "other"}, [place, Place(("edge/nn.ReLU/*", "edge/nn.ELU/*"), ("stable",))])
    (folder / "edge.toml").write_text((folder / "edge.toml").read_text() + "\n# the end\n")
    add(folder, "another", {"id": "floors"}, [Place(("edge/F.linear/*",), ("lowered", "numerics"))])
    assert [(entry.name, entry.match, sorted(entry.check)) for entry in load(folder)] == [
        ("floors", ("edge/nn.Linear/*@edge",), ["numerics"]),
        ("floors#2", ("edge/F.linear/*",), ["lowered", "numerics"]),
        ("other", ("edge/nn.Linear/*@edge",), ["numerics"]),
        ("other#2", ("edge/nn.ReLU/*", "edge/nn.ELU/*"), ["stable"]),
    ]
    assert load(folder)[0].finding.reason == 'It "floors".'
    assert "# the end\n" in (folder / "edge.toml").read_text()
    assert not (folder / "another.toml").exists()


def test_what_would_be_no_ledger_is_not_written(tmp_path: Path) -> None:
    place = Place(("edge/*",), ("numerics",))
    with pytest.raises(UsageError, match="upstream 'nobody': write owner/repo#number, or unreported"):
        add(tmp_path, "edge", {**VALUES, "upstream": "nobody"}, [place])
    assert not [*tmp_path.iterdir()]
    (tmp_path / "edge.toml").write_text(
        'finding = [{id = "floors", title = "t", reason = "r", upstream = "unreported", '
        'shows = [{match = "edge/*", check = "stable"}]}]\n'
    )
    before = (tmp_path / "edge.toml").read_text()
    with pytest.raises(UsageError):
        add(tmp_path, "edge", {"id": "floors"}, [place])
    assert (tmp_path / "edge.toml").read_text() == before
