"""Faults of the ledger, judged with rows that it lists and rows that conform."""

import re
import shutil
from dataclasses import replace
from functools import cache
from pathlib import Path

from conformance.errors import UsageError
from conformance.execution.batch import judge_runs
from conformance.host.isolation import Raised
from conformance.paths import KNOWN
from conformance.results import ledger, ledger_file
from conformance.results.rows import Row

from . import fault
from .fault import Alarms, Fault, case, run, unexpected

LISTED = (
    case("torch.add", "alpha_2"),
    case("torch.cat"),
    case("nn.ELU"),
    case("nn.Softmax"),
    case("nn.MaxPool2d", "keyword"),
    case("nn.GRU", dtypes="dynamic-quint8"),
    case("nn.Conv2d", "padding_same"),
)
CONFORMING = (case("nn.Linear"), case("torch.add"), case("nn.ReLU"))


@cache
def judged() -> tuple[Row, ...]:
    """The rows of all runs, judged once."""
    rows = []
    for outcome in judge_runs([run(name) for name in (*LISTED, *CONFORMING)], lambda engine: None):
        assert not isinstance(outcome, Raised), outcome.traceback
        rows.append(outcome.row)
    return tuple(rows)


def ledger_alarms(folder: Path) -> Alarms:
    try:
        entries = ledger_file.load(folder)
    except UsageError:
        return Alarms({"ledger"})
    alarms = Alarms().union(*(unexpected(row, entries) for row in judged()))
    honest = [replace(entry, source="") for entry in fault.ledger()]
    new = [entry for entry in entries if replace(entry, source="") not in honest]
    useless = ledger.useless(entries, every_id(), fault.SELECTION.host)
    return alarms | ({"ledger"} if any(entry.name in useless for entry in new) else set())


@cache
def every_id() -> tuple[str, ...]:
    return tuple(fault.SELECTION.every_id)


def listed(name: str, caught: str, file: str, old: str, new: str) -> Fault:
    """A fault in one file of the ledger. `old` is a regular expression that must match."""

    def alarms(folder: Path) -> Alarms:
        shutil.copytree(KNOWN, folder / "known")
        path = folder / "known" / f"{file}.toml"
        before = path.read_text(encoding="utf-8")
        after = re.sub(old, new, before, count=1, flags=re.S)
        assert after != before
        path.write_text(after, encoding="utf-8")
        return ledger_alarms(folder / "known")

    return Fault("ledger", name, caught, alarms, (*LISTED, *CONFORMING))


def lost(folder: Path) -> Alarms:
    shutil.copytree(KNOWN, folder / "known")
    (folder / "known" / "common.toml").unlink()
    return ledger_alarms(folder / "known")


def entry(name: str) -> str:
    """A regular expression for the beginning of an entry, with the match as group 1."""
    return rf'(\[\[finding\]\]\nid = "{name}"\n)'


ALPHA = r'(id = "add-alpha"\n.*?where = )(\{[^}]*\})(, must = )\[[^\]]*\]'
NEW = r'\1\2\3["numerics", "accuracy"], when = {{ {} }}'
MORE = (
    '[[finding]]\nid = "more"\ntitle = "It does"\nreason = "It does."\nshows = [{{ where = {{ {} }}, must = "numerics" }}]\n'
    "\n[[finding]]\n"
)
FIRST = r"\[\[finding\]\]\n"

FAULTS = [
    listed(
        "an entry is removed",
        "accuracy numerics",
        "common",
        r'\[\[finding\]\]\nid = "add-alpha".*?(?=\[\[finding\]\])',
        "",
    ),
    Fault(
        "ledger",
        "a file is removed",
        "accuracy lowered numerics observed reference stable",
        lost,
        (*LISTED, *CONFORMING),
    ),
    listed("a check is missing", "accuracy", "common", ALPHA, r'\1\2\3["numerics"]'),
    listed("an extra check", "stable", "common", ALPHA, r'\1\2\3["numerics", "accuracy", "stable"]'),
    listed("a check is replaced by another", "accuracy lowered", "common", ALPHA, r'\1\2\3["numerics", "lowered"]'),
    listed("a check is unknown", "ledger", "common", ALPHA, r'\1\2\3["numerics", "speed"]'),
    listed(
        "a listed crash does not happen",
        "crashes",
        "common",
        ALPHA,
        r'\1\2\3["numerics", "accuracy", "crashes"]',
    ),
    listed(
        "a condition is too wide",
        "accuracy numerics",
        "common",
        ALPHA,
        r'\1{ backend = "!executorch", pattern = "torch.add" }\3["numerics", "accuracy"]',
    ),
    listed(
        "a condition is too narrow",
        "accuracy numerics",
        "common",
        ALPHA,
        r'\1{ backend = "qnnpack", variant = "alpha_2" }\3["numerics", "accuracy"]',
    ),
    listed(
        "a condition holds for no run",
        "accuracy ledger numerics",
        "common",
        ALPHA,
        r'\1{ variant = "alpha_3" }\3["numerics", "accuracy"]',
    ),
    listed(
        "one of several conditions holds for no run",
        "ledger",
        "common",
        ALPHA,
        r'\1[\2, { variant = "alpha_3" }]\3["numerics", "accuracy"]',
    ),
    listed(
        "a value has another case",
        "accuracy ledger numerics",
        "common",
        ALPHA,
        r'\1{ variant = "ALPHA_2" }\3["numerics", "accuracy"]',
    ),
    listed(
        "an entry excepts every run that it matches",
        "accuracy ledger numerics",
        "common",
        ALPHA,
        r'\1\2, except = { backend = "*" }\3["numerics", "accuracy"]',
    ),
    listed(
        "an entry excepts a run that does not exist",
        "ledger",
        "common",
        ALPHA,
        r'\1\2, except = { variant = "alpha_3" }\3["numerics", "accuracy"]',
    ),
    listed(
        "an entry excepts a run that deviates",
        "accuracy numerics",
        "common",
        ALPHA,
        r'\1\2, except = { backend = "fbgemm" }\3["numerics", "accuracy"]',
    ),
    listed(
        "an exception is missing",
        "reference",
        "common",
        r'(id = "conv-padding-reference"\n.*?variant = )\["padding\*", "!padding_same"\]',
        r'\1"padding*"',
    ),
    listed(
        "an entry is for another version of torch", "accuracy numerics", "common", ALPHA, NEW.format('torch = "<2.0"')
    ),
    listed("an entry is for another architecture", "accuracy numerics", "common", ALPHA, NEW.format('arch = "sparc"')),
    listed("an entry is for another instruction set", "accuracy numerics", "common", ALPHA, NEW.format('isa = "mmx"')),
    listed("a condition is unknown", "ledger", "common", ALPHA, NEW.format('os = "linux"')),
    listed("a condition has another type", "ledger", "common", ALPHA, NEW.format("torch = 2")),
    listed("a condition is not a range", "ledger", "common", ALPHA, NEW.format('torch = "~=2.10"')),
    listed("an id is duplicated", "ledger", "common", entry("add-alpha"), r'[[finding]]\nid = "cat-in-float"\n'),
    listed(
        "an id belongs to another file",
        "ledger",
        "common",
        entry("add-alpha"),
        r'[[finding]]\nid = "conv-add-scalar"\n',
    ),
    listed(
        "an entry is duplicated under another id",
        "ledger",
        "common",
        FIRST,
        MORE.format('backend = "!executorch", variant = "alpha_2"'),
    ),
    listed(
        "an extra entry for a run that conforms",
        "numerics",
        "common",
        FIRST,
        MORE.format('backend = "fbgemm", pattern = "nn.ReLU"'),
    ),
    listed(
        "an extra entry for another backend",
        "ledger",
        "common",
        FIRST,
        MORE.format('backend = "tensorrt", pattern = "nn.ReLU"'),
    ),
    *(
        listed(f"{field} is missing", "ledger", "common", rf'(id = "add-alpha"\n.*?){field} = [^\n]*\n', r"\1")
        for field in ("title", "reason")
    ),
    listed("conditions are missing", "ledger", "common", r'(id = "add-alpha"\n.*?)where = \{[^}]*\}, ', r"\1"),
    listed(
        "checks are missing", "ledger", "common", r'(id = "add-alpha"\n.*?where = \{[^}]*\}), must = \[[^\]]*\]', r"\1"
    ),
    listed("a reason is empty", "ledger", "common", r'(id = "add-alpha"\n.*?)reason = [^\n]*\n', r'\1reason = ""\n'),
    listed(
        "upstream is not a reference",
        "ledger",
        "common",
        entry("add-alpha"),
        r'\1upstream = "soon"\n',
    ),
    listed("a field is unknown", "ledger", "common", entry("add-alpha"), r'\1exept = "fbgemm/*"\n'),
    listed("the table has another name", "ledger", "common", entry("add-alpha"), r'[[findings]]\nid = "add-alpha"\n'),
    listed("the file is not TOML", "ledger", "common", entry("add-alpha"), r"\1deviates: yes\n"),
]
