"""The environment that headers of files record."""

import platform
import subprocess
from pathlib import Path

import pytest
import torch

import conformance
from conformance.host import environment as module
from conformance.host.environment import environment


def test_the_environment_names_versions_host_and_limit() -> None:
    fields = environment("avx2")
    assert [*fields] == [
        "suite",
        "torch",
        "packages",
        "python",
        "os",
        "arch",
        "cpu",
        "cpu_flags",
        "isa_limit",
        "isa",
        "git",
    ]
    assert (fields["suite"], fields["torch"]) == (conformance.__version__, torch.__version__)
    assert (fields["python"], fields["arch"]) == (platform.python_version(), platform.machine())
    assert (fields["isa_limit"], fields["isa"]) == ("avx2", "avx2")


def test_a_checkout_has_a_revision_and_other_folders_have_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "__file__", str(tmp_path / "environment.py"))
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert environment(None)["git"] is None
    for command in (
        ["init", "-q"],
        ["-c", "user.name=a", "-c", "user.email=a", "commit", "-q", "--allow-empty", "-m", "a"],
    ):
        subprocess.run(["git", "-C", str(tmp_path), *command], check=True)
    revision = environment(None)["git"]
    assert len(revision) == 12
    assert set(revision) <= set("0123456789abcdef")


def test_without_git_there_is_no_revision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert environment(None)["git"] is None
