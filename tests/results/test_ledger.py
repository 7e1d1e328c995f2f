"""The ledger is strict: an unlisted deviation, and a listed one that is gone, are errors."""

from dataclasses import replace

import pytest
from ledger_entries import HOST, RUN, entry, row, where

from conformance.results.findings import Finding
from conformance.results.findings.stages import FurtherData, FurtherInputs
from conformance.results.findings.values import CodesDiffer, LowSqnr
from conformance.results.ledger import Expectation, judge
from conformance.results.rows import Row
from conformance.results.verdicts import Verdict
from conformance.results.where import Where


def test_a_conforming_run_without_an_entry_is_expected() -> None:
    expectation = judge(row(), [entry(where(backend="fbgemm", pattern="nn.Conv2d"))], HOST)
    assert (expectation.expected, expectation.known, expectation.message) == (True, None, "")


def test_a_listed_deviation_is_expected_and_known() -> None:
    expectation = judge(row("numerics"), [entry()], HOST)
    assert (expectation.expected, expectation.known, expectation.message) == (True, "an-entry", "")


def test_an_unlisted_deviation_is_not_expected() -> None:
    expectation = judge(row("numerics"), [], HOST)
    assert (expectation.expected, expectation.known) == (False, None)
    assert expectation.message == "numerics: 3 of 32 codes differ (not in the ledger: numerics)"


@pytest.mark.parametrize(
    ("findings", "expected"),
    [
        ((), True),
        ((CodesDiffer("numerics", 0, 1, 8, 3, ()), FurtherInputs("numerics", (("x", (1, 3)),))), True),
        ((CodesDiffer("numerics", 0, 1, 8, 3, ()),), False),
        ((CodesDiffer("numerics", 0, 1, 8, 3, ()), FurtherData("numerics", "zero")), False),
        ((LowSqnr("numerics", 1.0, 2.0), FurtherInputs("numerics", (("x", (1, 3)),))), False),
    ],
)
def test_an_entry_on_further_inputs_covers_no_other_failure_and_demands_none(
    findings: tuple[Finding, ...], expected: bool
) -> None:
    listed = replace(entry(), must=frozenset(), may=frozenset({"numerics"}), kind=("codes-differ", "further-inputs"))
    failed = ("numerics",) if findings else ()
    assert judge(replace(row(*failed), findings=findings), [listed], HOST).expected is expected


def test_a_listed_run_that_conforms_is_not_expected_and_its_entry_is_named() -> None:
    expectation = judge(row(), [entry()], HOST)
    assert not expectation.expected
    assert expectation.message == "no longer deviates in numerics: remove it from an-entry (known.toml#1)"


@pytest.mark.parametrize(
    ("backend", "engine", "condition", "expected"),
    [
        ("edge", "x86", where(pattern="nn.Linear"), True),
        ("edge", "npu", where(pattern="nn.Linear"), True),
        ("fbgemm", "npu", where(pattern="nn.Linear"), True),
        ("edge", "npu", where(backend="edge", pattern="nn.Linear"), False),
        ("edge", "npu", where(engine="npu", pattern="nn.Linear"), False),
        ("fbgemm", "npu", where(backend="fbgemm", pattern="nn.Linear"), True),
        ("fbgemm", "npu", where(backend="fbgemm", engine="npu"), False),
        ("fbgemm", "x86", where(pattern="nn.Linear"), False),
    ],
)
def test_a_condition_on_neither_backend_nor_engine_explains_the_runs_of_third_parties_and_demands_no_deviation(
    backend: str, engine: str, condition: Where, expected: bool
) -> None:
    run_id = RUN.replace("fbgemm/", f"{backend}/").replace("@x86", f"@{engine}")
    theirs = replace(row(), id=run_id, backend=backend, engine=engine)
    expectation = judge(theirs, [entry(condition)], HOST)
    assert (expectation.expected, expectation.known) == (expected, None if expected else "an-entry")
    deviating = replace(row("numerics"), id=run_id, backend=backend, engine=engine)
    assert judge(deviating, [entry(condition)], HOST).known == "an-entry"


def test_a_deviation_in_another_check_than_the_listed_one_is_wrong_in_both_directions() -> None:
    expectation = judge(row("stable"), [entry()], HOST)
    assert not expectation.expected
    assert "not in the ledger: stable" in expectation.message
    assert "no longer deviates in numerics: remove it from an-entry" in expectation.message


def test_a_deviation_in_more_checks_than_listed_is_wrong() -> None:
    expectation = judge(row("numerics", "stable"), [entry()], HOST)
    assert not expectation.expected
    assert "not in the ledger: stable" in expectation.message
    assert "no longer" not in expectation.message


def test_a_deviation_in_fewer_checks_than_listed_is_wrong() -> None:
    expectation = judge(row("numerics"), [entry(check=("numerics", "stable"))], HOST)
    assert not expectation.expected
    assert expectation.message == "no longer deviates in stable: remove it from an-entry (known.toml#1)"


@pytest.mark.parametrize("outcome", [None, "skip"])
def test_a_check_that_a_run_was_not_asked_for_is_not_demanded(outcome: str | None) -> None:
    unchecked = row()
    if outcome is not None:
        unchecked = replace(unchecked, checks={**unchecked.checks, "memory": outcome})
    assert judge(unchecked, [entry(check="memory")], HOST) == judge(unchecked, [], HOST)
    failing = replace(unchecked, checks={**unchecked.checks, "numerics": "fail"}, verdict=Verdict.DEVIATES)
    assert judge(failing, [entry(check=("numerics", "memory"))], HOST).expected


def test_a_check_that_a_run_was_asked_for_is_demanded() -> None:
    listed = entry(check="memory")
    assert judge(row("memory"), [listed], HOST).expected
    passing = replace(row(), checks={"observed": "pass", "memory": "pass"})
    assert (
        judge(passing, [listed], HOST).message == "no longer deviates in memory: remove it from an-entry (known.toml#1)"
    )


@pytest.mark.parametrize(
    ("reason", "checks", "expected"),
    [
        ("out-of-bounds", {"numerics": "fail", "memory": "fail"}, True),
        ("out-of-bounds", {"numerics": "pass"}, True),
        ("out-of-bounds", {"numerics": "pass", "memory": "skip"}, True),
        ("out-of-bounds", {"numerics": "fail", "memory": "pass"}, False),
        ("race", {"numerics": "fail", "memory": "pass"}, True),
    ],
)
def test_an_outcome_is_not_undefined_by_accesses_that_a_guard_does_not_find(
    reason: str, checks: dict[str, str], expected: bool
) -> None:
    undefined = replace(entry(check="undefined"), undefined=reason)
    expectation = judge(replace(row(), checks=checks), [undefined], HOST)
    assert expectation.expected is expected
    assert expectation.undefined == (reason if expected else "")
    message = "" if expected else "no kernel accesses memory out of bounds: remove the run from an-entry (known.toml#1)"
    assert expectation.message == message


def test_what_may_fail_need_not() -> None:
    listed = replace(entry(), may=frozenset({"stable"}))
    assert judge(row("numerics"), [listed], HOST).expected
    assert judge(row("numerics", "stable"), [listed], HOST).expected
    assert judge(row("stable"), [listed], HOST).message == (
        "no longer deviates in numerics: remove it from an-entry (known.toml#1)"
    )
    chance = replace(listed, must=frozenset())
    assert judge(row(), [chance], HOST) == Expectation(True, ())
    assert judge(row("stable"), [chance], HOST).known == "an-entry"
    assert not judge(row("numerics"), [chance], HOST).expected


def test_several_entries_cover_one_run_together() -> None:
    entries = [
        entry(name="one"),
        entry(where(engine="x86"), check="stable", name="two"),
        entry(where(backend="onednn"), name="other"),
    ]
    expectation = judge(row("numerics", "stable"), entries, HOST)
    assert expectation.expected
    assert [covering.id for covering in expectation.entries] == ["one", "two"]
    assert expectation.known == "one"


def test_a_row_names_no_entry_for_findings_of_another_kind() -> None:
    other = replace(
        entry(name="other"),
        must=frozenset(),
        may=frozenset({"numerics"}),
        kind=("codes-differ", "further-data"),
    )
    found = replace(row("numerics"), findings=(CodesDiffer("numerics", 0, 1, 8, 3, ()),))
    assert judge(found, [other, entry(name="one")], HOST).known == "one"


def test_a_check_that_a_deviating_run_skips_is_not_said_to_be_gone() -> None:
    expectation = judge(row("numerics"), [entry(check=("numerics", "accuracy"))], HOST)
    assert not expectation.expected
    assert expectation.message == (
        "does not reach accuracy, which an-entry (known.toml#1) demands: list the checks that fail"
    )


def test_only_the_entry_whose_deviation_is_gone_is_named() -> None:
    expectation = judge(
        row("numerics"), [entry(name="one"), entry(where(engine="x86"), check="stable", name="two")], HOST
    )
    assert not expectation.expected
    assert expectation.message == "no longer deviates in stable: remove it from two (known.toml#1)"


def test_a_crash_is_listed_as_the_check_crashes() -> None:
    crashed = row(verdict="crashes")
    assert judge(crashed, [entry(check="crashes")], HOST).expected
    assert not judge(crashed, [], HOST).expected
    assert not judge(crashed, [entry(check="numerics")], HOST).expected
    assert not judge(row("numerics"), [entry(check="crashes")], HOST).expected


@pytest.mark.parametrize(
    "outcome", [row(), row("numerics"), row("lowered", "stable"), row(verdict="crashes"), row(verdict="undefined")]
)
def test_any_outcome_of_an_undefined_run_is_expected_and_known(outcome: Row) -> None:
    undefined = replace(entry(where(backend="fbgemm", pattern="nn.Linear"), check="undefined"), undefined="race")
    expectation = judge(outcome, [undefined], HOST)
    assert (expectation.expected, expectation.known, expectation.undefined) == (True, "an-entry", "race")
    elsewhere = replace(undefined, where=(where(backend="fbgemm", pattern="nn.Conv2d"),))
    expectation = judge(outcome, [elsewhere], HOST)
    assert (expectation.expected, expectation.undefined) == (not outcome.failed, "")


def test_a_run_that_could_not_be_executed_is_never_judged() -> None:
    expectation = judge(row(verdict="unavailable"), [entry()], HOST)
    assert (expectation.expected, expectation.known) == (True, None)


def test_no_entry_makes_a_run_without_its_golden_expected() -> None:
    unjudged = replace(row(verdict="unjudged"), detail="golden nn.Linear is missing")
    for entries in ([], [entry()]):
        expectation = judge(unjudged, entries, HOST)
        assert expectation == Expectation(False, (), "golden nn.Linear is missing")


def test_an_alternative_may_have_classes_of_characters() -> None:
    assert entry(where(engine="x[[]8]6", pattern="nn.[KL]inear")).matches(RUN.replace("x86", "x[8]6"))
    assert entry(where(engine="x8?", pattern="nn.[KL]inear")).matches(RUN)
    assert not entry(where(backend="fbgemm", pattern="nn.[!KL]inear")).matches(RUN)


def test_alternatives_are_case_sensitive() -> None:
    assert not entry(where(backend="fbgemm", pattern="nn.linear")).matches(RUN)
    assert entry(where(backend="fbgemm", pattern="nn.Linear")).matches(RUN)


@pytest.mark.parametrize(
    ("condition", "applies"),
    [
        (">=2.10", True),
        (">=2.13", True),
        (">=2.13.0", True),
        (">=2.14", False),
        (">=2.9", True),
        ("<2.14", True),
        ("<2.13", False),
        ("<2.9", False),
        (">=2.10,<2.14", True),
        (">=2.10, <2.13", False),
        ("==2.13", True),
        ("==2.13.0", True),
        ("==2.12", False),
        ("<=2.13", True),
        (">2.12", True),
        (">2.13", False),
        ("2.13.*", True),
        ("2.1.*", False),
        ("*", True),
    ],
)
def test_an_entry_holds_for_a_range_of_torch_versions(condition: str, applies: bool) -> None:
    assert entry(when={"torch": condition}).applies(HOST) is applies


@pytest.mark.parametrize(
    ("packages", "applies"),
    [(("executorch 1.4.1",), True), (("executorch 1.5.1", "torchao 0.18.0"), False), ((), True)],
)
def test_an_entry_holds_for_a_range_of_versions_of_a_package(packages: tuple[str, ...], applies: bool) -> None:
    """A version that nobody recorded may be any."""
    assert entry(when={"executorch": "<1.5"}).applies(replace(HOST, packages=packages)) is applies


@pytest.mark.parametrize(
    ("when", "applies"),
    [
        ({}, True),
        ({"arch": "x86_64"}, True),
        ({"arch": "aarch64"}, False),
        ({"arch": "x86*"}, True),
        ({"isa": "avx512*"}, True),
        ({"isa": "avx2"}, False),
        ({"isa": "*"}, True),
        ({"arch": "x86_64", "isa": "avx2"}, False),
        ({"arch": "x86_64", "isa": "avx512_vnni", "torch": ">=2.10"}, True),
        ({"arch": "x86_64", "isa": "avx512_vnni", "torch": ">=2.14"}, False),
    ],
)
def test_an_entry_holds_on_hosts_that_fulfil_all_of_its_conditions(when: dict[str, str], applies: bool) -> None:
    assert entry(when=when).applies(HOST) is applies
    assert judge(row("numerics"), [entry(when=when)], HOST).expected is applies


def test_an_entry_for_another_host_expects_no_deviation_here() -> None:
    assert judge(row(), [entry(when={"arch": "aarch64"})], HOST).expected


@pytest.mark.parametrize("profile", ["constraints", "laws"])
def test_a_condition_reaches_the_runs_of_a_property_only_where_it_names_the_profile(profile: str) -> None:
    property_run = f"fbgemm/nn.Linear/static-quint8/ptq/large/{profile}@x86"
    for condition in (where(), where(backend="fbgemm"), where(backend="fbgemm", engine="x86", pattern="nn.Linear")):
        assert entry(condition, check="observed").matches(RUN)
        assert not entry(condition, check="observed").matches(property_run)
    named = entry(where(backend="fbgemm", profile=profile), check="observed")
    assert named.matches(property_run)
    assert not named.matches(RUN)
    assert not named.matches(property_run.replace(profile, {"constraints": "laws"}.get(profile, "constraints")))


def test_an_entry_covers_no_run_without_its_checks() -> None:
    layer = RUN.replace("default/exact", "64to64_14x14_k3_p1/in_use")
    assert not entry(where(backend="fbgemm"), check="stable").matches(layer)
    assert entry(where(backend="fbgemm"), check=("numerics", "stable")).matches(layer)
    assert entry(where(backend="fbgemm"), check="crashes").matches(layer)


def test_of_the_checks_of_an_entry_a_run_fails_those_that_it_has() -> None:
    layer = replace(row("numerics"), id=RUN.replace("/exact@", "/in_use@"), profile="in_use")
    assert judge(layer, [entry(check=("numerics", "accuracy", "stable"))], HOST).expected
    assert not judge(row("numerics"), [entry(check=("numerics", "accuracy", "stable"))], HOST).expected


def test_an_entry_may_cover_cases_and_a_property() -> None:
    both = entry(where(backend="fbgemm"), where(backend="fbgemm", profile="laws"), check="stable")
    assert both.matches(RUN)
    assert both.matches(RUN.replace("default/exact", "large/laws"))
