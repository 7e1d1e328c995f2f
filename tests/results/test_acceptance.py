"""New deviations as places of a ledger: conditions that hold for them alone, in a file that stays a ledger."""

import tomllib
from pathlib import Path

import pytest

from conformance.errors import UsageError
from conformance.results.acceptance import Place, add, causes, conditions, described, place_lines, places
from conformance.results.ledger_file import load
from conformance.results.rows import Row
from conformance.results.verdicts import Verdict
from conformance.results.where import Where

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


def edge(**fields: str | list[str]) -> Where:
    return Where.of({"backend": "edge", "engine": "edge", **fields})


@pytest.mark.parametrize(
    ("others", "expected"),
    [
        ([], edge(pattern="nn.Linear")),
        (["edge/nn.Linear/static-qint8/ptq/default/exact@edge"], edge(pattern="nn.Linear", config="static-quint8")),
        ([f"{LINEAR}/rank3/exact@edge"], edge(pattern="nn.Linear", variant=["default", "wide"])),
        ([f"{LINEAR}/default/typical@edge"], edge(pattern="nn.Linear", profile="exact")),
        (["edge/nn.ReLU/static-quint8/ptq/default/exact@edge"], edge(pattern="nn.Linear")),
    ],
)
def test_conditions_are_as_wide_as_the_other_runs_allow(others: list[str], expected: Where) -> None:
    assert conditions([f"{LINEAR}/default/exact@edge", f"{LINEAR}/wide/exact@edge"], others) == [expected]


def test_a_pattern_that_several_runs_have_in_common_is_left_open() -> None:
    ids = [f"edge/{pattern}/static-quint8/ptq/wide/exact@edge" for pattern in ("nn.Linear", "nn.ReLU")]
    other = f"{LINEAR}/rank3/exact@edge"
    beside = other.replace("Linear/static-quint8/ptq/rank3", "ReLU/static-quint8/ptq/rank3")
    third = beside.replace("ReLU/static-quint8/ptq/rank3", "GELU/static-quint8/ptq/wide")
    assert conditions(ids, [other, beside]) == [edge(variant="wide")]
    assert conditions(ids, [other, beside, third]) == [edge(pattern=["nn.Linear", "nn.ReLU"], variant="wide")]


def test_runs_of_properties_are_named() -> None:
    ids = [f"{LINEAR}/{variant}@edge" for variant in ("default/exact", "wide/exact", "every_code/codes", "large/laws")]
    failing = [row(run_id, "numerics") for run_id in ids]
    (place,) = places(failing, failing)
    assert all(any(where.matches(run_id) for where in place.where) for run_id in ids)
    assert place.where == (edge(pattern="nn.Linear", profile=["*", "codes", "laws"]),)
    conforming = [row(f"{LINEAR}/{number}/exact@edge") for number in range(3)]
    failing = [one for one in failing if one.profile != "exact"]
    assert [place.where for place in places(failing, [*failing, *conforming])] == [
        (edge(pattern="nn.Linear", profile=["codes", "laws"]),)
    ]


def test_hundreds_of_runs_become_conditions_in_a_moment() -> None:
    ids = [f"edge/nn.A{one}/static-quint8/ptq/v{two}/exact@edge" for one in range(20) for two in range(20)]
    failing, conforming = ids[::2], ids[1::2]
    found = conditions(failing, conforming)
    assert len(found) <= 20
    assert all(any(where.matches(run_id) for where in found) for run_id in failing)
    assert not any(where.matches(run_id) for where in found for run_id in conforming)


def test_no_condition_has_more_than_a_dozen_alternatives() -> None:
    ids = [f"{LINEAR}/{number}/exact@edge" for number in range(30)]
    failing, conforming = [row(run_id, "numerics") for run_id in ids[::2]], [row(run_id) for run_id in ids[1::2]]
    (place,) = places(failing, [*failing, *conforming])
    assert [len(where["variant"]) for where in place.where] == [12, 3]
    assert all(any(where.matches(one.id) for where in place.where) for one in failing)


def test_a_pattern_whose_runs_fail_but_for_a_few_has_exceptions() -> None:
    ids = [
        f"{LINEAR.replace('ptq', flow)}/{variant}/{profile}@edge"
        for variant in ("default", "rank3", "rank4")
        for flow in ("ptq", "qat")
        for profile in ("exact", "typical")
    ]
    conforming = {f"{LINEAR}/rank3/typical@edge", f"{LINEAR.replace('ptq', 'qat')}/rank4/exact@edge"}
    failing = [row(run_id, "numerics") for run_id in ids if run_id not in conforming]
    (place,) = places(failing, [*failing, *map(row, conforming)])
    assert place.where == (edge(pattern="nn.Linear"),)
    assert {run_id for run_id in ids if any(where.matches(run_id) for where in place.exclude)} == conforming


def test_a_place_is_broken_where_a_list_is() -> None:
    wheres = [str(edge(variant=[f"variant_{number}_{letter}" for number in range(9)])) for letter in "ab"]
    broken: list[dict[str, str | list[str]]] = [
        {"where": wheres[:1], "must": '"numerics"'},
        {"must": '"numerics"', "where": wheres},
    ]
    for fields in broken:
        lines = place_lines(fields)
        assert len(lines) > 1
        assert max(map(len, lines)) <= 126
        (read,) = tomllib.loads("shows = [\n" + "\n".join(lines) + "\n]")["shows"]
        read = read["where"] if isinstance(read["where"], list) else [read["where"]]
        assert [str(Where.of(one)) for one in read] == fields["where"]


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
        Place((edge(pattern="nn.Linear", variant="default"),), ("numerics",)),
        Place((edge(pattern="nn.Linear", variant="wide"),), ("numerics", "stable")),
    ]


def test_a_finding_is_added_to_a_ledger_that_stays_one(tmp_path: Path) -> None:
    folder = tmp_path / "known"
    linear, others = edge(pattern="nn.Linear"), (edge(pattern="nn.ReLU"), edge(pattern="nn.ELU"))
    place = Place((linear,), ("numerics",))
    assert add(folder, "edge", VALUES, [place]) == folder / "edge.toml"
    add(folder, "edge", {**VALUES, "id": "other"}, [place, Place(others, ("stable",))])
    (folder / "edge.toml").write_text((folder / "edge.toml").read_text() + "\n# the end\n")
    add(folder, "another", {"id": "floors"}, [Place((edge(pattern="F.linear"),), ("lowered", "numerics"))])
    assert [(entry.name, entry.where, sorted(entry.check)) for entry in load(folder)] == [
        ("floors", (linear,), ["numerics"]),
        ("floors#2", (edge(pattern="F.linear"),), ["lowered", "numerics"]),
        ("other", (linear,), ["numerics"]),
        ("other#2", others, ["stable"]),
    ]
    assert load(folder)[0].finding.reason == 'It "floors".'
    assert "# the end\n" in (folder / "edge.toml").read_text()
    assert not (folder / "another.toml").exists()


def test_what_would_be_no_ledger_is_not_written(tmp_path: Path) -> None:
    place = Place((edge(),), ("numerics",))
    with pytest.raises(UsageError, match="upstream 'nobody': write owner/repo#number, or leave it out"):
        add(tmp_path, "edge", {**VALUES, "upstream": "nobody"}, [place])
    assert not [*tmp_path.iterdir()]
    (tmp_path / "edge.toml").write_text(
        'finding = [{id = "floors", title = "t", reason = "r", shows = [{where = {backend = "edge"}, must = "stable"}]}]\n'
    )
    before = (tmp_path / "edge.toml").read_text()
    with pytest.raises(UsageError):
        add(tmp_path, "edge", {"id": "floors"}, [place])
    assert (tmp_path / "edge.toml").read_text() == before
