"""The starter folder of a vendor: a tox environment, an empty ledger and a workflow for a config of their own."""

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from conformance.errors import UsageError
from conformance.paths import ROOT
from conformance.results.jsonl import replacing
from conformance.templates import source_templates

NAME = "quantized-backend-conformance"
"""The name of the package, which no index has: a requirement says where it comes from."""

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
        requirement: what pip installs the suite from.
        suite: `OWNER/NAME@REF` of the repository with this suite's reusable workflow; without it no workflow is written.
    """

    name: str
    backend_config: str
    engines: tuple[str, ...]
    requirement: str
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


def installed_from() -> str:
    """The requirement of the suite as it is installed here: the revision or the wheel that pip recorded (PEP 610), or the
    folder of the checkout. Raises UsageError if it came from a package index, where nobody holds its name."""
    if (ROOT / "pyproject.toml").exists():
        return str(ROOT)
    try:
        recorded = distribution(NAME).read_text("direct_url.json")
    except PackageNotFoundError:
        recorded = None
    if recorded is None:
        raise UsageError(
            "--suite: it is not recorded where the suite came from: name OWNER/NAME@REF, or the file of a wheel"
        )
    origin = json.loads(recorded)
    if "vcs_info" in origin:
        return f"{NAME} @ {origin['vcs_info']['vcs']}+{origin['url']}@{origin['vcs_info']['commit_id']}"
    hashes = origin.get("archive_info", {}).get("hashes", {})
    return f"{NAME} @ {origin['url']}" + (f"#sha256={hashes['sha256']}" if "sha256" in hashes else "")


def requirement_of(suite: str) -> tuple[str, str]:
    """The requirement that `--suite` names, and `OWNER/NAME@REF` if it is a repository. Raises UsageError for what is neither
    that nor a wheel."""
    if re.fullmatch(r"[\w.-]+/[\w.-]+@[\w./-]+", suite):
        repository, _, revision = suite.partition("@")
        return f"{NAME} @ git+https://github.com/{repository}@{revision}", suite
    wheel = Path(suite)
    if wheel.suffix == ".whl" and wheel.is_file():
        digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
        return f"{NAME} @ {wheel.resolve().as_uri()}#sha256={digest}", ""
    raise UsageError(f"--suite {suite!r}: write it as OWNER/NAME@REF, or name the file of a wheel")


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
    values = {"starter": starter, "folder": FOLDER}
    return source_templates(__package__).get_template(f"{template}.j2").render(values)
