"""Every kind of damage to a rows file is one error that names the file, the line and the fix."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from invocation import ROWS, write

from conformance.errors import UsageError
from conformance.results.rows import read


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "out" / "rows.jsonl"


def without(index: int) -> Callable[[list[str]], list[str]]:
    return lambda lines: lines[:index] + lines[index + 1 :] if index >= 0 else lines[:index]


NO = object()
"""In the place of a value, removes its field."""


def kept(values: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not NO}


def edited(index: int, **changes: Any) -> Callable[[list[str]], list[str]]:
    """Change fields of one line. A mapping, unless empty, updates the field's items; NO removes a field or an item."""

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
    "a newer schema": (edited(0, schema=4), "schema 4; this version reads 1, 2, 3"),
    "no schema": (edited(0, schema=NO), "schema None; this version reads 1, 2, 3"),
    "a row without an id": (edited(1, id=NO), ":2: damaged row None: missing field id"),
    "a row without kernels": (edited(1, kernels=NO), "missing field kernels"),
    "an unknown verdict": (
        edited(1, verdict="passes"),
        "verdict: 'passes' is not one of crashes, undefined, deviates, unjudged, conforms",
    ),
    "an unknown check": (edited(2, checks={"speed": "pass"}), "check 'speed' is none of matched"),
    "an unknown outcome": (edited(2, checks={"stable": "maybe"}), "stable is 'maybe', which is none of pass"),
    "a row without checks": (edited(2, checks=NO), "missing field checks"),
    "a row that conforms, with no check": (edited(3, checks={}), "it conforms and has no check matched"),
    "a row that conforms, with a check too few": (edited(3, checks={"stable": NO}), "has no check stable"),
    "a row that conforms, with a check that fails": (edited(3, checks={"stable": "fail"}), "conforms and stable fails"),
    "a row that deviates, with no check": (edited(2, checks={}), "it deviates and has no check matched"),
    "a row that deviates, with no check that fails": (edited(2, checks={"numerics": "pass"}), "and no check fails"),
    "a crash with checks": (edited(3, verdict="crashes"), "verdict 'crashes' and checks"),
    "an unavailable row with checks": (edited(3, verdict="unavailable"), "verdict 'unavailable' and checks"),
    "a text for a number": (edited(1, seconds="soon"), "seconds: 'soon' is not a number of seconds"),
    "a number for a text": (edited(1, detail=7), "detail: 7 is not a text"),
    "a flag for a count": (edited(2, total=True), "total: True is not a count or null"),
    "a count below zero": (edited(2, ties=-1), "ties: -1 is not a count or null"),
    "a text for a list": (edited(2, kernels="quantized.linear"), "kernels: 'quantized.linear' is not a list of a text"),
    "a list for the checks": (edited(2, checks=[]), "checks: [] is not a text by name"),
    "NaN": (edited(2, sqnr_db=float("nan")), ":3: not a rows file, or damaged: NaN is no number"),
    "infinity": (edited(2, sqnr_db=float("inf")), ":3: not a rows file, or damaged: Infinity is no number"),
    "a number beyond float64": (
        lambda lines: [line.replace(": 41.5", ": 1e999") for line in lines],
        "sqnr_db: inf is not a number or null",
    ),
    **{
        f"an id of another {name}": (edited(1, **{name: value}), "damaged row fbgemm/F.relu/static-quint8/ptq/default/")
        for name, value in {
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
        f"other {name} counted": (edited(-1, **{name: {value: 9}}), f"the footer counts {{{first}")
        for name, value, first in (
            ("verdicts", "conforms", "'conforms': 9"),
            ("checks", "numerics", "'matched': 0, 'observed': 0"),
            ("engines", "fbgemm", "'fbgemm': 9} engines of rows, there are {'fbgemm': {"),
        )
    },
    "findings missing": (edited(2, findings=NO), "missing field findings"),
    "a text for the findings": (edited(2, findings="wrong"), "findings: 'wrong' is not a list of a finding"),
    "a text for a finding": (edited(2, findings=["wrong"]), "findings: 'wrong' is not a finding"),
    "a finding of no kind": (edited(2, findings=[{"check": "numerics"}]), "findings: None is no kind of finding"),
    "a finding without a field": (
        edited(2, findings=[{"kind": "raises", "check": "numerics", "stage": "lower", "exception": "X"}]),
        "findings: missing field message",
    ),
    "findings that say something else": (edited(2, detail="numerics: all equal"), "its findings render as"),
    "no engines counted": (edited(-1, engines=NO), "the footer counts None engines of rows, there are {'fbgemm': {"),
    "finished at no time": (edited(-1, finished="yesterday"), "damaged: finished of its footer is 'yesterday'; run it"),
    "finished at no text": (edited(-1, finished=1767225600), "damaged: finished of its footer is 1767225600"),
    "finished in no zone": (
        edited(-1, finished="2026-01-01T02:30:00"),
        "finished of its footer is '2026-01-01T02:30:00'",
    ),
    "more known ones counted": (edited(-1, known=2), "the footer counts 2 known of rows, there are 1"),
}


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
    with pytest.raises(UsageError, match=r"rows\.jsonl:2: damaged row .*: unknown field colour; run it again"):
        read(path)


def test_bytes_that_are_not_text_are_one_error_that_names_the_file(tmp_path: Path) -> None:
    (tmp_path / "binary.jsonl").write_bytes(b"\xff\xfe\x00rows")
    with pytest.raises(UsageError, match=r"binary\.jsonl:1: not a rows file, or damaged"):
        read(tmp_path / "binary.jsonl")


def test_a_missing_file_is_one_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"nowhere\.jsonl: No such file"):
        read(tmp_path / "nowhere.jsonl")
