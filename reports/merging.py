"""Several rows files as one: the parts one after the other, each with its own header and footer, and so their details."""

import os
from collections.abc import Sequence
from pathlib import Path

from conformance.errors import UsageError
from conformance.results import diagnostics

from .gathered import Part, parts_of


def merge(paths: Sequence[Path], out: Path) -> list[Part]:
    """Write the rows of several files, and what there is to see of them, into one.

    Raises UsageError naming the file that is damaged, truncated, or has a run that another one has from the same environment.
    """
    parts = parts_of(paths)
    seen = {digest: lines for path in dict.fromkeys(paths) for digest, lines in _details(path).items()}
    aside = out.with_name(f"{out.name}.{os.getpid()}")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        aside.write_text("".join(part.file.text for part in parts), encoding="utf-8")
        # an earlier file of details would be taken for that of the new rows until theirs is written
        diagnostics.path_beside(out).unlink(missing_ok=True)
        aside.replace(out)
        if seen:
            diagnostics.write(out, [(part.file.digest, seen.get(part.file.digest, [])) for part in parts])
    except OSError as error:
        aside.unlink(missing_ok=True)
        raise UsageError(f"-o {out}: {error.strerror}: name a file that can be written") from error
    return parts


def _details(path: Path) -> dict[str, list[str]]:
    beside = diagnostics.path_beside(path)
    return diagnostics.lines_of(beside) if beside.exists() else {}
