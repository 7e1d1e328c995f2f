"""Networks end to end: which networks of the corpus are timed, in which forms, and the models of one case.

The floating side of every case is the eager float model, so that all ratios have the same base.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict
from importlib import import_module
from itertools import product
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx import GraphModule

from conformance.audit.conversion import Unconvertible
from conformance.configs.engines import ENGINE_TABLE
from conformance.engines.native import NativeEngine
from conformance.engines.protocol import Program
from conformance.errors import UsageError
from conformance.models import fx
from conformance.models.trace import Execution
from conformance.networks.operators import define_torchvision_operators
from conformance.networks.zoo import network as network_named

from .layer_times import layer_times
from .programs import CHECKED, SCRIPT, NotSaved, Programs, agree, folder
from .timer import Timed
from .timings import EAGER, FLOAT, THREADS, LayerTime, Memory, NetworkCase

NETWORKS: tuple[str, ...] = (
    "mobilenet_v2",
    "mobilenet_v3_small",
    "resnet18",
    "resnet50",
    "efficientnet_b0",
    "shufflenet_v2_x0_5",
    "squeezenet1_1",
    "swin_t",
    "unet_resnet18",
    "yolov8n",
    "keyword_crnn",
    "quartznet",
)
"""Networks of the corpus that are deployed and differ: convolutions that are dense, depthwise, grouped and one-dimensional,
attention, a recurrent layer, a decoder, and a detector."""

BATCHES = (1, 8)
"""Items of a batch."""

COMPILED = "compile"
"""The form of a float model that `torch.compile` has compiled."""

ENGINES = tuple(name for name, spec in ENGINE_TABLE.items() if spec.native)
FORMS = (EAGER, SCRIPT)
FLOAT_FORMS = (SCRIPT, COMPILED)

_WARM_UP_CALLS = 3
"""Calls after which TorchScript and torch.compile have optimized a program."""


def cases() -> list[tuple[str, str]]:
    """Return ids of cases, each with a number of threads: of every network, on torch's own engines and in float."""
    forms = [*product(FLOAT_FORMS, [FLOAT]), *((form, engine) for engine in ENGINES for form in FORMS)]
    return [
        (NetworkCase(name, items, *form).id, threads)
        for name, items, threads, form in product(NETWORKS, BATCHES, THREADS, forms)
    ]


class FormEngine(NativeEngine):
    """An engine for programs in a form of their own. Weights are those of the eager model."""

    def __init__(self, case: NetworkCase, eager: nn.Module) -> None:
        super().__init__(case.engine)
        self.traceable, self.eager = case.form != COMPILED, eager

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Select the engine, if the program has one. Raises RuntimeError if torch was built without it."""
        with nullcontext() if self.name == FLOAT else super().scope():
            yield

    def execute(self, program: Program, inputs: Sequence[Tensor]) -> Execution:
        """Run a program once. What torch.compile has generated is no operator, and its trace has no kernels."""
        return super().execute(program, inputs) if self.traceable else Execution((), ())

    def weight_bytes(self, program: Program) -> int:
        if isinstance(self.eager, GraphModule):
            return super().weight_bytes(self.eager)
        return sum(x.numel() * x.element_size() for x in self.eager.state_dict().values())


def opened(
    case_id: str, threads: int, *, judged: bool, backend_config: str | None = None
) -> tuple[Timed | None, dict[str, Any]]:
    """Return the models of a case, warmed up, and the answer to the request that opens it.

    With `judged` the answer has the counts, the memory and the layers; if the case cannot be timed, it has the reason.
    Other exceptions of torch are not caught.
    """
    case = NetworkCase.of(case_id)
    if case.engine != FLOAT and (reason := NativeEngine(case.engine).unavailable()):
        return None, {"reason": f"engine {case.engine} is unavailable: {reason}"}
    if case.form == COMPILED and (reason := _no_compiler(threads)):
        return None, {"reason": reason}
    torch.set_num_threads(threads)
    torch.set_flush_denormal(True)
    with torch.no_grad(), FormEngine(case, nn.Identity()).scope(), fx.quiet():
        try:
            programs = Programs(case.network, backend_config)
            timed = _timed(case, programs)
        except (UsageError, Unconvertible, NotSaved) as error:
            return None, {"reason": str(error)}
        return timed, _measured(case, programs, timed) if judged else {}


def imported(case_id: str) -> None:
    """Import what programs of a network consist of, which takes longer than a pass. A module that is missing is left out."""
    module = network_named(NetworkCase.of(case_id).network).source.partition(":")[0]
    define_torchvision_operators()  # torchvision is imported by others too
    for name in ("torch._dynamo", module):
        with suppress(ImportError):
            import_module(name)


def _timed(case: NetworkCase, programs: Programs) -> Timed:
    floating, inputs = programs.floating, programs.inputs(case.items)
    eager = floating if case.engine == FLOAT else programs.lowered(case.engine)
    program = _program(case, programs, eager)
    for _ in range(_WARM_UP_CALLS):
        program(*inputs)
    if case.form == COMPILED and not agree(program, floating, programs.inputs(case.items, CHECKED)):
        raise NotSaved("compilation changes the result")
    return Timed(case.id, FormEngine(case, eager), program, floating, inputs)


def _program(case: NetworkCase, programs: Programs, eager: nn.Module) -> Program:
    if case.form == EAGER:
        return eager
    if case.form == SCRIPT:
        script: Program = programs.script(case.engine, case.items)
        return script
    torch.compiler.reset()  # programs of earlier cases
    return torch.compile(eager, dynamic=False)


def _no_compiler(threads: int) -> str | None:
    """Why torch.compile cannot generate code, or None. The code goes to the folder of programs."""
    # set before the compiler is imported. Code for another number of threads differs, and processes that compile in advance
    # would disturb what is timed
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(folder() / f"compiled_for_{threads}")
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"
    from torch._inductor.cpp_builder import get_cpp_compiler
    from torch._inductor.exc import InvalidCxxCompiler

    try:
        get_cpp_compiler()
    except InvalidCxxCompiler:
        return "torch.compile finds no C++ compiler"
    return None


def _measured(case: NetworkCase, programs: Programs, timed: Timed) -> dict[str, Any]:
    """What is measured of a case once: counts and, with one thread, memory and the times of the layers of a lowered graph."""
    alone = torch.get_num_threads() == 1
    memory = _memory(case, programs) if alone and case.form != COMPILED else None
    times: tuple[LayerTime, ...] = ()
    if alone and case.form == EAGER:
        lowered, layers = timed.program, programs.layers(case.engine)
        assert isinstance(lowered, GraphModule)
        times = layer_times(layers, lowered, programs.traced(), timed.inputs)
    return {
        "counts": asdict(timed.counts()),
        "memory": asdict(memory) if memory else None,
        "layers": [asdict(one) for one in times],
    }


def _memory(case: NetworkCase, programs: Programs) -> Memory | None:
    """Memory and size of a program and of the float one in the same form, or of float TorchScript and of the eager model."""
    float_form = EAGER if case.engine == FLOAT else case.form
    try:
        quantized = programs.footprint(case.form, case.engine, case.items)
        floating = programs.footprint(float_form, FLOAT, case.items)
    except NotSaved:  # the float program in this form
        return None
    if quantized is None or floating is None:
        return None
    return Memory(quantized[0], floating[0], quantized[1], floating[1])
