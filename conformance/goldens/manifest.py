"""The stored form of a golden: its tensors, its manifest entry, and the digests of its inputs and outputs.

`golden/` holds one safetensors file for each pattern, and MANIFEST.json with one line for each golden.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from conformance.models.build import Subject
from conformance.oracle.scheme import Grid, Scheme

from .golden import DTYPES, Expected, Golden

MANIFEST = "MANIFEST.json"
FORMAT = 1
"""Version of the manifest's format."""


ENTRY = ("in", "out", "elements", "ties", "outputs", "qparams")
"""The fields of an entry."""


def file_of(name: str) -> str:
    """Return the name of the file that stores a golden."""
    return re.sub(r"[^\w.+-]", "_", name.partition("/")[0]) + ".safetensors"


def _update(digest: Any, label: str, tensor: Tensor) -> None:
    digest.update(f"{label} {tensor.dtype} {tuple(tensor.shape)} ".encode())
    digest.update(tensor.detach().contiguous().numpy().tobytes())


OBSERVERS = ("fake_quant", "activation_post_process", "num_batches_tracked")
"""Parts of names of buffers that do not belong to the model. They differ between versions of torch."""


IDENTITY: Mapping[type, tuple[str, ...]] = {
    Scheme: ("kind", "activation", "weight", "half", "shares", "fused", "others", "qat"),
    Grid: ("dtype", "low", "high", "zero_point", "floor", "axis", "fixed"),
}
"""The fields of a scheme of which digests are. What the others say, the source of the model says too."""


def identity(part: object) -> str:
    """The text of a scheme, or of a part of it, of which digests are."""
    if type(part) not in IDENTITY:
        return repr(part)
    stated = (f"{name}={identity(getattr(part, name))}" for name in IDENTITY[type(part)])
    return f"{type(part).__name__}({', '.join(stated)})"


def input_digest(subject: Subject) -> str:
    """Return the digest of a computation's inputs: source, parameters and buffers of the model, data, and scheme."""
    digest = hashlib.blake2b(digest_size=8)
    scheme = subject.run.recipe.scheme
    if next(subject.model.parameters(), None) is None:
        scheme = replace(scheme, weight=None)  # some configs declare a weight dtype for operators that have no weight
    digest.update(f"{subject.run.model.source} {identity(scheme)}".encode())
    for name, tensor in (*subject.model.named_parameters(), *subject.model.named_buffers()):
        if not any(part in name for part in OBSERVERS):
            _update(digest, name, tensor)
    for number, tensor in enumerate((*subject.calibration, *subject.inputs)):
        _update(digest, f"input {number}", tensor)
    return digest.hexdigest()


def tensors_of(name: str, golden: Golden) -> dict[str, Tensor]:
    """Return the tensors that are stored for a golden, by label.

    Of the upper codes only those at ties are stored, and those only if they are not the lower code plus one.
    """
    label = name.partition("/")[2]
    stored: dict[str, Tensor] = {}
    for number, output in enumerate(golden.outputs):
        stored[f"{label}/{number}"] = output.low.contiguous()
        ties = (output.low != output.high).flatten().nonzero().flatten()
        if ties.numel():
            stored[f"{label}/{number}/ties"] = ties.short() if output.low.numel() < 2**15 else ties.int()
            upper, low = output.high.flatten()[ties], output.low.flatten()[ties]
            if not torch.equal(upper, low + 1):  # a tie of a previous operator widens the range
                stored[f"{label}/{number}/upper"] = upper.contiguous()
    if golden.qparams:
        pairs = [torch.stack(pair, 1) for pair in golden.qparams.values()]
        stored[f"{label}/qparams"] = torch.cat(pairs)
    return stored


def output_digest(stored: Mapping[str, Tensor], entry: Mapping[str, Any]) -> str:
    """Return the digest of a golden's stored tensors and of their names in the manifest entry."""
    digest = hashlib.blake2b(digest_size=8)
    digest.update(json.dumps([entry["outputs"], entry["qparams"]]).encode())
    for label in sorted(stored):
        _update(digest, label, stored[label])
    return digest.hexdigest()


def entry_of(name: str, golden: Golden, digest: str) -> dict[str, Any]:
    """Return the manifest entry of a golden. `digest` is its `input_digest`."""
    entry: dict[str, Any] = {
        "in": digest,
        "out": "",
        "elements": golden.elements,
        "ties": golden.ties,
        "outputs": list(golden.names),
        "qparams": {label: scale.numel() for label, (scale, _) in golden.qparams.items()},
    }
    entry["out"] = output_digest(tensors_of(name, golden), entry)
    return entry


def golden_from(name: str, stored: Mapping[str, Tensor], entry: Mapping[str, Any]) -> Golden:
    """Return the golden of stored tensors and a manifest entry, the inverse of `tensors_of` and `entry_of`."""
    label = name.partition("/")[2]
    qparams: dict[str, tuple[Tensor, Tensor]] = {}
    start = 0
    for qparams_name, count in entry["qparams"].items():
        scale, zero_point = stored[f"{label}/qparams"][start : start + count].unbind(1)
        qparams[qparams_name] = (scale, zero_point)
        start += count
    outputs = []
    for number, qparams_name in enumerate(entry["outputs"]):
        high = low = stored[f"{label}/{number}"]
        ties = stored.get(f"{label}/{number}/ties")
        if ties is not None:
            high = low.flatten().clone()
            high[ties.long()] = stored.get(f"{label}/{number}/upper", high[ties.long()] + 1)
            high = high.reshape(low.shape)
        if qparams_name == "float":
            outputs.append(Expected(low, high))
            continue
        scale, zero_point = qparams[qparams_name]
        outputs.append(Expected(low, high, float(scale), int(zero_point), DTYPES[low.dtype]))
    return Golden(tuple(outputs), tuple(entry["outputs"]), qparams)
