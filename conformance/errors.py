"""The error for wrong input: one line that names the input and the fix."""


class UsageError(Exception):
    """Raised for input that cannot be used. The message is one line and needs no traceback."""


def brief(error: BaseException) -> str:
    """One line for an exception: its type and the first line of its message, without addresses."""
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0][:300]}"
