"""The files of a ledger: every field is read, and a wrong one is one error that names the finding and the field."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from conformance.errors import UsageError
from conformance.results.causes import LayerCause
from conformance.results.known import Entry, KnownFinding, entries_by_finding
from conformance.results.ledger import backends_of
from conformance.results.ledger_file import extends, load, own
from conformance.results.where import Where

RUN = "fbgemm/nn.Linear/static-quint8/ptq/default/exact@x86"
FINDING = {
    "id": '"linear-off-by-one"',
    "title": '"Linear is one step off"',
    "reason": '"it truncates"',
    "upstream": '"pytorch/pytorch#12345"',
}
SHOWS = {"where": '{ backend = "fbgemm", pattern = "nn.Linear" }', "must": '"numerics"'}
LINEAR = Where.of({"backend": "fbgemm", "pattern": "nn.Linear"})
OF_A_FINDING = (*FINDING, "component", "formerly", "remedies", "why", "source", "no_report", "verdict", "shows")
KNOWN = KnownFinding("linear-off-by-one", "Linear is one step off", "it truncates", "pytorch/pytorch#12345")


def document(**changes: str | None) -> str:
    """A finding with one entry as TOML; a change of None leaves the field out."""
    values = {name: value for name, value in {**FINDING, **SHOWS, **changes}.items() if value is not None}
    lines = {name: f"{name} = {value}\n" for name, value in values.items()}
    finding = "".join(line for name, line in lines.items() if name in OF_A_FINDING)
    place = ", ".join(f"{name} = {value}" for name, value in values.items() if name not in OF_A_FINDING)
    return f"[[finding]]\n{finding}" + (f"shows = [{{ {place} }}]\n" if "shows" not in values else "")


def loaded(folder: Path, *documents: str) -> tuple[Entry, ...]:
    (folder / "known.toml").write_text("\n".join(documents), encoding="utf-8")
    return load(folder)


def test_every_field_of_an_entry_is_read(tmp_path: Path) -> None:
    (known,) = loaded(tmp_path, document(when='{ torch = ">=2.10", arch = "x86_64", isa = "*" }'))
    assert known == Entry(
        KNOWN,
        where=(LINEAR,),
        exclude=(),
        must=frozenset({"numerics"}),
        when={"torch": ">=2.10", "arch": "x86_64", "isa": "*"},
        source="known.toml#1, shows 1",
    )


def test_a_finding_without_upstream_is_unreported(tmp_path: Path) -> None:
    (known,) = loaded(tmp_path, document(upstream=None))
    assert known.finding.upstream == "unreported"


def test_a_finding_may_show_in_several_places_and_have_had_other_ids(tmp_path: Path) -> None:
    shows = '[{ where = { backend = "a" }, must = "numerics" }, { where = { backend = "b" }, must = "stable" }]'
    changes = {"formerly": '["old", "older"]', "component": '"lowering"', "where": None, "must": None, "shows": shows}
    first, second = loaded(tmp_path, document(**changes))
    assert first.finding == replace(KNOWN, formerly=("old", "older"), component="lowering") == second.finding
    assert (first.name, second.name) == ("linear-off-by-one", "linear-off-by-one#2")
    assert second.source == "known.toml#1, shows 2"
    assert [second.named(name) for name in ("linear-off-by-one", "older", "other", None)] == [True, True, False, False]
    assert entries_by_finding([first, second])["old"] == [first, second]


def test_a_finding_may_have_remedies(tmp_path: Path) -> None:
    (known,) = loaded(tmp_path, document(remedies='["copies", "contiguous"]'))
    assert known.finding.remedies == ("copies", "contiguous")
    with pytest.raises(UsageError, match=r"known.toml#1: unknown remedy 'prayer': remedies are copies, "):
        loaded(tmp_path, document(remedies='"prayer"'))


def test_a_place_may_say_what_layers_will_show(tmp_path: Path) -> None:
    predicts = '[{ engine = "x86", check = "lowered", stage = "convert", operator = "nn.Conv?d" }]'
    (known,) = loaded(tmp_path, document(where=None, must=None, predicts=predicts))
    features = {"stage": ("convert",), "operator": ("nn.Conv?d",)}
    assert known.predicts == (LayerCause(("x86",), ("lowered",), features, foretells=True),)
    assert (known.layers, known.where) == ((), ())
    with pytest.raises(UsageError, match=r"known.toml#1, shows 1, predicts 1: check is missing"):
        loaded(tmp_path, document(predicts='[{ engine = "x86" }]'))


def test_an_entry_can_have_several_conditions_and_checks(tmp_path: Path) -> None:
    checks = {"must": '["numerics", "crashes"]', "may": '"stable"'}
    (known,) = loaded(tmp_path, document(where='[{ backend = "a" }, { backend = "b" }]', **checks))
    assert known.where == (Where.of({"backend": "a"}), Where.of({"backend": "b"}))
    assert known.must == {"numerics", "crashes"}
    assert known.may == {"stable"}
    assert known.check == {"numerics", "crashes", "stable"}
    assert backends_of(known) == {"a", "b"}


def test_an_entry_may_say_that_an_outcome_is_undefined(tmp_path: Path) -> None:
    (known,) = loaded(tmp_path, document(undefined='"uninitialized"', must=None))
    assert known.undefined == "uninitialized"
    assert known.check == {"undefined"}


def test_files_are_read_in_the_order_of_their_names(tmp_path: Path) -> None:
    for name in ("b", "a"):
        (tmp_path / f"{name}.toml").write_text(document(id=f'"{name}"'), encoding="utf-8")
    assert [(entry.id, entry.source) for entry in load(tmp_path)] == [
        ("a", "a.toml#1, shows 1"),
        ("b", "b.toml#1, shows 1"),
    ]


MALFORMED: dict[str, tuple[dict[str, str | None], str]] = {
    **{f"{name} is missing": ({name: None}, f"{name} is missing") for name in (*FINDING, *SHOWS) if name != "upstream"},
    **{f"{name} is empty": ({name: '""'}, f"{name} is missing") for name in ("id", "title", "reason")},
    "where is empty": ({"where": "{}"}, "where is missing"),
    "shows is missing": ({"shows": "[]"}, "shows is missing"),
    "shows of another type": ({"shows": '"everywhere"'}, "shows is a str"),
    "a place of another type": ({"shows": '["everywhere"]'}, "is a str: write { where = { ... }, must = CHECK }"),
    "formerly of another type": ({"formerly": "7"}, "formerly is a int"),
    "formerly with a number": ({"formerly": "[7]"}, "formerly holds something that is no string"),
    "unknown component": ({"component": '"compiler"'}, "unknown component 'compiler'"),
    "id of another type": ({"id": "7"}, "id is a int"),
    "where of another type": ({"where": "true"}, "where is a bool"),
    "no condition": ({"where": "[]"}, "where is missing"),
    "a condition of another type": ({"where": '["fbgemm/*"]'}, "where holds 'fbgemm/*': write { FIELD = VALUE }"),
    "an empty condition": ({"where": "[{}]"}, "where holds {}: write { FIELD = VALUE }"),
    "a condition on an unknown field": (
        {"where": '{ kernel = "add" }'},
        "where has no field 'kernel': fields are backend,",
    ),
    "an exception on an unknown field": ({"except": '{ kernel = "add" }'}, "except has no field 'kernel'"),
    "a value of another type": ({"where": "{ rank = 2 }"}, "where.rank is neither a string nor a list of strings"),
    "a field without values": ({"where": "{ rank = [] }"}, "where.rank is neither a string nor a list of strings"),
    "too many values": (
        {"where": f"{{ variant = {list('abcdefghijklm')} }}"},
        "where.variant has 13 alternatives, more than 12",
    ),
    "too many conditions": (
        {"where": str([{}] * 13).replace("{}", '{ rank = "1" }')},
        "where has 13 conditions, more than 12",
    ),
    "must of another type": ({"must": "1.5"}, "must is a float"),
    "no check": ({"must": "[]"}, "must is missing"),
    "a check that must and may fail": ({"may": '"numerics"'}, "numerics is both in must and in may"),
    "further inputs that must fail": ({"kind": '"further-inputs"'}, "must beside further-inputs, which differ"),
    "degenerate data that must fail": ({"kind": '"further-data"'}, "must beside further-data, which differ"),
    "except of another type": ({"except": "7"}, "except is a int"),
    "reason of another type": ({"reason": "[]"}, "reason is a list"),
    "upstream of another type": ({"upstream": "12345"}, "upstream is a int"),
    "when of another type": ({"when": '"always"'}, "when is a str"),
    "unknown field": ({"verdict": '"deviates"'}, "unknown field 'verdict'"),
    "an undefined outcome with a check": ({"undefined": '"race"'}, "must beside undefined: a run"),
    "an undefined outcome for no reason": (
        {"undefined": '"luck"', "must": None},
        "unknown reason 'luck' for undefined: reasons are",
    ),
    "unknown check": ({"must": '"speed"'}, "unknown check 'speed'"),
    "unknown check among others": ({"may": '["stable", "speed"]'}, "unknown check 'speed'"),
    "unknown condition": ({"when": '{ os = "linux" }'}, "unknown condition 'os'"),
    "upstream that is no reference": ({"upstream": '"somewhere"'}, "upstream 'somewhere'"),
    "upstream with more around it": ({"upstream": '"see pytorch/pytorch#1"'}, "upstream 'see pytorch/pytorch#1'"),
}


@pytest.mark.parametrize("fault", MALFORMED)
def test_a_malformed_entry_is_one_error_that_names_the_entry_and_the_field(fault: str, tmp_path: Path) -> None:
    changes, message = MALFORMED[fault]
    with pytest.raises(UsageError) as raised:
        loaded(tmp_path, document(id='"fine"'), document(**changes))
    place, _, text = str(raised.value).partition(": ")
    assert place.startswith("known.toml#2")
    assert text.startswith(message)
    assert "\n" not in str(raised.value)


def test_a_duplicate_id_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"known\.toml#2: id 'linear-off-by-one' is taken by known\.toml#1"):
        loaded(tmp_path, document(), document())


def test_a_table_of_another_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"known\.toml: unknown table 'deviation': write \[\[finding\]\]"):
        loaded(tmp_path, document().replace("[[finding", "[[deviation"))


def test_a_former_id_cannot_be_that_of_another_finding(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"known\.toml#2: id 'linear-off-by-one' is taken by known\.toml#1"):
        loaded(tmp_path, document(), document(id='"other"', formerly='"linear-off-by-one"'))


def test_a_file_that_is_not_toml_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"known\.toml: not readable as TOML"):
        loaded(tmp_path, "finding: yes")


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"ledger .*nowhere: no such folder"):
        load(tmp_path / "nowhere")


def test_an_entry_does_not_cover_its_exceptions(tmp_path: Path) -> None:
    (known,) = loaded(tmp_path, document(**{"except": '{ variant = "batch0" }'}))
    assert known.exclude == (Where.of({"variant": "batch0"}),)
    assert known.matches(RUN)
    assert not known.matches(RUN.replace("/default/", "/batch0/"))


def test_a_ledger_that_extends_the_suites_has_its_entries_too(tmp_path: Path) -> None:
    (theirs,) = loaded(tmp_path, document())
    assert not extends(tmp_path)
    (tmp_path / "known.toml").write_text('extends = "suite"\n' + document())
    assert extends(tmp_path)
    assert load(tmp_path) == (*load(), theirs)
    assert own(tmp_path) == (theirs,)


def test_an_extending_ledger_cannot_take_an_id_of_the_suite(tmp_path: Path) -> None:
    (entry, *_) = load()
    (tmp_path / "known.toml").write_text('extends = "suite"\n' + document(id=f'"{entry.id}"'))
    with pytest.raises(UsageError, match=rf"known\.toml#1: id '{entry.id}' is taken by "):
        load(tmp_path)


def test_a_ledger_extends_only_the_suites(tmp_path: Path) -> None:
    (tmp_path / "known.toml").write_text('extends = "../others"\n' + document())
    with pytest.raises(UsageError, match=r"known\.toml: extends '\.\./others': write extends = \"suite\""):
        load(tmp_path)


def test_entries_have_the_platforms_of_their_own_ledger(tmp_path: Path) -> None:
    (tmp_path / "more.toml").write_text('extends = "suite"\nplatforms = ["arm64 arm64"]\n')
    *suites, theirs = loaded(tmp_path, 'platforms = ["aarch64 *", "arm64 arm64"]\n' + document())
    assert theirs.platforms == ("aarch64 *", "arm64 arm64")
    assert "x86_64 avx2" in suites[0].platforms
    assert {entry.platforms for entry in suites} == {load()[0].platforms}


@pytest.mark.parametrize("platforms", ['"x86_64 avx2"', "[2]", '["x86_64"]', '["x86_64 avx2 avx512f"]'])
def test_platforms_that_are_none_are_refused(tmp_path: Path, platforms: str) -> None:
    with pytest.raises(UsageError, match=r'known\.toml: platforms .*: write a list of "ARCHITECTURE INSTRUCTIONS"'):
        loaded(tmp_path, f"platforms = {platforms}\n" + document())


def test_the_examples_of_the_documentation_are_places_of_a_ledger(tmp_path: Path) -> None:
    text = (Path(__file__).parents[2] / "docs" / "ledger.md").read_text(encoding="utf-8")
    examples = [block for block in re.findall(r"```toml\n(.*?)```", text, re.DOTALL) if "shows = " in block]
    assert len(examples) == 3
    for number, example in enumerate(examples):
        example = example.replace("owner/repo#number", "pytorch/pytorch#1")
        if "[[finding]]" not in example:
            comment, _, rest = example.rpartition("shows = ")
            example = f'{comment}[[finding]]\nid = "{number}"\ntitle = "t"\nreason = "r"\nshows = {rest}'
        assert loaded(tmp_path, example)
