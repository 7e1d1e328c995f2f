"""The stage of further inputs: a run's program executed on inputs of other sizes and ranges than its own."""

import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from itertools import chain

from torch.fx import GraphModule, Node

from conformance.cases.runs import Run
from conformance.engines.registry import engine
from conformance.goldens.golden import compute
from conformance.host.poison import fresh_memory_holds
from conformance.host.threads import COUNTS, most, thread_count
from conformance.models.build import Subject
from conformance.models.further import accepted, further
from conformance.models.qparams import get_qparams, operands_of, set_qparams, takes_qparams
from conformance.oracle import Qparams
from conformance.results.findings.stages import BEYOND
from conformance.results.findings.structure import RanInFloat
from conformance.stopwatch import Stopwatch

from . import lowering
from .evidence import Back, Expectation, Further, Shared
from .recorder import Recorder

THREADS = tuple(chain.from_iterable((1, count) for count in COUNTS))
"""The numbers of threads on which further inputs are executed in turn; the run decides where the turns begin. A run's own
inputs are executed on one of those that are several."""


def executed(watch: Stopwatch, run: Run, shared: Shared, back: Back) -> tuple[Further, ...]:
    """Execute the program of a run on the further inputs of its profile.

    There are none if the run's own inputs have not been executed, or have no golden. A program that accepts inputs of one
    size has degenerate data of that size alone, and one that computes in float none: it has other values off the grid.
    """
    subject, expectation, program = shared.front.subject, shared.expectation, back.program
    if not (run.further or run.degenerate or run.threaded):
        return ()
    if subject is None or expectation is None or expectation.golden is None:
        return ()
    if program is None or back.lowered is None or back.execution is None:
        return ()
    in_float = any(isinstance(finding, RanInFloat) for finding in lowering.findings_of(run, back.execution))
    data = () if in_float else run.degenerate
    fixed = engine(run.engine).fixed_shapes
    nodes = None if fixed else quantizing(back.lowered, expectation.qparams())
    count, in_ranges = 0 if fixed else run.further, nodes is not None
    kind = count, data, in_ranges
    if kind not in shared.further:
        shared.further[kind] = expectations(subject, expectation, count, data, in_ranges=in_ranges)
    first, found = zlib.crc32(run.key.encode()), []
    inputs = [(*one, THREADS[number % len(THREADS)]) for number, one in enumerate(shared.further[kind], first)]
    if run.threaded and not expectation.unusable:
        inputs.append((subject, expectation, COUNTS[first % len(COUNTS)]))
    for other, expected, count in inputs:
        recorder, execution, threads = Recorder(watch), None, most(count)
        own_qparams = qparams_set(back.lowered, nodes or {}, expected.qparams())
        with own_qparams, recorder.stage("execute"), fresh_memory_holds(0x55), thread_count(threads):
            execution = engine(run.engine).execute(program, other.fresh_inputs())
        found.append(Further(other, expected, execution, recorder.failures.get("execute"), threads))
    # a known deviation of what calibration never saw hides no other one
    return tuple(sorted(found, key=lambda further: further.degenerate in BEYOND))


def quantizing(lowered: GraphModule, qparams: Mapping[str, Qparams]) -> dict[str, Node] | None:
    """The nodes of a lowered model that take the qparams of activations, by the names of these.

    None unless these are all nodes that take any: one for each operand, and at most one for the output.
    """
    taking = [node for node in lowered.graph.nodes if node.op.startswith("call_") and takes_qparams(lowered, node)]
    nodes = operands_of(lowered)
    others = [node for node in taking if node not in nodes.values()]
    nodes |= dict(zip(["output"], others, strict=False))
    known = nodes.keys() <= qparams.keys() and "output 2" not in qparams
    return nodes if known and len(nodes) == len(taking) else None


@contextmanager
def qparams_set(lowered: GraphModule, nodes: Mapping[str, Node], qparams: Mapping[str, Qparams]) -> Iterator[None]:
    """Set the qparams that nodes take, by name, and restore the previous ones on exit."""
    with ExitStack() as stack:
        for name, node in nodes.items():
            stack.callback(set_qparams, lowered, node, *get_qparams(lowered, node))
            set_qparams(lowered, node, float(qparams[name].scale), int(qparams[name].zero_point))
        yield


def expectations(
    subject: Subject, expectation: Expectation, count: int, data: Iterable[str], *, in_ranges: bool
) -> Sequence[tuple[Subject, Expectation]]:
    """Subjects with degenerate `data` and up to `count` in other sizes, with what the oracle expects of them; none where it
    is uncertain, or where the float model refuses them or gives nothing."""
    found = []
    for other in further(subject, count, data, in_ranges=in_ranges):
        own_ranges = other.calibration is not subject.calibration
        try:
            answer = compute(other, None if own_ranges else expectation.qparams())
        except Exception:
            if accepted(other):
                raise
            continue
        expected = Expectation.of(answer)
        assert expected.golden is not None
        if answer.certain and all(output.low.numel() for output in expected.golden.outputs):
            found.append((other, expected))
    return found
