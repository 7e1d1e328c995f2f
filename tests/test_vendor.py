"""A vendor's way: a starter folder, a run of their config on their engine, and deviations accepted into their ledger."""

import configparser
import os
import re
import shlex
from pathlib import Path

import first_config
import pytest
from forking import Ending, run_module

from conformance.results.ledger_file import load, own

ROOT = Path(__file__).parents[1]
THEIRS = ["--backend-config", "edge:CONFIG", "--engine", "edge:Edge"]
PTQ = "edge/nn.Linear/static-quint8/ptq"
BLOCK = re.compile(r"^```python\n# edge.py\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the backend of the guide, whose kernel truncates instead of rounding."""
    (text,) = BLOCK.findall((ROOT / "docs" / "own-engine.md").read_text(encoding="utf-8"))
    rounds = "torch.round(sums * (steps / scale))"
    assert text.count(rounds) == 1
    (tmp_path / "edge.py").write_text(text.replace(rounds, "torch.floor(sums * (steps / scale))"))
    return tmp_path


def command(folder: Path, module: str, *arguments: str) -> Ending:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    paths = os.pathsep.join([str(folder), str(folder.parent), str(ROOT)])
    # a module that a test rewrites within a second, in the same length, would be taken for the compiled one
    return run_module(module, arguments, folder, {**environment, "PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1"})


def suite(folder: Path, *arguments: str) -> Ending:
    path = str(ROOT / "conformance" / "test_conformance.py")
    return command(folder, "pytest", path, "--rootdir", str(ROOT), "-p", "no:cacheprovider", *arguments)


def test_new_deviations_are_accepted_with_reproductions_that_ran(folder: Path) -> None:
    cases = ["--case", f"{PTQ}/default/exact@edge", "--case", f"{PTQ}/batch0/exact@edge", "--ledger", "known"]
    (folder / "known").mkdir()
    first = suite(folder, *THEIRS, *cases, "--results", "rows.jsonl")
    assert (first.status, "1 failed, 1 passed" in first.output) == (1, True), first.output
    # the header of the rows names their config and engine
    accept = ["accept", "rows.jsonl", "--finding", "floors", "--ledger", "known"]
    done = command(folder, "conformance", *accept, "--title", "Edge floors")
    assert (done.status, done.errors) == (0, "")
    assert done.output == (
        "known/edge.toml: floors: 1 runs, whose reproductions are in known/scripts\n"
        "1 of 1 deviations reproduced and accepted\n"
    )
    (entry,) = load(folder / "known")
    assert [*map(str, entry.where)] == [
        '{ backend = "edge", engine = "edge", pattern = "nn.Linear", variant = "default" }'
    ]
    assert entry.check == {"numerics"}
    (folder / "accepted.py").write_text((folder / "known" / "scripts" / "floors-1.py").read_text())
    ran = command(folder, "accepted")
    assert (ran.status, ran.output.partition(":")[0]) == (1, "DEVIATES numerics")
    assert suite(folder, *THEIRS, *cases, "--results", "rows.jsonl").status == 0
    again = command(folder, "conformance", *accept)
    assert (again.status, "rows.jsonl: no new deviation" in again.errors) == (2, True)


def test_every_printed_command_runs_as_it_is(folder: Path) -> None:
    printed = suite(folder, *THEIRS, "--case", f"{PTQ}/default/exact@edge", "--results", "rows.jsonl").output
    for reader in (["findings", "rows.jsonl", "--full"], ["ci", "rows.jsonl"], ["constraints", "rows.jsonl"]):
        printed += command(folder, "conformance", *reader).output
    commands = {*re.findall(r"python -m conformance repro [^\n`]+'[^\n`']+'", printed)}
    assert commands == {f"python -m conformance repro {shlex.join(THEIRS)} '{PTQ}/default/exact@edge'"}
    (repro,) = commands
    script = command(folder, "conformance", *shlex.split(repro)[3:])
    assert (script.status, script.errors) == (0, "")
    (folder / "script.py").write_text(script.output)
    done = command(folder, "script")
    assert (done.status, done.output.partition(":")[0]) == (1, "DEVIATES numerics")
    shown = command(folder, "conformance", "show", *shlex.split(repro)[4:])
    assert (shown.status, shown.errors) == (0, "")
    assert "numerics" in shown.output


def test_a_deviation_that_does_not_reproduce_is_not_accepted(folder: Path) -> None:
    (folder / "known").mkdir()
    cases = ["--case", f"{PTQ}/default/exact@edge", "--ledger", "known"]
    assert suite(folder, *THEIRS, *cases, "--results", "rows.jsonl").status == 1
    text = (folder / "edge.py").read_text()
    (folder / "edge.py").write_text(text.replace("torch.floor(", "torch.round("))
    done = command(folder, "conformance", "accept", "rows.jsonl", "--finding", "floors", "--ledger", "known", *THEIRS)
    assert (done.status, done.output) == (1, "0 of 1 deviations reproduced and accepted\n")
    assert "not accepted: the reproduction does not show it here: exit status 0: CONFORMS" in done.errors
    assert not [*(folder / "known").iterdir()]


def test_a_first_report_names_every_mistake_of_the_vendor_and_theirs_first(tmp_path: Path) -> None:
    """Eight mistakes of a config and one fault of an engine, each a group of its own, on the first page."""
    (tmp_path / "day.py").write_text((ROOT / "tests" / "first_config.py").read_text())
    cases = [part for glob in ("default", "from_signature") for part in ("--case", f"day/*/{glob}/*")]
    options = ["--backend-config", "day:CONFIG", "--engine", "day:Day"]
    assert suite(tmp_path, *options, *cases, "--results", "rows.jsonl").status == 1
    assert command(tmp_path, "conformance", "report", "rows.jsonl", "-o", "html").status == 0
    page = (tmp_path / "html" / "index.html").read_text()
    listed = re.findall(r'<li><a href="findings.html#new-\d+">([^<]*)</a>', page)
    wrong = {*first_config.MISTAKES, "day/nn.Linear/static-quint8"}
    named = [{claim for claim in wrong if re.search(rf"{re.escape(claim)}(?![\w/+])", title)} for title in listed]
    assert set().union(*named) == wrong
    assert all(len(claims) <= 1 for claims in named)
    assert not any("nn.Conv2d" in title or "Hardswish" in title for title in listed)
    assert page.index('id="news"') < page.index('id="claims"')


@pytest.mark.parametrize("name", ["a/b", ""])
def test_a_finding_has_a_name_that_can_be_a_file(folder: Path, name: str) -> None:
    done = command(folder, "conformance", "accept", "rows.jsonl", "--finding", name, "--ledger", "known", *THEIRS)
    assert done.status == 2
    assert "name it with letters, digits and _.- alone" in done.errors


def test_the_commands_of_a_starter_folder_run_as_they_are(folder: Path) -> None:
    done = command(folder, "conformance", "init", *THEIRS, "--suite", "someone/suite@v1")
    assert (done.status, done.errors) == (0, "")
    written = [
        "quantized/tox.ini",
        "quantized/README.md",
        "quantized/known/edge.toml",
        ".github/workflows/quantized.yml",
    ]
    assert done.output.splitlines() == written
    assert own(folder / "quantized" / "known") == ()
    assert load(folder / "quantized" / "known") == load()
    workflow = (folder / written[-1]).read_text()
    assert "uses: someone/suite/.github/workflows/backend.yml@v1\n" in workflow
    assert "options: --backend-config edge:CONFIG --engine edge:Edge\n" in workflow
    parser = configparser.ConfigParser(interpolation=None)
    parser.read(folder / "quantized" / "tox.ini")
    lint, run, report = parser["testenv:conformance"]["commands"].strip().splitlines()
    assert command(folder / "quantized", *shlex.split(lint)[2:]).output == "edge: 1 entries, 0 errors, 0 warnings\n"
    options = shlex.split(run.replace("-n auto", "").replace("{posargs}", f"--case {PTQ}/batch0/exact@edge"))
    assert options[:5] == ["python", "-m", "pytest", "--pyargs", "conformance"]
    assert suite(folder / "quantized", *options[5:]).status == 0
    assert command(folder / "quantized", *shlex.split(report)[2:]).status == 0
    assert (folder / "quantized" / "reports" / "html" / "index.html").exists()
    again = command(folder, "conformance", "init", *THEIRS)
    assert again.status == 2
    assert (
        "quantized/tox.ini, quantized/README.md, quantized/known/edge.toml: exists: name another folder" in again.errors
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--backend-config", "edge:NONE"], "--backend-config 'edge:NONE': AttributeError"),
        ([*THEIRS, "--engine", "edge:NONE"], "--engine 'edge:NONE': AttributeError"),
        ([*THEIRS, "--suite", "someone"], "--suite 'someone': write it as OWNER/NAME@REF"),
    ],
)
def test_a_starter_of_what_cannot_be_used_is_refused(folder: Path, options: list[str], message: str) -> None:
    done = command(folder, "conformance", "init", *options)
    assert done.status == 2
    assert message in done.errors
    assert [path.name for path in folder.iterdir() if path.suffix != ".py" and path.name != "__pycache__"] == []
