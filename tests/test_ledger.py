"""The ledger is strict in every direction: what it says happens, and what happens is what it says."""

from pathlib import Path

import pytest

from conformance.errors import UsageError
from conformance.ledger import Entry, Host, backends_of, judge, load, unmatched
from conformance.rows import Row

HOST = Host(torch="2.13.0+cpu", arch="x86_64", isa="avx512_vnni")
RUN = "fbgemm/nn.Linear/static-quint8/ptq/default/exact@x86"

ENTRY = {
    "id": '"linear-off-by-one"',
    "match": '"fbgemm/nn.Linear/*@x86"',
    "check": '"numerics"',
    "reason": '"it truncates"',
    "upstream": '"pytorch/pytorch#12345"',
}


def document(**changes: str | None) -> str:
    """One entry as TOML; a change of None leaves the field out."""
    values = {**ENTRY, **changes}
    return "[[deviation]]\n" + "".join(f"{name} = {value}\n" for name, value in values.items() if value is not None)


def loaded(folder: Path, *documents: str) -> tuple[Entry, ...]:
    (folder / "known.toml").write_text("\n".join(documents), encoding="utf-8")
    return load(folder)


def entry(
    *match: str,
    exclude: tuple[str, ...] = (),
    check: str | tuple[str, ...] = "numerics",
    name: str = "an-entry",
    when: dict[str, str] | None = None,
) -> Entry:
    return Entry(
        id=name,
        match=match or ("fbgemm/nn.Linear/*",),
        exclude=exclude,
        check=frozenset([check] if isinstance(check, str) else check),
        reason="it truncates",
        upstream="unreported",
        when=when or {},
        source="known.toml#1",
    )


def row(*failed: str, verdict: str | None = None) -> Row:
    return Row(
        RUN,
        "fbgemm",
        "nn.Linear",
        "static-quint8",
        "ptq",
        "default",
        "exact",
        "x86",
        verdict or ("deviates" if failed else "conforms"),
        checks={"observed": "pass", "accuracy": "skip", **dict.fromkeys(failed, "fail")},
        detail="numerics: 3 of 32 codes differ",
    )


def test_an_entry_is_read_as_it_is_written(tmp_path: Path) -> None:
    (found,) = loaded(tmp_path, document(when='{ torch = ">=2.10", arch = "x86_64", isa = "*" }'))
    assert found == Entry(
        id="linear-off-by-one",
        match=("fbgemm/nn.Linear/*@x86",),
        exclude=(),
        check=frozenset({"numerics"}),
        reason="it truncates",
        upstream="pytorch/pytorch#12345",
        when={"torch": ">=2.10", "arch": "x86_64", "isa": "*"},
        source="known.toml#1",
    )


def test_globs_and_checks_can_be_several(tmp_path: Path) -> None:
    (found,) = loaded(tmp_path, document(match='["a/*", "b/*"]', check='["numerics", "crashes"]'))
    assert found.match == ("a/*", "b/*")
    assert found.check == {"numerics", "crashes"}
    assert backends_of(found) == {"a", "b"}


def test_files_are_read_in_the_order_of_their_names(tmp_path: Path) -> None:
    for name in ("b", "a"):
        (tmp_path / f"{name}.toml").write_text(document(id=f'"{name}"'), encoding="utf-8")
    assert [(one.id, one.source) for one in load(tmp_path)] == [("a", "a.toml#1"), ("b", "b.toml#1")]


MALFORMED: dict[str, tuple[dict[str, str | None], str]] = {
    **{f"{name} is missing": ({name: None}, f"{name} is missing") for name in ENTRY},
    **{f"{name} is empty": ({name: '""'}, f"{name} is missing") for name in ENTRY},
    "id of another type": ({"id": "7"}, "id is a int"),
    "match of another type": ({"match": "true"}, "match is a bool"),
    "no glob": ({"match": "[]"}, "match is missing"),
    "check of another type": ({"check": "1.5"}, "check is a float"),
    "no check": ({"check": "[]"}, "check is missing"),
    "except of another type": ({"except": "7"}, "except is a int"),
    "reason of another type": ({"reason": "[]"}, "reason is a list"),
    "upstream of another type": ({"upstream": "12345"}, "upstream is a int"),
    "when of another type": ({"when": '"always"'}, "when is a str"),
    "unknown field": ({"verdict": '"deviates"'}, "unknown field 'verdict'"),
    "unknown check": ({"check": '"speed"'}, "unknown check 'speed'"),
    "unknown check among others": ({"check": '["numerics", "speed"]'}, "unknown check 'speed'"),
    "unknown condition": ({"when": '{ os = "linux" }'}, "unknown condition 'os'"),
    "upstream that is no reference": ({"upstream": '"somewhere"'}, "upstream 'somewhere'"),
    "upstream with more around it": ({"upstream": '"see pytorch/pytorch#1"'}, "upstream 'see pytorch/pytorch#1'"),
}


@pytest.mark.parametrize("fault", MALFORMED)
def test_a_malformed_entry_is_one_error_that_names_the_entry_and_the_field(fault: str, tmp_path: Path) -> None:
    changes, message = MALFORMED[fault]
    with pytest.raises(UsageError) as raised:
        loaded(tmp_path, document(id='"fine"'), document(**changes))
    assert str(raised.value).startswith(f"known.toml#2: {message}")
    assert "\n" not in str(raised.value)


def test_an_id_is_taken_once(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"known\.toml#2: id 'linear-off-by-one' is taken by known\.toml#1"):
        loaded(tmp_path, document(), document())


def test_a_table_of_another_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"known\.toml: unknown table 'deviations'"):
        loaded(tmp_path, document().replace("deviation", "deviations"))


def test_a_file_that_is_not_toml_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"known\.toml: not readable as TOML"):
        loaded(tmp_path, "deviation: yes")


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"ledger .*nowhere: no such folder"):
        load(tmp_path / "nowhere")


def test_a_run_that_conforms_unlisted_is_expected() -> None:
    verdict = judge(row(), [entry("fbgemm/nn.Conv2d/*")], HOST)
    assert (verdict.expected, verdict.known, verdict.message) == (True, None, "")


def test_a_deviation_that_is_listed_is_expected_and_known() -> None:
    verdict = judge(row("numerics"), [entry()], HOST)
    assert (verdict.expected, verdict.known, verdict.message) == (True, "an-entry", "")


def test_an_unlisted_deviation_is_wrong_and_named() -> None:
    verdict = judge(row("numerics"), [], HOST)
    assert (verdict.expected, verdict.known) == (False, None)
    assert verdict.message == "numerics: 3 of 32 codes differ (not in the ledger: numerics)"


def test_a_listed_run_that_conforms_is_wrong_and_its_entry_is_named() -> None:
    verdict = judge(row(), [entry()], HOST)
    assert not verdict.expected
    assert verdict.message == "no longer deviates in numerics: remove it from an-entry (known.toml#1)"


def test_a_deviation_in_another_check_than_listed_is_wrong_in_both_directions() -> None:
    verdict = judge(row("stable"), [entry()], HOST)
    assert not verdict.expected
    assert "not in the ledger: stable" in verdict.message
    assert "no longer deviates in numerics: remove it from an-entry" in verdict.message


def test_a_deviation_in_more_checks_than_listed_is_wrong() -> None:
    verdict = judge(row("numerics", "stable"), [entry()], HOST)
    assert not verdict.expected
    assert "not in the ledger: stable" in verdict.message
    assert "no longer" not in verdict.message


def test_a_deviation_in_fewer_checks_than_listed_is_wrong() -> None:
    verdict = judge(row("numerics"), [entry(check=("numerics", "stable"))], HOST)
    assert not verdict.expected
    assert verdict.message == "no longer deviates in stable: remove it from an-entry (known.toml#1)"


def test_several_entries_speak_of_one_run_together() -> None:
    entries = [entry(name="one"), entry("*@x86", check="stable", name="two"), entry("onednn/*", name="other")]
    verdict = judge(row("numerics", "stable"), entries, HOST)
    assert verdict.expected
    assert [one.id for one in verdict.entries] == ["one", "two"]
    assert verdict.known == "one"


def test_only_the_entry_whose_deviation_is_gone_is_named() -> None:
    verdict = judge(row("numerics"), [entry(name="one"), entry("*@x86", check="stable", name="two")], HOST)
    assert not verdict.expected
    assert verdict.message == "no longer deviates in stable: remove it from two (known.toml#1)"


def test_a_crash_is_listed_as_the_check_crashes() -> None:
    crashed = row(verdict="crashes")
    assert judge(crashed, [entry(check="crashes")], HOST).expected
    assert not judge(crashed, [], HOST).expected
    assert not judge(crashed, [entry(check="numerics")], HOST).expected
    assert not judge(row("numerics"), [entry(check="crashes")], HOST).expected


def test_a_run_that_could_not_be_executed_is_never_judged() -> None:
    verdict = judge(row(verdict="unavailable"), [entry()], HOST)
    assert (verdict.expected, verdict.known) == (True, None)


def test_an_entry_that_matches_no_run_is_found() -> None:
    gone, there = entry("fbgemm/nn.Lineer/*", name="gone"), entry(name="there")
    assert unmatched([gone, there], [RUN], HOST) == [gone]


def test_one_glob_that_matches_is_enough_for_an_entry() -> None:
    assert unmatched([entry("fbgemm/nn.Lineer/*", "fbgemm/nn.Linear/*")], iter([RUN]), HOST) == []


def test_an_entry_for_other_hosts_need_not_match() -> None:
    assert unmatched([entry("fbgemm/nn.Lineer/*", when={"arch": "aarch64"})], [RUN], HOST) == []


def test_an_entry_does_not_speak_of_what_it_excepts(tmp_path: Path) -> None:
    (found,) = loaded(tmp_path, document(**{"except": '"*/batch0/*"'}))
    assert found.exclude == ("*/batch0/*",)
    assert found.matches(RUN)
    assert not found.matches(RUN.replace("/default/", "/batch0/"))


def test_an_entry_that_excepts_all_that_it_matches_is_found() -> None:
    empty = entry(exclude=("*/ptq/*", "*/qat/*"))
    assert unmatched([empty], [RUN], HOST) == [empty]
    assert judge(row(), [empty], HOST).expected


def test_globs_heed_case() -> None:
    assert not entry("fbgemm/nn.linear/*").matches(RUN)
    assert entry("fbgemm/nn.Linear/*").matches(RUN)


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


def test_an_entry_of_another_host_does_not_ask_for_its_deviation_here() -> None:
    assert judge(row(), [entry(when={"arch": "aarch64"})], HOST).expected


def test_the_ledger_of_the_suite_is_well_formed() -> None:
    load()
