"""The file format of rows, diagnostics and timings: JSON Lines with a header, and a footer that counts the lines between.

A file holds one part, or several that were merged: each a header, lines, and a footer. A file is written beside its place
and renamed when it is complete; a file without a footer is truncated, one whose footer has `partial` ended early.
"""

import errno
import fcntl
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TextIO, TypeVar

from conformance.errors import UsageError, brief

T = TypeVar("T")


@dataclass(frozen=True)
class Format(Generic[T]):
    """One kind of file.

    `name` names the kind in messages, `kinds` are those of the lines between header and footer, `schemas` the versions that
    can be read, the last of which is written. `decode` makes an object from a line's kind and fields and the header's schema;
    it raises TypeError for a damaged line. `encode` is its inverse. The `key` of an object is unique within a part. `counts`
    are the figures of the footer, `unit` is the name of the one that counts lines. `again` is the advice for a file that
    cannot be used, `mark` a field that only headers of this kind have, or an empty text.
    """

    name: str
    kinds: tuple[str, ...]
    schemas: tuple[int, ...]
    decode: Callable[[str, dict[str, Any], int], T]
    encode: Callable[[T], tuple[str, Mapping[str, Any]]]
    key: Callable[[T], str]
    counts: Callable[[Sequence[T]], Mapping[str, Any]]
    unit: str
    again: str
    mark: str = ""
    compact: bool = False

    def line(self, kind: str, values: Mapping[str, Any]) -> str:
        """A line of the file. Raises ValueError for a number that JSON does not have."""
        separators = (",", ":") if self.compact else None
        return json.dumps({"kind": kind, **values}, ensure_ascii=False, allow_nan=False, separators=separators) + "\n"

    def part(self, header: Mapping[str, Any], lines: Sequence[str], footer: Mapping[str, Any]) -> str:
        """The text of a part, from its lines and the fields of header and footer."""
        return "".join([self.line("header", header), *lines, self.line("footer", footer)])


@dataclass(frozen=True)
class Part(Generic[T]):
    """The lines of one invocation: header and footer without their kind, the decoded items, and the text of all lines."""

    header: dict[str, Any]
    items: tuple[T, ...]
    footer: dict[str, Any]
    text: str


def refuse_constant(constant: str) -> float:
    """Raise ValueError for NaN and the infinities, which Python's parser accepts."""
    raise ValueError(f"{constant} is no number")


def parse(text: str) -> Any:
    """The JSON value of a text. Raises ValueError if it is not JSON."""
    try:
        return json.loads(text, parse_constant=refuse_constant)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


@contextmanager
def opened(path: Path, option: str = "") -> Iterator[None]:
    """Raise UsageError naming a file that cannot be read, or, with the option that names it, written."""
    try:
        yield
    except OSError as error:
        why = error.strerror or brief(error)
        if option:
            raise UsageError(f"{option} {path}: {why}: name a file that can be written") from error
        raise UsageError(f"{path}: {why}") from error


def _refuse_others(path: Path) -> None:
    """Raise OSError for what is no regular file: whoever may write to the folder of a device or a pipe would replace it."""
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, "is a directory")
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "is a device, a pipe or a socket")


@contextmanager
def replacing(path: Path, option: str = "") -> Iterator[Path]:
    """Yield a path beside a file to write to; it takes the file's place at the end, or is removed after an exception. The
    folder is made if there is none. Raises UsageError, as `opened` does, for a file that cannot be written."""
    with opened(path, option):
        _refuse_others(path)
        beside = path.with_name(f"{path.name}.{os.getpid()}")
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            yield beside
            beside.replace(path)
        except BaseException:
            with suppress(OSError):
                beside.unlink(missing_ok=True)
            raise


def read_text(form: Format[T], path: Path) -> list[Part[T]]:
    """The parts of a file of uncompressed text. Raises UsageError as `read` does, and for a file that cannot be opened."""
    with opened(path), path.open(encoding="utf-8") as file:
        return read(form, path, file)


def read(form: Format[T], path: Path, lines: Iterable[str]) -> list[Part[T]]:
    """The parts of a file, from its lines.

    Raises UsageError naming the file, and the line if it is one, that is empty, damaged, truncated, too new, or counted
    wrongly by its footer.
    """
    reader = Reader(form, path)
    for line in _decoded_text(form, path, lines):
        reader.take(line)
    return reader.finish()


def _decoded_text(form: Format[T], path: Path, lines: Iterable[str]) -> Iterator[str]:
    number = 0
    try:
        for number, line in enumerate(lines, 1):  # noqa: B007  (the number of the last line that could be decoded)
            yield line
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}:{number + 1}: not {form.name}, or damaged: {error}; {form.again}") from error


class Reader(Generic[T]):
    """Takes the lines of a file one by one and assembles its parts."""

    def __init__(self, form: Format[T], path: Path) -> None:
        self.form, self.path = form, path
        self.parts: list[Part[T]] = []
        self.number = 0
        self._header: dict[str, Any] | None = None
        self._items: dict[str, T] = {}
        self._texts: list[str] = []

    @property
    def header(self) -> dict[str, Any]:
        """The header of the part that is incomplete. Raises UsageError if there is none."""
        if self._header is None:
            raise UsageError(f"{self.path}: not {self.form.name}: it has no header; {self.form.again}")
        return self._header

    @property
    def items(self) -> list[T]:
        """The items of the part that is incomplete."""
        return [*self._items.values()]

    def take(self, text: str) -> None:
        """Take the next line. Raises UsageError naming a damaged or misplaced one."""
        self.number += 1
        place = f"{self.path}:{self.number}"
        try:
            values = parse(text)
        except ValueError as error:
            raise UsageError(f"{place}: not {self.form.name}, or damaged: {error}; {self.form.again}") from error
        kind = values.pop("kind", None) if isinstance(values, dict) else None
        if kind not in ("header", "footer", *self.form.kinds):
            raise UsageError(f"{place}: not a line of {self.form.name}; {self.form.again}")
        if kind == "header":
            self._begin(values)
        elif self._header is None:
            lost = f"{self.path}: has no header" if self.number == 1 else f"{place}: a {kind} without a header"
            raise UsageError(f"{lost}: not {self.form.name}, or its beginning is lost; {self.form.again}")
        self._texts.append(text)
        if kind == "footer":
            self._end(values)
        elif kind != "header":
            item = self._decoded(place, kind, values)
            if (key := self.form.key(item)) in self._items:
                raise UsageError(f"{place}: duplicate {kind} {key}; {self.form.again}")
            self._items[key] = item

    def finish(self) -> list[Part[T]]:
        """All parts. Raises UsageError if the file is empty or its last part has no footer."""
        if self._header is not None:
            raise self._truncated()
        if not self.parts:
            raise UsageError(
                f"{self.path}: empty: the invocation that should have written it did not start; {self.form.again}"
            )
        return self.parts

    def _begin(self, header: dict[str, Any]) -> None:
        if self._header is not None:
            raise self._truncated()
        if self.form.mark and self.form.mark not in header and "schema" in header:
            raise UsageError(
                f"{self.path}: not {self.form.name}: its header has no {self.form.mark}; {self.form.again}"
            )
        if (schema := header.get("schema")) not in self.form.schemas:
            versions = ", ".join(map(str, self.form.schemas))
            other = f"take version {header['suite']} of the suite, which wrote it, or " if "suite" in header else ""
            raise UsageError(f"{self.path}: schema {schema!r}; this version reads {versions}: {other}{self.form.again}")
        self._header, self._items, self._texts = header, {}, []

    def _decoded(self, place: str, kind: str, values: dict[str, Any]) -> T:
        named = str(values.get("id"))[:200]
        try:
            return self.form.decode(kind, values, self.header["schema"])
        except TypeError as error:
            raise UsageError(f"{place}: damaged {kind} {named}: {error}; {self.form.again}") from error

    def _end(self, footer: dict[str, Any]) -> None:
        if (why := footer.get("partial")) is not None:
            raise UsageError(f"{self.path}: partial: {why}, so {self.form.unit} are missing; {self.form.again}")
        for name, count in self.form.counts(self.items).items():
            if footer.get(name) != count:
                counted = name if name == self.form.unit else f"{name} of {self.form.unit}"
                raise UsageError(
                    f"{self.path}: damaged: the footer counts {footer.get(name)} {counted}, there are {count}; "
                    f"{self.form.again}"
                )
        self.parts.append(Part(self.header, tuple(self.items), footer, _with_end("".join(self._texts))))
        self._header = None

    def _truncated(self) -> UsageError:
        return UsageError(
            f"{self.path}: truncated: it has no footer, so {self.form.unit} may be missing; {self.form.again}"
        )


def _with_end(text: str) -> str:
    return text if text.endswith("\n") else f"{text}\n"


class PartialFile(Generic[T]):
    """A file that grows line by line as `<path>.partial`, so that an invocation that dies leaves every line it wrote.

    The partial file is locked until it is closed. `option` is the command line option that names the file. Raises UsageError
    naming it if it cannot be written, or if another process is writing it; all methods do.
    """

    def __init__(self, form: Format[T], path: Path, header: Mapping[str, Any], option: str) -> None:
        self.form, self.path, self.header = form, path, {"schema": form.schemas[-1], **header}
        self.option = option
        with opened(path, option):
            _refuse_others(path)
            self.partial = partial_path(path)
            _refuse_others(self.partial)
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self._locked()
            self._file.truncate(0)
        self._write(form.line("header", self.header))

    def _locked(self) -> TextIO:
        """The partial file, opened and locked. A lock of POSIX ends with its process; forked children do not inherit it."""
        while True:
            file = self.partial.open("a", encoding="utf-8")
            try:
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                # who held the lock before may have removed the file
                if self.partial.exists() and os.path.samestat(os.fstat(file.fileno()), self.partial.stat()):
                    return file
            except (BlockingIOError, PermissionError) as error:
                file.close()
                raise UsageError(
                    f"{self.path}: another process is writing it: wait for its end, or name another file with {self.option}"
                ) from error
            file.close()

    def add(self, item: T) -> None:
        """Append the line of an item."""
        self._write(self.form.line(*self.form.encode(item)))

    def _write(self, line: str) -> None:
        with opened(self.path, self.option):
            self._file.write(line)
            self._file.flush()

    def interrupt(self) -> None:
        """Close the file and leave it partial."""
        with opened(self.path, self.option):
            self._file.close()

    def end_early(self, why: str, items: Sequence[T]) -> None:
        """Close the file with a footer that says why it is partial. What is in its place stays there."""
        self._write(self.form.line("footer", {**self.form.counts(items), "partial": why}))
        self.interrupt()

    def complete(self, items: Sequence[T], footer: Mapping[str, Any]) -> str:
        """Write the complete file with the items in this order, remove the partial one, and return the text."""
        lines = [self.form.line(*self.form.encode(item)) for item in items]
        text = self.form.part(self.header, lines, {**self.form.counts(items), **footer})
        with replacing(self.path, self.option) as beside:
            beside.write_text(text, encoding="utf-8")
        with opened(self.path, self.option):
            self.partial.unlink()
        self.interrupt()
        return text


def partial_path(path: Path) -> Path:
    """Where a file is while it is incomplete."""
    return path.with_name(f"{path.name}.partial")
