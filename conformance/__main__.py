"""The command line: `python -m conformance COMMAND`.

Loading torch takes a second, and an instruction set limit has no effect afterwards: no module is imported here that loads it.
"""

import errno
import os
import signal
import sys
from collections.abc import Sequence
from io import TextIOWrapper

from conformance.commands import (
    accept,
    audits,
    bench,
    claims,
    goldens,
    histories,
    init,
    migrate,
    networks,
    predict,
    reports,
    runs,
    trusted,
)
from conformance.commands.arguments import Parser
from conformance.errors import UsageError
from conformance.markdown import plain


def parser() -> Parser:
    """The parser of all commands and their options."""
    top = Parser(
        prog="python -m conformance", description="Test whether backends keep what their BackendConfig promises."
    )
    commands = top.add_subparsers(title="commands", required=True, metavar="COMMAND")
    groups = (
        *(claims, runs, audits, networks, predict, trusted, reports, migrate, histories, bench, goldens, init, accept),
    )
    for group in groups:
        group.add(commands)
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status: 0, 1 if the command failed, 2 for wrong usage, 130 after Ctrl-C.

    Without a command, print the help.
    """
    arguments = sys.argv[1:] if argv is None else argv
    if isinstance(sys.stdout, TextIOWrapper):  # it may be closed, and its encoding may lack characters of names
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        if not arguments:
            parser().print_help()
            return 0
        options = parser().parse_args(arguments)
        if getattr(options, "operators", None):
            from conformance.cases.operators.declared import declare

            for module in options.operators:
                declare(module)
        status: int = options.command(options)
        print(end="", flush=True)
    except UsageError as error:
        print(f"conformance: error: {plain(str(error))}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("conformance: interrupted", file=sys.stderr)
        return 128 + signal.SIGINT
    except MemoryError:
        print("conformance: error: out of memory: give smaller files, or raise the limit (ulimit -v)", file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader has closed the pipe
        _discard_output()
        return 1
    except OSError as error:
        if error.filename is None and error.errno not in NOT_WRITTEN:
            raise
        if error.filename is None:
            _discard_output()
        named = "the output" if error.filename is None else error.filename
        print(f"conformance: error: {plain(str(named))}: {error.strerror}", file=sys.stderr)
        return 2
    return status


NOT_WRITTEN = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF)
"""Why a write fails of which the error names no file: one to stdout, since other files are written with their names."""


def _discard_output() -> None:
    """Let stdout write nowhere: Python flushes it again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    sys.exit(main())
