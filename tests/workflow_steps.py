"""The steps of a workflow, executed in order on this machine as its runner would, with stubs in place of actions."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

SHIMS = {
    "python": """#!/bin/bash
# installs nothing: what would be installed is noted, and is on the path already
if [[ "$1" == "-m" && ( "$2" == "pip" || "$2" == "uv" ) ]]; then
  printf '%s\\n' "$*" >> "$NOTED"
  exit 0
fi
exec {python} "$@"
""",
    "tox": """#!/bin/bash
# installs nothing, as above
[[ "$*" == *--notest* ]] && printf 'tox %s\\n' "$*" >> "$NOTED"
""",
    "gh": """#!/bin/bash
# has one earlier run of the workflow, with the artifacts in a folder
case "$2" in
  list) echo 1 ;;
  download) cp --recursive "$EARLIER/$5" "$7" 2> /dev/null ;;
esac
""",
}
CONTEXTS = {"github.token": "none", "github.ref_name": "main", "github.run_id": "2"}


@dataclass
class Runner:
    """A runner: the repository that calls the workflow, the installed packages, and an empty folder of its own."""

    repository: Path
    packages: Path
    folder: Path
    artifacts: dict[str, list[Path]] = field(default_factory=dict)

    @property
    def earlier(self) -> Path:
        """The folder of an earlier run's artifacts, by name."""
        return self.folder / "earlier"

    def run(self, workflow: Path, inputs: Mapping[str, Any], only: str = "") -> Iterator[tuple[str, str]]:
        """Execute every job of a workflow, or one, for each shard of its matrix, and yield the output of each step.

        Raises ValueError for an input that is missing or unknown, or an action without a stub, AssertionError for a step that
        fails.
        """
        made = yaml.safe_load(workflow.read_text(encoding="utf-8"))
        values = {**CONTEXTS, **_inputs(made[True].get("workflow_call", {}).get("inputs", {}), inputs)}
        for name, job in made["jobs"].items():
            if only not in ("", name):
                continue
            matrix = job.get("strategy", {}).get("matrix", {})
            shards = json.loads(_filled(str(matrix.get("shard", "[0]")), {**values, "fromJSON": True}))
            for shard in shards:
                known = {**values, "matrix.shard": str(shard), "strategy.job-total": str(len(shards))}
                environment = _all_filled({**made["env"], **job.get("env", {})}, known)
                yield from self._job(f"{name} {shard}", job["steps"], known, environment)

    def _job(
        self, name: str, steps: list[dict[str, Any]], known: Mapping[str, str], environment: Mapping[str, str]
    ) -> Iterator[tuple[str, str]]:
        checkout = self.folder / name.replace(" ", "-")
        shutil.copytree(self.repository, checkout, symlinks=True)
        for step in steps:
            if action := step.get("uses", "").partition("@")[0]:
                self._act(action, _all_filled(step.get("with", {}), known), checkout)
                continue
            done = subprocess.run(
                ["bash", "-e", "-o", "pipefail", "-c", step["run"]],
                cwd=checkout,
                env=self._environment({**environment, **_all_filled(step.get("env", {}), known)}),
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == 0, f"{name}: {step.get('name')}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
            yield f"{name}: {step.get('name')}", done.stdout + done.stderr

    def _environment(self, own: Mapping[str, str]) -> dict[str, str]:
        shims = self.folder / "bin"
        shims.mkdir(exist_ok=True)
        for name, text in SHIMS.items():
            (shims / name).write_text(text.replace("{python}", sys.executable))
            (shims / name).chmod(0o755)
        kept = {
            key: value for key, value in os.environ.items() if not key.startswith(("PYTEST_", "PYTHONPATH", "TOX_"))
        }
        return {
            **kept,
            **own,
            "PATH": f"{shims}:{kept['PATH']}",
            "PYTHONPATH": f".:{self.packages}",
            "EARLIER": str(self.earlier),
            "NOTED": str(self.folder / "installed.txt"),
            "GITHUB_STEP_SUMMARY": str(self.folder / "summary.md"),
        }

    def _act(self, action: str, options: Mapping[str, str], checkout: Path) -> None:
        if action in ("actions/upload-artifact", "actions/upload-pages-artifact"):
            found = [path for line in options["path"].split() for path in checkout.glob(line.rstrip("/"))]
            assert found or options.get("if-no-files-found") == "ignore", f"no file {options['path']}"
            self.artifacts[options.get("name", "github-pages")] = found
        elif action == "actions/download-artifact":
            target = checkout / options["path"]
            target.mkdir()
            pattern = re.compile(options["pattern"].replace("*", ".*"))
            for paths in (paths for name, paths in self.artifacts.items() if pattern.fullmatch(name)):
                for path in paths:
                    shutil.copy(path, target)
        elif action == "actions/setup-python":
            assert options.get("cache") is None, "pip's, which installs no torch; a caller may have no file for its key"
        elif action != "actions/checkout":
            raise ValueError(f"no stub for {action}")


def _inputs(declared: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, str]:
    if unknown := given.keys() - declared.keys():
        raise ValueError(f"unknown inputs: {', '.join(sorted(unknown))}")
    missing = [name for name, of in declared.items() if of.get("required") and name not in given]
    if missing:
        raise ValueError(f"missing inputs: {', '.join(missing)}")
    return {f"inputs.{name}": str(given.get(name, of.get("default"))) for name, of in declared.items()}


def _all_filled(texts: Mapping[str, Any], known: Mapping[str, Any]) -> dict[str, str]:
    return {key: _filled(str(text), known) for key, text in texts.items()}


def _filled(text: str, known: Mapping[str, Any]) -> str:
    """A text with its expressions evaluated: names of contexts, and `fromJSON` of one."""

    def value(match: re.Match[str]) -> str:
        name = re.sub(r"fromJSON\(([\w.]+)\)", r"\1", match[1].strip())
        return str(known[name])

    return re.sub(r"\$\{\{(.*?)\}\}", value, text)
