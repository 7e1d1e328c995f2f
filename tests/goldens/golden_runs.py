"""Runs with goldens, and functions that damage or falsify their goldens."""

import dataclasses
from collections.abc import Callable

from safetensors.torch import load_file, save_file
from torch import Tensor

from conformance.goldens.golden import Golden, compute, golden_of, name_of
from conformance.goldens.manifest import file_of, input_digest
from conformance.goldens.store import Store
from conformance.models.build import subject
from tests.runs_by_id import run

LINEAR = "fbgemm/nn.Linear/static-quint8/ptq/default/exact@fbgemm"
PER_CHANNEL = "fbgemm/nn.Linear/static-quint8/ptq/per_channel/exact@fbgemm"
RELU = "fbgemm/nn.Linear+nn.ReLU/static-quint8/ptq/default/exact@fbgemm"
DYNAMIC = "fbgemm/nn.Linear/dynamic-quint8/ptq/default/exact@fbgemm"


def computed(run_id: str) -> tuple[Golden, str]:
    """The golden of a run and its input digest."""
    run_subject = subject(run(run_id))
    return golden_of(compute(run_subject)), input_digest(run_subject)


def damage(store: Store, change: Callable[[dict[str, Tensor]], None], run_id: str = LINEAR) -> None:
    """Change the file of a golden and leave the manifest as it is."""
    path = store.folder / file_of(name_of(run(run_id)))
    stored = load_file(path)
    change(stored)
    save_file(stored, path)


def stored_label(stored: dict[str, Tensor], end: str) -> str:
    """The label, with an ending, of a tensor of the variant `default`."""
    return next(name for name in stored if "static-quint8/ptq/default/" in name and name.endswith(end))


def change_code(stored: dict[str, Tensor]) -> None:
    stored[stored_label(stored, "/0")].view(-1)[5] += 1


def falsified(store: Store, run_id: str, change: Callable[[Golden], Golden]) -> Store:
    """Replace the store by one false golden, whose digests in the manifest are correct."""
    golden, digest = computed(run_id)
    store.write({name_of(run(run_id)): (change(golden), digest)})
    return Store(store.folder)


def with_output(golden: Golden, **fields: object) -> Golden:
    (output,) = golden.outputs
    return dataclasses.replace(golden, outputs=(dataclasses.replace(output, **fields),))  # type: ignore[arg-type]


def flip_bit(golden: Golden) -> Golden:
    low = golden.outputs[0].low.clone()
    low.view(-1)[7] ^= 1
    return with_output(golden, low=low, high=low)


def with_qparams(golden: Golden, name: str, change: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]) -> Golden:
    return dataclasses.replace(golden, qparams={**golden.qparams, name: change(*golden.qparams[name])})
