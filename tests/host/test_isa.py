"""A limit of the instruction set is set before torch loads, or refused."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from conformance.errors import UsageError
from conformance.host import cpu as host_cpu
from conformance.host import isa as host_isa
from conformance.host.cpu import ISA_LIMITS
from conformance.host.isa import limit_isa

AVX2 = ISA_LIMITS["avx2"]
PLUGINS = ("selecting", "running", "searching", "timing")


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test starts with a limit, and none leaves one behind."""
    for name in AVX2:
        monkeypatch.setenv(name, "as it was")
        monkeypatch.delenv(name)


def test_a_limit_is_set_for_every_library_that_selects_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch")
    limit_isa("avx2")
    limits = {
        name: os.environ.get(name)
        for name in ("ONEDNN_MAX_CPU_ISA", "FBGEMM_ENABLE_INSTRUCTIONS", "ATEN_CPU_CAPABILITY")
    }
    assert limits == {"ONEDNN_MAX_CPU_ISA": "AVX2", "FBGEMM_ENABLE_INSTRUCTIONS": "AVX2", "ATEN_CPU_CAPABILITY": "avx2"}


def test_a_limit_is_refused_once_torch_has_loaded() -> None:
    with pytest.raises(
        UsageError, match=r"--isa avx2: torch is loaded already; set ONEDNN_MAX_CPU_ISA=AVX2 .* in the environment"
    ):
        limit_isa("avx2")
    assert not set(AVX2) & set(os.environ)


@pytest.mark.parametrize("name", AVX2)
def test_a_limit_that_the_environment_sets_in_part_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in set(AVX2) - {name}:
        monkeypatch.setenv(variable, AVX2[variable])
    with pytest.raises(UsageError, match="torch is loaded already"):
        limit_isa("avx2")


def test_a_limit_that_the_environment_sets_is_accepted_once_torch_has_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in AVX2.items():
        monkeypatch.setenv(name, value)
    limit_isa("avx2")


def test_an_unknown_limit_is_one_line_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match=r"^--isa 'sse2': choose from avx2, avx512f$"):
        limit_isa("sse2")


def test_a_limit_that_the_cpu_does_not_have_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (host_cpu, host_isa):
        monkeypatch.setattr(module, "cpu", lambda: ("A CPU", ("avx", "avx2")))
    with pytest.raises(UsageError, match=r"^--isa avx512f: this CPU does not have it, but avx2$"):
        limit_isa("avx512f")


def test_nothing_loads_torch_before_the_limit_is_set() -> None:
    modules = "conformance.plugin, " + ", ".join(f"conformance.plugin.{name}" for name in PLUGINS)
    code = f"import sys, {modules}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_pytest_with_the_plugin_loads_torch_only_with_a_test_of_the_suite(tmp_path: Path) -> None:
    suite = tmp_path / "test_modules.py"
    suite.write_text("import sys\ndef test_modules():\n    assert 'torch' not in sys.modules\n")
    options = ["-p", "conformance.plugin", "-p", "no:cacheprovider", "-c", str(tmp_path / "none.ini")]
    (tmp_path / "none.ini").write_text("[pytest]\n")
    command = [sys.executable, "-m", "pytest", *options, "--isa", "avx2", str(suite)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
