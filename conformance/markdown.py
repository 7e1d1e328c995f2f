"""Text in markdown that stays text: whatever stands in a row, it makes no markup, link, mention or table cell."""

import html
import re
import unicodedata
from collections.abc import Iterator

ACTIVE = re.compile(
    r"[`*\[\]<>&|~$\\]"  # spans, links, tags, entities, cells, strikethrough, formulas, escapes
    r"|(?<![^\W_])_|_(?![^\W_])"  # emphasis, which cannot begin or end within a word
    r"|(?<!\w)@(?=\w)|#(?=\d)|:(?=//)|(?<=www)\."  # mentions, references, addresses
    r"|^[-+=#]|(?<=^\d)[.)]"  # lists and headings
)


def plain(text: str) -> str:
    """Text on one line without control characters, which terminals obey, and those that turn the direction of writing."""
    return "".join(map(_visible, text))


def _visible(one: str) -> str:
    if one in "\n\t ":
        return " "
    return f"\\u{ord(one):04x}" if unicodedata.category(one) in ("Cc", "Cf", "Zl", "Zp", "Cs") else one


def escaped(text: str) -> str:
    """Text as a part of a paragraph or a table cell."""
    return ACTIVE.sub(lambda found: _inert(found[0]), plain(text))


def _inert(one: str) -> str:
    """A character escaped: with a backslash where that is enough everywhere, else as an entity."""
    if one in "<>&":
        return html.escape(one)
    return f"&#{ord(one)};" if one in "@#:.`" else f"\\{one}"


def code(text: str) -> str:
    """Text as a code span, in a paragraph or a table cell."""
    text = plain(text)
    return f"<code>{escaped(text)}</code>" if not text.strip() or "|" in text or "`" in text else f"`{text}`"


def marked(text: str) -> str:
    """Text in which what stands between backticks is code."""
    return "".join((code if number % 2 else escaped)(piece) for number, piece in enumerate(text.split("`")))


def fenced(text: str, language: str) -> Iterator[str]:
    """Lines of a block of code, whose fence is longer than any that stands in it."""
    longest = max(map(len, re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    yield fence + language
    for line in text.split("\n"):
        # no line is a command of the workflow that prints it, which it is after spaces too
        yield re.sub(r"^(\s*):(?=:)", r"\1\\u003a", plain(line))
    yield fence
