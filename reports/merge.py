"""Merging of rows files: their parts one after the other, each with its own header and footer, and likewise diagnostics.

Shards of a selection become one part.
"""

from collections.abc import Sequence
from pathlib import Path

from conformance.errors import UsageError
from conformance.results import diagnostics
from conformance.results.jsonl import replacing

from .parts import Part, missing, mixed, parts_of


def merge(paths: Sequence[Path], out: Path, *, incomplete: bool = False) -> list[Part]:
    """Write the rows of several files, and their diagnostics, into one.

    Raises UsageError naming a file that is damaged or truncated, two files with the same run in the same environment,
    shards of one selection that ran on different platforms, or, unless `incomplete`, shards that are missing.
    """
    parts = parts_of(paths)
    if not incomplete and (lost := missing(parts)):
        raise UsageError(f"{'; '.join(lost)}: give them too, or merge what there is with --incomplete")
    if apart := mixed(parts):
        raise UsageError(
            f"{apart}: the shards of one selection ran on different platforms, and would be halves that no report can "
            "compare: run all of them with one --isa"
        )
    details = [
        diagnostics.part_text(part.file.digest, [part.details[run_id].line for run_id in sorted(part.details)])
        for part in parts
    ]
    with replacing(out, "-o") as beside:
        beside.write_text("".join(part.file.text for part in parts), encoding="utf-8")
        # earlier diagnostics would be taken for those of the new rows until theirs are written
        diagnostics.path_beside(out).unlink(missing_ok=True)
    if any(part.details for part in parts):
        diagnostics.write(out, details, "-o")
    return parts
