"""Every line of a rows file is valid by the published JSON Schema, and damaged lines are not."""

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest
from invocation import ROWS, full_row, row, write

from conformance.results import rows
from conformance.results.findings import KINDS
from conformance.results.profiles import CHECKS
from conformance.results.rows import Row, schema
from conformance.results.verdicts import IN_ORDER
from conformance.selection import Selection


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "out" / "rows.jsonl"


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
    header = {"kind": "header", "schema": 3, **selection.header()}
    validator.validate(header)
    validator.validate({**header, "shard": "1/4", "since": "0" * 64, "only_since": True})
    for name in ("shard", "since", "only_since"):
        assert not validator.is_valid({**header, name: 1})


def test_a_footer_states_a_time_in_utc_or_none(path: Path, validator: jsonschema.Draft202012Validator) -> None:
    footer = json.loads(write(path, ROWS).read_text(encoding="utf-8").splitlines()[-1])
    for finished in ("2026-01-01T02:30:00+00:00", "2026-01-01T02:30:00.25Z"):
        validator.validate({**footer, "finished": finished})
    validator.validate({name: value for name, value in footer.items() if name != "finished"})
    for wrong in ("yesterday", "2026-01-01T02:30:00+01:00", 1767225600, None):
        assert not validator.is_valid({**footer, "finished": wrong})


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
    "findings": [{"kind": "raises", "check": "numerics"}],
    "kernels": "quantized.linear",
    "steps_max": 1.5,
    "mismatched": -1,
    "ties": "2",
    "tolerated": 0.5,
    "total": [],
    "sqnr_db": "41.5",
    "known": False,
    "form": 7,
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


def test_the_published_schema_is_that_of_the_code() -> None:
    published = json.loads((Path(rows.__file__).parent / "rows.schema.json").read_text(encoding="utf-8"))
    assert published == schema(), "python -m conformance schema rows prints the schema of the code"


def test_the_schema_has_the_checks_verdicts_and_findings_of_the_code() -> None:
    definitions = schema()["$defs"]
    assert tuple(definitions["check"]["enum"]) == CHECKS
    assert {*definitions["verdict"]["enum"]} == {*IN_ORDER}
    assert {*KINDS} == {
        definition["properties"]["kind"]["const"]
        for name, definition in definitions.items()
        if name.startswith("finding-")
    }


def test_a_finding_with_a_wrong_field_breaks_the_schema(validator: jsonschema.Draft202012Validator) -> None:
    line = {"kind": "row", **json.loads(json.dumps(full_row().to_json()))}
    codes = line["findings"][0]
    assert codes["elements"][1]["got"] == "inf"
    for changes in ({"kind": "unknown"}, {"mismatched": "3"}, {"colour": "red"}, {"elements": [{"index": [0]}]}):
        assert not validator.is_valid({**line, "findings": [{**codes, **changes}]})
