"""Reproduction scripts that need torch alone."""

from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined


@cache
def templates() -> Environment:
    """The environment of the templates of scripts, whose delimiters of values no f-string of a script has."""
    return Environment(
        loader=PackageLoader(__package__),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        variable_start_string="<<",
        variable_end_string=">>",
        keep_trailing_newline=True,
    )
