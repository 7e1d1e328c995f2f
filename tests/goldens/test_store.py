"""Stored goldens are deterministic, and missing, stale and damaged ones are refused."""

import copy
import dataclasses
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from conformance.cases.claims import backend
from conformance.cases.runs import runs
from conformance.goldens.golden import Expected, Golden, difference, name_of
from conformance.goldens.manifest import MANIFEST, entry_of, file_of, identity, input_digest, tensors_of
from conformance.goldens.store import GoldenError, Store
from conformance.models.build import Subject, subject
from conformance.paths import GOLDEN
from tests.goldens.golden_runs import (
    DYNAMIC,
    LINEAR,
    PER_CHANNEL,
    RELU,
    change_code,
    computed,
    damage,
    stored_label,
)
from tests.runs_by_id import run

LIMIT = 18_000_000
"""Bytes that all stored goldens together may have."""


@pytest.mark.parametrize("name", [LINEAR, PER_CHANNEL, RELU, DYNAMIC])
def test_a_golden_is_read_as_it_was_written(store: Store, name: str) -> None:
    golden, _ = computed(name)
    read = store.find(subject(run(name)))
    assert [*difference(golden, read)] == []
    for written, output in zip(golden.outputs, read.outputs, strict=True):
        assert torch.equal(written.low, output.low)
        assert torch.equal(written.high, output.high)
        assert (written.scale, written.zero_point, written.dtype) == (output.scale, output.zero_point, output.dtype)


def test_lower_and_upper_codes_are_stored(tmp_path: Path) -> None:
    low = torch.tensor([[1, 2], [3, 4]], dtype=torch.uint8)
    high = low + torch.tensor([[0, 1], [0, 3]], dtype=torch.uint8)
    scale = torch.tensor([0.5], dtype=torch.float64)
    golden = Golden((Expected(low, high, 0.5, 7, "quint8"),), ("output",), {"output": (scale, scale * 14)})
    folder = Store(tmp_path / "golden")
    folder.write({"p/q": (golden, "digest")})
    (output,) = Store(tmp_path / "golden").read("p/q").outputs
    assert torch.equal(output.low, low)
    assert torch.equal(output.high, high)
    assert (golden.elements, golden.ties) == (4, 2)


def test_files_of_the_same_goldens_are_identical(store: Store, tmp_path: Path) -> None:
    again = Store(tmp_path / "again")
    again.write({name_of(run(name)): computed(name) for name in (DYNAMIC, RELU, PER_CHANNEL, LINEAR)})
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


def test_engines_and_backends_with_the_same_computation_share_a_golden() -> None:
    names = {name_of(run(LINEAR.replace("@fbgemm", f"@{name}"))) for name in ("fbgemm", "x86")}
    assert len(names) == 1
    onednn = "onednn/nn.ReLU/static-quint8/ptq/default/exact@onednn"
    qnnpack = "qnnpack/nn.ReLU/static-quint8/ptq/default/exact@qnnpack"
    assert (
        name_of(run(onednn)) == name_of(run(qnnpack)) != name_of(run(onednn.replace("onednn/", "fbgemm/")[:-6] + "x86"))
    )
    assert input_digest(subject(run(onednn))) == input_digest(subject(run(qnnpack)))


def test_a_digest_is_of_the_stated_fields_of_a_scheme() -> None:
    scheme = subject(run("qnnpack/nn.Linear/static-quint8/ptq/default/exact@qnnpack")).run.recipe.scheme
    assert identity(scheme) == (
        "Scheme(kind='static', "
        "activation=Grid(dtype='quint8', low=0, high=255, zero_point='affine', floor=None, axis=None, fixed=None), "
        "weight=Grid(dtype='qint8', low=-128, high=127, zero_point='symmetric', floor=None, axis=None, fixed=None), "
        "half=False, shares=(), fused=False, others=None, qat=False)"
    )
    assert identity(dataclasses.replace(scheme, applications=2)) == identity(
        scheme
    )  # which the source of the model says
    assert identity(dataclasses.replace(scheme, qat=True)) != identity(scheme)


def test_the_stored_goldens_are_complete_and_small() -> None:
    listed = set(Store().manifest)
    needed = {
        name_of(run)
        for name in ("qnnpack", "fbgemm", "onednn")
        for run in runs(backend(name))
        if run.variant is not None and run.profile == "exact"
    }
    impossible = re.compile(r"Tensor\.hardsigmoid|.*float16/qat|nniqat\.ConvBn.*/padding_same/")
    assert not {name for name in needed - listed if not impossible.match(name)}
    assert sum(path.stat().st_size for path in GOLDEN.iterdir()) < LIMIT
    assert {path.name for path in GOLDEN.iterdir()} == {MANIFEST, *Store().files}


def changed(subject: Subject, part: str) -> Subject:
    model = copy.deepcopy(subject.model)
    if part == "weight":
        with torch.no_grad():
            next(model.parameters()).flatten()[3] += 2.0**-20
        return dataclasses.replace(subject, model=model)
    if part == "calibration":
        return dataclasses.replace(subject, calibration=(subject.calibration[0] + 1,))
    if part == "inputs":
        return dataclasses.replace(subject, inputs=(subject.inputs[0] + 1,))
    run = copy.copy(subject.run)
    recipe = subject.run.recipe
    if part == "recipe":
        run.__dict__["recipe"] = dataclasses.replace(recipe, scheme=dataclasses.replace(recipe.scheme, qat=True))
    else:
        run.__dict__["model"] = dataclasses.replace(subject.run.model, forward=("return self.op(x) + 1",))
    return dataclasses.replace(subject, run=run)


@pytest.mark.parametrize("part", ["weight", "calibration", "inputs", "recipe", "source"])
def test_a_golden_with_changed_inputs_is_stale(store: Store, part: str) -> None:
    stale = changed(subject(run(LINEAR)), part)
    with pytest.raises(GoldenError, match=r"is stale: .*python -m conformance golden update --case"):
        store.find(stale)


def test_a_missing_golden_names_the_command(store: Store) -> None:
    unstored = subject(run("fbgemm/nn.ReLU/static-quint8/ptq/default/exact@fbgemm"))
    with pytest.raises(GoldenError, match=r"is missing: run `python -m conformance golden update --case '\*/nn\.ReLU/"):
        store.find(unstored)


def test_without_a_folder_every_golden_is_missing(tmp_path: Path) -> None:
    with pytest.raises(GoldenError, match="is missing"):
        Store(tmp_path / "nothing").find(subject(run(LINEAR)))


def last_bit(stored: dict[str, Tensor]) -> None:
    pairs = stored[stored_label(stored, "/qparams")]
    pairs[2, 0] = torch.nextafter(pairs[2, 0], torch.tensor(9.0, dtype=torch.float64))


def zero_point(stored: dict[str, Tensor]) -> None:
    stored[stored_label(stored, "/qparams")][2, 1] += 1


@pytest.mark.parametrize("change", [change_code, last_bit, zero_point])
def test_a_golden_with_a_wrong_digest_is_damaged(store: Store, change: Callable[..., None]) -> None:
    damage(store, change)
    with pytest.raises(GoldenError, match=r"is damaged: .*restore both from version control, or run"):
        store.find(subject(run(LINEAR)))


def test_a_truncated_file_is_damaged(store: Store) -> None:
    path = store.folder / file_of(name_of(run(LINEAR)))
    path.write_bytes(path.read_bytes()[:-7])
    with pytest.raises(GoldenError, match="is damaged"):
        store.find(subject(run(LINEAR)))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not readable"),
        ('{"format": 99, "goldens": {}}', "format 99, not 1"),
        ("[]", "not readable"),
        ("[" * 100_000, "nested too deeply"),
        ('{"format": 1, "goldens": []}', "not readable"),
        ('{"format": 1, "goldens": {"nn.Linear": null}}', "not readable"),
        (
            '{"format": 1, "goldens": {"nn.Linear": {"in": "", "elements": 1}}}',
            "the entry of nn.Linear has no out, ties,",
        ),
    ],
)
def test_an_unusable_manifest_is_refused(store: Store, text: str, message: str) -> None:
    (store.folder / MANIFEST).write_text(text)
    with pytest.raises(GoldenError, match=message):
        store.find(subject(run(LINEAR)))


def test_values_behind_a_tie_are_read_as_they_were_written(tmp_path: Path) -> None:
    low, high = torch.tensor([1.0, 7.5, 2.0]), torch.tensor([1.0, 8.0, 3.0])
    name = name_of(run(LINEAR))
    store = Store(tmp_path / "golden")
    store.write({name: (Golden((Expected(low, high),), ("float",)), "0" * 16)})
    (output,) = store.read(name).outputs
    assert torch.equal(output.low, low)
    assert torch.equal(output.high, high)


def test_upper_codes_are_stored_only_where_they_are_not_the_next_code() -> None:
    golden, digest = computed(LINEAR)
    stored = tensors_of(name_of(run(LINEAR)), golden)
    assert not any(name.endswith("/upper") for name in stored)
    assert entry_of(name_of(run(LINEAR)), golden, digest)["ties"] == golden.ties
