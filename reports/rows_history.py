"""History of rows: Parquet files in folders by date, torch, architecture and backend, queried with DuckDB.

Each invocation has a file in the folder of each of its backends. A history whose address begins with `s3://` is read and
written by DuckDB's extension httpfs.
"""

import glob
import json
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import duckdb

from conformance.errors import UsageError
from conformance.results.environments import environment
from conformance.results.jsonl import opened, replacing
from conformance.results.rows import RowsFile, read_all

REMOTE = "s3://"
PARTITION = ("date", "torch", "arch", "backend")
COLUMNS = {
    **dict.fromkeys(PARTITION, "VARCHAR"),
    **dict.fromkeys(("id", "engine", "verdict", "failed", "known", "isa", "cpu", "revision"), "VARCHAR"),
    **dict.fromkeys(("steps_max", "mismatched", "total"), "BIGINT"),
    **dict.fromkeys(("sqnr_db", "seconds"), "DOUBLE"),
    "finished": "TIMESTAMP",
}
"""Columns of the Parquet files; those of PARTITION are names of folders. `date` is that of `finished`, in UTC. `failed` has
the names of the failed checks, sorted, with spaces between them, `known` the id of the known finding, or an empty text."""
FOLDERS = "/".join(f"{name}=*" for name in PARTITION)


def store(paths: Sequence[Path], history: str, date: str | None = None) -> list[str]:
    """Add the invocations of rows files, merged or not, to a history. All of them are added, or none. Return a line about
    each, with the number of its rows.

    `date` in ISO 8601 is that of invocations whose files do not state when they finished. Raises UsageError for a file that
    cannot be read, an invocation without a date, one whose rows the history has already, and a folder that is no history or
    cannot be written.
    """
    _refuse_other_folder(history)
    with connected(history) as database, TemporaryDirectory(prefix="conformance-store-") as temporary:
        staged = Path(temporary) / "staged"
        added = []
        for path in paths:
            added += [_stage(database, history, staged, path, file, date) for file in read_all(path)]
        for source in sorted(staged.rglob("*.parquet")):
            _publish(database, source, f"{history.rstrip('/')}/{source.relative_to(staged)}")
    return added


def _stage(
    database: duckdb.DuckDBPyConnection, history: str, staged: Path, path: Path, file: RowsFile, date: str | None
) -> str:
    """Write the Parquet files of an invocation into a folder like that of the history, and return a line about it. Raises
    UsageError as `store` does."""
    host = environment(path, file.header)
    finished = file.finished or (f"{date}T00:00:00+00:00" if date else "")
    if not finished:
        raise UsageError(f"{path}: its footer does not state when it finished: give its date with --date YYYY-MM-DD")
    common = {
        "date": finished[:10],
        "torch": host.torch,
        "arch": host.arch,
        "isa": host.isa,
        "cpu": host.cpu,
        "revision": file.header.get("git") or "",
        "finished": finished,
    }
    backends = tuple(dict.fromkeys(row.backend for row in file.rows))
    copied = ("backend", "id", "engine", "verdict", "steps_max", "mismatched", "total", "sqnr_db", "seconds")
    lines = staged.with_suffix(".jsonl")
    with opened(lines), lines.open("w", encoding="utf-8") as written:
        for row in file.rows:
            values = {name: getattr(row, name) for name in copied}
            values |= {"failed": " ".join(sorted(row.failed)), "known": row.known or ""}
            written.write(json.dumps({**common, **values}) + "\n")
    columns = ", ".join(f"{name}: '{kind}'" for name, kind in COLUMNS.items())
    database.execute(
        f"CREATE OR REPLACE TEMP TABLE invocation AS "
        f"FROM read_json({quoted(lines)}, format = 'newline_delimited', columns = {{{columns}}})"
    )
    for stored in (history, str(staged)):
        if has_files(database, stored) and _overlaps(database, stored, common):
            raise UsageError(f"{path}: its rows are in {history} already, or in two of these files: store it once")
    database.execute(
        f"COPY invocation TO {quoted(staged)} (FORMAT parquet, PARTITION_BY ({', '.join(PARTITION)}), "
        f"FILENAME_PATTERN '{file.digest[:16]}_{{i}}', OVERWRITE_OR_IGNORE)"
    )
    if not backends:
        return f"{path}: no rows"
    where = f"{finished[:10]}, torch {host.torch}, {host.platform}"
    return f"{path}: {len(file.rows)} rows of {', '.join(backends)}: {where}"


def _overlaps(database: duckdb.DuckDBPyConnection, stored: str, common: dict[str, Any]) -> bool:
    """Whether a history has a row of the invocation that is about to be added. Merged shards finish when the last of them
    did, so that they overlap with it."""
    names = ("date", "torch", "arch", "isa", "finished")
    (number,) = database.execute(
        f"SELECT count(*) FROM {table(stored)} SEMI JOIN invocation USING (id) "
        f"WHERE {' AND '.join(f'{name} = ?::{COLUMNS[name]}' for name in names)}",
        [common[name] for name in names],
    ).fetchone() or (0,)
    return bool(number)


def _publish(database: duckdb.DuckDBPyConnection, source: Path, target: str) -> None:
    """Copy a file into a history, where it appears only when it is complete."""
    if target.startswith(REMOTE):
        database.execute(
            f"COPY (FROM read_parquet({quoted(source)}, hive_partitioning = false)) TO {quoted(target)} (FORMAT parquet)"
        )
        return
    path = Path(target)
    with replacing(path, "--history") as beside:
        shutil.copyfile(source, beside)


def _refuse_other_folder(history: str) -> None:
    """Raise UsageError for a path that is a file, or a folder with other files."""
    folder = Path(history)
    if history.startswith(REMOTE) or not folder.exists():
        return
    if not folder.is_dir() or (any(folder.iterdir()) and not any(folder.glob(f"{PARTITION[0]}=*"))):
        raise UsageError(f"{history}: not a history of rows: name a new or an empty folder")


@contextmanager
def connected(history: str) -> Iterator[duckdb.DuckDBPyConnection]:
    """A database to query a history with. Exceptions of DuckDB become UsageError."""
    with duckdb.connect() as database:
        if history.startswith(REMOTE):
            try:
                load_remote(database)
            except duckdb.Error as error:
                raise UsageError(
                    f"{history}: {_first_line(error)}: DuckDB's extensions httpfs and aws are installed from the network, "
                    "and need credentials as the AWS command line does"
                ) from error
        try:
            yield database
        except duckdb.Error as error:
            raise UsageError(
                f"{history}: DuckDB cannot read or write it: {_first_line(error)}: if that file is damaged, remove it and "
                "store its rows again"
            ) from error


def load_remote(database: duckdb.DuckDBPyConnection) -> None:
    """Load what reads and writes S3. A secret that DuckDB keeps is used if there is one, else the credentials that the AWS
    command line would find."""
    database.execute("INSTALL httpfs; LOAD httpfs")
    (kept,) = database.execute("SELECT count(*) FROM duckdb_secrets() WHERE type = 's3'").fetchone() or (0,)
    if not kept:
        database.execute("INSTALL aws; LOAD aws; CREATE SECRET (TYPE s3, PROVIDER credential_chain)")


def _first_line(error: duckdb.Error) -> str:
    return str(error).strip().splitlines()[0].rstrip(":")


def quoted(text: object) -> str:
    """A text as a literal of SQL."""
    return "'" + str(text).replace("'", "''") + "'"


def _pattern(history: str) -> str:
    folder = history.rstrip("/")
    return f"{folder if history.startswith(REMOTE) else glob.escape(folder)}/{FOLDERS}/*.parquet"


def has_files(database: duckdb.DuckDBPyConnection, history: str) -> bool:
    return database.execute(f"SELECT 1 FROM glob({quoted(_pattern(history))}) LIMIT 1").fetchone() is not None


def table(history: str) -> str:
    """The table of a history. A version of torch such as 2.10 is no number."""
    types = ", ".join(f"{name}: VARCHAR" for name in PARTITION)
    return f"read_parquet({quoted(_pattern(history))}, hive_partitioning = true, hive_types = {{{types}}})"
