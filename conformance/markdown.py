"""Escaping of text for markdown: no text from a row can create markup, a link, a mention or a table cell."""

import html
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence

ACTIVE = re.compile(
    r"[`*\[\]<>&|~$\\]"  # spans, links, tags, entities, cells, strikethrough, formulas, escapes
    r"|(?<![^\W_])_|_(?![^\W_])"  # emphasis, which begins and ends at the border of a word
    r"|(?<!\w)@(?=\w)|#(?=\d)|:(?=//)|(?<=www)\."  # mentions, references, addresses
    r"|^[-+=#]|(?<=^\d)[.)]"  # lists and headings
)


def plain(text: str) -> str:
    """Return text on one line, with control and bidirectional characters replaced by their escapes."""
    return text if text.isascii() and text.isprintable() else text.translate(VISIBLE)


class Visible(dict[int, str]):
    """By code point, what a character is shown as: its escape if it is a control or bidirectional character. Computed when it
    is first needed; the argument has exceptions."""

    def __missing__(self, point: int) -> str:
        hidden = unicodedata.category(chr(point)) in ("Cc", "Cf", "Zl", "Zp", "Cs")
        self[point] = f"\\u{point:04x}" if hidden else chr(point)
        return self[point]


VISIBLE = Visible({ord(character): " " for character in "\n\t "})


def escaped(text: str) -> str:
    """Return text escaped for a paragraph or a table cell."""
    return ACTIVE.sub(lambda match: _inert(match[0]), plain(text))


def _inert(character: str) -> str:
    """Escape a character with a backslash, or as an entity where some renderers ignore the backslash."""
    if character in "<>&":
        return html.escape(character)
    return f"&#{ord(character)};" if character in "@#:.`" else f"\\{character}"


def code(text: str) -> str:
    """Return text as a code span, for a paragraph or a table cell."""
    text = plain(text)
    return f"<code>{escaped(text)}</code>" if not text.strip() or "|" in text or "`" in text else f"`{text}`"


def marked(text: str) -> str:
    """Return escaped text in which text between backticks is a code span."""
    return "".join((code if number % 2 else escaped)(piece) for number, piece in enumerate(text.split("`")))


def fenced(text: str, language: str) -> Iterator[str]:
    """Yield the lines of a code block. Its fence is longer than any fence in the text."""
    longest = max(map(len, re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    yield fence + language
    for line in text.split("\n"):
        # GitHub executes printed lines that begin with `::`, also after spaces, as workflow commands
        yield re.sub(r"^(\s*):(?=:)", r"\1\\u003a", plain(line))
    yield fence


def table(titles: Sequence[str], rows: Iterable[Iterable[str]], rules: Sequence[str] = ()) -> Iterator[str]:
    """Yield the lines of a table of escaped cells. `rules` align its first columns; the others are flush left."""
    for cells in (titles, [*rules, *["---"] * (len(titles) - len(rules))], *rows):
        yield f"| {' | '.join(cells)} |"
