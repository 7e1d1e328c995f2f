"""The error for wrong input: one line that names the input and the fix."""


class UsageError(Exception):
    """Raised for input that cannot be used. The message is one line and needs no traceback."""
