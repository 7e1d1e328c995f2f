"""Networks whose layers are replaced in place: which ones are, what these store, and what each gives for the inputs that it
gets in the network."""

import copy
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from conformance.cases.claims import BackendClaims
from conformance.cases.recipes import dtype_name
from conformance.checks.workflows import of_weight
from conformance.configs.names import pattern_name
from conformance.configs.workflows import Workflow
from conformance.engines.registry import engine as engine_named
from conformance.engines.workflows import EAGER, WorkflowEngine
from conformance.errors import Failure, brief
from conformance.models.workflows import Stored, interval, library, rounding_on, unit_of
from conformance.oracle.workflows import inputs as quantized_inputs
from conformance.results.audits import Agreement, Arithmetic, Audit, Fault, Layer
from conformance.results.findings import Finding
from conformance.results.findings.layers import LayerDiffers, LayerRaises, LayerShape
from conformance.results.findings.stages import Crashes

from .agreement import apart, decibels, joined
from .costs import time_ratio
from .isolated import Stage
from .network import Network, copied, extremes, tensors_of
from .options import options_of
from .stability import same

WHOLE = "the whole network"
"""What a child that dies in it has entered."""

PRODUCTS = ("aten._int_mm", "onednn.q")
"""How the names of kernels begin that multiply integers."""

COMPUTING = ("mm", "linear", "conv", "embedding")
"""Parts of the names of kernels that compute what a layer does, beside others that quantize and dequantize."""

FILTER = "quantize_ takes a filter_fn, and --quantize a function that calls it"
ASK = "quantize_ takes linear layers alone if no filter_fn names others"
IN_FLOAT = "the weight is stored as codes, and products are those of what these stand for, in float"
VECTOR = 16
"""Elements of a vector of bfloat16 with AVX-512."""


@dataclass
class _Call:
    """A call of a layer, its number among those of the layer, from 1, with its input and its output."""

    path: str
    turn: int
    x: Tensor
    y: Tensor


@dataclass(frozen=True)
class _Part:
    """A layer of a network, as an `op` of a module of its own."""

    floating: nn.Module
    quantized: nn.Module
    stored: Stored | None


class _Alone(nn.Module):
    """A module that calls one layer."""

    def __init__(self, op: nn.Module) -> None:
        super().__init__()
        self.op = op

    def forward(self, x: Tensor) -> Any:
        return self.op(x)


@dataclass
class Replaced:
    """The audit of a network, as a child does it: what quantizes it, the declared workflows of that by the class of modules,
    the claims of the library, and the least SQNR in dB of an output that is usable. `place` is the file that holds the layer
    it is in."""

    subject: Network
    quantizes: Callable[[nn.Module], object]
    declared: Mapping[type[nn.Module], Workflow]
    claims: BackendClaims
    floor_db: float
    crashed: Mapping[str, str]
    place: Path
    progress: Stage
    parts: dict[str, _Part] = field(default_factory=dict)
    engine: str = ""
    entered: str = ""

    def __call__(self, engine: str) -> Audit:
        torch.set_num_threads(1)
        self.engine = engine
        used = engine_named(engine)
        blank = Audit(self.subject.name, engine, self.claims.name, floor_db=self.floor_db)
        assert isinstance(used, WorkflowEngine)
        model = copy.deepcopy(self.subject.model)
        self._stage("quantize")
        try:
            self.quantizes(model)
        except Exception as error:
            return replace(
                blank,
                failure=f"quantize_ raises {brief(error)}",
                stage="prepare",
                advice=self._advice(),
                remarks=self._remarks(),
            )
        return replace(self._audited(used, model, blank), remarks=self._remarks())

    def _stage(self, name: str) -> None:
        self.progress(f"{self.engine}: {name}")

    def _remarks(self) -> tuple[str, ...]:
        return tuple(extremes(self.subject))

    def _advice(self) -> str:
        """The layers of which quantize_ raises alone, and what to do."""
        refused = []
        for path, layer in self._layers():
            try:
                self.quantizes(nn.Sequential(copy.deepcopy(layer)))
            except Exception:
                refused.append(path)
        return _leaving(refused)

    def _layers(self) -> Iterator[tuple[str, nn.Module]]:
        """Yield the path and module of each layer of the float network that the library has workflows for."""
        kinds = tuple({entry.pattern for entry in library(self.claims).workflows})
        for path, module in self.subject.model.named_modules():
            if isinstance(module, kinds):  # type: ignore[arg-type]
                yield path, module

    def _entry(self, layer: nn.Module) -> Workflow | None:
        """The workflow that declares what becomes of a layer, or None."""
        return next((entry for kind, entry in self.declared.items() if isinstance(layer, kind)), None)

    def _audited(self, used: WorkflowEngine, model: nn.Module, blank: Audit) -> Audit:
        for path, layer in self._layers():
            own = model.get_submodule(path)
            self.parts[path] = _Part(_Alone(layer), _Alone(own), Stored.of(own.get_parameter("weight")))
        self._stage("execute the network eagerly")
        try:
            outputs, calls = self._recorded(model)
        except Exception as error:
            where = f" in {self.entered}" if self.entered else ""
            failure, advice = f"the network raises {brief(error)}{where}", _leaving([self.entered])
            return replace(blank, failure=failure, stage="execute", advice=advice)
        float_output, in_float = self._recorded(self.subject.model)
        layers, reference = [*self._described(used, calls, in_float)], self._reference()
        result = replace(blank, layers=tuple(layers))
        if used is not EAGER:
            self._stage("compile the network")
            self.place.write_text(WHOLE)
            try:
                if WHOLE in self.crashed:
                    raise RuntimeError(f"the process dies ({self.crashed[WHOLE]})")
                program: Callable[..., Any] = used.compile(model, copied(self.subject.held_out))
                with torch.no_grad():
                    outputs = program(*copied(self.subject.held_out))
            except Exception as error:
                blamed = [layer.name for layer in layers if layer.blamed]
                return replace(
                    result, failure=f"the whole network raises {brief(error)}", stage="execute", advice=_leaving(blamed)
                )
        else:
            program = model
        self._stage("measure")
        with torch.no_grad():
            again = program(*copied(self.subject.held_out))
        got, exact = joined(outputs), joined(float_output)
        return replace(
            result,
            stability=(same("repeatable", tensors_of(outputs), tensors_of(again), "a second run"),),
            engine_db=decibels(got, exact),
            reference_db=decibels(joined(reference), exact),
            agreement_db=decibels(got, joined(reference)),
            outputs_db=tuple(apart(outputs, float_output)),
            time_ratio=time_ratio(lambda batch: program(*batch), self.subject.model, self.subject.held_out),
            size_ratio=_bytes(model) / _bytes(self.subject.model),
        )

    def _recorded(self, model: nn.Module) -> tuple[Any, list[_Call]]:
        """The outputs of the quantized network, and the calls of its layers in their order."""
        calls: list[_Call] = []
        turns: Counter[str] = Counter()
        self.entered = ""

        def entering(path: str) -> Callable[[nn.Module, tuple[Any, ...]], None]:
            def hook(_: nn.Module, __: tuple[Any, ...]) -> None:
                self.entered = path

            return hook

        def recorder(path: str) -> Callable[[nn.Module, tuple[Any, ...], Any], None]:
            def hook(_: nn.Module, taken: tuple[Any, ...], given: Any) -> None:
                if taken and isinstance(taken[0], Tensor) and isinstance(given, Tensor):
                    turns[path] += 1
                    calls.append(_Call(path, turns[path], taken[0].detach().clone(), given.detach().clone()))

            return hook

        with ExitStack() as stack, torch.no_grad():
            for path in self.parts:
                layer = model.get_submodule(path)
                stack.callback(layer.register_forward_pre_hook(entering(path)).remove)
                stack.callback(layer.register_forward_hook(recorder(path)).remove)
            return model(*copied(self.subject.held_out)), calls

    def _reference(self) -> Any:
        """What the float network gives with the values of the stored weights, and of inputs that each call quantizes."""
        model = copy.deepcopy(self.subject.model)
        for path, part in self.parts.items():
            layer = model.get_submodule(path)
            entry = self._entry(layer)
            if part.stored is None or entry is None:
                continue
            weight = layer.get_parameter("weight")
            values = part.stored.values(weight.detach(), entry.weight).to(weight.dtype)
            layer.weight = nn.Parameter(values, requires_grad=False)
            if entry.activation is not None:
                layer.register_forward_pre_hook(_quantizing(entry))
        with torch.no_grad():
            return model(*copied(self.subject.held_out))

    def _described(self, used: WorkflowEngine, calls: Sequence[_Call], in_float: Sequence[_Call]) -> Iterator[Layer]:
        """Yield each call of each layer, beside that of the float network, and each layer that is not called."""
        floats = {
            (call.path, call.turn): call for call in in_float
        }  # a network that chooses its layers by their values may call others
        for number, call in enumerate(calls, 1):
            self._stage(f"execute layer {number} of {len(calls)}")
            named = call.path if call.turn == 1 else f"{call.path} (call {call.turn})"
            beside = floats.get((call.path, call.turn))
            layer = replace(self._layer(used, call.path, call), name=named or "the network itself")
            yield layer if beside is None else replace(layer, cumulative_db=decibels(call.y, beside.y))
        called = {call.path for call in calls}
        for path in (path for path in self.parts if path not in called):
            layer = self._layer(used, path, None)
            yield replace(layer, notes=(*layer.notes, "the network does not call it: what it gives was not judged"))

    def _layer(self, used: WorkflowEngine, path: str, call: _Call | None) -> Layer:
        part = self.parts[path]
        layer = part.floating.get_submodule("op")
        weight, pattern = layer.get_parameter("weight").detach(), pattern_name(type(layer))
        entry, dtype = self._entry(layer), dtype_name(weight.dtype)
        features = {**options_of(layer), "dtype": dtype}
        result = Layer(path, pattern, None, Arithmetic.FLOAT, features=features, notes=self._notes(path))
        claim = None
        if entry is not None:
            features |= {"config": f"{entry.name}-{dtype}", "in_vectors": str(weight.shape[1] % VECTOR == 0)}
            claim = f"{self.claims.name}/{pattern}/{entry.name}-{dtype}"
        if part.stored is None:
            if (own := type(part.quantized.get_parameter("op.weight"))) is not nn.Parameter:
                note = (
                    f"its weight is a {own.__name__}, of which nothing is known: neither codes nor values were judged"
                )
                return replace(result, arithmetic=Arithmetic.NAME_ONLY, notes=(*result.notes, note))
            if isinstance(layer, nn.Linear) and entry is not None:
                return replace(result, claim=claim, reason="quantize_ leaves its weight as it is, without a word")
            return replace(result, reason="" if isinstance(layer, nn.Linear) else ASK)
        if entry is None:
            note = "no declared config is equal to its own: neither its codes nor its values were judged"
            return replace(result, arithmetic=Arithmetic.NAME_ONLY, notes=(*result.notes, note))
        error = rounding_on(entry.weight, dtype, weight[0].numel() if weight.dim() < 3 else weight.shape[1])
        faults = [Fault(one) for one in of_weight(weight, entry.weight, part.stored, error)]
        found = replace(result, arithmetic=Arithmetic.NAME_ONLY, reason=IN_FLOAT)
        if call is not None:
            found, of_values = self._judged(used, path, call, entry, found)
            faults += [Fault(one) for one in of_values]
        promised = entry.activation is not None and not entry.dequantizes
        if found.arithmetic is Arithmetic.INTEGER:
            found = replace(found, reason="")
        return replace(found, claim=claim if promised else None, faults=tuple(faults))

    def _judged(
        self, used: WorkflowEngine, path: str, call: _Call, entry: Workflow, layer: Layer
    ) -> tuple[Layer, list[Finding]]:
        """A layer with what a call of it gives on an engine, and the findings about that."""
        part, dtype = self.parts[path], dtype_name(call.x.dtype if call.x.is_floating_point() else call.y.dtype)
        assert part.stored is not None
        if path in self.crashed:
            return layer, [Crashes("crashes", self.crashed[path])]
        self.place.write_text(path)
        try:
            with torch.no_grad():
                execution = used.execute(used.compile(part.quantized, (call.x,)), (call.x.clone(),))
                plain = part.floating(call.x.clone())
        except Exception as error:
            failure = Failure.of(error)
            return layer, [LayerRaises("lowered", "execute", failure.exception, failure.message)]
        (got,), kernels = (one.values for one in execution.outputs), [one.name for one in execution.kernels]
        whole = any(name.startswith(PRODUCTS) for name in kernels)
        expected = interval(part.floating, call.x, entry, part.stored, unit_of(entry, dtype), None)
        described = replace(
            layer,
            arithmetic=Arithmetic.INTEGER if whole else Arithmetic.NAME_ONLY,
            kernels=tuple(dict.fromkeys(name for name in kernels if any(part in name for part in COMPUTING))),
            shape=tuple(got.shape),
        )
        if got.shape != expected.low.shape:
            return described, [LayerShape("numerics", tuple(got.shape), tuple(expected.low.shape))]
        wrong = int(expected.outside(got.double()).sum())
        described = replace(
            described,
            agreement=Agreement(total=got.numel(), off=wrong),
            local_db=decibels(got, (expected.low + expected.high) / 2),
            float_db=decibels(got, plain),
        )
        return described, [LayerDiffers("numerics", wrong, got.numel(), 0)] if wrong else []

    def _notes(self, path: str) -> tuple[str, ...]:
        """What quantize_ does to a weight that other modules share."""
        weight = self.subject.model.get_submodule(path).get_parameter("weight")
        others = [
            name
            for name, one in self.subject.model.named_parameters(remove_duplicate=False)
            if one is weight and name.rpartition(".")[0] != path
        ]
        if not others or self.parts[path].stored is None:
            return ()
        return (f"shares its weight with {', '.join(others)}, which quantize_ leaves in float: both are stored",)


def _leaving(names: Sequence[str]) -> str:
    """What to do about layers that raise, or nothing without any."""
    named = ", ".join(filter(None, names))
    return f"leave {named} out: {FILTER}" if named else ""


def _quantizing(entry: Workflow) -> Callable[[nn.Module, tuple[Any, ...]], tuple[Tensor]]:
    """A hook by which a float layer takes the values of its quantized inputs."""

    def hook(_: nn.Module, taken: tuple[Any, ...]) -> tuple[Tensor]:
        (x,) = taken
        assert entry.activation is not None
        found = quantized_inputs(x, entry.activation, 0.0, entry.fixed)
        return (found.low.to(x.dtype),)

    return hook


def _bytes(model: nn.Module) -> int:
    """The bytes of the parameters and buffers of a network, of a quantized weight those of what it stores."""
    tensors = {id(one): one for one in (*model.parameters(), *model.buffers())}
    total = 0
    for one in tensors.values():
        stored = vars(one) if Stored.of(one) is not None else {}
        total += sum(x.nbytes for x in tree_leaves(stored) if isinstance(x, Tensor)) or one.nbytes
    return total
