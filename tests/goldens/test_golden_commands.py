"""The `golden` commands: check, update and diff."""

import dataclasses
import os
import shutil
import subprocess
import tarfile
from collections.abc import Iterable
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from conformance.__main__ import main
from conformance.cases.claims import backend
from conformance.cases.runs import Run, runs
from conformance.configs.registry import BACKENDS, QUANTIZERS
from conformance.errors import UsageError
from conformance.goldens import regenerate
from conformance.goldens.golden import compute, difference, name_of
from conformance.goldens.manifest import file_of
from conformance.goldens.regenerate import check, recompute, update
from conformance.goldens.store import GoldenError, Store
from conformance.models.build import Subject
from conformance.oracle import Answer, NotCovered
from tests.goldens.golden_runs import (
    DYNAMIC,
    LINEAR,
    PER_CHANNEL,
    RELU,
    change_code,
    computed,
    damage,
    falsified,
    flip_bit,
    with_output,
    with_qparams,
)
from tests.runs_by_id import run

CASES = ["--case", "fbgemm/nn.Linear/static-quint8/ptq/*/exact@fbgemm"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the stored goldens of linear layers."""
    stored = Store()
    names = [name for name in stored.manifest if name.startswith("nn.Linear/static-quint8")]
    Store(tmp_path / "golden").write({name: (stored.read(name), stored.manifest[name]["in"]) for name in names})
    return tmp_path / "golden"


def test_check_passes_for_the_stored_goldens(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["golden", "check", *CASES, "--golden", str(folder)]) == 0
    assert "goldens recomputed: all as stored" in capsys.readouterr().out


def test_check_includes_runs_that_only_a_selection_runs(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    recomputed_ids: list[str] = []

    def recomputed(selected: Iterable[Run]) -> regenerate.Recomputed:
        recomputed_ids.extend(run.id for run in selected)
        return {}

    monkeypatch.setattr(regenerate, "recompute", recomputed)
    main(["golden", "check", "--golden", str(folder)])
    assert recomputed_ids == [run.id for name in (*BACKENDS, *QUANTIZERS) for run in runs(backend(name))]


def test_check_reports_missing_stale_damaged_different_and_unused_goldens(tmp_path: Path) -> None:
    names = [LINEAR, PER_CHANNEL, RELU, DYNAMIC]
    honest = {name_of(run(name)): computed(name) for name in names}
    linear, per_channel, relu, dynamic = honest
    stored = {**honest, "other/golden": honest[linear], per_channel: (honest[per_channel][0], "0" * 16)}
    stored[dynamic] = (dataclasses.replace(honest[relu][0]), honest[dynamic][1])
    del stored[relu]
    Store(tmp_path / "golden").write(stored)
    (tmp_path / "golden" / "left.over").touch()
    path = tmp_path / "golden" / file_of(linear)
    tensors = load_file(path)
    change_code(tensors)
    save_file(tensors, path)
    lines = [*check(Store(tmp_path / "golden"), honest, whole=True)]
    kinds = sorted(
        (line.partition(":")[0], next((n for n in (*honest, "other/golden") if n in line), "")) for line in lines
    )
    assert kinds == sorted(
        [
            ("missing", relu),
            ("stale", per_channel),
            ("damaged", linear),
            ("different", dynamic),
            ("unused", "other/golden"),
            ("unused", ""),
        ]
    )
    assert [*check(Store(tmp_path / "golden"), {}, whole=False)] == []


def test_update_reports_changes_and_check_passes_afterwards(folder: Path) -> None:
    before = Store(folder)
    name = name_of(run(LINEAR))
    golden = before.read(name)
    low = golden.outputs[0].low.clone()
    low.view(-1)[:3] += 4
    others = {entry: (before.read(entry), before.manifest[entry]["in"]) for entry in before.manifest}
    before.write({**others, name: (with_output(golden, low=low, high=low), before.manifest[name]["in"])})
    again = recompute([run(LINEAR), run(PER_CHANNEL)])
    lines = [*update(Store(folder), again, whole=False)]
    assert lines == [f"changed: {name}: output 0: 3 of 32 elements change, 4 steps", "1 of 2 goldens changed"]
    assert [*check(Store(folder), again, whole=False)] == []
    assert set(Store(folder).manifest) == set(others)
    assert [*update(Store(folder), again, whole=False)] == ["0 of 2 goldens changed: nothing is written"]


def test_update_repairs_adds_and_removes_goldens(store: Store) -> None:
    damage(store, change_code)
    again = recompute([run(LINEAR), run("fbgemm/nn.ReLU/static-quint8/ptq/default/exact@fbgemm")])
    lines = [*update(Store(store.folder), again, whole=True)]
    kinds = [line.partition(":")[0] for line in lines]
    assert kinds == ["mended", "new", "gone", "gone", "gone", "5 of 2 goldens changed"]
    assert [*check(Store(store.folder), again, whole=True)] == []


def test_a_failed_update_changes_no_golden(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    before = {path.name: path.read_bytes() for path in store.folder.iterdir()}

    def full(*_: object) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr("conformance.goldens.store.save_file", full)
    with pytest.raises(GoldenError, match="No space left on device: the goldens are as they were"):
        store.write({name_of(run(LINEAR)): computed(LINEAR)})
    assert {path.name: path.read_bytes() for path in store.folder.iterdir()} == before


def test_two_runs_with_different_inputs_cannot_share_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("conformance.goldens.regenerate.name_of", lambda run: "the same")
    with pytest.raises(UsageError, match="computes something else than another run whose golden is also the same"):
        recompute([run(LINEAR), run(RELU)])


def test_goldens_of_many_runs_are_computed_in_processes_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = [run(name) for name in (LINEAR, LINEAR.replace("@fbgemm", "@x86"), PER_CHANNEL, RELU, DYNAMIC)]
    alone = recompute(runs)
    computed_here: list[Subject] = []

    def counted(subject: Subject) -> Answer:
        computed_here.append(subject)
        return compute(subject)

    monkeypatch.setattr(regenerate, "PART", 2)
    monkeypatch.setattr(regenerate, "compute", counted)
    together = recompute(runs)
    assert computed_here == []
    assert sorted(together) == sorted(alone)
    for name, (golden, digest) in together.items():
        assert [*difference(golden, alone[name][0])] == []
        assert digest == alone[name][1]


def test_errors_of_processes_side_by_side_are_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(regenerate, "PART", 1)

    def not_covered(subject: object) -> None:
        raise NotCovered("a new layer")

    monkeypatch.setattr(regenerate, "compute", not_covered)
    with pytest.raises(UsageError, match="the oracle does not cover it: a new layer"):
        recompute([run(LINEAR), run(RELU)])
    monkeypatch.setattr(regenerate, "compute", lambda subject: os.abort())
    with pytest.raises(RuntimeError, match="cannot be computed: SIGABRT"):
        recompute([run(LINEAR), run(RELU)])


def test_diff_shows_two_versions_side_by_side(store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(store.folder, tmp_path / "old")
    new = falsified(store, LINEAR, flip_bit)
    assert main(["golden", "diff", str(tmp_path / "old"), str(new.folder), "--case", "nn.Linear/static*"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"changed: {name_of(run(LINEAR))}: output 0: 1 of 32 elements change, 1 steps"
    assert lines[1].split() == ["old", "new"] or lines[1].split() == ["index", "old", "new"]
    assert lines[2].startswith("    (0, 7)")
    assert lines[-1] == "2 goldens differ"
    assert any(line == f"gone: {name_of(run(PER_CHANNEL))}" for line in lines)


def test_diff_reads_a_git_revision(tmp_path: Path) -> None:
    environment = {**os.environ, "GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "a"}
    environment["GIT_COMMITTER_EMAIL"] = "a@b"
    Store(tmp_path / "golden").write({name_of(run(LINEAR)): computed(LINEAR)})
    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "goldens"]):
        subprocess.run(["git", "-C", str(tmp_path), *command], check=True, env=environment)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(regenerate, "GOLDEN", tmp_path / "golden")
        # Python 3.11.0 to 3.11.3 have neither the filter nor the argument that names it
        patched.delattr(tarfile, "data_filter")
        patched.setattr(tarfile.TarFile, "extractall", lambda packed, path=".", members=None: None)
        with regenerate.version("HEAD") as revision:
            assert set(revision.manifest) == {name_of(run(LINEAR))}


def test_diff_refuses_a_source_that_is_neither_folder_nor_revision(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["golden", "diff", "no-such-version"]) == 2
    assert "'no-such-version' is neither a folder nor a git revision with golden/" in capsys.readouterr().err


def test_differences_are_described() -> None:
    golden, _ = computed(PER_CHANNEL)
    doubled = with_qparams(golden, "weight", lambda scale, zero_point: (scale * 2, zero_point))
    (words,) = difference(golden, doubled)
    assert words.startswith("weight scale [0.0078125, 0.00390625, 0.001953125, 0.0078125, …] becomes [0.015625, ")
    assert [*difference(golden, dataclasses.replace(golden, names=("float",)))] == ["outputs output become float"]
    shorter = with_output(golden, low=golden.outputs[0].low[:1], high=golden.outputs[0].high[:1])
    assert [*difference(golden, shorter)] == ["output 0 torch.uint8 (4, 8) becomes torch.uint8 (1, 8)"]


def test_diff_says_that_git_cannot_be_run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert main(["golden", "diff", "HEAD"]) == 2
    assert (
        "'HEAD' is no folder, and git cannot be run: No such file or directory: install git" in capsys.readouterr().err
    )
