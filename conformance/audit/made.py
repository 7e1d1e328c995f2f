"""Audits of programs for ExecuTorch that somebody has already made, with the float model as the judge."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace

import torch
from torch.fx import GraphModule, Node

from conformance.engines.decomposed import grids, is_dequantize, is_quantize
from conformance.engines.executorch.program_file import ProgramFile
from conformance.engines.executorch.runtime import EXECUTORCH
from conformance.errors import UsageError, brief
from conformance.models import fx, pt2e
from conformance.models.trace import CONVERSIONS, VIEWS, Kernel
from conformance.results.audits import USABLE_DB, Arithmetic, Audit, Layer

from .exported import Exported
from .isolated import Stage, isolated
from .network import Network, copied, extremes, tensors_of
from .piece_layers import kernel_kind
from .programs import Programs
from .whole import Whole

BACKEND = "program"
"""What audits have as their backend that do not know which quantizer a program comes from."""
UNKNOWN = (
    "a program keeps no names of layers and no float values: which layer is to blame, and what quantization costs beside "
    "what the engine loses, is told with --etrecord, the ETRecord of its lowering"
)


@dataclass(frozen=True)
class Made:
    """A program for ExecuTorch, and the ETRecord of its lowering, if there is one."""

    program: ProgramFile
    record: Path | None = None
    floor_db: float = USABLE_DB
    engine: str = EXECUTORCH.name
    backend: str = BACKEND

    def audit(self, subject: Network, progress: Stage = lambda _: None) -> Audit:
        """Audit the program with a network as its float model. Raises UsageError for inputs that it does not take, and for an
        ETRecord that is none, or that does not take them either."""
        inputs = tensors_of(copied(subject.held_out))
        if unfit := self.program.unfit(inputs):
            raise UsageError(f"the program does not take these inputs: {unfit}")
        converted = None if self.record is None else recorded(self.record)
        if converted is not None:
            try:
                with torch.no_grad():
                    converted(*copied(inputs))
            except Exception as error:
                raise UsageError(f"--etrecord {self.record} is of another program: {brief(error)}") from error

        def work(crashed: Mapping[str, str], place: Path) -> Callable[[str], Audit]:
            def audited(_: str) -> Audit:
                torch.set_num_threads(1)
                blank = Audit(subject.name, self.engine, self.backend, floor_db=self.floor_db)
                with EXECUTORCH.scope(), fx.quiet():
                    if converted is None:
                        found = self._alone(blank, subject)
                    else:
                        found = self._recorded(blank, subject, converted, crashed, place, progress)
                return replace(found, remarks=(*extremes(subject), *found.remarks))

            return audited

        return isolated(subject.name, self.engine, self.backend, work)

    def _alone(self, blank: Audit, subject: Network) -> Audit:
        """What a program tells by itself: what it executes, its output, and whether that repeats."""
        blank = replace(
            blank, layers=tuple(self._layers()), delegates=self.program.delegates, remarks=(UNKNOWN,), referenced=False
        )
        try:
            return Whole.executed(EXECUTORCH, self.program.loaded(), subject).measured(blank)
        except Exception as error:
            return replace(blank, failure=f"the program raises {brief(error)}", stage="execute")

    def _layers(self) -> list[Layer]:
        """The kernels of a program as layers, which are told apart by their numbers."""
        counts = Counter[str]()
        found = []
        for step in self.program.steps:
            kind = kernel_kind(step.kernel).rpartition(".")[2]
            counts[kind] += 1
            where = "outside of delegates" if step.delegate is None else f"in delegate {step.delegate}"
            arithmetic = _arithmetic(step.kernel)
            reason = f"{where}, and in float" if arithmetic is Arithmetic.FLOAT else ""
            name = f"{kind} {counts[kind]}"
            found.append(Layer(name, kind, None, arithmetic, reason, (step.kernel.name,)))
        return found

    def _recorded(
        self,
        blank: Audit,
        subject: Network,
        converted: GraphModule,
        crashed: Mapping[str, str],
        place: Path,
        stage: Stage,
    ) -> Audit:
        """The audit of each region of what the program was lowered from, and of the program as the whole."""
        stage("export the float model")
        in_float = pt2e.exported_network(subject.model, subject.held_out)
        exported = Exported(subject, in_float, in_float, converted)
        programs = Programs(exported, EXECUTORCH, None, crashed, place.write_text, stage)
        return programs.audit(blank, lambda: self.program.loaded(grids(converted)))


def recorded(path: Path) -> GraphModule:
    """The converted graph of an ETRecord, which takes a flat sequence of tensors. A record keeps no annotations: what takes
    codes is annotated. Raises UsageError for a file that is no record, or has no program from before lowering."""
    from executorch.devtools.etrecord import parse_etrecord

    try:
        program = parse_etrecord(str(path)).exported_program
    except Exception as error:
        raise UsageError(f"--etrecord {path} cannot be read: {brief(error)}") from error
    if program is None:
        raise UsageError(
            f"--etrecord {path} has no exported program: lower with generate_etrecord=True, and save `get_etrecord()`"
        )
    graph = pt2e.flat(program.module(check_guards=False))
    for node in graph.graph.nodes:
        if node.op == "call_function" and not (is_quantize(node) or is_dequantize(node)) and _takes_codes(node):
            node.meta[pt2e.ANNOTATION] = SimpleNamespace(_annotated=True, output_qspec=True, input_qspec_map={})
    return graph


def _takes_codes(node: Node) -> bool:
    """Whether an operator takes a dequantized value, or the result of one that does, which goes nowhere else."""
    for one in node.all_input_nodes:
        if is_dequantize(one) or (pt2e.is_annotated(one) and len(one.users) == 1 and any(map(is_quantize, node.users))):
            return True
    return False


def _arithmetic(kernel: Kernel) -> Arithmetic:
    kind = kernel_kind(kernel)
    if kind in CONVERSIONS:
        return Arithmetic.CONVERSION
    if kind in VIEWS:
        return Arithmetic.VIEW
    return Arithmetic.INTEGER if kernel.quantized else Arithmetic.FLOAT
