"""The documents: links lead somewhere, and commands are those of the project."""

import configparser
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WRITTEN = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
TEXT = "\n".join(path.read_text(encoding="utf-8") for path in WRITTEN)
LINK = re.compile(r"\]\(([^)\s]+)\)")


def anchors(path: Path) -> set[str]:
    """Anchors of a document's headings, as GitHub makes them, and those that it states."""
    text = path.read_text(encoding="utf-8")
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    stated = set(re.findall(r'<a id="([\w-]+)">', text))
    return stated | {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def environments() -> set[str]:
    """Names of the environments of tox.ini that have a name of their own."""
    parser = configparser.ConfigParser(interpolation=None)
    parser.read(ROOT / "tox.ini")
    return {name.removeprefix("testenv:") for name in parser.sections() if re.fullmatch(r"testenv:[\w-]+", name)}


def test_the_readme_is_read_in_two_minutes() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) < 150


@pytest.mark.parametrize("path", WRITTEN, ids=lambda path: path.name)
def test_links_lead_to_files_and_headings(path: Path) -> None:
    for link in LINK.findall(path.read_text(encoding="utf-8")):
        if link.startswith(("http://", "https://")):
            continue
        name, _, anchor = link.partition("#")
        target = (path.parent / name) if name else path
        assert target.exists(), f"{path.name}: {link}"
        assert not anchor or anchor in anchors(target), f"{path.name}: {link}"


def test_every_environment_is_documented() -> None:
    commands = " ".join(re.findall(r"tox (?:-q )?-e ([\w,-]+)", TEXT)).replace(",", " ").split()
    assert environments() <= set(commands)


def test_every_command_of_ci_is_documented() -> None:
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    commands = [line for line in script.splitlines() if re.match(r"tox|python3", line)]
    assert commands
    environments = [name for command in commands for name in re.findall(r"-e ([\w,-]+)", command)]
    documented = {name for group in re.findall(r"tox (?:-q )?-e ([\w,-]+)", TEXT) for name in group.split(",")}
    assert {name for group in environments for name in group.split(",")} <= documented
    arguments = [command.partition(" -- ")[2] for command in commands if " -- " in command]
    assert [text for text in arguments if text not in TEXT] == []


def test_every_command_of_the_suite_is_documented() -> None:
    shown = subprocess.run(
        [sys.executable, "-m", "conformance", "--help"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    commands = set(re.findall(r"^    ([a-z]+(?:-[a-z]+)*)(?: |$)", shown, re.MULTILINE))
    assert {"claims", "show", "repro", "report", "golden", "bench"} <= commands
    documented = set(re.findall(r"python -m conformance ([a-z]+(?:-[a-z]+)*)", TEXT))
    # `bench` has an environment of its own
    assert commands - documented <= {"bench"}
    assert documented <= commands
