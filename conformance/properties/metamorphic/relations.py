"""Metamorphic relations: transformations of inputs, model or execution that must not change the output.

They are tested on large shapes, where the oracle is slow. Data and scales are those of the `exact` profile, so sums are exact
in any order and no relation has a tolerance. Only ties may round differently, because another place in memory moves an
element between the vector loop of a kernel and its scalar tail. A difference of one step is accepted if the reference
model's value before quantization is a tie.
"""

import copy
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor, nn
from torch.fx import GraphModule

from conformance.cases.features import SEQUENCES
from conformance.cases.runs import Run
from conformance.cases.sources import without_relu
from conformance.checks.evidence import row_of
from conformance.checks.recorder import StageFailed
from conformance.engines.registry import engine
from conformance.errors import Failure
from conformance.host.poison import fresh_memory_holds
from conformance.models import build, fx, mutation
from conformance.models.build import Subject
from conformance.models.data import channels_last, fill
from conformance.models.observers import is_observer
from conformance.models.trace import Execution
from conformance.results.findings import Finding
from conformance.results.findings.relations import KernelWrite, RelationValues, RelationVaries, RelationWrites
from conformance.results.findings.stages import Raises
from conformance.results.rows import Row
from conformance.stopwatch import Stopwatch

from . import transforms
from .callables import (
    CHECK,
    EngineImplementation,
    Implementation,
    allowed_difference,
    as_call,
    close,
    compared,
    implementation,
    small,
)

SECOND_CALL = "a second call"
ITEM_ALONE = "an item alone"
SPLIT_BATCH = "a split batch"
CHANNEL_ORDER = "another order of channels"
CHANNELS_LAST = "channels_last"
RELU_APART = "ReLU apart"
INPUTS_KEPT = "a call"
SECOND_THREAD = "a second thread"
STATE_DICT = "a loaded state_dict"
TORCH_LOAD = "torch.load"


def batch(run: Run) -> tuple[int, bool]:
    """The batch dimension, and whether items are bags whose offsets are the last operand."""
    layer = run.claim.root in ("nn.LSTM", "nn.GRU")
    return int(layer), any(spec.kind == "offsets" for _, spec in run.model.operands)


# The relations. Each returns a finding, or None if the implementation satisfies the relation.


def _in_parts(relation: str, impl: Implementation, *cuts: float) -> Finding | None:
    """Parts of the batch give the same items as the whole batch; cuts are fractions or numbers of items."""
    axis, bags = batch(impl.subject.run)
    inputs = impl.subject.fresh_inputs()
    count = inputs[-1].shape[axis]
    ends = {round(cut * count) if isinstance(cut, float) else cut % count for cut in cuts} | {0, count}
    return impl.compare(relation, impl.outputs, transforms.in_parts(impl.call, inputs, axis, sorted(ends), bags))


@dataclass(frozen=True)
class Channels:
    """The channel dimensions of some operators: of operands, of the output, and of weights.

    `operators` is a regular expression over the names of root operators.
    """

    operators: str
    operands: dict[str, int]
    output: int
    weight: int = 0


CHANNELS = (
    Channels(r"nn\.ConvTranspose.*|F\.conv_transpose.*", {"other": 1}, 1, weight=1),
    Channels(r".*\.Conv\w*d|F\.conv.*", {"other": 1}, 1),
    Channels(r".*\.[Ll]inear\w*", {"other": 1}, -1),
    Channels(r".*\.[Ee]mbedding\w*", {}, -1, weight=1),
    Channels(r"torch\.matmul", {"y": -1}, -1),
    Channels(r".*", {"x": 1, "y": 1}, 1),
)
"""The first match counts. The last row is for operators that treat all channels alike, or by parameters per channel."""


def channels(run: Run) -> Channels:
    """The channel dimensions of a run's root operator."""
    return next(dimensions for dimensions in CHANNELS if re.fullmatch(dimensions.operators, run.claim.root))


def _shuffled(impl: Implementation) -> Finding | None:
    """Permuting output channels permutes the output."""
    run = impl.subject.run
    dimensions = channels(run)

    def shuffled(operands: Sequence[Tensor]) -> tuple[Tensor, ...]:
        return tuple(
            transforms.shuffled(x, dimensions.operands[name]) if name in dimensions.operands else x.clone()
            for x, (name, _) in zip(operands, run.model.operands, strict=True)
        )

    call = impl.call
    if impl.subject.model.state_dict():
        model = copy.deepcopy(impl.subject.model)
        transforms.shuffle_channels(model, impl.outputs[0].shape[dimensions.output], dimensions.weight)
        call = impl.build(replace(impl.subject, model=model, calibration=shuffled(impl.subject.calibration)))
    again = call(shuffled(impl.subject.inputs))
    return impl.compare(CHANNEL_ORDER, impl.outputs, [transforms.unshuffled(y, dimensions.output) for y in again])


def _channels_last(impl: Implementation) -> Finding | None:
    """Inputs in channels_last memory format give the same output. Raises ValueError if no input has channels."""
    inputs = channels_last(impl.subject.fresh_inputs())
    if inputs is None:
        raise ValueError("no input has channels")
    return impl.compare(CHANNELS_LAST, impl.outputs, impl.call(inputs))


def _relu_after(impl: EngineImplementation) -> Finding | None:
    """A fused ReLU equals a ReLU applied to the output, with a zero point that is not the lowest code."""
    plain, config = _without_relu(impl.subject), impl.subject.run.backend.config
    assert plain is not None
    unfused, fused = fx.prepare(plain, config), copy.deepcopy(impl.prepared)
    fx.calibrate(unfused, plain)
    if (own := _output_observer(unfused)) is not None:
        target = _output_observer(fused)
        assert target is not None
        fused.set_submodule(target, copy.deepcopy(unfused.get_submodule(own)))
    expected = as_call(impl.lower(unfused, plain.fresh_inputs()))(plain.fresh_inputs())
    got = as_call(impl.lower(fused, impl.subject.fresh_inputs()))(impl.subject.fresh_inputs())
    return compared(
        RELU_APART, [y.clamp_min(0.0) for y in expected], got, partial(allowed_difference, impl.subject, fused)
    )


def _without_relu(subject: Subject) -> Subject | None:
    """The subject without the ReLU that its pattern ends in, with the same parameters and data."""
    run = subject.run
    assert run.variant is not None
    model = without_relu(run.claim, run.variant)
    if model is None:
        return None
    scope = build.names() | {"qconfig": subject.qconfig}
    exec(model.source, scope)
    plain: nn.Module = scope["Model"]()
    plain.load_state_dict(dict(zip(plain.state_dict(), subject.model.state_dict().values(), strict=True)))
    return replace(subject, model=plain.train(subject.model.training))


def _output_observer(prepared: GraphModule) -> str | None:
    """The name of the module that observes the output."""
    (last,) = next(node for node in prepared.graph.nodes if node.op == "output").all_input_nodes
    observed = last.op == "call_module" and is_observer(prepared.get_submodule(str(last.target)))
    return str(last.target) if observed else None


def _inputs_kept(impl: EngineImplementation) -> Finding | None:
    """Neither the program nor a kernel writes to its inputs, unless the operator declares so."""
    inputs = impl.subject.fresh_inputs()
    calls: list[Sequence[Tensor]] = [inputs]
    if not engine(impl.subject.run.engine).fixed_shapes and _keeps_to_memory_format(impl.subject.run):
        calls.append(channels_last(impl.subject.fresh_inputs()) or inputs)
    kernels = []
    for arguments in calls:
        with torch.no_grad(), mutation.Writes() as writes:
            impl.program(*arguments)
        kernels += [KernelWrite(str(write.kernel), write.argument) for write in writes.found]
    pairs = zip(inputs, impl.subject.inputs, strict=True)
    written = [number for number, (x, before) in enumerate(pairs) if not torch.equal(x, before)]
    if written and _writes_to_inputs(small(impl.subject.run)):
        written = []
    if not kernels and not written:
        return None
    return RelationWrites(CHECK, INPUTS_KEPT, tuple(dict.fromkeys(kernels)), tuple(written))


def _writes_to_inputs(subject: Subject) -> bool:
    """Whether the float model writes to its inputs."""
    inputs = subject.fresh_inputs()
    with torch.no_grad():
        copy.deepcopy(subject.model).eval()(*inputs)
    return any(not torch.equal(x, before) for x, before in zip(inputs, subject.inputs, strict=True))


def _second_call(impl: EngineImplementation) -> Finding | None:
    """Another call gives the same, also after a call with other data, whatever newly allocated memory holds."""
    finding = _called_again(impl)
    if finding is None:
        impl.call([x.flip(-1) if x.is_floating_point() else x for x in impl.subject.fresh_inputs()])
        finding = _called_again(impl)
    return RelationVaries(CHECK, SECOND_CALL) if isinstance(finding, RelationValues) else finding


def _called_again(impl: EngineImplementation) -> Finding | None:
    with fresh_memory_holds(0xAA):
        return impl.compare(SECOND_CALL, impl.outputs, impl.call(impl.subject.fresh_inputs()))


def _two_threads(impl: EngineImplementation) -> Finding | None:
    """Two threads compute the same output as one."""
    again = transforms.on_threads(2, impl.call, impl.subject.fresh_inputs())
    return impl.compare(SECOND_THREAD, impl.outputs, again)


def _state_dict(impl: EngineImplementation) -> Finding | None:
    """A model with other weights and uncalibrated observers gives the same output after it loads the state_dict."""
    blank, run = copy.deepcopy(impl.blank), impl.subject.run
    fill(blank, "other", run.recipe.weight_levels)
    reloaded = engine(run.engine).reload(impl.program, blank.eval(), run.backend.config)
    return impl.compare(STATE_DICT, impl.outputs, as_call(reloaded)(impl.subject.fresh_inputs()))


def _torch_load(impl: EngineImplementation) -> None:
    """`torch.load` reads the state_dict that `torch.save` writes."""
    assert isinstance(impl.program, nn.Module)
    transforms.loaded_state(impl.program)


def _items_alone(impl: Implementation) -> Finding | None:
    """Batch items are independent: the first, the second and the last give the same alone as in the batch."""
    return _in_parts(ITEM_ALONE, impl, 1, 2, -1)


def _split_batch(impl: Implementation) -> Finding | None:
    """Splitting the batch in two changes nothing."""
    return _in_parts(SPLIT_BATCH, impl, 0.4)


# The runs that a relation applies to.


def _always(run: Run) -> bool:
    return True


def _has_relu(run: Run) -> bool:
    assert run.variant is not None
    return without_relu(run.claim, run.variant) is not None


def _holds_in_float(evaluate: Callable[[Implementation], Finding | None]) -> Callable[[Run], bool]:
    """A relation of the operator applies if the float model satisfies it on small shapes."""

    def applies(run: Run) -> bool:
        float_model = Implementation(small(run), lambda subject: partial(build.float_outputs, subject), close)
        try:
            return evaluate(float_model) is None
        except (RuntimeError, ValueError, IndexError):  # such as a view to a batch size that is written down
            return False

    return applies


def _by_items(evaluate: Callable[[Implementation], Finding | None]) -> Callable[[Run], bool]:
    """A relation of the batch applies if the float model satisfies it, except to recurrent layers.

    A recurrent layer quantizes its hidden state at every step with qparams of all items. If it does not, the state lies on no
    grid, and sums of products are rounded, which may go another way for fewer items.
    """

    def applies(run: Run) -> bool:
        root = run.claim.root
        return root not in SEQUENCES and _holds_in_float(evaluate)(run)

    return applies


_keeps_to_memory_format = _holds_in_float(_channels_last)


@dataclass(frozen=True)
class Relation:
    """A relation between executions of an implementation.

    `evaluate` returns the finding that an implementation breaks the relation, or None. `applies` evaluates the float model:
    it is called only after a finding, because it takes longer than the relation and findings are rare. `shapes` marks
    relations that need inputs of other shapes or formats, or a torch module: programs for fixed shapes skip them.
    """

    name: str
    evaluate: Callable[[EngineImplementation], Finding | None]
    applies: Callable[[Run], bool]
    shapes: bool = False


RELATIONS = (
    Relation(SECOND_CALL, _second_call, _always),
    Relation(ITEM_ALONE, _items_alone, _by_items(_items_alone), shapes=True),
    Relation(SPLIT_BATCH, _split_batch, _by_items(_split_batch), shapes=True),
    Relation(CHANNEL_ORDER, _shuffled, _holds_in_float(_shuffled)),
    Relation(CHANNELS_LAST, _channels_last, _keeps_to_memory_format, shapes=True),
    Relation(RELU_APART, _relu_after, _has_relu),
    Relation(INPUTS_KEPT, _inputs_kept, _always),
    Relation(SECOND_THREAD, _two_threads, _always, shapes=True),
    Relation(STATE_DICT, _state_dict, _always),
    Relation(TORCH_LOAD, _torch_load, _always, shapes=True),
)
"""In the order of evaluation. If a second call differs, no other relation is evaluated, for lack of a stable output."""


def applicable(run: Run) -> list[str]:
    """Names of the relations that apply to a run. Raises the exceptions of its float model."""
    return [relation.name for relation in RELATIONS if relation.applies(run)]


def _broken(watch: Stopwatch, impl: EngineImplementation) -> Iterator[Finding]:
    """Evaluate every relation that applies and yield the findings."""
    run = impl.subject.run
    with fresh_memory_holds(0x55):
        _ = impl.outputs
    fixed = engine(run.engine).fixed_shapes
    for relation in [relation for relation in RELATIONS if not (fixed and relation.shapes)]:
        finding: Finding | None
        try:
            with watch():
                finding = relation.evaluate(impl)
        except MemoryError:
            os.abort()
        except Exception as error:
            failure = Failure.of(error)
            finding = Raises(CHECK, relation.name, failure.exception, failure.message)
        if finding is None or not relation.applies(run):
            continue
        yield finding
        if relation.name == SECOND_CALL:
            return


CHECKS = ("matched", "observed", "lowered", CHECK)
"""The checks of a row, in the order of their stages."""


def row(watch: Stopwatch, run: Run) -> Row:
    """Evaluate the relations on a run. Checks after a failed one are skipped."""
    start = time.perf_counter()
    execution: Execution | None = None
    findings: tuple[Finding, ...]
    try:
        with engine(run.engine).scope(), fx.quiet():
            impl, execution = implementation(watch, run)
            findings = tuple(_broken(watch, impl))
    except StageFailed as failed:
        findings = failed.findings
    check = findings[0].check if findings else ""
    reached = CHECKS.index(check) if check else len(CHECKS)
    results = {name: "fail" if name == check else "pass" if n < reached else "skip" for n, name in enumerate(CHECKS)}
    return row_of(run, start, results, findings, execution=execution)
