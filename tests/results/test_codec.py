"""Dataclasses are encoded as JSON, decoded by their annotations, and described by a JSON Schema."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import jsonschema  # type: ignore[import-untyped]
import pytest

from conformance.results.codec import By, Count, Finite, Seconds, decode, decode_fields, encode, schema_of
from conformance.results.verdicts import Verdict


@dataclass(frozen=True)
class Point:
    at: tuple[int, ...]
    value: float


@dataclass(frozen=True)
class Everything:
    name: str
    points: tuple[Point, ...]
    range: tuple[int, int]
    texts: Mapping[str, str]
    verdict: Verdict
    flag: bool
    count: Count
    size: float | None
    either: int | str


EVERYTHING = Everything(
    "é", (Point((0, 1), math.inf), Point((), 0.5)), (-1, 2), {"a": "b"}, Verdict.CRASHES, True, 3, None, "x"
)


def test_an_object_is_decoded_as_it_was_encoded() -> None:
    values = json.loads(json.dumps(encode(EVERYTHING), allow_nan=False))
    assert decode_fields(Everything, values) == EVERYTHING
    jsonschema.validate(values, schema_of(Everything))


def test_encoded_values_have_builtin_types_only() -> None:
    assert {*map(type, encode(EVERYTHING).values())} == {str, list, dict, bool, int, type(None)}


WRONG: dict[str, tuple[Any, str]] = {
    "name": (7, "name: 7 is not a text"),
    "points": ([{"at": [0], "value": "1"}], "points: value: '1' is not a number"),
    "range": ([1], r"range: \[1\] is not a list of an integer, an integer"),
    "texts": ({"a": 1}, "texts: .* is not a text by name"),
    "verdict": ("fine", "verdict: 'fine' is not one of crashes, undefined, deviates, unjudged, conforms, unavailable"),
    "flag": (1, "flag: 1 is not true or false"),
    "count": (-1, "count: -1 is not a count"),
    "size": ("big", "size: 'big' is not a number or null"),
    "either": (0.5, "either: 0.5 is not an integer or a text"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_value_is_named_with_its_field(name: str) -> None:
    value, message = WRONG[name]
    values = {**encode(EVERYTHING), name: value}
    with pytest.raises(TypeError, match=f"^{message}$"):
        decode_fields(Everything, values)
    assert not jsonschema.Draft202012Validator(schema_of(Everything)).is_valid(values)


def test_missing_and_unknown_fields_are_named() -> None:
    with pytest.raises(TypeError, match=r"^missing field value$"):
        decode_fields(Point, {"at": []})
    with pytest.raises(TypeError, match=r"^unknown field colour, size$"):
        decode_fields(Point, {"at": [], "size": 1, "colour": 2})


@pytest.mark.parametrize(
    ("annotation", "value"),
    [(Count, True), (Count, 1.0), (int, False), (float, True), (Finite, "nan"), (Finite, math.inf), (Seconds, -0.5)],
)
def test_a_number_outside_of_its_range_is_refused(annotation: Any, value: Any) -> None:
    with pytest.raises(TypeError, match="is not"):
        decode(annotation, value)


def test_an_annotation_may_have_its_own_decoder() -> None:
    kind = Annotated[Point, By("a point", lambda values: Point((), values["x"]))]
    assert decode(kind, {"x": 0.5}) == Point((), 0.5)
    with pytest.raises(TypeError, match="7 is not a point"):
        decode(kind, 7)
