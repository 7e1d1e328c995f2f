"""Upkeep of the stored goldens: recompute and compare, replace, and show two versions side by side."""

import fnmatch
import subprocess
import tarfile
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path

from conformance.cases.runs import Run
from conformance.errors import UsageError
from conformance.models import build, fx
from conformance.oracle import NotCovered
from conformance.paths import GOLDEN
from conformance.progress import progress
from conformance.results.profiles import PROFILES

from .golden import Golden, compute, difference, golden_of, name_of
from .manifest import MANIFEST, digest_in, entry_of
from .store import GoldenError, Store

SHOWN = 10
"""Elements shown of a golden that has changed."""

Made = dict[str, tuple[Golden, str]]
"""Goldens with the digest of what went in, by name."""


def recompute(runs: Iterable[Run]) -> Made:
    """Ask the oracle about every run whose golden is stored: those of the `exact` profile whose float model works.

    Raises UsageError if two runs compute different things under one name, or if the oracle does not cover one.
    """
    made: Made = {}
    stored = [run for run in runs if run.variant is not None and PROFILES[run.profile].golden == "stored"]
    for run in progress(stored, "goldens"):
        with fx.quiet():
            try:
                given = build.subject(run)
            except build.CannotBeBuilt:  # the check `matched` says so: there is nothing to compute
                continue
            name, goes_in = name_of(run), digest_in(given)
            if name in made:
                if made[name][1] != goes_in:
                    raise UsageError(f"{run.id} computes something else than another run whose golden is also {name}")
                continue
            try:
                build.float_outputs(given)
            except Exception:  # likewise
                continue
            try:
                made[name] = (golden_of(compute(given)), goes_in)
            except NotCovered as error:
                raise UsageError(f"{run.id}: the oracle does not cover it: {error}") from error
    return made


def check(store: Store, made: Made, *, whole: bool) -> Iterator[str]:
    """Yield what is wrong with the stored goldens, held to recomputed ones; `whole` if these are all there should be."""
    for name, (golden, goes_in) in sorted(made.items()):
        entry = store.manifest.get(name)
        if entry is None:
            yield f"missing: {name}"
            continue
        if entry["in"] != goes_in:
            yield f"stale: {name}"
        try:
            stored = store.read(name)
        except GoldenError as error:
            yield f"damaged: {error}"
            continue
        if entry_of(name, golden, goes_in) != {**entry, "in": goes_in}:
            yield f"different: {name}: {'; '.join(difference(stored, golden)) or 'the manifest'}"
    if whole:
        yield from (f"unused: {name}" for name in sorted(set(store.manifest) - set(made)))
        kept = {MANIFEST, *store.files}
        yield from (f"unused: {path}" for path in sorted(store.folder.glob("*")) if path.name not in kept)


def update(store: Store, made: Made, *, whole: bool) -> Iterator[str]:
    """Put recomputed goldens in the place of the stored ones and yield what changed, and by how much.

    With `whole`, goldens that nothing computes are removed; otherwise they stay. Nothing is written if nothing changed.
    """
    former: Made = {}
    for name, kept in store.manifest.items():
        if name not in made and not whole:
            former[name] = (store.read(name), kept["in"])
    changes = 0
    for name, (golden, goes_in) in sorted(made.items()):
        entry = store.manifest.get(name)
        stored = None if entry is None else _undamaged(store, name)
        if stored is not None and entry == entry_of(name, golden, goes_in):
            continue
        changes += 1
        if entry is None:
            yield f"new: {name}: {golden.elements} elements, {golden.ties} ties"
        elif stored is None:
            yield f"mended: {name}"
        else:
            yield _changed(name, stored, golden)
    for name in sorted(set(store.manifest) - set(made)) if whole else ():
        changes += 1
        yield f"gone: {name}"
    if changes:
        store.write({**former, **made})
    yield f"{changes} of {len(made)} goldens changed" + ("" if changes else ": nothing is written")


def _undamaged(store: Store, name: str) -> Golden | None:
    """A stored golden, or None if it is not what was written."""
    try:
        return store.read(name)
    except GoldenError:
        return None


def _changed(name: str, one: Golden, other: Golden) -> str:
    words = [*difference(one, other)] or ["what goes in; what comes out is the same"]
    return f"changed: {name}: {'; '.join(words)}"


@contextmanager
def version(of: str) -> Iterator[Store]:
    """The goldens of a folder, or of a git revision. Raises UsageError if it is neither."""
    if Path(of).is_dir():
        yield Store(Path(of))
        return
    command = ["git", "-C", str(GOLDEN.parent), "archive", of, "golden"]
    try:
        archive = subprocess.run(command, capture_output=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        raise UsageError(f"{of!r} is neither a folder nor a git revision with golden/") from error
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(fileobj=BytesIO(archive)) as packed:
            packed.extractall(folder, filter="data")
        yield Store(Path(folder) / "golden")


def compare(old: Store, new: Store, globs: Sequence[str] = ()) -> Iterator[str]:
    """Yield how two versions differ, golden by golden, with the first changed elements side by side."""
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
        one, other = old.read(name), new.read(name)
        yield _changed(name, one, other)
        yield from _side_by_side(one, other)
    yield f"{changes} goldens differ"


def _side_by_side(one: Golden, other: Golden) -> Iterator[str]:
    for was, now in zip(one.outputs, other.outputs, strict=False):
        if was.low.shape != now.low.shape:
            continue
        where = ((was.low != now.low) | (was.high != now.high)).nonzero()
        if len(where):
            yield f"    {'index':<20}{'old':>14}{'new':>14}"
        for row in where[:SHOWN].tolist():
            index = tuple(row)
            cells = [
                f"{low:.7g}" if low == high else f"{low:.7g} or {high:.7g}"
                for low, high in ((float(side.low[index]), float(side.high[index])) for side in (was, now))
            ]
            yield f"    {index!s:<20}{cells[0]:>14}{cells[1]:>14}"
        if len(where) > SHOWN:
            yield f"    … and {len(where) - SHOWN} more"
