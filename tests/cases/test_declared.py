"""Operators that third parties declare."""

import importlib.metadata
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from conformance.cases.operators import declared
from conformance.cases.operators.declared import DECLARED, declare, declare_installed
from conformance.errors import UsageError
from tests.forking import run_module

ROOT = Path(__file__).parent.parent.parent
OPERATORS = """
from conformance.cases.operators.variant import Variant, operands

import theirs_modules

DEFAULT = Variant("default", "self.op(x)", operands((2, 4)), "theirs_modules.Scale(0.5)", output=(2, 4), core=True)
OPERATORS = {theirs_modules.Scale: [DEFAULT, DEFAULT.named("doubled", init="theirs_modules.Scale(2.0)")]}
"""
MODULES = """
from torch import nn
from torch.ao.quantization.backend_config import BackendConfig, BackendPatternConfig

from conformance.configs import dtypes


class Scale(nn.Module):
    def __init__(self, factor) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x):
        return x * self.factor


CONFIG = BackendConfig("theirs").set_backend_pattern_config(
    BackendPatternConfig(Scale).set_dtype_configs([dtypes.STATIC_QUINT8])
)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with modules of a third party, whose operators are forgotten afterwards."""
    (tmp_path / "theirs_modules.py").write_text(MODULES)
    (tmp_path / "theirs_operators.py").write_text(OPERATORS)
    monkeypatch.syspath_prepend(tmp_path)
    before = dict(DECLARED)
    yield tmp_path
    DECLARED.clear()
    DECLARED.update(before)
    for name in ("theirs_modules", "theirs_operators", "second", "broken"):
        sys.modules.pop(name, None)


def test_a_module_declares_operators_by_name_or_object(folder: Path) -> None:
    declare("theirs_operators")
    assert [variant.name for variant in DECLARED["theirs_modules.Scale"].variants] == ["default", "doubled"]
    declare("theirs_operators")  # once more changes nothing


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("raise RuntimeError('no device')", "--operators 'broken': RuntimeError: no device; it has to be importable"),
        ("OPERATORS = {}", "--operators 'broken' has no OPERATORS: bind it to a dict"),
        ("", "--operators 'broken' has no OPERATORS: bind it to a dict"),
        ("OPERATORS = {'nn.Mish': []}", "operator 'nn.Mish': no list of variants: write Variant"),
        ("OPERATORS = {'nn.Mish': ['x']}", "operator 'nn.Mish': str is no Variant"),
        (
            "from theirs_operators import DEFAULT\nOPERATORS = {'nn.Mish': [DEFAULT, DEFAULT]}",
            "operator 'nn.Mish': name 'default': name each variant once",
        ),
        (
            "from theirs_operators import DEFAULT\nOPERATORS = {'nn.Mish': [DEFAULT.named('a/b')]}",
            "operator 'nn.Mish': name 'a/b': name each variant once, without /",
        ),
        (
            "from theirs_operators import DEFAULT\nOPERATORS = {'nn.ReLU': [DEFAULT]}",
            "--operators 'broken': operator 'nn.ReLU' is declared twice: the suite has it: remove one",
        ),
        (
            "from theirs_operators import DEFAULT\nOPERATORS = {'torch.addmm': [DEFAULT]}",
            "--operators 'broken': operator 'torch.addmm' is declared twice: the suite has it: remove one",
        ),
        (
            "from theirs_operators import OPERATORS",
            "operator 'theirs_modules.Scale' is declared twice: 'theirs_operators' has it: remove one",
        ),
        (
            "import theirs_modules as m\nfrom theirs_operators import OPERATORS as O\n"
            "OPERATORS = {m.Scale: O[m.Scale], 'theirs_modules.Scale': O[m.Scale]}",
            "operator 'theirs_modules.Scale' is declared twice",
        ),
    ],
)
def test_a_module_that_cannot_be_used_is_refused_in_one_line(folder: Path, text: str, message: str) -> None:
    declare("theirs_operators")
    (folder / "broken.py").write_text(text)
    before = dict(DECLARED)
    with pytest.raises(UsageError) as raised:
        declare("broken")
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)
    assert before == DECLARED


def test_entry_points_of_installed_packages_are_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    point = importlib.metadata.EntryPoint("theirs", "theirs_operators", declared.GROUP)
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: [point] if group == declared.GROUP else [])
    declare_installed.cache_clear()
    declare_installed()
    assert "theirs_modules.Scale" in DECLARED
    (folder / "theirs_operators.py").write_text("OPERATORS = 1")
    sys.modules.pop("theirs_operators")
    declare_installed.cache_clear()
    with pytest.raises(UsageError) as raised:
        declare_installed()
    assert "entry point 'theirs' of conformance.operators: 'theirs_operators' has no OPERATORS" in str(raised.value)
    declare_installed.cache_clear()


THEIRS = ["--backend-config", "theirs_modules:CONFIG", "--operators", "theirs_operators"]


def test_the_option_adds_operators_to_invocations_and_commands(folder: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment["PYTHONPATH"] = os.pathsep.join([str(folder), str(ROOT)])
    listed = run_module("conformance", ["claims", "--json", *THEIRS], folder, environment)
    (claim,) = json.loads(listed.output)[0]["list"]
    assert (claim["covered"], claim["from_signature"]) == (True, [])
    path = str(ROOT / "conformance" / "test_conformance.py")
    options = ["-n", "1", "--rootdir", str(ROOT), "-p", "no:cacheprovider", "--results", "rows.jsonl"]
    reference = ["--engine", "conformance.engines.reference:ReferenceEngine"]
    done = run_module("pytest", [path, *options, *THEIRS, *reference, "--case", "*/exact@*"], folder, environment)
    assert done.status == 0, done.output
    assert "2 passed" in done.output
    run = "theirs/theirs_modules.Scale/static-quint8/ptq/doubled/exact@reference"
    script = run_module("conformance", ["show", run, *THEIRS, *reference], folder, environment)
    assert "import theirs_modules\n" in script.output
    wrong = run_module("conformance", ["claims", "--operators", "nowhere"], folder, environment)
    assert (wrong.status, wrong.errors.count("\n")) == (2, 1)
    assert "--operators 'nowhere': ModuleNotFoundError" in wrong.errors
