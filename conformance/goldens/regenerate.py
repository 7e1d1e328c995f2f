"""The `golden` commands: recompute goldens and check them, update the stored ones, and compare two versions."""

import fnmatch
import math
import os
import subprocess
import tarfile
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from zlib import crc32

from conformance.cases.runs import Run
from conformance.errors import UsageError
from conformance.host.isolation import Death, Done, run_isolated
from conformance.models import build, fx
from conformance.oracle import NotCovered
from conformance.paths import GOLDEN
from conformance.progress import progress
from conformance.results.profiles import PROFILES

from .golden import Golden, compute, difference, golden_of, name_of
from .manifest import MANIFEST, entry_of, input_digest
from .store import GoldenError, Store

SHOWN = 10
"""The greatest number of elements that `compare` shows of one output."""

PART = 1000
"""Runs whose goldens one process computes: a fork costs far less than they do."""

PART_SECONDS = 600.0
"""CPU seconds that a part may take. It takes some four, a minute under emulation."""

Recomputed = dict[str, tuple[Golden, str]]
"""Goldens with their input digests, by name."""


def recompute(runs: Iterable[Run]) -> Recomputed:
    """Compute the goldens of those runs that have one: runs of the `exact` profile whose float model works.

    Many are computed in as many processes as there are cores. Raises UsageError if two runs with different inputs share a
    name, or if the oracle does not cover a run.
    """
    stored = [run for run in runs if run.variant is not None and PROFILES[run.profile].golden == "stored"]
    parts: list[list[Run]] = [[] for _ in range(math.ceil(len(stored) / PART))]
    for run in stored:  # all runs of a name are in one part
        parts[crc32(name_of(run).encode()) % len(parts)].append(run)
    if len(parts) < 2:
        return {name: found for part in parts for name, found in _recomputed(progress(part, "goldens")).items()}
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        outcomes = progress(pool.map(_in_child, filter(None, parts)), "goldens", total=len(parts))
        return {name: found for outcome in outcomes for name, found in outcome.items()}


def _in_child(part: Sequence[Run]) -> Recomputed:
    """The goldens of some runs, computed in a child process."""
    (outcome,) = run_isolated([part], _recomputed_or_refused, PART_SECONDS)
    if isinstance(outcome, Done) and isinstance(outcome.value, UsageError):
        raise outcome.value
    if not isinstance(outcome, Done):
        reason = outcome.reason if isinstance(outcome, Death) else outcome.traceback
        raise RuntimeError(f"the goldens of {part[0].id} and others cannot be computed: {reason}")
    assert not isinstance(outcome.value, UsageError)
    return outcome.value


def _recomputed_or_refused(part: Sequence[Run]) -> Recomputed | UsageError:
    """Return an error that is the user's, because the message alone would not tell it from one of the suite."""
    try:
        return _recomputed(part)
    except UsageError as error:
        return error


def _recomputed(runs: Iterable[Run]) -> Recomputed:
    recomputed: Recomputed = {}
    for run in runs:
        with fx.quiet():
            try:
                subject = build.subject(run)
            except build.CannotBeBuilt:  # the check `matched` reports it
                continue
            name, digest = name_of(run), input_digest(subject)
            if name in recomputed:
                if recomputed[name][1] != digest:
                    raise UsageError(f"{run.id} computes something else than another run whose golden is also {name}")
                continue
            try:
                build.float_outputs(subject)
            except Exception:  # the check `matched` reports it
                continue
            try:
                recomputed[name] = (golden_of(compute(subject)), digest)
            except NotCovered as error:
                raise UsageError(f"{run.id}: the oracle does not cover it: {error}") from error
    return recomputed


def check(store: Store, recomputed: Recomputed, *, whole: bool) -> Iterator[str]:
    """Yield a line for each stored golden that is missing, stale, damaged or different from the recomputed one.

    With `whole`, stored goldens and files that were not recomputed are unused, and yield a line too.
    """
    for name, (golden, digest) in sorted(recomputed.items()):
        entry = store.manifest.get(name)
        if entry is None:
            yield f"missing: {name}"
            continue
        if entry["in"] != digest:
            yield f"stale: {name}"
        try:
            stored = store.read(name)
        except GoldenError as error:
            yield f"damaged: {error}"
            continue
        if entry_of(name, golden, digest) != {**entry, "in": digest}:
            yield f"different: {name}: {'; '.join(difference(stored, golden)) or 'the manifest'}"
    if whole:
        yield from (f"unused: {name}" for name in sorted(set(store.manifest) - set(recomputed)))
        used = {MANIFEST, *store.files}
        yield from (f"unused: {path}" for path in sorted(store.folder.glob("*")) if path.name not in used)


def update(store: Store, recomputed: Recomputed, *, whole: bool) -> Iterator[str]:
    """Replace the stored goldens by the recomputed ones and yield a line for each change.

    With `whole`, goldens that were not recomputed are removed; otherwise they stay. Nothing is written if nothing changed.
    Raises GoldenError if a golden that stays is damaged.
    """
    others: Recomputed = {}
    for name, entry in store.manifest.items():
        if name not in recomputed and not whole:
            others[name] = (store.read(name), entry["in"])
    changes = 0
    for name, (golden, digest) in sorted(recomputed.items()):
        present = store.manifest.get(name)
        stored = None if present is None else _undamaged(store, name)
        if stored is not None and present == entry_of(name, golden, digest):
            continue
        changes += 1
        if present is None:
            yield f"new: {name}: {golden.elements} elements, {golden.ties} ties"
        elif stored is None:
            yield f"mended: {name}"
        else:
            yield _changed(name, stored, golden)
    for name in sorted(set(store.manifest) - set(recomputed)) if whole else ():
        changes += 1
        yield f"gone: {name}"
    if changes:
        store.write({**others, **recomputed})
    yield f"{changes} of {len(recomputed)} goldens changed" + ("" if changes else ": nothing is written")


def _undamaged(store: Store, name: str) -> Golden | None:
    """A stored golden, or None if it is damaged."""
    try:
        return store.read(name)
    except GoldenError:
        return None


def _changed(name: str, old: Golden, new: Golden) -> str:
    differences = [*difference(old, new)] or ["the inputs; the outputs are the same"]
    return f"changed: {name}: {'; '.join(differences)}"


@contextmanager
def version(source: str) -> Iterator[Store]:
    """Open the goldens of a folder or of a git revision. Raises UsageError if `source` is neither."""
    if Path(source).is_dir():
        yield Store(Path(source))
        return
    command = ["git", "-C", str(GOLDEN.parent), "archive", source, "golden"]
    try:
        archive = subprocess.run(command, capture_output=True, check=True).stdout
    except OSError as error:
        raise UsageError(f"{source!r} is no folder, and git cannot be run: {error.strerror}: install git") from error
    except subprocess.CalledProcessError as error:
        raise UsageError(f"{source!r} is neither a folder nor a git revision with golden/") from error
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(fileobj=BytesIO(archive)) as packed:
            for member in packed:
                if (stored := packed.extractfile(member)) is not None:
                    (Path(folder) / Path(member.name).name).write_bytes(stored.read())
        yield Store(Path(folder))


def compare(old: Store, new: Store, globs: Sequence[str] = ()) -> Iterator[str]:
    """Yield a line for each golden that differs between two versions, and a table of its first changed elements.

    `globs` select goldens by name. Raises GoldenError if a golden that differs is damaged.
    """
    changes = 0
    for name in sorted({*old.manifest, *new.manifest}):
        if globs and not any(fnmatch.fnmatchcase(name, glob) for glob in globs):
            continue
        before, after = old.manifest.get(name), new.manifest.get(name)
        if before == after:
            continue
        changes += 1
        if before is None or after is None:
            yield f"{'new' if before is None else 'gone'}: {name}"
            continue
        old_golden, new_golden = old.read(name), new.read(name)
        yield _changed(name, old_golden, new_golden)
        yield from _side_by_side(old_golden, new_golden)
    yield f"{changes} goldens differ"


def _side_by_side(old: Golden, new: Golden) -> Iterator[str]:
    """Yield the lines of a table of the first changed elements of each output."""
    for before, after in zip(old.outputs, new.outputs, strict=False):
        if before.low.shape != after.low.shape:
            continue
        changed = ((before.low != after.low) | (before.high != after.high)).nonzero()
        if len(changed):
            yield f"    {'index':<20}{'old':>14}{'new':>14}"
        for row in changed[:SHOWN].tolist():
            index = tuple(row)
            cells = [
                f"{low:.7g}" if low == high else f"{low:.7g} or {high:.7g}"
                for low, high in ((float(side.low[index]), float(side.high[index])) for side in (before, after))
            ]
            yield f"    {index!s:<20}{cells[0]:>14}{cells[1]:>14}"
        if len(changed) > SHOWN:
            yield f"    … and {len(changed) - SHOWN} more"
