"""Searching with drawn cases: a new deviation fails and is saved, a known one does not."""

from pathlib import Path

import pytest
from invoking import ROOT, entry, invoke

JOINS = """\
import torch
from torch.ao.quantization.backend_config import BackendConfig, BackendPatternConfig, DTypeConfig, ObservationType

def config():
    entry = BackendPatternConfig(torch.cat).set_observation_type(ObservationType.OUTPUT_SHARE_OBSERVER_WITH_INPUT)
    dtypes = DTypeConfig(input_dtype=torch.quint8, output_dtype=torch.quint8)
    return BackendConfig("joins").set_backend_pattern_configs([entry.add_dtype_config(dtypes)])
"""


def test_a_new_deviation_fails_and_its_reproduction_is_printed_and_saved(tmp_path: Path) -> None:
    (tmp_path / "joins.py").write_text(JOINS)
    options = ("--backend-config", "joins:config", "--engine", "fbgemm", "--found", str(tmp_path / "found"))
    invocation = invoke(tmp_path, *options, suite="conformance/test_operators.py")
    assert invocation.status == pytest.ExitCode.TESTS_FAILED
    assert "joins/joining@fbgemm: 1 new among " in invocation.output
    assert 'deviates("lowered"' in invocation.output
    (script,) = (tmp_path / "found").glob("joins-torch.cat-static-quint8-fbgemm-*.py")
    assert script.read_text().strip() in invocation.output


def test_a_deviation_that_the_ledger_covers_is_not_new(tmp_path: Path) -> None:
    (tmp_path / "joins.py").write_text(JOINS)
    known = entry("everything", "joins/*", "lowered", "observed", "reference", "numerics", "stable")
    options = ("--backend-config", "joins:config", "--engine", "fbgemm", "--found", str(tmp_path / "found"))
    invocation = invoke(tmp_path, *options, ledger=known, suite="conformance/test_operators.py")
    assert invocation.status == 0
    assert "1 passed" in invocation.output
    assert "40 drawn cases tried in 1 searches: 0 new" in invocation.output
    assert not (tmp_path / "found").exists()


@pytest.mark.parametrize("options", [("--hypothesis-profile", "nightly"), ("--search-minutes", "1")])
def test_random_searches_have_the_profile_nightly(tmp_path: Path, options: tuple[str, str]) -> None:
    suite = tmp_path / "test_settings.py"
    suite.write_text(
        "from hypothesis import settings\nimport conformance.test_operators\n\ndef test_settings():\n"
        "    print('settings:', settings().max_examples, settings().derandomize)\n"
    )
    plugin = ("-p", "conformance.plugin", "-c", str(ROOT / "pyproject.toml"))
    invocation = invoke(tmp_path, *options, *plugin, suite=str(suite))
    assert "settings: 2000 False" in invocation.output
