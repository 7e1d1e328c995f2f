"""Shares by use: they follow from rows and from the table of layers in use."""

from dataclasses import replace
from typing import Any

import pytest
from invocation import row

from conformance.results.findings import Finding
from conformance.results.findings.values import CodesDiffer, OutputShape
from conformance.results.in_use import LayerInUse, read
from conformance.results.rows import Row
from conformance.results.use import Fate, use_of


def layer(
    pattern: str, variant: str, *, run_as: str = "", nearest: tuple[str, ...] = (), **networks: int
) -> LayerInUse:
    return LayerInUse(pattern, {}, (), True, (), (), networks or {"one": 1}, variant, run_as, nearest)


def in_use(pattern: str, variant: str, **changes: Any) -> Row:
    made: Row = row(pattern, variant=variant, profile="in_use", **changes)
    return made


LAYERS = [
    layer("nn.Linear", "a", one=3, other=1),
    layer("nn.Linear", "b", one=2),
    layer("nn.Linear+nn.BatchNorm1d", "a", run_as="nn.Linear", other=5),
    layer("nn.GELU", "", one=7),
    layer("nn.Linear", "", one=1),
]


def test_shares_follow_from_rows_and_layers() -> None:
    rows = [in_use("nn.Linear", "a"), in_use("nn.Linear", "b", fails=["lowered"], known="it-raises")]
    use = use_of(rows, LAYERS)
    assert use.layers == 19
    # the fused layer is as the one that computes the same, no claim has GELU, and one has no variant that could be run
    assert {fate: count for fate, count in use.fates.items() if count} == {
        Fate.RIGHT: 9, Fate.REFUSED: 2, Fate.UNCLAIMED: 7, Fate.UNTRIED: 1
    }  # fmt: skip
    assert use.findings == {"it-raises": 2}
    assert use.networks == {"one": {"it-raises": 2}, "other": {}}
    assert use.of("other")[Fate.RIGHT] == 6
    assert use.by_pattern == {("nn.Linear", "it-raises"): 2}
    assert use.by_variant["nn.Linear", "a"] == 9


def test_the_whole_corpus_is_counted() -> None:
    use = use_of([row("nn.Linear")])
    assert use.layers == sum(one.occurrences for one in read())
    assert len(use.networks) == 140
    assert use.fates[Fate.UNTRIED] >= 600  # every nn.Linear
    assert use.fates[Fate.UNCLAIMED] == use.layers - use.fates[Fate.UNTRIED]


def test_the_worst_profile_counts_and_adversarial_data_do_not() -> None:
    bad = in_use("nn.Linear", "a", fails=["lowered"])
    trained = replace(in_use("nn.Linear", "a"), profile="trained")
    assert use_of([bad, trained], LAYERS[:1]).fates[Fate.REFUSED] == 4
    assert use_of([replace(bad, profile="pairs"), trained], LAYERS[:1]).fates[Fate.RIGHT] == 4


@pytest.mark.parametrize(
    ("engine", "first", "other"),
    [
        ("fbgemm", "static-quint8", "dynamic-quint8"),
        ("fbgemm", "weight-quint8", "weight-quint4x2"),
        ("executorch", "static-qint8", "static-quint8"),
        ("qnnpack", "static-quint8", "static-qint8"),
    ],
)
def test_the_dtypes_of_the_default_mapping_count(engine: str, first: str, other: str) -> None:
    rows = [
        in_use("nn.Linear", "a", engine=engine, dtype_config=first),
        in_use("nn.Linear", "a", engine=engine, dtype_config=other, fails=["lowered"]),
    ]
    assert use_of(rows, LAYERS[:1]).fates[Fate.RIGHT] == 4


def test_an_engine_that_runs_a_selection_answers_for_the_nearest_layers() -> None:
    near = layer("nn.Linear", "a", nearest=("nn.Linear", "selected"))
    assert use_of([in_use("nn.Linear", "selected")], [near]).fates[Fate.RIGHT] == 1
    assert use_of([in_use("nn.Linear", "another")], [near]).fates[Fate.UNTRIED] == 1
    unavailable = [in_use("nn.Linear", "selected", verdict="unavailable")]
    assert use_of(unavailable, [near]).fates[Fate.UNTRIED] == 1


def test_a_pattern_is_claimed_by_its_first_operators() -> None:
    parts = [layer("nn.Linear+nn.ReLU", "a", run_as="nn.Linear"), layer("nn.ReLU+nn.Linear", "a")]
    assert [one.fate for one in use_of([in_use("nn.Linear", "a")], parts).outcomes] == [Fate.RIGHT, Fate.UNCLAIMED]


@pytest.mark.parametrize(
    ("finding", "steps", "fate"),
    [
        (CodesDiffer("numerics", 0, 1, 8, 2, ()), 2, Fate.NEAR),
        (CodesDiffer("numerics", 0, 1, 8, 3, ()), 3, Fate.WRONG),
        (OutputShape("numerics", 0, (1,), (2,)), 0, Fate.WRONG),
    ],
)
def test_codes_that_are_two_steps_off_are_near(finding: Finding, steps: int, fate: Fate) -> None:
    bad = in_use("nn.Linear", "a", fails=["numerics"], findings=(finding,), steps_max=steps)
    assert use_of([bad], LAYERS[:1]).fates[fate] == 4


@pytest.mark.parametrize("verdict", ["crashes", "undefined"])
def test_what_crashes_or_may_do_anything_is_wrong(verdict: str) -> None:
    assert use_of([in_use("nn.Linear", "a", verdict=verdict)], LAYERS[:1]).fates[Fate.WRONG] == 4
