"""Overridden kernels: every call that an engine makes of a kernel goes through one handler, which may change its result."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import wraps
from typing import Any

import torch
from faults.kernels import Call, override
from torch import Tensor

from conformance.checks import stages
from conformance.models import fx
from conformance.properties.metamorphic import callables

from .effects import ACCUMULATORS, main, mutated, values_of, writes
from .facts import OUT, facts_of
from .mutant import Mutant

Handler = Callable[[str, Call, int], Any]
"""Makes a call and returns its result: takes the kernel's name, the call, and its number among the kernel's in the run."""

MOVES = re.compile(
    r"_?empty.*|q_.*|qscheme|int_repr|view|_reshape_alias|as_strided|clone|squeeze|unsqueeze|unfold|resize_|set_"
    r"|eq|equal|ge|gt|le|lt|ne|fill_|masked_fill_|_index_put_impl_"
)
"""Operators on quantized tensors that compute nothing, or whose results are not quantized."""

ON_FLOATS = (
    "aten::quantize_per_tensor",
    "aten::quantize_per_tensor.tensor_qparams",
    "aten::quantize_per_tensor_dynamic",
    "aten::quantized_lstm.input",
    "aten::quantized_gru.input",
)
"""Kernels of quantized models, outside of the namespace `quantized`, that take float tensors."""


OF_WORKFLOWS = (
    "aten::_int_mm",
    "aten::_int_mm.out",
    "aten::_weight_int8pack_mm",
    "aten::_weight_int4pack_mm_for_cpu",
    "quantized::int4mm_packed_weight_cpu",
    "torchao::choose_qparams_affine",
    "torchao::quantize_affine",
)
"""Kernels of modules that are quantized in place, on integers that are no quantized tensors."""


def kernels() -> Iterator[tuple[str, str]]:
    """Yield the full name and the dispatch key of every kernel that quantized models may call and that can be mutated."""
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    for name in sorted(torch._C._dispatch_get_all_op_names()):
        namespace, _, rest = name.partition("::")
        base, _, overload = rest.partition(".")
        if name in OF_WORKFLOWS:
            yield name, "CPU"
        if "out" in overload or base.endswith("_out") or namespace not in ("aten", "quantized"):
            continue
        if any(part in base for part in ("pack", "make_quantized", "rowwise_offsets", "int4mm")):
            continue
        if name in ON_FLOATS or (namespace == "quantized" and has(name, "CPU")):
            yield name, "CPU"
        elif not MOVES.fullmatch(base) and has(name, "QuantizedCPU"):
            yield name, "QuantizedCPU"


CONVERSIONS = (
    "aten.quantize_per_tensor",
    "aten.quantize_per_tensor.tensor_qparams",
    "aten.quantize_per_tensor_dynamic",
    "aten.dequantize.self",
)
"""Kernels that reference models and checks call too. One of these that is wrong is wrong everywhere."""


class Injection:
    """The state of all overridden kernels of a process.

    Calls go through `handler`, unless it is None, the call is made inside of another kernel, or it is not made by the engine
    and no conversion.
    """

    def __init__(self) -> None:
        self.handler: Handler | None = None
        self.inside = False
        self.suspended = 0
        self.counts: Counter[str] = Counter()
        self.installed = False

    def install(self) -> None:
        """Override every kernel of this process, which cannot be undone."""
        if self.installed:
            return
        self.installed = True
        for name, key in kernels():
            base, _, overload = name.partition("::")[2].partition(".")
            packet = getattr(getattr(torch.ops, name.partition("::")[0]), base)
            with suppress(RuntimeError):
                override(name, getattr(packet, overload or "default"), key, self._called(name))
        for owner, function in (
            *((fx, function) for function in ("prepare", "calibrate", "reference", "lower")),
            (stages, "execute"),  # of the reference model
            (callables, "execute"),
        ):
            setattr(owner, function, self.not_of_the_engine(getattr(owner, function)))

    def _called(self, name: str) -> Callable[[Call], Any]:
        short = name.replace("::", ".").removesuffix(".default")

        def kernel(call: Call) -> Any:
            if self.handler is None or self.inside or (self.suspended and short not in CONVERSIONS):
                return call.original()
            self.counts[short] += 1
            self.inside = True
            try:
                return self.handler(short, call, self.counts[short])
            finally:
                self.inside = False

        return kernel

    def not_of_the_engine(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A function of the suite that executes kernels too, with all but the conversions as they are."""

        @wraps(function)
        def suspended(*args: Any, **kwargs: Any) -> Any:
            with self.suspension():
                return function(*args, **kwargs)

        return suspended

    @contextmanager
    def suspension(self) -> Iterator[None]:
        self.suspended += 1
        try:
            yield
        finally:
            self.suspended -= 1

    @contextmanager
    def handling(self, handler: Handler | None) -> Iterator[None]:
        """Send the calls in this scope through a handler. Calls are counted from 1."""
        before, self.handler = self.handler, handler
        self.counts.clear()
        try:
            yield
        finally:
            self.handler = before


INJECTION = Injection()


def codes_before(call: Call) -> Tensor | None:
    """The codes of the first argument, which the call may overwrite, or None if it is not quantized."""
    first = call.arguments[call.names[0]]
    if isinstance(first, list | tuple) and first:
        first = first[0]
    return values_of(first).clone() if isinstance(first, Tensor) and first.is_quantized else None


def injecting(mutant: Mutant) -> Handler:
    """A handler by which one kernel computes as a mutant does."""

    def handler(name: str, call: Call, count: int) -> Any:
        if name != mutant.kernel or not mutant.meets(facts_of(call, count)):
            return call.original()
        before, again = codes_before(call), spared(call, observed=False)
        return mutated(mutant, again, call.original(), before)[0]

    return handler


@dataclass
class Sighting:
    """What calls have in common with a mutant: whether its kernel is called at all, which of its conditions some call fulfils
    (a bit for each), how many calls fulfil all of them, and how many elements it would change."""

    fulfilled: int = 0
    met: int = 0
    elements: int = 0

    def add(self, other: "Sighting") -> None:
        self.fulfilled |= other.fulfilled
        self.met += other.met
        self.elements += other.elements


Sightings = dict[str, Sighting]
"""Sightings of mutants, by id, whose kernels are called."""


def observing(mutants: Iterable[Mutant], sightings: Sightings) -> Handler:
    """A handler that changes nothing, and records what each mutant would change in the results of the original kernels."""
    by_kernel: dict[str, list[Mutant]] = {}
    for mutant in mutants:
        by_kernel.setdefault(mutant.kernel, []).append(mutant)

    def handler(name: str, call: Call, count: int) -> Any:
        if name not in by_kernel:
            return call.original()
        facts, met = facts_of(call, count), []
        for mutant in by_kernel[name]:
            sighting = sightings.setdefault(mutant.id, Sighting())
            fulfilled = sum(condition.holds(facts) << bit for bit, condition in enumerate(mutant.conditions))
            sighting.fulfilled |= fulfilled
            if fulfilled == (1 << len(mutant.conditions)) - 1:
                sighting.met += 1
                met.append(mutant)
        if not met:
            return call.original()
        before, again = codes_before(call), spared(call, observed=True)
        result = call.original()
        for mutant in met:
            sightings[mutant.id].elements += mutated(mutant, again, result, before)[1]
        return result

    return handler


def spared(call: Call, *, observed: bool) -> Call:
    """A call with copies of the arguments that it will overwrite, from which its result can be computed again.

    If it is only observed, that includes the argument that it returns, so that no mutant writes to it.
    """
    copied = [name for name in ACCUMULATORS if name in call.arguments]
    if observed and writes(call):
        copied.append(call.names[0])
    if observed and OUT in call.arguments:
        copied.append(OUT)
    copies = {name: call[name].clone() for name in copied}
    return Call(call.schema, {**call.arguments, **copies}, call.kernel) if copies else call


def described(record: Callable[[str, Mapping[str, Any], Call, Any, Tensor | None], None]) -> Handler:
    """A handler that changes nothing and records each call: its kernel, facts, the call itself, its result, the codes of its
    first argument."""

    def handler(name: str, call: Call, count: int) -> Any:
        facts, before = facts_of(call, count), codes_before(call)
        result = call.original()
        record(name, facts, call, main(result), before)
        return result

    return handler
