"""JSON values of frozen dataclasses: encoded, decoded and described by the annotations of their fields."""

import math
import types
from collections.abc import Callable, Mapping
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


def encode(value: Any) -> Any:
    """JSON value of a dataclass, tuple, mapping, string, number or None."""
    if is_dataclass(value) and not isinstance(value, type):
        return {name: encode(getattr(value, name)) for name in annotations(type(value))}
    if isinstance(value, Mapping):
        return {str(key): encode(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [encode(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return str(value) if isinstance(value, StrEnum) else value


def annotations(of: Any) -> dict[str, Any]:
    """The annotations of the fields of a dataclass, by name."""
    return _annotations(of)


@cache
def _annotations(of: Any) -> dict[str, Any]:
    hints = get_type_hints(of, include_extras=True)
    return {field.name: hints[field.name] for field in fields(of)}


def decode(annotation: Any, value: Any) -> Any:
    """The object that `encode` encoded. Raises TypeError naming the value that does not fit the annotation."""
    return decoder(annotation)(value)


def decode_fields(of: type, values: Mapping[str, Any]) -> Any:
    """A dataclass from the JSON values of its fields. Raises TypeError naming a field that is missing, unknown or wrong."""
    decoders = _field_decoders(of)
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


@cache
def _field_decoders(of: type) -> dict[str, Decoder]:
    return {name: decoder(annotation) for name, annotation in annotations(of).items()}


@cache
def decoder(annotation: Any) -> Decoder:
    """The function that decodes values of an annotation. It raises TypeError for a value that does not fit."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _limited(*arguments) if isinstance(arguments[1], Limit) else _by(arguments[1])
    if origin in (Union, types.UnionType):
        return _union(annotation, arguments)
    if annotation is Any:
        return _anything
    if origin is tuple:
        return _sequence(annotation, arguments[0]) if arguments[-1] is ... else _fixed(annotation, arguments)
    if origin is not None and issubclass(origin, Mapping):
        return _mapping(annotation, *arguments)
    if isinstance(annotation, type) and is_dataclass(annotation):
        return _dataclass(annotation)
    if issubclass(annotation, StrEnum):
        return _member(annotation)
    return _plain(annotation)


def _mismatch(value: Any, annotation: Any) -> TypeError:
    return TypeError(f"{repr(value)[:80]} is not {describe(annotation)}")


def _anything(value: Any) -> Any:
    return value


def _limited(annotation: Any, limit: Limit) -> Decoder:
    base, limited = decoder(annotation), Annotated[annotation, limit]

    def decode_limited(value: Any) -> Any:
        try:
            if limit.holds(decoded := base(value)):
                return decoded
        except TypeError:
            pass
        raise _mismatch(value, limited)

    return decode_limited


def _by(by: By) -> Decoder:
    def decode_by(value: Any) -> Any:
        if not isinstance(value, dict):
            raise TypeError(f"{repr(value)[:80]} is not {by.name}")
        return by.decode(value)

    return decode_by


def _union(annotation: Any, arguments: tuple[Any, ...]) -> Decoder:
    members = [decoder(member) for member in arguments if member is not type(None)]
    optional = type(None) in arguments

    def decode_union(value: Any) -> Any:
        if value is None and optional:
            return None
        for member in members:
            try:
                return member(value)
            except TypeError as error:
                if len(members) == 1 and isinstance(value, dict):  # which field of an object is wrong says more
                    raise TypeError(str(error)) from error
        raise _mismatch(value, annotation)

    return decode_union


def _sequence(annotation: Any, item: Any) -> Decoder:
    decode_item = decoder(item)
    nested = is_dataclass(item) or (get_origin(item) is Annotated and isinstance(get_args(item)[1], By))

    def decode_sequence(value: Any) -> Any:
        if not isinstance(value, list | tuple):
            raise _mismatch(value, annotation)
        if nested:
            return tuple([decode_item(element) for element in value])
        try:
            return tuple([decode_item(element) for element in value])
        except TypeError as error:
            raise _mismatch(value, annotation) from error

    return decode_sequence


def _fixed(annotation: Any, items: tuple[Any, ...]) -> Decoder:
    decoders = [decoder(item) for item in items]

    def decode_fixed(value: Any) -> Any:
        if not isinstance(value, list | tuple) or len(value) != len(decoders):
            raise _mismatch(value, annotation)
        return tuple([decode_item(element) for decode_item, element in zip(decoders, value, strict=True)])

    return decode_fixed


def _mapping(annotation: Any, key: Any, item: Any) -> Decoder:
    decode_key, decode_item = decoder(key), decoder(item)

    def decode_mapping(value: Any) -> Any:
        if not isinstance(value, dict):
            raise _mismatch(value, annotation)
        try:
            return {decode_key(name): decode_item(element) for name, element in value.items()}
        except TypeError as error:
            raise _mismatch(value, annotation) from error

    return decode_mapping


def _dataclass(of: type) -> Decoder:
    def decode_object(value: Any) -> Any:
        if not isinstance(value, dict):
            raise _mismatch(value, of)
        return decode_fields(of, value)

    return decode_object


def _member(of: type[StrEnum]) -> Decoder:
    members = {str(member): member for member in of}

    def decode_member(value: Any) -> Any:
        if isinstance(value, str) and value in members:
            return members[value]
        raise _mismatch(value, of)

    return decode_member


def _plain(annotation: type) -> Decoder:
    def decode_plain(value: Any) -> Any:
        kind = type(value)
        if kind is annotation:
            return value
        if annotation is float and (kind is int or (kind is str and value in NON_FINITE)):
            return float(value)
        raise _mismatch(value, annotation)

    return decode_plain


WORDS = {str: "a text", int: "an integer", float: "a number", bool: "true or false", type(None): "null"}


def describe(annotation: Any) -> str:
    """An annotation in words, for messages."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return str(arguments[1].name)
    if origin in (Union, types.UnionType):
        return " or ".join(map(describe, arguments))
    if origin is tuple:
        items = arguments[:1] if arguments[-1] is ... else arguments
        return f"a list of {', '.join(map(describe, items))}"
    if origin is not None:
        return f"{describe(arguments[1])} by name"
    if issubclass(annotation, StrEnum):
        return f"one of {', '.join(annotation)}"
    return WORDS.get(annotation) or f"a {annotation.__name__}"


def schema_of(annotation: Any) -> dict[str, Any]:
    """JSON Schema of the values that `encode` makes of objects with this annotation."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return dict(arguments[1].schema)
    if origin in (Union, types.UnionType):
        return {"anyOf": [schema_of(member) for member in arguments]}
    if origin is tuple and arguments[-1] is ...:
        return {"type": "array", "items": schema_of(arguments[0])}
    if origin is tuple:
        items = [schema_of(item) for item in arguments]
        return {"type": "array", "prefixItems": items, "minItems": len(items), "maxItems": len(items)}
    if origin is not None:
        return {"type": "object", "additionalProperties": schema_of(arguments[1])}
    if is_dataclass(annotation):
        return object_schema({name: schema_of(field) for name, field in annotations(annotation).items()})
    if issubclass(annotation, StrEnum):
        return {"enum": [str(member) for member in annotation]}
    if annotation is float:
        return {"anyOf": [{"type": "number"}, {"enum": list(NON_FINITE)}]}
    return {"type": {str: "string", int: "integer", bool: "boolean", type(None): "null"}[annotation]}


def object_schema(properties: Mapping[str, Any]) -> dict[str, Any]:
    """JSON Schema of an object that has exactly these properties."""
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(properties),
        "additionalProperties": False,
    }
