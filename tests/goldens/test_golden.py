"""Goldens are what the oracle says, stored byte by byte the same, and nothing that is wrong with one goes unnoticed."""

import copy
import dataclasses
import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from conformance.__main__ import main
from conformance.cases.claims import backend
from conformance.cases.runs import Run, runs
from conformance.checks.evidence import Outcome
from conformance.checks.judge import CHECKS, Judge
from conformance.configs.registry import BACKENDS
from conformance.engines.registry import engine
from conformance.errors import UsageError
from conformance.execution import batch
from conformance.goldens import regenerate
from conformance.goldens.golden import Expected, Golden, compute, difference, golden_of, name_of
from conformance.goldens.manifest import MANIFEST, entry_of, file_of, input_digest, tensors_of
from conformance.goldens.regenerate import check, recompute, update
from conformance.goldens.store import GoldenError, Store
from conformance.host.isolation import Done, run_isolated
from conformance.models.build import Subject, subject
from conformance.paths import GOLDEN

LINEAR = "fbgemm/nn.Linear/static-quint8/ptq/default/exact@fbgemm"
PER_CHANNEL = "fbgemm/nn.Linear/static-quint8/ptq/per_channel/exact@fbgemm"
RELU = "fbgemm/nn.Linear+nn.ReLU/static-quint8/ptq/default/exact@fbgemm"
DYNAMIC = "fbgemm/nn.Linear/dynamic-quint8/ptq/default/exact@fbgemm"
LIMIT = 8_000_000


@cache
def run(name: str) -> Run:
    found = runs(backend(name.partition("/")[0]), [name.rpartition("@")[2]])
    return next(one for one in found if one.id == name)


def made(name: str) -> tuple[Golden, str]:
    given = subject(run(name))
    return golden_of(compute(given)), input_digest(given)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Goldens of a few runs, written and not yet read."""
    folder = tmp_path / "golden"
    Store(folder).write({name_of(run(name)): made(name) for name in (LINEAR, PER_CHANNEL, RELU, DYNAMIC)})
    return Store(folder)


# What is stored.


@pytest.mark.parametrize("name", [LINEAR, PER_CHANNEL, RELU, DYNAMIC])
def test_a_golden_is_read_as_it_was_written(store: Store, name: str) -> None:
    golden, _ = made(name)
    found = store.find(subject(run(name)))
    assert [*difference(golden, found)] == []
    for one, other in zip(golden.outputs, found.outputs, strict=True):
        assert torch.equal(one.low, other.low)
        assert torch.equal(one.high, other.high)
        assert (one.scale, one.zero_point, one.dtype) == (other.scale, other.zero_point, other.dtype)


def test_ties_and_what_follows_from_them_are_kept(tmp_path: Path) -> None:
    low = torch.tensor([[1, 2], [3, 4]], dtype=torch.uint8)
    high = low + torch.tensor([[0, 1], [0, 3]], dtype=torch.uint8)
    scale = torch.tensor([0.5], dtype=torch.float64)
    golden = Golden((Expected(low, high, 0.5, 7, "quint8"),), ("output",), {"output": (scale, scale * 14)})
    folder = Store(tmp_path / "golden")
    folder.write({"p/q": (golden, "digest")})
    (found,) = Store(tmp_path / "golden").read("p/q").outputs
    assert torch.equal(found.low, low)
    assert torch.equal(found.high, high)
    assert (golden.elements, golden.ties) == (4, 2)


def test_the_same_goldens_are_the_same_bytes(store: Store, tmp_path: Path) -> None:
    again = Store(tmp_path / "again")
    again.write({name_of(run(name)): made(name) for name in (DYNAMIC, RELU, PER_CHANNEL, LINEAR)})
    names = sorted(path.name for path in store.folder.iterdir())
    assert names == sorted(path.name for path in again.folder.iterdir())
    for name in names:
        assert (store.folder / name).read_bytes() == (again.folder / name).read_bytes()


def test_the_manifest_has_a_line_for_each_golden_with_digests_and_counts(store: Store) -> None:
    first, *lines, last = (store.folder / MANIFEST).read_text().splitlines()
    assert (first, last, len(lines)) == ('{"format": 1, "goldens": {', "}}", 4)
    entry = json.loads("{" + lines[0].rstrip(",") + "}")[name_of(run(RELU))]
    assert entry["elements"] == 32
    assert entry["outputs"] == ["output"]
    assert entry["qparams"] == {"x": 1, "weight": 1, "output": 1}
    assert len(entry["in"]) == len(entry["out"]) == 16


def test_engines_and_backends_that_compute_the_same_share_a_golden() -> None:
    names = {name_of(run(LINEAR.replace("@fbgemm", f"@{name}"))) for name in ("fbgemm", "x86")}
    assert len(names) == 1
    onednn = "onednn/nn.ReLU/static-quint8/ptq/default/exact@onednn"
    qnnpack = "qnnpack/nn.ReLU/static-quint8/ptq/default/exact@qnnpack"
    assert (
        name_of(run(onednn)) == name_of(run(qnnpack)) != name_of(run(onednn.replace("onednn/", "fbgemm/")[:-6] + "x86"))
    )
    assert input_digest(subject(run(onednn))) == input_digest(subject(run(qnnpack)))


def test_the_stored_goldens_are_those_that_the_registered_backends_need_and_small() -> None:
    listed = set(Store().manifest)
    needed = {
        name_of(one)
        for name in ("qnnpack", "fbgemm", "onednn")
        for one in runs(backend(name))
        if one.variant is not None and one.profile == "exact"
    }
    impossible = re.compile(r"Tensor\.hardsigmoid|.*float16/qat|nniqat\.ConvBn.*/padding_same/")
    assert not {name for name in needed - listed if not impossible.match(name)}
    assert sum(path.stat().st_size for path in GOLDEN.iterdir()) < LIMIT
    assert {path.name for path in GOLDEN.iterdir()} == {MANIFEST, *Store().files}


# What goes in.


def changed(given: Subject, what: str) -> Subject:
    model = copy.deepcopy(given.model)
    if what == "weight":
        with torch.no_grad():
            next(model.parameters()).flatten()[3] += 2.0**-20
        return dataclasses.replace(given, model=model)
    if what == "calibration":
        return dataclasses.replace(given, calibration=(given.calibration[0] + 1,))
    if what == "inputs":
        return dataclasses.replace(given, inputs=(given.inputs[0] + 1,))
    other = copy.copy(given.run)
    recipe = given.run.recipe
    if what == "recipe":
        other.__dict__["recipe"] = dataclasses.replace(recipe, scheme=dataclasses.replace(recipe.scheme, qat=True))
    else:
        other.__dict__["model"] = dataclasses.replace(given.run.model, forward=("return self.op(x) + 1",))
    return dataclasses.replace(given, run=other)


@pytest.mark.parametrize("what", ["weight", "calibration", "inputs", "recipe", "source"])
def test_a_golden_of_something_else_is_stale(store: Store, what: str) -> None:
    given = changed(subject(run(LINEAR)), what)
    with pytest.raises(GoldenError, match=r"is stale: .*python -m conformance golden update --case"):
        store.find(given)


def test_a_missing_golden_names_the_command(store: Store) -> None:
    given = subject(run("fbgemm/nn.ReLU/static-quint8/ptq/default/exact@fbgemm"))
    with pytest.raises(GoldenError, match=r"is missing: run `python -m conformance golden update --case '\*/nn\.ReLU/"):
        store.find(given)


def test_without_a_folder_every_golden_is_missing(tmp_path: Path) -> None:
    with pytest.raises(GoldenError, match="is missing"):
        Store(tmp_path / "nothing").find(subject(run(LINEAR)))


# Damage.


def damage(store: Store, change: Callable[[dict[str, Tensor]], None], name: str = LINEAR) -> None:
    """Change what is stored of a golden's file and leave the manifest as it is."""
    path = store.folder / file_of(name_of(run(name)))
    stored = load_file(path)
    change(stored)
    save_file(stored, path)


def label(stored: dict[str, Tensor], end: str, variant: str = "default") -> str:
    return next(name for name in stored if f"static-quint8/ptq/{variant}/" in name and name.endswith(end))


def one_code(stored: dict[str, Tensor]) -> None:
    stored[label(stored, "/0")].view(-1)[5] += 1


def last_bit(stored: dict[str, Tensor]) -> None:
    pairs = stored[label(stored, "/qparams")]
    pairs[2, 0] = torch.nextafter(pairs[2, 0], torch.tensor(9.0, dtype=torch.float64))


def zero_point(stored: dict[str, Tensor]) -> None:
    stored[label(stored, "/qparams")][2, 1] += 1


def swapped(stored: dict[str, Tensor]) -> None:
    pairs = stored[label(stored, "/qparams", "per_channel")]
    pairs[1, 0] *= 2


@pytest.mark.parametrize("change", [one_code, last_bit, zero_point])
def test_a_golden_that_is_not_what_was_written_is_damaged(store: Store, change: Callable[..., None]) -> None:
    damage(store, change)
    with pytest.raises(GoldenError, match=r"is damaged: .*restore both from version control, or run"):
        store.find(subject(run(LINEAR)))


def test_a_file_that_is_no_safetensors_file_is_damaged(store: Store) -> None:
    path = store.folder / file_of(name_of(run(LINEAR)))
    path.write_bytes(path.read_bytes()[:-7])
    with pytest.raises(GoldenError, match="is damaged"):
        store.find(subject(run(LINEAR)))


@pytest.mark.parametrize(
    ("text", "message"),
    [("{", "not readable"), ('{"format": 99, "goldens": {}}', "format 99, not 1"), ("[]", "not readable")],
)
def test_a_manifest_that_cannot_be_used_is_named(store: Store, text: str, message: str) -> None:
    (store.folder / MANIFEST).write_text(text)
    with pytest.raises(GoldenError, match=message):
        store.find(subject(run(LINEAR)))


# A run that is held to it. The manifests are made to agree, so that the comparison has to notice.


def judged(store: Store, name: str) -> dict[str, Outcome]:
    """Judge a run by the goldens of a store, in a child."""
    if (reason := engine(run(name).engine).unavailable()) is not None:
        pytest.skip(f"{run(name).engine}: {reason}")
    batch.warm_up()

    def work(one: Run) -> dict[str, Outcome]:
        evidence = Judge(store).evidence(one)
        assert not evidence.unusable, evidence.unusable
        return {name: check(evidence) for name, check in CHECKS.items()}

    (outcome,) = run_isolated([run(name)], work)
    assert isinstance(outcome, Done), outcome
    return outcome.value


def falsified(store: Store, name: str, change: Callable[[Golden], Golden]) -> Store:
    """The store with one golden replaced by a false one, in a manifest that says that it is right."""
    golden, goes_in = made(name)
    store.write({name_of(run(name)): (change(golden), goes_in)})
    return Store(store.folder)


def with_output(golden: Golden, **fields: object) -> Golden:
    (output,) = golden.outputs
    return dataclasses.replace(golden, outputs=(dataclasses.replace(output, **fields),))  # type: ignore[arg-type]


def flipped(golden: Golden) -> Golden:
    low = golden.outputs[0].low.clone()
    low.view(-1)[7] ^= 1
    return with_output(golden, low=low, high=low)


def with_qparams(golden: Golden, name: str, change: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]) -> Golden:
    return dataclasses.replace(golden, qparams={**golden.qparams, name: change(*golden.qparams[name])})


def scale_in_its_last_bit(golden: Golden) -> Golden:
    bigger = torch.tensor(9.0, dtype=torch.float64)
    return with_qparams(golden, "output", lambda scale, zero_point: (torch.nextafter(scale, bigger), zero_point))


def zero_point_by_one(golden: Golden) -> Golden:
    return with_qparams(golden, "output", lambda scale, zero_point: (scale, zero_point + 1))


def weight_scale_in_its_last_bit(golden: Golden) -> Golden:
    bigger = torch.tensor(9.0, dtype=torch.float64)
    return with_qparams(golden, "weight", lambda scale, zero_point: (torch.nextafter(scale, bigger), zero_point))


def input_zero_point_by_one(golden: Golden) -> Golden:
    return with_qparams(golden, "x", lambda scale, zero_point: (scale, zero_point - 1))


@pytest.mark.parametrize(
    ("change", "caught"),
    [
        (flipped, {"numerics", "reference"}),
        (scale_in_its_last_bit, {"numerics", "reference"}),
        (zero_point_by_one, {"numerics", "reference"}),
        (weight_scale_in_its_last_bit, {"reference"}),
        (input_zero_point_by_one, {"reference"}),
    ],
)
def test_a_false_golden_is_caught(store: Store, change: Callable[[Golden], Golden], caught: set[str]) -> None:
    outcomes = judged(falsified(store, LINEAR, change), LINEAR)
    assert {name for name, outcome in outcomes.items() if outcome.result == "fail"} == caught


def test_swapped_scales_of_channels_are_caught(store: Store) -> None:
    def swap(golden: Golden) -> Golden:
        return with_qparams(golden, "weight", lambda scale, zero_point: (scale.flip(0), zero_point))

    golden, goes_in = made(PER_CHANNEL)
    assert golden.qparams["weight"][0][0] != golden.qparams["weight"][0][-1]
    for change, caught in ((lambda same: same, set()), (swap, {"reference"})):
        store.write({name_of(run(PER_CHANNEL)): (change(golden), goes_in)})
        outcomes = judged(Store(store.folder), PER_CHANNEL)
        assert {name for name, outcome in outcomes.items() if outcome.result == "fail"} == caught


@pytest.mark.parametrize("name", [LINEAR, RELU, DYNAMIC, PER_CHANNEL])
def test_an_honest_golden_is_met(store: Store, name: str) -> None:
    assert {outcome.result for outcome in judged(store, name).values()} == {"pass"}


# Commands.


CASES = ["--case", "fbgemm/nn.Linear/static-quint8/ptq/*/exact@fbgemm"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the stored goldens of linear layers."""
    kept = Store()
    names = [name for name in kept.manifest if name.startswith("nn.Linear/static-quint8")]
    Store(tmp_path / "golden").write({name: (kept.read(name), kept.manifest[name]["in"]) for name in names})
    return tmp_path / "golden"


def test_check_finds_nothing_wrong_with_what_is_right(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["golden", "check", *CASES, "--golden", str(folder)]) == 0
    assert "goldens recomputed: all as stored" in capsys.readouterr().out


def test_goldens_of_runs_that_are_made_only_by_name_are_held_too(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    asked: list[str] = []

    def recomputed(found: Iterable[Run]) -> regenerate.Recomputed:
        asked.extend(run.id for run in found)
        return {}

    monkeypatch.setattr(regenerate, "recompute", recomputed)
    main(["golden", "check", "--golden", str(folder)])
    assert asked == [run.id for name in BACKENDS for run in runs(backend(name))]


def test_check_finds_what_is_missing_stale_damaged_different_and_unused(tmp_path: Path) -> None:
    names = [LINEAR, PER_CHANNEL, RELU, DYNAMIC]
    honest = {name_of(run(name)): made(name) for name in names}
    linear, per_channel, relu, dynamic = honest
    stored = {**honest, "other/golden": honest[linear], per_channel: (honest[per_channel][0], "0" * 16)}
    stored[dynamic] = (dataclasses.replace(honest[relu][0]), honest[dynamic][1])
    del stored[relu]
    Store(tmp_path / "golden").write(stored)
    (tmp_path / "golden" / "left.over").touch()
    path = tmp_path / "golden" / file_of(linear)
    tensors = load_file(path)
    one_code(tensors)
    save_file(tensors, path)
    found = [*check(Store(tmp_path / "golden"), honest, whole=True)]
    kinds = sorted(
        (line.partition(":")[0], next((n for n in (*honest, "other/golden") if n in line), "")) for line in found
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


def test_update_says_what_changes_and_by_how_much_and_check_is_then_content(folder: Path) -> None:
    before = Store(folder)
    name = name_of(run(LINEAR))
    golden = before.read(name)
    low = golden.outputs[0].low.clone()
    low.view(-1)[:3] += 4
    others = {one: (before.read(one), before.manifest[one]["in"]) for one in before.manifest}
    before.write({**others, name: (with_output(golden, low=low, high=low), before.manifest[name]["in"])})
    again = recompute([run(LINEAR), run(PER_CHANNEL)])
    lines = [*update(Store(folder), again, whole=False)]
    assert lines == [f"changed: {name}: output 0: 3 of 32 elements change, 4 steps", "1 of 2 goldens changed"]
    assert [*check(Store(folder), again, whole=False)] == []
    assert set(Store(folder).manifest) == set(others)
    assert [*update(Store(folder), again, whole=False)] == ["0 of 2 goldens changed: nothing is written"]


def test_update_mends_adds_and_takes_away(store: Store) -> None:
    damage(store, one_code)
    again = recompute([run(LINEAR), run("fbgemm/nn.ReLU/static-quint8/ptq/default/exact@fbgemm")])
    lines = [*update(Store(store.folder), again, whole=True)]
    kinds = [line.partition(":")[0] for line in lines]
    assert kinds == ["mended", "new", "gone", "gone", "gone", "5 of 2 goldens changed"]
    assert [*check(Store(store.folder), again, whole=True)] == []


def test_an_update_that_fails_leaves_the_goldens_as_they_were(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    before = {path.name: path.read_bytes() for path in store.folder.iterdir()}

    def full(*_: object) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr("conformance.goldens.store.save_file", full)
    with pytest.raises(OSError, match="No space"):
        store.write({name_of(run(LINEAR)): made(LINEAR)})
    assert {path.name: path.read_bytes() for path in store.folder.iterdir()} == before


def test_two_runs_that_compute_different_things_cannot_share_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("conformance.goldens.regenerate.name_of", lambda run: "the same")
    with pytest.raises(UsageError, match="computes something else than another run whose golden is also the same"):
        recompute([run(LINEAR), run(RELU)])


def test_diff_shows_two_versions_side_by_side(store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(store.folder, tmp_path / "old")
    new = falsified(store, LINEAR, flipped)
    assert main(["golden", "diff", str(tmp_path / "old"), str(new.folder), "--case", "nn.Linear/static*"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"changed: {name_of(run(LINEAR))}: output 0: 1 of 32 elements change, 1 steps"
    assert lines[1].split() == ["old", "new"] or lines[1].split() == ["index", "old", "new"]
    assert lines[2].startswith("    (0, 7)")
    assert lines[-1] == "2 goldens differ"
    assert any(line == f"gone: {name_of(run(PER_CHANNEL))}" for line in lines)


def test_diff_takes_a_revision(tmp_path: Path) -> None:
    environment = {**os.environ, "GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "a"}
    environment["GIT_COMMITTER_EMAIL"] = "a@b"
    Store(tmp_path / "golden").write({name_of(run(LINEAR)): made(LINEAR)})
    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "goldens"]):
        subprocess.run(["git", "-C", str(tmp_path), *command], check=True, env=environment)
    from conformance.goldens import regenerate

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(regenerate, "GOLDEN", tmp_path / "golden")
        with regenerate.version("HEAD") as found:
            assert set(found.manifest) == {name_of(run(LINEAR))}


def test_diff_of_what_is_neither_folder_nor_revision_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["golden", "diff", "no-such-version"]) == 2
    assert "'no-such-version' is neither a folder nor a git revision with golden/" in capsys.readouterr().err


def test_what_differs_is_said_in_words() -> None:
    golden, _ = made(PER_CHANNEL)
    other = with_qparams(golden, "weight", lambda scale, zero_point: (scale * 2, zero_point))
    (words,) = difference(golden, other)
    assert words.startswith("weight scale [0.0078125, 0.00390625, 0.001953125, 0.0078125, …] becomes [0.015625, ")
    assert [*difference(golden, dataclasses.replace(golden, names=("float",)))] == ["outputs output become float"]
    shorter = with_output(golden, low=golden.outputs[0].low[:1], high=golden.outputs[0].high[:1])
    assert [*difference(golden, shorter)] == ["output 0 torch.uint8 (4, 8) becomes torch.uint8 (1, 8)"]


def test_a_golden_is_stored_without_what_can_be_told_from_the_rest() -> None:
    golden, goes_in = made(LINEAR)
    stored = tensors_of(name_of(run(LINEAR)), golden)
    assert not any(name.endswith("/upper") for name in stored)
    assert entry_of(name_of(run(LINEAR)), golden, goes_in)["ties"] == golden.ties
