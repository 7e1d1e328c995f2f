"""The stored form of a golden: its tensors, its manifest entry, and digests of inputs and outputs."""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from conformance.models.build import Subject

from .golden import DTYPES, Expected, Golden

MANIFEST = "MANIFEST.json"


FORMAT = 1


def file_of(name: str) -> str:
    """The file of a golden."""
    return re.sub(r"[^\w.+-]", "_", name.partition("/")[0]) + ".safetensors"


def _update(digest: Any, label: str, tensor: Tensor) -> None:
    digest.update(f"{label} {tensor.dtype} {tuple(tensor.shape)} ".encode())
    digest.update(tensor.detach().contiguous().numpy().tobytes())


OBSERVERS = ("fake_quant", "activation_post_process", "num_batches_tracked")
"""Parts of names of buffers that say nothing of the model: torch versions differ in them."""


def digest_in(given: Subject) -> str:
    """Digest of what goes in: the model's source, parameters and statistics, the data, and the scheme."""
    digest = hashlib.blake2b(digest_size=8)
    scheme = given.run.recipe.scheme
    if next(given.model.parameters(), None) is None:
        scheme = replace(scheme, weight=None)  # some configs declare a weight dtype for operators that have no weight
    digest.update(f"{given.run.model.source} {scheme}".encode())
    for name, tensor in (*given.model.named_parameters(), *given.model.named_buffers()):
        if not any(part in name for part in OBSERVERS):
            _update(digest, name, tensor)
    for number, tensor in enumerate((*given.calibration, *given.inputs)):
        _update(digest, f"input {number}", tensor)
    return digest.hexdigest()


def tensors_of(name: str, golden: Golden) -> dict[str, Tensor]:
    """A golden as the tensors that are stored of it."""
    label = name.partition("/")[2]
    stored: dict[str, Tensor] = {}
    for number, output in enumerate(golden.outputs):
        stored[f"{label}/{number}"] = output.low.contiguous()
        ties = (output.low != output.high).flatten().nonzero().flatten()
        if ties.numel():
            stored[f"{label}/{number}/ties"] = ties.short() if output.low.numel() < 2**15 else ties.int()
            upper, low = output.high.flatten()[ties], output.low.flatten()[ties]
            if not torch.equal(upper.int(), low.int() + 1):  # ties of an operator before widen what may follow
                stored[f"{label}/{number}/upper"] = upper.contiguous()
    if golden.qparams:
        pairs = [torch.stack(pair, 1) for pair in golden.qparams.values()]
        stored[f"{label}/qparams"] = torch.cat(pairs)
    return stored


def digest_out(stored: Mapping[str, Tensor], entry: Mapping[str, Any]) -> str:
    """Digest of what comes out: the stored tensors and the names that the manifest gives them."""
    digest = hashlib.blake2b(digest_size=8)
    digest.update(json.dumps([entry["outputs"], entry["qparams"]]).encode())
    for label in sorted(stored):
        _update(digest, label, stored[label])
    return digest.hexdigest()


def entry_of(name: str, golden: Golden, goes_in: str) -> dict[str, Any]:
    """A golden's line in the manifest."""
    entry: dict[str, Any] = {
        "in": goes_in,
        "out": "",
        "elements": golden.elements,
        "ties": golden.ties,
        "outputs": list(golden.names),
        "qparams": {label: scale.numel() for label, (scale, _) in golden.qparams.items()},
    }
    entry["out"] = digest_out(tensors_of(name, golden), entry)
    return entry


def _golden_from(name: str, stored: Mapping[str, Tensor], entry: Mapping[str, Any]) -> Golden:
    label = name.partition("/")[2]
    qparams: dict[str, tuple[Tensor, Tensor]] = {}
    start = 0
    for each, count in entry["qparams"].items():
        scale, zero_point = stored[f"{label}/qparams"][start : start + count].unbind(1)
        qparams[each] = (scale, zero_point)
        start += count
    outputs = []
    for number, made in enumerate(entry["outputs"]):
        low = stored[f"{label}/{number}"]
        if made == "float":
            outputs.append(Expected(low, low))
            continue
        high = low
        ties = stored.get(f"{label}/{number}/ties")
        if ties is not None:
            high = low.flatten().clone()
            high[ties.long()] = stored.get(f"{label}/{number}/upper", high[ties.long()] + 1)
            high = high.reshape(low.shape)
        scale, zero_point = qparams[made]
        outputs.append(Expected(low, high, float(scale), int(zero_point), DTYPES[low.dtype]))
    return Golden(tuple(outputs), tuple(entry["outputs"]), qparams)
