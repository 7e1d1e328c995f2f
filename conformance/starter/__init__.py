"""The starter folder of a vendor: a tox environment, an empty ledger and a workflow for a config of their own."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import conformance
from conformance.errors import UsageError
from conformance.results.jsonl import replacing
from conformance.templates import source_templates

FOLDER = "quantized"
"""The folder of the environment and the ledger, in the vendor's repository."""


@dataclass(frozen=True)
class Starter:
    """What a starter folder is about.

    Attributes:
        name: the name of the config, with which run ids begin.
        backend_config: `module:attribute` of the config.
        engines: names of engines, or `module:attribute` of the vendor's own.
        operators: modules with the vendor's operators.
        suite: `OWNER/NAME@REF` of the repository with this suite's reusable workflow; without it no workflow is written.
    """

    name: str
    backend_config: str
    engines: tuple[str, ...]
    operators: tuple[str, ...] = ()
    suite: str = ""

    @property
    def options(self) -> str:
        """The options that select the config and the engines, and declare operators."""
        values = {"backend-config": (self.backend_config,), "engine": self.engines, "operators": self.operators}
        return " ".join(f"--{option} {value}" for option, given in values.items() for value in given)

    def files(self) -> Iterator[tuple[Path, str]]:
        """Yield the path of each file in the vendor's repository, and its text."""
        paths = {
            "tox.ini": f"{FOLDER}/tox.ini",
            "README.md": f"{FOLDER}/README.md",
            "ledger.toml": f"{FOLDER}/known/{self.name}.toml",
        }
        if self.suite:
            paths["workflow.yml"] = f".github/workflows/{FOLDER}.yml"
        for template, path in paths.items():
            yield Path(path), _rendered(template, self)


def write(starter: Starter, folder: Path) -> list[Path]:
    """Write the files of a starter into a folder and return their paths. Raises UsageError if one of them exists."""
    files = [(folder / path, text) for path, text in starter.files()]
    if existing := [str(path) for path, _ in files if path.exists()]:
        raise UsageError(f"{', '.join(existing)}: exists: name another folder, or remove it first")
    for path, text in files:
        with replacing(path) as beside:
            beside.write_text(text, encoding="utf-8")
    return [path for path, _ in files]


def _rendered(template: str, starter: Starter) -> str:
    values = {"starter": starter, "folder": FOLDER, "version": conformance.__version__}
    return source_templates(__package__).get_template(f"{template}.j2").render(values)
