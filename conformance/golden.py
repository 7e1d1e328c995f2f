"""Stored goldens: what the oracle said, with digests of what went in and of what came out.

A golden is named by what is computed: the case without its backend, and the range of its activations. Backends and engines
that compute the same share it. `golden/` holds one safetensors file for each pattern, and MANIFEST.json, which has a line
for each golden.
"""

import glob
import hashlib
import json
import os
import re
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from .cases import Run
from .errors import UsageError
from .oracle import Answer, Codes, Qparams, evaluate
from .pipeline import Subject
from .quantization import RANGES, dtype_name
from .scheme import ALWAYS, Grid
from .trace import Execution, qparams_of

GOLDEN = Path(__file__).parent.parent / "golden"
MANIFEST = "MANIFEST.json"
FORMAT = 1
STORED = {"quint8": torch.uint8, "qint8": torch.int8}
DTYPES = {stored: name for name, stored in STORED.items()}


class GoldenError(UsageError):
    """A golden cannot be used; the message says why and names the command that mends it."""


@dataclass(frozen=True, eq=False)
class Expected:
    """One output. Quantized: the code `low` and, at a tie, its other neighbour `high`, with scale and zero point.
    Float: `low` and `high` are its float32 values."""

    low: Tensor
    high: Tensor
    scale: float = 0.0
    zero_point: int = 0
    dtype: str = "float32"

    @property
    def quantized(self) -> bool:
        return self.dtype in STORED

    @property
    def code(self) -> Tensor:
        """The one code of each element that rounding half to even gives, or its float value."""
        return torch.where((self.low % 2 == 0) | (self.low == self.high), self.low, self.high)

    @property
    def values(self) -> Tensor:
        """Values in real units (float64)."""
        return (self.code.double() - self.zero_point) * self.scale if self.quantized else self.low.double()


@dataclass(frozen=True, eq=False)
class Golden:
    """What one computation has to give: its outputs with the names of their qparams (or `float`), and by name scales and
    zero points (float64, one or one for each index of an axis) of all that is quantized."""

    outputs: tuple[Expected, ...]
    names: tuple[str, ...]
    qparams: Mapping[str, tuple[Tensor, Tensor]] = field(default_factory=dict)

    @property
    def elements(self) -> int:
        return sum(output.low.numel() for output in self.outputs)

    @property
    def ties(self) -> int:
        return sum(int((output.low != output.high).sum()) for output in self.outputs)


def name_of(run: Run) -> str:
    """The name of what a run computes: its case without the backend, the codes that its activations have, and whether its
    output keeps the input's qparams, in which backends differ."""
    scheme = run.recipe.scheme
    grid = scheme.others or scheme.activation
    codes = f":{grid.low}..{grid.high}" if grid is not None else ""
    return f"{run.key}{codes}{'-shared' if scheme.shares == ALWAYS else ''}"


def file_of(name: str) -> str:
    """The file of a golden."""
    return re.sub(r"[^\w.+-]", "_", name.partition("/")[0]) + ".safetensors"


def golden_of(answer: Answer) -> Golden:
    """An oracle's answer as a golden."""
    outputs, names = [], []
    labels = {id(qparams): name for name, qparams in answer.qparams.items()}
    for output in answer.outputs:
        if isinstance(output, Codes):
            stored = STORED[output.qparams.grid.dtype]
            scale, zero_point = float(output.qparams.scale), int(output.qparams.zero_point)
            outputs.append(
                Expected(output.low.to(stored), output.high.to(stored), scale, zero_point, output.qparams.grid.dtype)
            )
            names.append(labels[id(output.qparams)])
        else:
            outputs.append(Expected(output.float(), output.float()))
            names.append("float")
    qparams = {name: (one.scale.double(), one.zero_point.double()) for name, one in answer.qparams.items()}
    return Golden(tuple(outputs), tuple(names), qparams)


def compute(given: Subject, qparams: Mapping[str, Qparams] | None = None) -> Answer:
    """Ask the oracle about a run. With `qparams` it takes those instead of choosing its own."""
    return evaluate(given.model, given.calibration, given.inputs, given.run.recipe.scheme, qparams)


def qparams_by_name(reference: nn.Module, execution: Execution, given: Subject) -> dict[str, Qparams]:
    """The qparams with which a reference model quantizes, by the names that `Answer.qparams` has."""
    parameters = {parameter.data_ptr() for parameter in (*reference.parameters(), *reference.buffers())}
    operands = dict(zip((name for name, _ in given.run.model.operands), given.inputs, strict=True))
    count: Counter[str] = Counter()
    found: dict[str, Qparams] = {}
    for taken, made in execution.quantized:
        if taken.data_ptr() in parameters and taken.numel():
            kind = "weight"
        else:
            kind = next((name for name, data in operands.items() if torch.equal(taken, data)), "output")
        count[kind] += 1
        name = f"{kind} {count[kind]}" if count[kind] > 1 and kind not in operands else kind
        scale, zero_point = qparams_of(made)
        axis = None if scale.numel() == 1 else made.q_per_channel_axis()
        grid = Grid(dtype_name(made.dtype), *RANGES[made.dtype], axis=axis)
        found[name] = Qparams(grid, scale.float(), zero_point)
    return found


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


@dataclass
class Store:
    """A folder of goldens. What is read of it stays in memory.

    Its properties raise GoldenError where the folder cannot be read, and `find` where a golden cannot be used.
    """

    folder: Path = GOLDEN
    _files: dict[str, dict[str, dict[str, Tensor]]] = field(default_factory=dict)

    @cached_property
    def manifest(self) -> dict[str, dict[str, Any]]:
        """The lines of MANIFEST.json by the goldens' names; none if there is no folder."""
        path = self.folder / MANIFEST
        if not path.exists():
            return {}
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
            if document["format"] != FORMAT:
                raise GoldenError(
                    f"{path}: format {document['format']!r}, not {FORMAT}: run `python -m conformance golden update`"
                )
            return dict(document["goldens"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise GoldenError(f"{path}: not readable: {error!r}: restore it from version control") from error

    @property
    def files(self) -> set[str]:
        """Names of the files that the manifest's goldens are in."""
        return {file_of(name) for name in self.manifest}

    def tensors(self, name: str) -> dict[str, Tensor]:
        """What is stored under a name, by label; nothing if there is no such golden."""
        file = file_of(name)
        if file not in self._files:
            by_label: dict[str, dict[str, Tensor]] = {}
            if (self.folder / file).exists():
                try:
                    loaded = load_file(self.folder / file)
                except (OSError, SafetensorError) as error:
                    raise GoldenError(
                        f"golden {self.folder / file} is damaged ({error}): restore it from version control, or run "
                        f"`python -m conformance golden update --case '*/{name.partition('/')[0]}/*'`"
                    ) from error
                for label, tensor in loaded.items():
                    kept = re.sub(r"/(\d+(/(ties|upper))?|qparams)$", "", label)
                    by_label.setdefault(kept, {})[label] = tensor
            self._files[file] = by_label
        return self._files[file].get(name.partition("/")[2], {})

    def preload(self, names: Iterable[str]) -> None:
        """Read the manifest and these goldens' files, so that forked children need not."""
        _ = self.manifest
        for name in names:
            self.tensors(name)

    def read(self, name: str) -> Golden:
        """Read a golden that the manifest lists. Raises GoldenError if what is stored is not what was written."""
        entry, stored = self.manifest[name], self.tensors(name)
        if digest_out(stored, entry) != entry["out"]:
            raise GoldenError(
                f"golden {name} is damaged: {self.folder / file_of(name)} does not hold what {MANIFEST} says: restore both "
                f"from version control, or run `{_command(name)}`"
            )
        return _golden_from(name, stored, entry)

    def find(self, given: Subject) -> Golden:
        """Return the golden of a run, or raise GoldenError: it is missing, stale or damaged."""
        name = name_of(given.run)
        entry = self.manifest.get(name)
        if entry is None:
            raise GoldenError(f"golden {name} is missing: run `{_command(name)}`")
        if entry["in"] != digest_in(given):
            raise GoldenError(
                f"golden {name} is stale: the model, its data or the recipe is no longer what it was computed from: run "
                f"`{_command(name)}`"
            )
        return self.read(name)

    def write(self, goldens: Mapping[str, tuple[Golden, str]]) -> None:
        """Replace the folder with these goldens and digests of what went in: written beside it, then renamed."""
        aside = self.folder.with_name(self.folder.name + ".partial")
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir(parents=True)
        files: dict[str, dict[str, Tensor]] = {}
        entries = {}
        for name in sorted(goldens):
            golden, goes_in = goldens[name]
            entries[name] = entry_of(name, golden, goes_in)
            files.setdefault(file_of(name), {}).update(tensors_of(name, golden))
        for file, stored in files.items():
            save_file(stored, aside / file)
        lines = ",\n".join(
            f"{json.dumps(name)}: {json.dumps(entry, separators=(',', ':'))}" for name, entry in entries.items()
        )
        (aside / MANIFEST).write_text(f'{{"format": {FORMAT}, "goldens": {{\n{lines}\n}}}}\n', encoding="utf-8")
        former = self.folder.with_name(self.folder.name + ".former")
        shutil.rmtree(former, ignore_errors=True)
        if self.folder.exists():
            os.rename(self.folder, former)
        os.rename(aside, self.folder)
        shutil.rmtree(former, ignore_errors=True)


def _command(name: str) -> str:
    return f"python -m conformance golden update --case '*/{glob.escape(name.partition(':')[0])}@*'"


def difference(one: Golden, other: Golden) -> Iterator[str]:
    """Yield in words how a golden differs from a former one."""
    if one.names != other.names:
        yield f"outputs {', '.join(one.names)} become {', '.join(other.names)}"
        return
    for label in dict.fromkeys([*one.qparams, *other.qparams]):
        before, after = one.qparams.get(label), other.qparams.get(label)
        if before is None or after is None:
            yield f"{label} is {'new' if before is None else 'gone'}"
            continue
        for what, was, is_now in zip(("scale", "zero point"), before, after, strict=True):
            if was.shape != is_now.shape or not torch.equal(was, is_now):
                yield f"{label} {what} {_few(was)} becomes {_few(is_now)}"
    for number, (was_output, now_output) in enumerate(zip(one.outputs, other.outputs, strict=True)):
        was, now = was_output.low, now_output.low
        if was.shape != now.shape or was.dtype != now.dtype:
            yield f"output {number} {was.dtype} {tuple(was.shape)} becomes {now.dtype} {tuple(now.shape)}"
            continue
        changed = (was != now) | (was_output.high != now_output.high)
        if bool(changed.any()):
            by = float((was.double() - now.double()).abs().max())
            unit = "steps" if now_output.quantized else "at most"
            yield f"output {number}: {int(changed.sum())} of {changed.numel()} elements change, {by:g} {unit}"


def _few(values: Tensor) -> str:
    shown = ", ".join(f"{value!r}" for value in values.tolist()[:4])
    return f"[{shown}{', …' if values.numel() > 4 else ''}]"
