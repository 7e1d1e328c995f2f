"""Laws that every engine obeys whatever it computes, tried on large shapes, where the oracle is slow.

Data and scales are those of the `exact` profile, so that sums are exact in any order and no law has a tolerance. Only at a
tie may two ways to compute an element round differently: another place in memory moves it between the vector loop of a kernel
and its scalar tail. A difference of one step is a tie where the reference model's value before quantization proves it.
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
from torch.fx import GraphModule, symbolic_trace

from conformance.cases.runs import Run, describe
from conformance.cases.sources import root_of, without_relu
from conformance.checks.judge import Judge
from conformance.checks.tolerances import RECURRENT
from conformance.engines import mutation
from conformance.engines.registry import engine
from conformance.errors import brief
from conformance.host.poison import fresh_memory_holds
from conformance.models import build, fx
from conformance.models.build import Subject
from conformance.models.data import channels_last, fill
from conformance.models.observers import is_observer
from conformance.results.findings.stability import WritesToInput
from conformance.results.rows import Row
from conformance.results.verdicts import Verdict
from conformance.stopwatch import Stopwatch

from . import transforms
from .callables import Broken, Form, Trial, caller, compared, small, ties, trial


def batch(run: Run) -> tuple[int, bool]:
    """The dimension of the batch, and whether its items are bags, of which the last operand says where they begin."""
    layer = root_of(run.claim.tree) in ("nn.LSTM", "nn.GRU")
    return int(layer), any(spec.kind == "offsets" for _, spec in run.model.operands)


# What a law does. The result says what is broken, or nothing.


def _in_parts(form: Form, *cuts: float) -> str:
    """The parts of the batch, each on its own, give what they give in the whole; cuts are fractions or numbers of items."""
    axis, bags = batch(form.given.run)
    inputs = form.given.fresh_inputs()
    count = inputs[-1].shape[axis]
    ends = {round(cut * count) if isinstance(cut, float) else cut % count for cut in cuts} | {0, count}
    return form.compare(form.outputs, transforms.in_parts(form.call, inputs, axis, sorted(ends), bags))


@dataclass(frozen=True)
class Channels:
    """Where the output channels of some operators are: the dimensions of operands, of outputs, and of weight matrices.

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
"""Looked up in order. The last row is for operators that do to every channel the same, or what parameters of its own say."""


def channels(run: Run) -> Channels:
    """The row of a run."""
    return next(one for one in CHANNELS if re.fullmatch(one.operators, root_of(run.claim.tree)))


def _shuffled(form: Form) -> str:
    """Permuting output channels permutes the output."""
    run = form.given.run
    where = channels(run)

    def shuffled(given: Sequence[Tensor]) -> tuple[Tensor, ...]:
        return tuple(
            transforms.shuffled(x, where.operands[name]) if name in where.operands else x.clone()
            for x, (name, _) in zip(given, run.model.operands, strict=True)
        )

    call = form.call
    if form.given.model.state_dict():
        model = copy.deepcopy(form.given.model)
        transforms.shuffle_channels(model, form.outputs[0].shape[where.output], where.weight)
        call = form.make(replace(form.given, model=model, calibration=shuffled(form.given.calibration)))
    again = call(shuffled(form.given.inputs))
    return form.compare(form.outputs, [transforms.unshuffled(y, where.output) for y in again])


def _channels_last(form: Form) -> str:
    """Inputs with the channels innermost in memory give the same; those that have no such format are no reason to try."""
    inputs = channels_last(form.given.fresh_inputs())
    return "no input has channels" if inputs is None else form.compare(form.outputs, form.call(inputs))


def _relu_after(trial: Trial) -> str:
    """A fused ReLU gives what a ReLU after the output gives, with a zero point that is not the lowest code."""
    plain, config = _without_relu(trial.given), trial.given.run.backend.config
    assert plain is not None
    other, fused = fx.prepare(plain, config), copy.deepcopy(trial.prepared)
    fx.calibrate(other, plain)
    if (own := _output_observer(other)) is not None:
        target = _output_observer(fused)
        assert target is not None
        fused.set_submodule(target, copy.deepcopy(other.get_submodule(own)))
    expected = caller(trial.lower(other, plain.fresh_inputs()))(plain.fresh_inputs())
    got = caller(trial.lower(fused, trial.given.fresh_inputs()))(trial.given.fresh_inputs())
    return compared([y.clamp_min(0.0) for y in expected], got, partial(ties, trial.given, fused))


def _without_relu(given: Subject) -> Subject | None:
    """The subject without the ReLU that its pattern ends in, with the same parameters and data."""
    run = given.run
    assert run.variant is not None
    model = without_relu(run.claim, run.variant)
    if model is None:
        return None
    scope = build.names() | {"qconfig": given.qconfig}
    exec(model.source, scope)
    plain: nn.Module = scope["Model"]()
    plain.load_state_dict(dict(zip(plain.state_dict(), given.model.state_dict().values(), strict=True)))
    return replace(given, model=plain.train(given.model.training))


def _output_observer(prepared: GraphModule) -> str | None:
    """The name of the module that observes the output."""
    (last,) = next(node for node in prepared.graph.nodes if node.op == "output").all_input_nodes
    found = last.op == "call_module" and is_observer(prepared.get_submodule(str(last.target)))
    return str(last.target) if found else None


def _inputs_kept(trial: Trial) -> str:
    """Neither the model nor a kernel inside of it writes to what it is given, as far as the operator does not say so."""
    inputs = trial.given.fresh_inputs()
    found = []
    given: list[Sequence[Tensor]] = [inputs]
    if not engine(trial.given.run.engine).fixed_shapes and _keeps_to_memory_format(trial.given.run):
        given.append(channels_last(trial.given.fresh_inputs()) or inputs)
    for one in given:
        with torch.no_grad(), mutation.Writes() as writes:
            trial.lowered(*one)
        found += [WritesToInput("stable", write.kernel, write.argument).text for write in writes.found]
    written = [number for number, (x, was) in enumerate(zip(inputs, trial.given.inputs, strict=True)) if _other(x, was)]
    if written and not _writes_to_inputs(small(trial.given.run)):
        found.append(f"changes input {', '.join(map(str, written))}")
    return ", ".join(dict.fromkeys(found))


def _other(one: Tensor, other: Tensor) -> bool:
    return one.shape != other.shape or not torch.equal(one, other)


def _writes_to_inputs(given: Subject) -> bool:
    """Whether the float model does."""
    inputs = given.fresh_inputs()
    with torch.no_grad():
        copy.deepcopy(given.model).eval()(*inputs)
    return any(_other(x, was) for x, was in zip(inputs, given.inputs, strict=True))


def _second_call(trial: Trial) -> str:
    """Another call gives the same, and one after a call with other data too, whatever newly allocated memory holds."""
    with fresh_memory_holds(0xAA):
        if found := trial.compare(trial.outputs, trial.call(trial.given.fresh_inputs())):
            return found
    trial.call([x.flip(-1) if x.is_floating_point() else x for x in trial.given.fresh_inputs()])
    with fresh_memory_holds(0xAA):
        return trial.compare(trial.outputs, trial.call(trial.given.fresh_inputs()))


def _two_threads(trial: Trial) -> str:
    """Two threads give what one gives."""
    return trial.compare(trial.outputs, transforms.on_threads(2, trial.call, trial.given.fresh_inputs()))


def _state_dict(trial: Trial) -> str:
    """A model with other weights and uncalibrated observers gives the same once it has loaded the state."""
    blank = copy.deepcopy(trial.blank)
    fill(blank, "other", trial.given.run.recipe.weight_levels)
    run = trial.given.run
    other = engine(run.engine).reload(trial.lowered, blank.eval(), run.backend.config)
    return trial.compare(trial.outputs, caller(other)(trial.given.fresh_inputs()))


def _torch_script(trial: Trial) -> str:
    """The model as TorchScript, saved and loaded, gives the same."""
    assert isinstance(trial.lowered, nn.Module)
    return trial.compare(trial.outputs, caller(transforms.scripted(trial.lowered))(trial.given.fresh_inputs()))


def _items_alone(form: Form) -> str:
    """Batch items are independent: the first, the second and the last give alone what they give in company."""
    return _in_parts(form, 1, 2, -1)


def _split_batch(form: Form) -> str:
    """Splitting along the batch changes nothing."""
    return _in_parts(form, 0.4)


# When a law applies.


def _always(run: Run) -> bool:
    return True


def _has_relu(run: Run) -> bool:
    assert run.variant is not None
    return without_relu(run.claim, run.variant) is not None


def _obeyed_in_float(law: Callable[[Form], str]) -> Callable[[Run], bool]:
    """A law of the operator itself applies where its float model obeys it, on small shapes."""

    def applies(run: Run) -> bool:
        form = Form(small(run), lambda given: partial(build.float_outputs, given), _close)
        try:
            return not law(form)
        except (RuntimeError, ValueError, IndexError):  # such as a view to a batch size that is written down
            return False

    return applies


def _close(expected: Sequence[Tensor], got: Sequence[Tensor]) -> str:
    same = all(a.shape == b.shape and torch.allclose(a, b) for a, b in zip(expected, got, strict=True))
    return "" if same else "differs"


def _by_items(law: Callable[[Form], str]) -> Callable[[Run], bool]:
    """Laws of the batch.

    They do not bind a recurrent layer: it quantizes its hidden state at every step, with qparams of all items; where it does
    not, sums of products of a state that lies on no grid are rounded, which may go another way for fewer items.
    """

    def applies(run: Run) -> bool:
        root = root_of(run.claim.tree)
        return not (root in RECURRENT and "Cell" not in root) and _obeyed_in_float(law)(run)

    return applies


_keeps_to_memory_format = _obeyed_in_float(_channels_last)


def _can_be_scripted(run: Run) -> bool:
    """Whether TorchScript takes the float model; that of a model for training it need not."""
    if run.flow == "qat":
        return True
    try:
        torch.jit.script(symbolic_trace(small(run).model))
    except RuntimeError:
        return False
    return True


@dataclass(frozen=True)
class Law:
    """`broken` says how a run breaks the law, or nothing; `applies` whether the law has something to say about it, which is
    asked of the float model, and only where the engine seems to break it: that is seldom, and asking takes longer. `shapes`
    says that it takes inputs of other shapes or formats, or a module of torch: nothing to ask of a program for fixed ones."""

    name: str
    broken: Callable[[Trial], str]
    applies: Callable[[Run], bool]
    shapes: bool = False


LAWS = (
    Law("a second call", _second_call, _always),
    Law("an item alone", _items_alone, _by_items(_items_alone), shapes=True),
    Law("a split batch", _split_batch, _by_items(_split_batch), shapes=True),
    Law("another order of channels", _shuffled, _obeyed_in_float(_shuffled)),
    Law("channels_last", _channels_last, _keeps_to_memory_format, shapes=True),
    Law("ReLU apart", _relu_after, _has_relu),
    Law("a call", _inputs_kept, _always),
    Law("a second thread", _two_threads, _always, shapes=True),
    Law("a loaded state_dict", _state_dict, _always),
    Law("torch.jit", _torch_script, _can_be_scripted, shapes=True),
)
"""In the order of their trial. Where the first is broken, the others have nothing to compare with."""


def applicable(run: Run) -> list[str]:
    """Names of the laws that apply to a run. Raises what its float model raises."""
    return [law.name for law in LAWS if law.applies(run)]


def _tried(watch: Stopwatch, trial: Trial) -> Iterator[str]:
    """Try every law that applies; yield how those that are broken are."""
    run = trial.given.run
    with fresh_memory_holds(0x55):
        _ = trial.outputs
    fixed = engine(run.engine).fixed_shapes
    for law in [law for law in LAWS if not (fixed and law.shapes)]:
        try:
            with watch():
                found = law.broken(trial)
        except MemoryError:
            os.abort()
        except Exception as error:
            found = f"raises {brief(error)}"
        if found and not law.applies(run):
            continue
        if found and law is LAWS[0]:
            yield f"{law.name} {re.sub(r' [0-9]+ of [0-9]+ values.*', ' values', found)}"
            return
        if found:
            yield f"{law.name} {found}"


CHECKS = ("matched", "observed", "lowered", "stable")
"""Those of a row, in the order of the stages that they speak of."""


def row(judge: Judge, run: Run) -> Row:
    """Try the laws on a run and return its row. A check after one that fails is skipped."""
    start = time.perf_counter()
    kernels: tuple[str, ...] = ()
    failed, detail = "", ""
    try:
        with engine(run.engine).scope(), fx.quiet():
            made, execution = trial(judge.watch, run)
            kernels = tuple(dict.fromkeys(execution.listed()))
            if detail := "; ".join(_tried(judge.watch, made)):
                failed = "stable"
    except Broken as broken:
        failed, detail = broken.check, broken.detail
    reached = CHECKS.index(failed) if failed else len(CHECKS)
    results = {name: "fail" if name == failed else "pass" if n < reached else "skip" for n, name in enumerate(CHECKS)}
    return Row(
        **describe(run),
        verdict=Verdict.of(failed),
        checks=results,
        detail=f"{failed}: {detail}" if failed else "",
        kernels=kernels,
        seconds=round(time.perf_counter() - start, 4),
    )
