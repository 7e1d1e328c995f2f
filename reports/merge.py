"""Merging of rows files: their parts one after the other, each with its own header and footer, and likewise diagnostics."""

from collections.abc import Sequence
from pathlib import Path

from conformance.results import diagnostics
from conformance.results.jsonl import opened, replacing
from conformance.results.rows import RowsFile

from .load import Part, parts_of


def merge(paths: Sequence[Path], out: Path) -> list[Part]:
    """Write the rows of several files, and their diagnostics, into one.

    Raises UsageError naming a file that is damaged or truncated, or two files with the same run in the same environment.
    """
    parts = parts_of(paths)
    files: dict[Path, list[RowsFile]] = {}
    for part in parts:
        files.setdefault(part.path, []).append(part.file)
    merged_details = diagnostics.merged(files)
    with opened(out, "-o"):
        out.parent.mkdir(parents=True, exist_ok=True)
        with replacing(out) as beside:
            beside.write_text("".join(part.file.text for part in parts), encoding="utf-8")
            # earlier diagnostics would be taken for those of the new rows until theirs are written
            diagnostics.path_beside(out).unlink(missing_ok=True)
        if merged_details:
            diagnostics.write(out, merged_details)
    return parts
