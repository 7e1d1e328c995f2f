"""Entries whose conditions are compiled together cover the runs that each of them matches."""

import pytest

from conformance.results.known import Coverage, Entry, KnownFinding
from conformance.results.where import Where

ID = "fbgemm/nn.Linear/static-quint8/ptq/default/exact@x86"
IDS = (
    ID,
    ID.replace("exact", "laws"),
    ID.replace("fbgemm/", "xnnpack/"),
    ID.replace("default", "channels_16x16"),
    ID.replace("nn.Linear", "operator.add(nn.Linear,*)"),
    ID.replace("nn.Linear", "nn.Conv2d+nn.ReLU"),
    ID.replace("default", "theirs/of/four"),
)
FIELDS: tuple[dict[str, str | list[str]], ...] = (
    {},
    {"backend": "fbgemm"},
    {"backend": "!fbgemm"},
    {"backend": ["*", "xnnpack"]},
    {"backend": "x*"},
    {"pattern": "nn.Linear"},
    {"operator": "nn.Linear", "flow": "ptq", "profile": "exact"},
    {"computes": ["conv", "l*"], "rank": "2"},
    {"computes": ["l*", "!linear"]},
    {"operator": "nn.Conv[13]d"},
    {"pattern": "[no]*", "config": "static-*", "variant": "default"},
    {"profile": "laws"},
    {"profile": ["*", "laws"], "engine": "x86"},
    {"profile": "law*"},
    {"variant": "theirs/*"},
)
WHERES = tuple(map(Where.of, FIELDS))


def entry(*wheres: Where, exclude: tuple[Where, ...] = (), check: str = "numerics") -> Entry:
    return Entry(KnownFinding("an-entry", "", "", ""), wheres, frozenset({check}), "", exclude=exclude)


@pytest.mark.parametrize("run_id", IDS)
@pytest.mark.parametrize("check", ["numerics", "relations", "crashes"])
def test_compiled_entries_cover_what_each_matches(run_id: str, check: str) -> None:
    entries = [entry(where, check=check) for where in WHERES]
    entries += [entry(WHERES[0], exclude=(where,), check=check) for where in WHERES]
    entries += [entry(one, other, exclude=(WHERES[4],), check=check) for one in WHERES for other in WHERES]
    assert Coverage(entries).of(run_id) == [one for one in entries if one.matches(run_id)]


@pytest.mark.parametrize(
    ("fields", "matching"),
    [
        ({"computes": "linear"}, {0, 3, 4, 6}),
        ({"computes": "conv", "rank": "2"}, {5}),
        ({"operator": "nn.Linear", "pattern": "!*(*"}, {0, 3, 6}),
        ({"rank": "!2", "variant": "default"}, {0, 4}),
        ({"backend": "xnnpack"}, {2}),
        ({"profile": ["exact", "laws"], "variant": "default"}, {0, 1, 4, 5}),
        ({"variant": ["*", "!default"]}, {3, 6}),
    ],
)
def test_a_condition_holds_for_runs_by_what_they_are(fields: dict[str, str], matching: set[int]) -> None:
    assert {number for number, run_id in enumerate(IDS) if Where.of(fields).matches(run_id)} == matching


def test_a_condition_is_written_as_it_is_read() -> None:
    where = Where.of({"variant": ["a", "b"], "backend": "!fbgemm"})
    assert str(where) == '{ backend = "!fbgemm", variant = ["a", "b"] }'
    assert [*map(str, where.parts())] == [
        '{ backend = "fbgemm", variant = ["a", "b"] }',
        '{ backend = "!fbgemm", variant = "a" }',
        '{ backend = "!fbgemm", variant = "b" }',
    ]
