"""Documents in markdown and text: the templates `*.md.j2` and `*.txt.j2` of this package, and words in common."""

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from conformance.errors import UsageError
from conformance.markdown import code, escaped, fenced, marked
from conformance.results.jsonl import replacing
from conformance.templates import templates

if TYPE_CHECKING:
    from jinja2 import Environment


def count(number: int, noun: str) -> str:
    """A number with a noun, in the plural unless the number is one."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def link(upstream: str) -> str:
    """URL of a finding's upstream issue, or an empty text if it is unreported."""
    project, _, number = upstream.partition("#")
    return f"https://github.com/{project}/issues/{number}" if number else ""


def lines(template: str, **context: Any) -> list[str]:
    """The lines of a document. A missing name is an error; values are escaped by filters of the template."""
    return _templates().get_template(f"{template}.j2").render(context).removesuffix("\n").split("\n")


def between(text: str, begin: str, end: str, lines: Iterable[str], name: str) -> str:
    """The text with other lines between two marks. Raises UsageError if the file of that name lacks one."""
    before, found, rest = text.partition(begin)
    _, closed, after = rest.partition(end)
    if not (found and closed):
        raise UsageError(f"{name}: write {begin} and {end} where the tables belong")
    return "\n".join([before + begin, *lines, end + after])


def written(texts: Mapping[Path, str]) -> Iterator[Path]:
    """Write files, each aside first, and yield their paths."""
    for path, text in texts.items():
        with replacing(path) as beside:
            beside.write_text(text, encoding="utf-8")
        yield path


def environment(**options: Any) -> "Environment":
    """The environment of the templates of this package. A missing name is an error."""
    jinja = templates(__package__, **options)
    jinja.filters["link"] = link
    jinja.globals["count"] = count
    return jinja


@cache
def _templates() -> "Environment":
    jinja = environment(keep_trailing_newline=True)
    jinja.filters |= {"code": code, "escaped": escaped, "lines": "\n".join, "marked": marked}
    jinja.globals["fenced"] = fenced
    return jinja
