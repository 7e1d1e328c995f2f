"""JSON values of frozen dataclasses: encoded, decoded and described by the annotations of their fields.

Libraries for the same are less strict: msgspec and cattrs let fields with a default be missing, msgspec accepts unknown
fields of dataclasses, cattrs "3" as an integer, and neither writes infinity in JSON so that it can be read again.
"""

import math
import types
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, is_dataclass
from enum import StrEnum
from functools import cache
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

NON_FINITE = ("nan", "inf", "-inf")
"""Strings in place of floats that JSON has no number for."""

Decoder = Callable[[Any], Any]


@dataclass(frozen=True, eq=False)
class Limit:
    """A condition on the values of an annotated type: its name, the test, and its JSON Schema."""

    name: str
    holds: Callable[[Any], bool]
    schema: Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class By:
    """Decodes the objects of an annotated type, such as a base class, by a function that raises TypeError."""

    name: str
    decode: Callable[[dict[str, Any]], Any]


Count = Annotated[int, Limit("a count", lambda value: value >= 0, {"type": "integer", "minimum": 0})]
Finite = Annotated[float, Limit("a number", math.isfinite, {"type": "number"})]
Seconds = Annotated[
    float,
    Limit("a number of seconds", lambda value: math.isfinite(value) and value >= 0, {"type": "number", "minimum": 0}),
]


@dataclass(frozen=True, eq=False)
class Form:
    """JSON values of one annotation: what they are in words, for messages, their JSON Schema, and how they are decoded.

    `decode` raises TypeError for a value that does not fit. `inner` says whether its message names the part that is wrong.
    """

    words: str
    schema: dict[str, Any]
    decode: Decoder
    inner: bool = False


def encode(value: Any) -> Any:
    """JSON value of a dataclass, tuple, mapping, string, number or None."""
    if is_dataclass(value) and not isinstance(value, type):
        return {name: encode(getattr(value, name)) for name in forms(type(value))}
    if isinstance(value, Mapping):
        return {str(key): encode(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [encode(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return str(value) if isinstance(value, StrEnum) else value


def decode(annotation: Any, value: Any) -> Any:
    """The object that `encode` encoded. Raises TypeError naming the value that does not fit the annotation."""
    return form(annotation).decode(value)


def decode_fields(of: type, values: Mapping[str, Any]) -> Any:
    """A dataclass from the JSON values of its fields. Raises TypeError naming a field that is missing, unknown or wrong."""
    decoders = _decoders(of)
    if values.keys() != decoders.keys():
        if unknown := sorted(values.keys() - decoders.keys()):
            raise TypeError(f"unknown field {', '.join(unknown)}")
        raise TypeError(f"missing field {', '.join(name for name in decoders if name not in values)}")
    decoded = {}
    for name, decode_field in decoders.items():
        try:
            decoded[name] = decode_field(values[name])
        except TypeError as error:
            raise TypeError(f"{name}: {error}") from error
    return of(**decoded)


def schema_of(annotation: Any) -> dict[str, Any]:
    """JSON Schema of the values that `encode` makes of objects with this annotation."""
    return form(annotation).schema


def schema_of_fields(of: type, **others: Any) -> dict[str, Any]:
    """JSON Schema of an object that has the fields of a dataclass behind other properties, and nothing else."""
    properties = {**others, **{name: one.schema for name, one in forms(of).items()}}
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


@cache
def forms(of: Any) -> dict[str, Form]:
    """The forms of the fields of a dataclass, by name."""
    hints = get_type_hints(of, include_extras=True)
    return {one.name: form(hints[one.name]) for one in fields(of)}


@cache
def _decoders(of: type) -> dict[str, Decoder]:
    return {name: one.decode for name, one in forms(of).items()}


@cache
def form(annotation: Any) -> Form:
    """The form of the values of an annotation."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _limited(form(arguments[0]), arguments[1]) if isinstance(arguments[1], Limit) else _by(arguments[1])
    if origin in (Union, types.UnionType):
        return _union([form(member) for member in arguments])
    if origin is tuple:
        return _list(form(arguments[0])) if arguments[-1] is ... else _fixed([form(item) for item in arguments])
    if origin is not None and issubclass(origin, Mapping):
        return _mapping(*map(form, arguments))
    if annotation is Any:
        return Form("anything", {}, lambda value: value)
    if isinstance(annotation, type) and is_dataclass(annotation):
        return _object(annotation)
    return _member(annotation) if issubclass(annotation, StrEnum) else _plain(annotation)


def _mismatch(value: Any, words: str) -> TypeError:
    return TypeError(f"{repr(value)[:80]} is not {words}")


def _limited(base: Form, limit: Limit) -> Form:
    decode_base, holds = base.decode, limit.holds

    def decode_limited(value: Any) -> Any:
        try:
            if holds(decoded := decode_base(value)):
                return decoded
        except TypeError:
            pass
        raise _mismatch(value, limit.name)

    return Form(limit.name, dict(limit.schema), decode_limited)


def _by(by: By) -> Form:
    def decode_by(value: Any) -> Any:
        if not isinstance(value, dict):
            raise _mismatch(value, by.name)
        return by.decode(value)

    return Form(by.name, {"type": "object"}, decode_by, inner=True)


def _union(members: Sequence[Form]) -> Form:
    words = " or ".join(member.words for member in members)
    others = [member for member in members if member.words != NULL]
    optional, decoders = len(others) < len(members), [member.decode for member in others]
    inner = len(others) == 1 and others[0].inner

    def decode_union(value: Any) -> Any:
        if value is None and optional:
            return None
        for decode_member in decoders:
            try:
                return decode_member(value)
            except TypeError:
                if inner and isinstance(value, dict):
                    raise
        raise _mismatch(value, words)

    return Form(words, {"anyOf": [member.schema for member in members]}, decode_union)


def _list(item: Form) -> Form:
    words, decode_item = f"a list of {item.words}", item.decode

    def decode_list(value: Any) -> Any:
        if isinstance(value, list | tuple):
            try:
                return tuple([decode_item(element) for element in value])
            except TypeError:
                if item.inner:
                    raise
        raise _mismatch(value, words)

    return Form(words, {"type": "array", "items": item.schema}, decode_list)


def _fixed(items: Sequence[Form]) -> Form:
    words, schemas = f"a list of {', '.join(item.words for item in items)}", [item.schema for item in items]

    def decode_fixed(value: Any) -> Any:
        if not isinstance(value, list | tuple) or len(value) != len(items):
            raise _mismatch(value, words)
        return tuple([item.decode(element) for item, element in zip(items, value, strict=True)])

    of_length = {"minItems": len(items), "maxItems": len(items)}
    return Form(words, {"type": "array", "prefixItems": schemas, **of_length}, decode_fixed)


def _mapping(key: Form, item: Form) -> Form:
    words, decode_key, decode_item = f"{item.words} by name", key.decode, item.decode

    def decode_mapping(value: Any) -> Any:
        if isinstance(value, dict):
            with suppress(TypeError):
                return {decode_key(name): decode_item(element) for name, element in value.items()}
        raise _mismatch(value, words)

    return Form(words, {"type": "object", "additionalProperties": item.schema}, decode_mapping)


def _object(of: type) -> Form:
    words = f"a {of.__name__}"

    def decode_object(value: Any) -> Any:
        if not isinstance(value, dict):
            raise _mismatch(value, words)
        return decode_fields(of, value)

    return Form(words, schema_of_fields(of), decode_object, inner=True)


def _member(of: type[StrEnum]) -> Form:
    members, words = {str(member): member for member in of}, f"one of {', '.join(of)}"

    def decode_member(value: Any) -> Any:
        if isinstance(value, str) and value in members:
            return members[value]
        raise _mismatch(value, words)

    return Form(words, {"enum": [*members]}, decode_member)


NULL = "null"
PLAIN: dict[type, tuple[str, dict[str, Any]]] = {
    str: ("a text", {"type": "string"}),
    int: ("an integer", {"type": "integer"}),
    float: ("a number", {"anyOf": [{"type": "number"}, {"enum": list(NON_FINITE)}]}),
    bool: ("true or false", {"type": "boolean"}),
    type(None): (NULL, {"type": "null"}),
}
"""Types of JSON values in words, and their JSON Schema."""


def _plain(annotation: type) -> Form:
    words, schema = PLAIN[annotation]

    def decode_plain(value: Any) -> Any:
        kind = type(value)
        if kind is annotation:
            return value
        if annotation is float and (kind is int or (kind is str and value in NON_FINITE)):
            return float(value)
        raise _mismatch(value, words)

    return Form(words, schema, decode_plain)
