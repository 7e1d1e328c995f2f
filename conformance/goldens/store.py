"""A folder of goldens: reading, verifying and replacing them."""

import glob
import json
import os
import re
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from conformance.errors import UsageError
from conformance.models.build import Subject
from conformance.paths import GOLDEN

from .golden import Golden, name_of
from .manifest import FORMAT, MANIFEST, _golden_from, digest_in, digest_out, entry_of, file_of, tensors_of


class GoldenError(UsageError):
    """A golden cannot be used; the message says why and names the command that mends it."""


@dataclass
class Store:
    """A folder of goldens. What is read of it stays in memory.

    Its properties raise GoldenError where the folder cannot be read, and `find` where a golden cannot be used.
    """

    folder: Path = GOLDEN
    _files: dict[str, dict[str, dict[str, Tensor]]] = field(default_factory=dict)

    @cached_property
    def manifest(self) -> dict[str, dict[str, Any]]:
        """The lines of MANIFEST.json by the goldens' names; none if there is no folder."""
        path = self.folder / MANIFEST
        if not path.exists():
            return {}
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
            if document["format"] != FORMAT:
                raise GoldenError(
                    f"{path}: format {document['format']!r}, not {FORMAT}: run `python -m conformance golden update`"
                )
            return dict(document["goldens"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise GoldenError(f"{path}: not readable: {error!r}: restore it from version control") from error

    @property
    def files(self) -> set[str]:
        """Names of the files that the manifest's goldens are in."""
        return {file_of(name) for name in self.manifest}

    def tensors(self, name: str) -> dict[str, Tensor]:
        """What is stored under a name, by label; nothing if there is no such golden."""
        file = file_of(name)
        if file not in self._files:
            by_label: dict[str, dict[str, Tensor]] = {}
            if (self.folder / file).exists():
                try:
                    loaded = load_file(self.folder / file)
                except (OSError, SafetensorError) as error:
                    raise GoldenError(
                        f"golden {self.folder / file} is damaged ({error}): restore it from version control, or run "
                        f"`python -m conformance golden update --case '*/{name.partition('/')[0]}/*'`"
                    ) from error
                for label, tensor in loaded.items():
                    kept = re.sub(r"/(\d+(/(ties|upper))?|qparams)$", "", label)
                    by_label.setdefault(kept, {})[label] = tensor
            self._files[file] = by_label
        return self._files[file].get(name.partition("/")[2], {})

    def preload(self, names: Iterable[str]) -> None:
        """Read the manifest and these goldens' files, so that forked children need not."""
        _ = self.manifest
        for name in names:
            self.tensors(name)

    def read(self, name: str) -> Golden:
        """Read a golden that the manifest lists. Raises GoldenError if what is stored is not what was written."""
        entry, stored = self.manifest[name], self.tensors(name)
        if digest_out(stored, entry) != entry["out"]:
            raise GoldenError(
                f"golden {name} is damaged: {self.folder / file_of(name)} does not hold what {MANIFEST} says: restore both "
                f"from version control, or run `{_command(name)}`"
            )
        return _golden_from(name, stored, entry)

    def find(self, given: Subject) -> Golden:
        """Return the golden of a run, or raise GoldenError: it is missing, stale or damaged."""
        name = name_of(given.run)
        entry = self.manifest.get(name)
        if entry is None:
            raise GoldenError(f"golden {name} is missing: run `{_command(name)}`")
        if entry["in"] != digest_in(given):
            raise GoldenError(
                f"golden {name} is stale: the model, its data or the recipe is no longer what it was computed from: run "
                f"`{_command(name)}`"
            )
        return self.read(name)

    def write(self, goldens: Mapping[str, tuple[Golden, str]]) -> None:
        """Replace the folder with these goldens and digests of what went in: written beside it, then renamed."""
        aside = self.folder.with_name(self.folder.name + ".partial")
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir(parents=True)
        files: dict[str, dict[str, Tensor]] = {}
        entries = {}
        for name in sorted(goldens):
            golden, goes_in = goldens[name]
            entries[name] = entry_of(name, golden, goes_in)
            files.setdefault(file_of(name), {}).update(tensors_of(name, golden))
        for file, stored in files.items():
            save_file(stored, aside / file)
        lines = ",\n".join(
            f"{json.dumps(name)}: {json.dumps(entry, separators=(',', ':'))}" for name, entry in entries.items()
        )
        (aside / MANIFEST).write_text(f'{{"format": {FORMAT}, "goldens": {{\n{lines}\n}}}}\n', encoding="utf-8")
        former = self.folder.with_name(self.folder.name + ".former")
        shutil.rmtree(former, ignore_errors=True)
        if self.folder.exists():
            os.rename(self.folder, former)
        os.rename(aside, self.folder)
        shutil.rmtree(former, ignore_errors=True)


def _command(name: str) -> str:
    return f"python -m conformance golden update --case '*/{glob.escape(name.partition(':')[0])}@*'"
