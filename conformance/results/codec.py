"""JSON values of frozen dataclasses, checked against the annotations of their fields."""

import math
import types
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, Union, get_args, get_origin, get_type_hints

NON_FINITE = ("nan", "inf", "-inf")
"""Floats that JSON has no number for, as the strings that stand for them."""


def encode(value: Any) -> Any:
    """JSON value of a dataclass, tuple, mapping, string, number or None."""
    if is_dataclass(value) and not isinstance(value, type):
        return {one.name: encode(getattr(value, one.name)) for one in fields(value)}
    if isinstance(value, Mapping):
        return {str(name): encode(one) for name, one in value.items()}
    if isinstance(value, tuple | list):
        return [encode(one) for one in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


@cache
def annotations(of: type) -> dict[str, Any]:
    """The annotations of a dataclass' fields by name."""
    hints = get_type_hints(of)
    return {one.name: hints[one.name] for one in fields(of)}


def decode(annotation: Any, value: Any) -> Any:
    """The object that `encode` made `value` of. Raises TypeError if the value does not fit the annotation."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in (Union, types.UnionType):
        return _decode_union(arguments, value)
    if origin is tuple and isinstance(value, list | tuple):
        if arguments[-1] is ...:
            return tuple(decode(arguments[0], one) for one in value)
        if len(value) == len(arguments):
            return tuple(decode(kind, one) for kind, one in zip(arguments, value, strict=True))
    elif origin is not None and issubclass(origin, Mapping) and isinstance(value, dict):
        return {decode(arguments[0], name): decode(arguments[1], one) for name, one in value.items()}
    elif isinstance(annotation, type) and is_dataclass(annotation) and isinstance(value, dict):
        return decode_fields(annotation, value)
    elif _is_plain(annotation, value):
        return float(value) if annotation is float else value
    raise TypeError(f"{str(value)[:80]!r} is not {_name(annotation)}")


def decode_fields(of: type, values: Mapping[str, Any]) -> Any:
    """A dataclass from the JSON values of its fields. Raises TypeError naming a field that is missing, unknown or wrong."""
    expected = annotations(of)
    if unknown := sorted(set(values) - set(expected)):
        raise TypeError(f"{of.__name__} has no field {', '.join(unknown)}")
    if missing := [name for name in expected if name not in values]:
        raise TypeError(f"{of.__name__} lacks {', '.join(missing)}")
    decoded = {}
    for name, annotation in expected.items():
        try:
            decoded[name] = decode(annotation, values[name])
        except TypeError as error:
            raise TypeError(f"{name}: {error}") from error
    return of(**decoded)


def _decode_union(arguments: tuple[Any, ...], value: Any) -> Any:
    for annotation in arguments:
        try:
            return decode(annotation, value)
        except TypeError:
            continue
    raise TypeError(f"{str(value)[:80]!r} is not {' or '.join(map(_name, arguments))}")


def _is_plain(annotation: Any, value: Any) -> bool:
    if annotation is float:
        return value in NON_FINITE or (isinstance(value, int | float) and not isinstance(value, bool))
    if annotation is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return annotation in (str, bool, type(None)) and isinstance(value, annotation)


def _name(annotation: Any) -> str:
    return "null" if annotation is type(None) else getattr(annotation, "__name__", str(annotation))
