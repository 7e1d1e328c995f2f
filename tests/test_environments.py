"""The environments of tox.ini share folders, and one that shares a folder never installs it anew."""

import configparser
import os
import shutil
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

from conformance.host.cpu import ISA_LIMITS

ROOT = Path(__file__).parents[1]

INI = """
[tox]
env_list = first, second

[testenv]
runner = shared
env_dir = {work_dir}/one
package = skip
commands = python -c "import sys; print(f'in {sys.prefix}')"
"""


def test_environments_of_one_folder_have_the_same_requirements() -> None:
    parser = configparser.ConfigParser(interpolation=None)
    parser.read(ROOT / "tox.ini")
    requirements = defaultdict(set)
    for name in parser.sections():
        if name.startswith("testenv:"):
            section = {**parser["testenv"], **parser[name]}
            folder = section["env_dir"].replace("{env_name}", name).replace("{[dev]env_dir}", parser["dev"]["env_dir"])
            requirements[folder].add((section["dependency_groups"], section["deps"], section["install_command"]))
    assert len(requirements) == 10
    assert {folder: found for folder, found in requirements.items() if len(found) > 1} == {}


@pytest.mark.parametrize("limit", ISA_LIMITS)
def test_every_limit_of_the_instruction_set_has_a_label_and_runs_each_night(limit: str) -> None:
    parser = configparser.ConfigParser(interpolation=None)
    parser.read(ROOT / "tox.ini")
    labels = dict(line.split(" = ") for line in parser["tox"]["labels"].split("\n") if line)
    limited = [f"{name}-{limit}" for name in labels["backends"].split(", ")]
    assert labels[limit].split(", ") == limited
    (section,) = (name for name in parser.sections() if name.startswith("testenv:{qnnpack,"))
    assert f"-{limit}" in section
    assert f"{limit}: PYTEST_ADDOPTS = --isa {limit}" in parser[section]["set_env"].splitlines()
    nightly = (ROOT / ".github" / "workflows" / "nightly.yml").read_text(encoding="utf-8")
    assert [name for name in limited if f"runner: ubuntu-24.04, environment: {name}," not in nightly] == []


def test_the_second_environment_of_a_folder_finds_it_installed(tmp_path: Path) -> None:
    pytest.importorskip("tox", reason="`tox -e tests` has it")
    shutil.copy(ROOT / "toxfile.py", tmp_path)
    (tmp_path / "tox.ini").write_text(INI)
    command = [sys.executable, "-m", "tox", "-p", "-e", "first,second", "--parallel-live"]
    # these tests may run in an environment of tox themselves, whose folder is not meant
    variables = {name: value for name, value in os.environ.items() if not name.startswith("TOX_")}
    done = subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(f"in {tmp_path / '.tox' / 'one'}") == 2
    assert "recreate" not in done.stdout + done.stderr
    assert not [*tmp_path.glob(".tox/*/bin")][1:]
