"""Faults of stored goldens: files that are damaged, and files that are forged consistently. Each is made in a copy."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from conformance.execution import batch
from conformance.goldens.golden import Golden, name_of
from conformance.goldens.manifest import MANIFEST, file_of
from conformance.goldens.regenerate import Recomputed, check, recompute
from conformance.goldens.store import GoldenError, Store

from . import fault
from .fault import Alarms, Fault, alarms_of, case, run

LINEAR, PER_CHANNEL = case("nn.Linear"), case("nn.Linear", "per_channel")
TIED = case("nn.AvgPool2d")
FLOAT = case("nn.Linear", dtypes="dynamic-quint8", backend="qnnpack")
NORMED = case("nn.Linear+nn.BatchNorm1d", "per_channel")
RUNS = (LINEAR, PER_CHANNEL, TIED, FLOAT, NORMED)
STORED = fault.SELECTION.store


@cache
def recomputed() -> Recomputed:
    batch.warm_up()  # multithreaded computation must come before the first fork
    return recompute(map(run, RUNS))


@cache
def names() -> dict[str, str]:
    """Names of goldens by run id."""
    return {run_id: name_of(run(run_id)) for run_id in RUNS}


def stored(folder: Path, goldens: Recomputed) -> Store:
    Store(folder / "golden").write(goldens)
    return Store(folder / "golden")


def alarms_with(store: Store, runs: tuple[str, ...] = RUNS) -> Alarms:
    """The alarms of runs that use a store, and of the comparison of the store with recomputed goldens."""
    try:
        wrong = bool([*check(store, recomputed(), whole=True)])
    except GoldenError:
        wrong = True
    return alarms_of([run(run_id) for run_id in runs], store) | ({"golden"} if wrong else set())


def golden(name: str, caught: str, change: Callable[[Path], object], survives: str = "") -> Fault:
    """A fault of the files, which `change(folder)` makes."""

    def alarms(folder: Path) -> Alarms:
        change(stored(folder, recomputed()).folder)
        return alarms_with(Store(folder / "golden"))

    return Fault("goldens", name, caught, alarms, RUNS, survives)


def forged(name: str, caught: str, run_id: str, change: Callable[[Golden], Golden], survives: str = "") -> Fault:
    """A false golden whose digests in the manifest are correct."""

    def alarms(folder: Path) -> Alarms:
        goldens = dict(recomputed())
        golden, digest = goldens[names()[run_id]]
        goldens[names()[run_id]] = (change(golden), digest)
        return alarms_with(stored(folder, goldens), (run_id,))

    return Fault("goldens", name, caught, alarms, (run_id,), survives)


def tensors(run_id: str, ending: str, change: Callable[[Tensor], Tensor | None]) -> Callable[[Path], None]:
    """Change a stored tensor, or remove it if `change` returns None. The manifest stays."""

    def changed(folder: Path) -> None:
        path = folder / file_of(names()[run_id])
        tensors, name = load_file(path), names()[run_id].partition("/")[2] + ending
        new = change(tensors.pop(name).clone())
        save_file(tensors if new is None else {**tensors, name: new}, path)

    return changed


def manifest(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    """Change the entries of the manifest."""

    def changed(folder: Path) -> None:
        document = json.loads((folder / MANIFEST).read_text())
        change(document["goldens"])
        (folder / MANIFEST).write_text(json.dumps(document))

    return changed


def text(name: str, change: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    def changed(folder: Path) -> None:
        path = folder / (name or file_of(names()[LINEAR]))
        path.write_bytes(change(path.read_bytes()))

    return changed


def one_up(x: Tensor) -> Tensor:
    x.view(-1)[3] += 1
    return x


def next_up(x: Tensor) -> Tensor:
    x[-1, 0] = torch.nextafter(x[-1, 0], torch.tensor(9.0, dtype=torch.float64))
    return x


def exchanged(goldens: dict[str, Any]) -> None:
    per_tensor, per_channel = names()[LINEAR], names()[PER_CHANNEL]
    goldens[per_tensor], goldens[per_channel] = goldens[per_channel], goldens[per_tensor]


def with_output(**fields: Callable[[Any], Any]) -> Callable[[Golden], Golden]:
    def change(golden: Golden) -> Golden:
        first, *others = golden.outputs
        new = {field: function(getattr(first, field)) for field, function in fields.items()}
        return replace(golden, outputs=(replace(first, **new), *others))

    return change


def with_qparams(name: str, change: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]) -> Callable[[Golden], Golden]:
    return lambda golden: replace(golden, qparams={**golden.qparams, name: change(*golden.qparams[name])})


def flipped_bit(x: Tensor) -> Tensor:
    x = x.clone()
    x.view(-1)[7] ^= 1
    return x


def without_ties(golden: Golden) -> Golden:
    first = golden.outputs[0]
    return replace(golden, outputs=(replace(first, low=first.code, high=first.code),))


def tied_everywhere(golden: Golden) -> Golden:
    first = golden.outputs[0]
    return replace(golden, outputs=(replace(first, high=first.low + 1),))


def with_two_outputs(golden: Golden) -> Golden:
    shifted = with_output(low=Tensor.clone, high=Tensor.clone)(golden)
    return replace(golden, outputs=(*golden.outputs, *shifted.outputs), names=golden.names * 2)


FAULTS = [
    golden("a code is one up", "golden", tensors(LINEAR, "/0", one_up)),
    golden("a scale is an ulp up", "golden", tensors(LINEAR, "/qparams", next_up)),
    golden("a tie belongs to another element", "golden", tensors(TIED, "/0/ties", one_up)),
    golden("ties are missing", "golden", tensors(TIED, "/0/ties", lambda x: None)),
    golden("a tensor is missing", "golden", tensors(LINEAR, "/0", lambda x: None)),
    golden("a tensor has another shape", "golden", tensors(LINEAR, "/0", lambda x: x.flatten())),
    golden("a file is truncated", "golden", text("", lambda data: data[:-7])),
    golden("a file is empty", "golden", text("", lambda data: b"")),
    golden(
        "a byte of a file is changed", "golden", text("", lambda data: data[:-3] + bytes([data[-3] ^ 1]) + data[-2:])
    ),
    golden("a file is missing", "golden", lambda folder: (folder / file_of(names()[LINEAR])).unlink()),
    golden(
        "a file belongs to another pattern",
        "golden",
        lambda folder: shutil.copy(folder / file_of(names()[TIED]), folder / file_of(names()[LINEAR])),
    ),
    golden("an extra file", "golden", lambda folder: (folder / "left.safetensors").write_bytes(b"")),
    golden("the manifest is missing", "golden", lambda folder: (folder / MANIFEST).unlink()),
    golden("the manifest is not JSON", "golden", text(MANIFEST, lambda data: data[:-4])),
    golden(
        "the manifest has another format",
        "golden",
        text(MANIFEST, lambda data: data.replace(b'"format": 1', b'"format": 2')),
    ),
    golden("an entry is missing", "golden", manifest(lambda goldens: goldens.pop(names()[LINEAR]))),
    golden(
        "an extra entry",
        "golden",
        manifest(lambda goldens: goldens.update({"nn.Linear/left": goldens[names()[LINEAR]]})),
    ),
    golden("two entries are exchanged", "golden", manifest(exchanged)),
    golden(
        "an input digest is wrong",
        "golden",
        manifest(lambda goldens: goldens[names()[LINEAR]].update({"in": "0" * 16})),
    ),
    golden(
        "an output digest is wrong",
        "golden",
        manifest(lambda goldens: goldens[names()[LINEAR]].update(out="0" * 16)),
    ),
    golden("a count is changed", "golden", manifest(lambda goldens: goldens[names()[LINEAR]].update(ties=99))),
    golden(
        "an output has another name", "golden", manifest(lambda goldens: goldens[names()[LINEAR]].update(outputs=["x"]))
    ),
    golden("the folder is missing", "golden", shutil.rmtree),
    forged(
        "forged: a code is one off", "golden numerics reference", LINEAR, with_output(low=flipped_bit, high=flipped_bit)
    ),
    forged(
        "forged: all codes are one up",
        "golden numerics reference",
        LINEAR,
        with_output(low=lambda x: x + 1, high=lambda x: x + 1),
    ),
    forged(
        "forged: codes are those of another golden",
        "golden numerics reference",
        LINEAR,
        lambda golden: recomputed()[names()[NORMED]][0],
    ),
    forged(
        "forged: low and high are exchanged",
        "golden numerics reference",
        TIED,
        lambda golden: replace(
            golden, outputs=(replace(golden.outputs[0], low=golden.outputs[0].high, high=golden.outputs[0].low),)
        ),
    ),
    forged("forged: ties are resolved", "golden", TIED, without_ties),
    forged("forged: every element is a tie", "golden", LINEAR, tied_everywhere),
    forged(
        "forged: a scale of the output is an ulp up",
        "golden numerics reference",
        LINEAR,
        with_qparams("output", lambda scale, zero_point: (scale * (1 + 2.0**-52), zero_point)),
    ),
    forged(
        "forged: a zero point is one up",
        "golden numerics reference",
        LINEAR,
        with_qparams("output", lambda scale, zero_point: (scale, zero_point + 1)),
    ),
    forged(
        "forged: a scale of the weight is an ulp up",
        "golden reference",
        LINEAR,
        with_qparams("weight", lambda scale, zero_point: (scale * (1 + 2.0**-52), zero_point)),
    ),
    forged(
        "forged: scales of channels are in reverse order",
        "golden reference",
        NORMED,
        with_qparams("weight", lambda scale, zero_point: (scale.flip(0), zero_point)),
    ),
    forged(
        "forged: a zero point of the input is one down",
        "golden reference",
        LINEAR,
        with_qparams("x", lambda scale, zero_point: (scale, zero_point - 1)),
    ),
    forged(
        "forged: a float value is a thousandth off",
        "golden numerics reference",
        FLOAT,
        with_output(low=lambda x: x * 1.001, high=lambda x: x * 1.001),
    ),
    forged(
        "forged: the output has another shape",
        "golden numerics reference",
        LINEAR,
        with_output(low=lambda x: x[:1], high=lambda x: x[:1]),
    ),
    forged("forged: an extra output", "golden numerics reference", LINEAR, with_two_outputs),
]
