"""Text in the columns of a terminal: its width, shortened, padded and wrapped."""

import unicodedata
from collections.abc import Iterator

from conformance.markdown import plain

ELLIPSIS = "…"


def width(text: str) -> int:
    """The columns that a text takes: East Asian wide characters take two, combining ones none."""
    return len(text) if text.isascii() else sum(map(_width, text))


def _width(character: str) -> int:
    if unicodedata.category(character) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def shortened(text: str, columns: int) -> str:
    """The text, without characters in its middle if it is wider. Of a long text twice as much is kept of the end: the names
    of layers differ there."""
    if width(text) <= columns:
        return text
    if columns <= 0:
        return ""
    head = _fitting(text, (columns - 1) // 3)
    tail = _fitting(text[::-1], columns - 1 - width(head))
    return head + ELLIPSIS + tail[::-1]


def cut(text: str, columns: int) -> str:
    """The beginning of the text, with an ellipsis at its end if it is wider."""
    return text if width(text) <= columns else _fitting(text, columns - 1).rstrip() + ELLIPSIS


def _fitting(text: str, columns: int) -> str:
    """The longest beginning of a text that fits."""
    for number, character in enumerate(text):
        columns -= _width(character)
        if columns < 0:
            return text[:number]
    return text


def padded(text: str, columns: int, right: bool = False) -> str:
    """The text with spaces behind it, or before it if it is flush right, to that many columns."""
    spaces = " " * (columns - width(text))
    return spaces + text if right else text + spaces


def wrapped(text: str, columns: int) -> Iterator[str]:
    """Yield lines of at most that many columns, at least two, broken at spaces, and inside of words that are wider."""
    line = ""
    for word in plain(text).split():
        rest = word
        if line and width(line) + 1 + width(rest) <= columns:
            line += f" {rest}"
            continue
        if line:
            yield line
        while width(rest) > columns:
            piece = _fitting(rest, columns)
            yield piece
            rest = rest[len(piece) :]
        line = rest
    if line:
        yield line


def path(name: str, columns: int) -> str:
    """A dotted path, shortened if it is wider: names in its middle become their first letters, from the left, numbers stay.

    Thus layers with the same number of names remain apart, as in `bert.e.l.11.attention.self.query`.
    """
    names = name.split(".")
    for index in (*range(1, len(names) - 1), 0)[: len(names) - 1]:
        if width(".".join(names)) <= columns:
            break
        if not names[index].isdigit():
            names[index] = names[index][:1]
    return shortened(".".join(names), columns)
