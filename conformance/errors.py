"""Errors: one line for wrong input, and what is kept of an exception that a stage raised."""

import shlex
import traceback
from dataclasses import dataclass


class UsageError(Exception):
    """Raised for input that cannot be used. The message is one line and needs no traceback."""


EXTRAS = {
    "bench": ("apache-otava>=0.8,<0.9", "duckdb>=1.2,<3", "pytest-benchmark>=5,<6", "scipy>=1.13,<2"),
    "executorch": ("executorch==1.4.1", "torch==2.13.0", "torchao==0.18.0"),
}
"""What optional commands need, by extra of the package. The package itself is on no index, so nobody installs it by name."""


def not_installed(package: str | None, extra: str, environment: str) -> UsageError:
    """The error for an optional package that is missing: what to install, and the environment of tox that has it."""
    install = f"pip install {shlex.join(EXTRAS[extra])}"
    return UsageError(f"{package} is not installed: `{install}`, or in a checkout `tox -e {environment}`")


@dataclass(frozen=True)
class Failure:
    """An exception by the name of its type and the first line of its message, at most 300 characters of it. One without a
    message, such as that of an assertion, has the line of source that raised it."""

    exception: str
    message: str

    @classmethod
    def of(cls, error: BaseException) -> "Failure":
        lines = str(error).strip().splitlines()
        lines = lines or [frame.line or "" for frame in traceback.extract_tb(error.__traceback__)[-1:]]
        return cls(type(error).__name__, "".join(lines[:1])[:300])

    @property
    def text(self) -> str:
        return f"{self.exception}: {self.message}"


def brief(error: BaseException) -> str:
    """An exception as one line: its type and the first line of its message."""
    return Failure.of(error).text
