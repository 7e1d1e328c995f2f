"""What a check found wrong with a run: the base of all kinds of findings, their JSON and their text."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, dataclass_transform

from conformance.results.codec import decode_fields, encode

KINDS: dict[str, type["Finding"]] = {}
"""Kinds of findings by the name that they have in rows."""


@dataclass_transform(frozen_default=True)
class Described:
    """What has a text. Subclasses are frozen dataclasses; `template` is the text with fields in braces."""

    template: ClassVar[str]

    def __init_subclass__(cls) -> None:
        dataclass(frozen=True)(cls)

    @property
    def text(self) -> str:
        """The object in words."""
        return self.template.format_map(vars(self))


class Finding(Described):
    """One thing that is wrong with a run: the base of all kinds. `check` is the check that fails.

    The text is a sentence without the name of the check.
    """

    kind: ClassVar[str]
    separator: ClassVar[str] = "; "
    """Between this finding's text and that of the one before it, of the same check."""
    check: str

    def __init_subclass__(cls, kind: str = "") -> None:
        super().__init_subclass__()
        if kind:
            cls.kind = kind
            KINDS[kind] = cls

    def to_json(self) -> dict[str, Any]:
        """JSON object: the kind and every field."""
        return {"kind": self.kind, **encode(self)}


def from_json(values: Mapping[str, Any]) -> Finding:
    """The finding of a JSON object. Raises TypeError naming a kind or field that is unknown, missing or wrong."""
    kind = values.get("kind")
    if kind not in KINDS:
        raise TypeError(f"{kind!r} is no kind of finding")
    finding: Finding = decode_fields(KINDS[kind], {name: value for name, value in values.items() if name != "kind"})
    return finding


def text_of(findings: Iterable[Finding]) -> str:
    """The findings of one check as text."""
    text = ""
    for finding in findings:
        text += finding.separator + finding.text if text else finding.text
    return text


def detail_of(findings: Iterable[Finding]) -> str:
    """The findings of a run as the sentence of its row: those of each check behind its name."""
    by_check: dict[str, list[Finding]] = {}
    for finding in findings:
        by_check.setdefault(finding.check, []).append(finding)
    return "; ".join(f"{check}: {text_of(found)}" for check, found in by_check.items())
