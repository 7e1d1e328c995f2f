"""A folder of goldens that are read, verified and replaced."""

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

from conformance.errors import UsageError, brief
from conformance.models.build import Subject
from conformance.paths import GOLDEN
from conformance.results.jsonl import parse

from .golden import Golden, name_of
from .manifest import ENTRY, FORMAT, MANIFEST, entry_of, file_of, golden_from, input_digest, output_digest, tensors_of


class GoldenError(UsageError):
    """A golden cannot be used. The message names the reason and the command that repairs it."""


@dataclass
class Store:
    """A folder of goldens. Files are read once and kept in memory.

    All methods raise GoldenError if the folder cannot be read.
    """

    folder: Path = GOLDEN
    _files: dict[str, dict[str, dict[str, Tensor]]] = field(default_factory=dict)

    @cached_property
    def manifest(self) -> dict[str, dict[str, Any]]:
        """The entries of MANIFEST.json by name of golden; empty if there is no manifest."""
        path = self.folder / MANIFEST
        if not path.exists():
            return {}
        try:
            document = parse(path.read_text(encoding="utf-8"))
            if document["format"] != FORMAT:
                raise GoldenError(
                    f"{path}: format {document['format']!r}, not {FORMAT}: run `python -m conformance golden update`"
                )
            for name, entry in document["goldens"].items():
                if lacking := [field for field in ENTRY if field not in entry]:
                    raise ValueError(f"the entry of {name} has no {', '.join(lacking)}")
            return dict(document["goldens"])
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise GoldenError(f"{path}: not readable: {error!r}: restore it from version control") from error

    @property
    def files(self) -> set[str]:
        """Names of the files that store the goldens of the manifest."""
        return {file_of(name) for name in self.manifest}

    def tensors(self, name: str) -> dict[str, Tensor]:
        """The stored tensors of a golden by label; empty if there is no such golden."""
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
                    label_of_golden = re.sub(r"/(\d+(/(ties|upper))?|qparams)$", "", label)
                    by_label.setdefault(label_of_golden, {})[label] = tensor
            self._files[file] = by_label
        return self._files[file].get(name.partition("/")[2], {})

    def preload(self, names: Iterable[str]) -> None:
        """Read the manifest and the files of these goldens, so that forked children share them."""
        _ = self.manifest
        for name in names:
            self.tensors(name)

    def read(self, name: str) -> Golden:
        """Return a golden that the manifest lists. Raises GoldenError if its digest is not the manifest's."""
        entry, stored = self.manifest[name], self.tensors(name)
        if output_digest(stored, entry) != entry["out"]:
            raise GoldenError(
                f"golden {name} is damaged: {self.folder / file_of(name)} does not match {MANIFEST}: restore both "
                f"from version control, or run `{_command(name)}`"
            )
        return golden_from(name, stored, entry)

    def find(self, subject: Subject) -> Golden:
        """Return the golden of a run. Raises GoldenError if it is missing, stale or damaged."""
        name = name_of(subject.run)
        entry = self.manifest.get(name)
        if entry is None:
            raise GoldenError(f"golden {name} is missing: run `{_command(name)}`")
        if entry["in"] != input_digest(subject):
            raise GoldenError(
                f"golden {name} is stale: the model, its data or the recipe has changed since it was computed: run "
                f"`{_command(name)}`"
            )
        return self.read(name)

    def write(self, goldens: Mapping[str, tuple[Golden, str]]) -> None:
        """Replace the folder by goldens with their input digests. A new folder is written first and then renamed."""
        new = self.folder.with_name(self.folder.name + ".partial")
        shutil.rmtree(new, ignore_errors=True)
        try:
            new.mkdir(parents=True)
            self._fill(new, goldens)
        except (OSError, SafetensorError) as error:
            shutil.rmtree(new, ignore_errors=True)
            raise GoldenError(
                f"{new}: {brief(error)}: the goldens are as they were; name a folder that can be written"
            ) from error
        old = self.folder.with_name(self.folder.name + ".former")
        shutil.rmtree(old, ignore_errors=True)
        if self.folder.exists():
            os.rename(self.folder, old)
        os.rename(new, self.folder)
        shutil.rmtree(old, ignore_errors=True)

    def _fill(self, new: Path, goldens: Mapping[str, tuple[Golden, str]]) -> None:
        """Write goldens into a new folder."""
        files: dict[str, dict[str, Tensor]] = {}
        entries = {}
        for name in sorted(goldens):
            golden, digest = goldens[name]
            entries[name] = entry_of(name, golden, digest)
            files.setdefault(file_of(name), {}).update(tensors_of(name, golden))
        for file, stored in files.items():
            save_file(stored, new / file)
        lines = ",\n".join(
            f"{json.dumps(name)}: {json.dumps(entry, separators=(',', ':'))}" for name, entry in entries.items()
        )
        (new / MANIFEST).write_text(f'{{"format": {FORMAT}, "goldens": {{\n{lines}\n}}}}\n', encoding="utf-8")


def _command(name: str) -> str:
    return f"python -m conformance golden update --case '*/{glob.escape(name.partition(':')[0])}@*'"
