"""A rows file is complete or says that it is not, and every line of it keeps to the published schema."""

import json
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest
from invocation import HEADER

from conformance.errors import UsageError
from conformance.properties.metamorphic import relations
from conformance.results.profiles import CASES, CHECKS, CHECKS_OF, PROPERTIES
from conformance.results.rows import VERDICTS, Row, Writer, counts, read, schema
from conformance.selection import Selection


def row(name: str = "nn.ReLU", verdict: str = "conforms", engine: str = "fbgemm", **changes: Any) -> Row:
    plain = Row(
        id=f"fbgemm/{name}/static-quint8/ptq/default/exact@{engine}",
        backend="fbgemm",
        pattern=name,
        dtype_config="static-quint8",
        flow="ptq",
        variant="default",
        profile="exact",
        engine=engine,
        verdict=verdict,
        checks=dict.fromkeys(CHECKS, "pass") if verdict == "conforms" else {},
    )
    return replace(plain, **changes)


def full_row() -> Row:
    """A row with every field set."""
    return row(
        "nn.Linear",
        "deviates",
        checks={**dict.fromkeys(CHECKS, "pass"), "numerics": "fail", "accuracy": "skip"},
        detail="numerics: 3 of 32 codes differ — worst 1 step",
        kernels=("quantized.linear",),
        steps_max=1,
        mismatched=3,
        ties=2,
        total=32,
        sqnr_db=41.5,
        known="linear-off-by-one",
        seconds=0.05,
    )


ROWS = [row("nn.ReLU"), full_row(), row("F.relu", "unavailable", detail="engine fbgemm: not built")]


def write(path: Path, rows: list[Row], footer: dict[str, Any] | None = None) -> Path:
    writer = Writer(path, HEADER)
    for one in rows:
        writer.add(one)
    writer.finish(footer or {"seconds": 1.5, "torch_seconds": 1.0})
    return path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "out" / "rows.jsonl"


def test_what_is_written_is_read_back(path: Path) -> None:
    found = read(write(path, ROWS))
    assert found.rows == tuple(sorted(ROWS, key=lambda one: one.id))
    assert {key: found.header[key] for key in HEADER} == HEADER
    assert found.footer["rows"] == 3
    assert found.footer["seconds"] == 1.5


def test_rows_are_in_order_of_their_ids_whatever_order_they_came_in(path: Path, tmp_path: Path) -> None:
    found = read(write(path, ROWS))
    assert [one.id for one in found.rows] == sorted(one.id for one in ROWS)
    other = write(tmp_path / "other.jsonl", ROWS[::-1])
    assert other.read_bytes() == path.read_bytes()


def test_the_file_appears_only_when_it_is_complete(path: Path) -> None:
    writer = Writer(path, HEADER)
    writer.add(ROWS[0])
    assert not path.exists()
    writer.finish({})
    assert [file.name for file in path.parent.iterdir()] == ["rows.jsonl"]


def test_an_earlier_file_stands_until_the_new_one_is_complete(path: Path) -> None:
    before = write(path, ROWS).read_bytes()
    writer = Writer(path, HEADER)
    writer.add(ROWS[0])
    assert path.read_bytes() == before
    writer.finish({})
    assert read(path).rows == (ROWS[0],)


def test_an_invocation_that_dies_leaves_every_row_aside(path: Path) -> None:
    writer = Writer(path, HEADER)
    for one in ROWS:
        writer.add(one)
    aside = path.with_name("rows.jsonl.partial")  # the writer is still open, as in a process that is killed
    lines = [json.loads(line) for line in aside.read_text(encoding="utf-8").splitlines()]
    assert [line["kind"] for line in lines] == ["header", "row", "row", "row"]
    assert [line["id"] for line in lines[1:]] == [one.id for one in ROWS]
    with pytest.raises(UsageError, match=r"rows\.jsonl\.partial: truncated"):
        read(aside)


def test_executed_counts_what_is_not_unavailable(path: Path) -> None:
    writer = Writer(path, HEADER)
    for one in (*ROWS, row("nn.GRU", "crashes")):
        writer.add(one)
    assert writer.executed == 3


def test_a_value_that_is_not_json_is_refused(path: Path) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        Writer(path, HEADER).add(row(sqnr_db=float("nan")))


def test_a_directory_in_the_place_of_the_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "taken.jsonl").mkdir()
    with pytest.raises(UsageError, match=r"--results .*taken\.jsonl: is a directory"):
        Writer(tmp_path / "taken.jsonl", HEADER)
    assert [file.name for file in tmp_path.iterdir()] == ["taken.jsonl"]


def test_a_file_in_the_place_of_the_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match=r"--results .*file/rows\.jsonl: .*name a file that can be written"):
        Writer(tmp_path / "file" / "rows.jsonl", HEADER)


def without(index: int) -> Callable[[list[str]], list[str]]:
    return lambda lines: lines[:index] + lines[index + 1 :] if index >= 0 else lines[:index]


NO = object()
"""In the place of a value, takes the field out."""


def kept(values: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not NO}


def edited(index: int, **changes: Any) -> Callable[[list[str]], list[str]]:
    """Change fields of one line. Those of the field `checks` are added to what it has, or taken out of it."""

    def edit(lines: list[str]) -> list[str]:
        before = json.loads(lines[index])
        new = {**changes, **{k: kept({**before[k], **v}) for k, v in changes.items() if isinstance(v, dict) and v}}
        values = kept({**before, **new})
        return [json.dumps(values) if line is lines[index] else line for line in lines]

    return edit


DAMAGES: dict[str, tuple[Callable[[list[str]], list[str]], str]] = {
    "empty": (lambda lines: [], "empty"),
    "not JSON": (lambda lines: ["<html>"], "not a rows file, or damaged"),
    "cut within a line": (lambda lines: [*lines[:-2], lines[-2][:40]], "not a rows file, or damaged"),
    "other JSON": (lambda lines: ["[1, 2]"], ":1: not a line of a rows file"),
    "a line of another kind": (edited(2, kind="note"), ":3: not a line of a rows file"),
    "no header": (without(0), "has no header"),
    "no footer": (without(-1), "truncated: it has no footer"),
    "header alone": (lambda lines: lines[:1], "truncated: it has no footer"),
    "footer counts another number": (edited(-1, rows=7), "footer counts 7 rows, there are 3"),
    "a row is lost": (without(2), "footer counts 3 rows, there are 2"),
    "a row is there twice": (lambda lines: [*lines[:2], lines[1], lines[2], lines[-1]], "duplicate row fbgemm/F.relu/"),
    "a newer schema": (edited(0, schema=2), "schema 2; this version reads 1"),
    "no schema": (edited(0, schema=NO), "schema None; this version reads 1"),
    "a row without an id": (edited(1, id=NO), ":2: damaged row None: a row has no id"),
    "a row without kernels": (edited(1, kernels=NO), "a row has no kernels"),
    "an unknown verdict": (edited(1, verdict="passes"), "verdict 'passes' is none of conforms, deviates"),
    "an unknown check": (edited(2, checks={"speed": "pass"}), "check 'speed' is none of matched"),
    "an unknown outcome": (edited(2, checks={"stable": "maybe"}), "stable is 'maybe', which is none of pass"),
    "a row without checks": (edited(2, checks=NO), "a row has no checks"),
    "a row that conforms, with no check": (edited(3, checks={}), "it conforms and has no check matched"),
    "a row that conforms, with a check too few": (edited(3, checks={"stable": NO}), "has no check stable"),
    "a row that conforms, with a check that fails": (edited(3, checks={"stable": "fail"}), "conforms and stable fails"),
    "a row that deviates, with no check": (edited(2, checks={}), "it deviates and has no check matched"),
    "a row that deviates, with no check that fails": (edited(2, checks={"numerics": "pass"}), "and no check fails"),
    "a crash with checks": (edited(3, verdict="crashes"), "verdict 'crashes' and checks"),
    "an unavailable row with checks": (edited(3, verdict="unavailable"), "verdict 'unavailable' and checks"),
    "a text for a number": (edited(1, seconds="soon"), "seconds is 'soon', which is not a number of seconds"),
    "a number for a text": (edited(1, detail=7), "detail is 7, which is not a text"),
    "a flag for a count": (edited(2, total=True), "total is True, which is not a count or null"),
    "a count below zero": (edited(2, ties=-1), "ties is -1, which is not a count or null"),
    "a text for a list": (edited(2, kernels="quantized.linear"), "which is not a list of texts"),
    "a list for the checks": (edited(2, checks=[]), "checks is [], which is not texts by name"),
    "NaN": (edited(2, sqnr_db=float("nan")), ":3: not a rows file, or damaged: NaN is no number"),
    "infinity": (edited(2, sqnr_db=float("inf")), ":3: not a rows file, or damaged: Infinity is no number"),
    "a number beyond float64": (
        lambda lines: [line.replace(": 41.5", ": 1e999") for line in lines],
        "sqnr_db is inf, which is not a number or null",
    ),
    **{
        f"an id of another {name}": (edited(1, **{name: other}), "damaged row fbgemm/F.relu/static-quint8/ptq/default/")
        for name, other in {
            "backend": "x86",
            "pattern": "nn.ReLU",
            "dtype_config": "static-qint8",
            "flow": "qat",
            "variant": "large",
            "profile": "typical",
            "engine": "x86",
        }.items()
    },
    **{
        f"other {name} counted": (edited(-1, **{name: {other: 9}}), f"the footer counts {{{first}")
        for name, other, first in (
            ("verdicts", "conforms", "'conforms': 9"),
            ("checks", "numerics", "'matched': 0, 'observed': 0"),
            ("engines", "fbgemm", "'fbgemm': 9} engines of rows, there are {'fbgemm': {"),
        )
    },
    "no engines counted": (edited(-1, engines=NO), "the footer counts None engines of rows, there are {'fbgemm': {"),
    "more known ones counted": (edited(-1, known=2), "the footer counts 2 known of rows, there are 1"),
}


def test_the_checks_of_a_profile_are_those_that_its_runs_go_through() -> None:
    assert CHECKS_OF["laws"] == relations.CHECKS
    assert set(CHECKS_OF) == {*CASES, *PROPERTIES}


@pytest.mark.parametrize("profile", CHECKS_OF)
def test_a_row_of_every_profile_is_read_back(profile: str, path: Path) -> None:
    named = {"id": f"fbgemm/nn.ReLU/static-quint8/ptq/default/{profile}@fbgemm", "profile": profile}
    one = row(**named, checks=dict.fromkeys(CHECKS_OF[profile], "pass"))
    assert read(write(path, [one])).rows == (one,)


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_one_error_that_names_it(damage: str, path: Path) -> None:
    change, message = DAMAGES[damage]
    lines = write(path, ROWS).read_text(encoding="utf-8").splitlines()
    path.write_text("".join(line + "\n" for line in change(lines)), encoding="utf-8")
    with pytest.raises(UsageError) as raised:
        read(path)
    assert str(path) in str(raised.value)
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_row_of_a_newer_suite_is_refused_by_its_field(path: Path) -> None:
    lines = write(path, ROWS).read_text(encoding="utf-8").splitlines()
    path.write_text("\n".join(edited(1, colour="red")(lines)) + "\n", encoding="utf-8")
    with pytest.raises(UsageError, match="unknown fields: colour"):
        read(path)


def test_bytes_that_are_not_text_are_one_error_that_names_the_file(tmp_path: Path) -> None:
    (tmp_path / "binary.jsonl").write_bytes(b"\xff\xfe\x00rows")
    with pytest.raises(UsageError, match=r"binary\.jsonl:1: not a rows file, or damaged"):
        read(tmp_path / "binary.jsonl")


def test_a_missing_file_is_one_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"nowhere\.jsonl: No such file"):
        read(tmp_path / "nowhere.jsonl")


def test_a_crash_counts_as_a_failed_check_of_that_name() -> None:
    assert row(verdict="crashes", checks={"numerics": "fail"}).failed == {"crashes", "numerics"}
    assert full_row().failed == {"numerics"}
    assert row().failed == frozenset()


def test_counts_are_by_verdict_by_check_and_by_engine() -> None:
    found = counts([*ROWS, row("nn.ELU", "crashes", engine="x86"), replace(full_row(), engine="x86", known=None)])
    assert found == {
        "rows": 5,
        "verdicts": {"conforms": 1, "deviates": 2, "crashes": 1, "unavailable": 1},
        "checks": {**dict.fromkeys(CHECKS, 0), "numerics": 2},
        "engines": {"fbgemm": {"conforms": 1, "deviates": 1, "unavailable": 1}, "x86": {"crashes": 1, "deviates": 1}},
        "known": 1,
    }


@pytest.fixture(scope="module")
def validator() -> jsonschema.Draft202012Validator:
    jsonschema.Draft202012Validator.check_schema(schema())
    return jsonschema.Draft202012Validator(schema())


def test_every_line_of_a_file_keeps_to_the_schema(path: Path, validator: jsonschema.Draft202012Validator) -> None:
    lines = write(path, ROWS).read_text(encoding="utf-8").splitlines()
    assert len(lines) == 5
    for line in lines:
        validator.validate(json.loads(line))


def test_the_header_of_an_invocation_keeps_to_the_schema(validator: jsonschema.Draft202012Validator) -> None:
    selection = Selection(globs=["fbgemm/nn.ReLU/*"], isa_limit="avx2")
    selection.__dict__["unavailable"] = {"fbgemm": None, "qnnpack": "not built"}
    validator.validate({"kind": "header", "schema": 1, **selection.header()})


WRONG: dict[str, Any] = {
    "id": "nn.ReLU",
    "backend": 1,
    "pattern": None,
    "dtype_config": ["static-quint8"],
    "flow": "training",
    "variant": "",
    "profile": 0,
    "engine": None,
    "verdict": "passes",
    "checks": {"numerics": True},
    "detail": None,
    "kernels": "quantized.linear",
    "steps_max": 1.5,
    "mismatched": -1,
    "ties": "2",
    "tolerated": 0.5,
    "total": [],
    "sqnr_db": "41.5",
    "known": False,
    "seconds": -0.5,
}


@pytest.mark.parametrize("name", [field.name for field in fields(Row)])
def test_a_row_with_a_field_of_the_wrong_type_breaks_the_schema(
    name: str, validator: jsonschema.Draft202012Validator
) -> None:
    line = {"kind": "row", **json.loads(json.dumps(full_row().to_json()))}
    assert validator.is_valid(line)
    assert not validator.is_valid({**line, name: WRONG[name]})
    assert not validator.is_valid({key: value for key, value in line.items() if key != name})


def test_a_row_with_a_field_more_breaks_the_schema(validator: jsonschema.Draft202012Validator) -> None:
    line = {"kind": "row", **json.loads(json.dumps(row().to_json()))}
    assert not validator.is_valid({**line, "colour": "red"})
    assert not validator.is_valid({**line, "checks": {"speed": "pass"}})


def test_the_schema_knows_the_checks_and_verdicts_of_the_code() -> None:
    definitions = schema()["$defs"]
    assert tuple(definitions["check"]["enum"]) == CHECKS
    assert tuple(definitions["verdict"]["enum"]) == VERDICTS
