"""Templates of the texts that the suite writes. A name that a template lacks is an error."""

from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jinja2 import Environment


def templates(package: str, **options: Any) -> "Environment":
    """The templates of a package."""
    # loading jinja2 takes longer than all that answers about one operator need
    from jinja2 import Environment, PackageLoader, StrictUndefined

    loader = PackageLoader(package)
    return Environment(loader=loader, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, **options)


@cache
def source_templates(package: str) -> "Environment":
    """The templates of a package for source text. Their delimiters of values are none of Python's or of YAML's."""
    return templates(package, variable_start_string="<<", variable_end_string=">>", keep_trailing_newline=True)
