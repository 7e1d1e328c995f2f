"""Errors: one line for wrong input, and what is kept of an exception that a stage raised."""

import traceback
from dataclasses import dataclass


class UsageError(Exception):
    """Raised for input that cannot be used. The message is one line and needs no traceback."""


def not_installed(package: str | None, extra: str, environment: str) -> UsageError:
    """The error for an optional package that is missing, which an extra and an environment of tox have."""
    install = f"pip install 'quantized-backend-conformance[{extra}]'"
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
