"""The entry point of an installed suite, which pytest loads in every invocation: options are added only if the suite is run.

Names such as `--backend` may be options of someone else's tests, and loading the suite takes time that they need not spend.
"""

from collections.abc import Sequence
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1]
PLUGIN = "conformance.plugin"


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config, args: Sequence[str]) -> None:
    """Load the suite's plugin if an argument names the suite: `--pyargs conformance`, or a path inside of the package."""
    if any(names_suite(argument, pyargs="--pyargs" in args) for argument in args):
        early_config.pluginmanager.import_plugin(PLUGIN)


def names_suite(argument: str, *, pyargs: bool) -> bool:
    """Whether an argument of pytest is the suite, a module or a test of it."""
    place = argument.partition("::")[0]
    if argument.startswith("-") or not place:
        return False
    if pyargs and place.partition(".")[0] == PACKAGE.name:
        return True
    path = Path(place)
    return path.exists() and path.resolve().is_relative_to(PACKAGE.resolve())
