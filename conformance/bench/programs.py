"""Programs of a network of the corpus, in a folder that the workers of an invocation share, because each pass has a new
process and conversion takes seconds."""

import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.ao.quantization import get_default_qconfig_mapping
from torch.fx import GraphModule

from conformance.audit.agreement import decibels
from conformance.audit.conversion import Converted, convert
from conformance.audit.network import Network, copied, tensors_of
from conformance.cases.claims import backend, third_party
from conformance.configs.engines import backend_of
from conformance.networks.operators import define_torchvision_operators
from conformance.networks.zoo import network as network_named
from conformance.results.codec import decode_fields

from . import footprint
from .layer_times import DescribedLayer, described
from .saved import TORCHSCRIPT, loaded, save
from .timings import CACHE, EAGER, FLOAT

SCRIPT = "torchscript"
"""The form of a model that was traced."""

TIMED, CHECKED = "timed", "checked"
"""Labels of the inputs that programs are timed and traced with, and of those by which they are checked."""

LEAST_DB = 40.0
"""SQNR in dB of a program's output beside that of the model it was made from, below which it computes something else. Other
orders of sums change single codes of a lowered model."""


class NotSaved(Exception):
    """A program that was saved, loaded or traced computes something else."""


@cache
def _own_folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="conformance-bench-")


def folder() -> Path:
    """The folder of programs of this build of torch. Those of another build may not load."""
    build = hashlib.sha256(f"{torch.__version__} {torch.__file__}".encode()).hexdigest()[:12]
    return Path(os.environ.get(CACHE) or _own_folder().name) / build


def written(path: Path, write: Callable[[Path], object]) -> Path:
    """Return a path after `write` has written the file, if there was none. It is written aside and renamed, so that other
    processes see all of it or nothing."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        aside = path.with_name(f"{os.getpid()}.{path.name}")
        write(aside)
        aside.replace(path)
    return path


def agree(program: Callable[..., Any], model: Callable[..., Any], inputs: Sequence[Tensor]) -> bool:
    """Whether a program computes what a model does, but for the order of sums."""
    got, expected = tensors_of(program(*copied(inputs))), tensors_of(model(*copied(inputs)))
    if [x.shape for x in got] != [x.shape for x in expected]:
        return False
    found = [decibels(x, y) for x, y in zip(got, expected, strict=True)]
    return all(agreement is None or agreement > LEAST_DB for agreement in found)


class Programs:
    """The models and programs of a network. Use those of an engine within its scope, without gradients.

    Raises UsageError if no network has the name or its package is not installed, Unconvertible if it cannot be lowered.
    """

    def __init__(self, name: str, backend_config: str | None = None) -> None:
        self.row, self.backend_config = network_named(name), backend_config
        define_torchvision_operators()  # what is loaded may import torchvision
        config = hashlib.sha256((backend_config or "").encode()).hexdigest()[:12] if backend_config else ""
        self.folder = folder() / f"{name}{config and '-'}{config}"

    def inputs(self, items: int, label: str = TIMED) -> tuple[Tensor, ...]:
        """Inputs of so many items."""
        named = enumerate(self.row.inputs)
        return tuple(data.batch(f"{self.row.name}/{label}/{number}", items) for number, data in named)

    @cached_property
    def floating(self) -> nn.Module:
        """The float model."""
        path = written(self._eager(FLOAT), lambda aside: save(self.row.build(), aside))
        model: nn.Module = loaded(path)
        return model

    def traced(self) -> GraphModule:
        """The float model as FX traced it. There is one as soon as the network was lowered for any engine."""
        model: GraphModule = loaded(self.folder / "traced.pt")
        return model

    def lowered(self, engine: str) -> GraphModule:
        """The lowered model. Raises NotSaved if it does not survive being saved."""
        path = self._eager(engine)
        if not path.exists():
            self._convert(engine)
        model: GraphModule = loaded(path)
        return model

    def layers(self, engine: str) -> list[DescribedLayer]:
        """The layers of the lowered model."""
        rows = json.loads((self.folder / f"layers@{engine}.json").read_text(encoding="utf-8"))
        return [decode_fields(DescribedLayer, row) for row in rows]

    def script(self, engine: str, items: int) -> Any:
        """The model traced with inputs of so many items, and frozen. Raises NotSaved if it computes something else."""
        eager = self.floating if engine == FLOAT else self.lowered(engine)

        def write(aside: Path) -> None:
            traced = torch.jit.trace(eager, self.inputs(items), check_trace=False)  # type: ignore[no-untyped-call]
            torch.jit.save(torch.jit.freeze(traced), aside)  # type: ignore[no-untyped-call]
            if not agree(loaded(aside), eager, self.inputs(items, CHECKED)):
                raise NotSaved("tracing changes the result")

        return loaded(written(self._script(engine, items), write))

    def footprint(self, form: str, engine: str, items: int) -> tuple[int, int] | None:
        """Bytes of peak memory and of the file of a program, which is made if there is none. None on systems without /proc.

        Raises NotSaved if it computes something else than the model it was made from.
        """
        if form == SCRIPT:
            self.script(engine, items)
            program = self._script(engine, items)
        else:
            program = self._eager(engine)
        inputs = written(self._batch(items) / "inputs.pt", lambda aside: torch.save(self.inputs(items), aside))
        modules = set() if form == SCRIPT else {type(module).__module__ for module in self.floating.modules()}

        def write(aside: Path) -> None:
            peak = footprint.peak(program, inputs, None if engine == FLOAT else engine, sorted(modules))
            aside.write_text(json.dumps(peak), encoding="utf-8")

        path = written(self._batch(items) / f"{form}@{engine}.json", write)
        peak = json.loads(path.read_text(encoding="utf-8"))
        return None if peak is None else (peak, program.stat().st_size)

    def _eager(self, engine: str) -> Path:
        return self.folder / f"{EAGER}@{engine}.pt"

    def _batch(self, items: int) -> Path:
        return self.folder / f"batch_{items}"

    def _script(self, engine: str, items: int) -> Path:
        return self._batch(items) / f"{SCRIPT}@{engine}{TORCHSCRIPT}"

    def _convert(self, engine: str) -> None:
        """Lower the network for an engine, and save the lowered and the traced model and the layers."""
        claims = third_party(self.backend_config) if self.backend_config else backend(backend_of(engine))
        network = Network(self.row.name, self.floating, tuple(self.row.batches()))
        converted = convert(network, claims, get_default_qconfig_mapping(engine), lambda stage: None)
        layers = json.dumps([asdict(layer) for layer in described(converted)])
        written(self.folder / f"layers@{engine}.json", lambda aside: aside.write_text(layers, encoding="utf-8"))
        traced = converted.matches.traced[-1]
        traced._tracer_cls = None  # loading would trace with the quantization's own tracer, which needs arguments
        written(self.folder / "traced.pt", lambda aside: save(traced, aside))
        written(self._eager(engine), lambda aside: _save_lowered(converted, aside))


def _save_lowered(converted: Converted, path: Path) -> None:
    """Save a lowered model. Raises NotSaved if what is loaded again computes something else."""
    lowered = converted.lowered
    lowered.meta = {}  # notes of the conversion, which no execution needs
    save(lowered, path)
    again = loaded(path)
    held_out = converted.network.held_out
    pairs = zip(tensors_of(again(*copied(held_out))), tensors_of(lowered(*copied(held_out))), strict=True)
    if not all(torch.equal(x, y) for x, y in pairs):
        path.unlink()
        raise NotSaved("saving changes the result")
