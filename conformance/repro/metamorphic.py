"""Renderers of findings about metamorphic relations: the lines that evaluate each relation."""

from collections.abc import Callable, Iterator
from typing import Any

from conformance.cases.runs import Run
from conformance.cases.sources import without_relu
from conformance.models.build import unequal_channels
from conformance.properties.metamorphic import relations
from conformance.results.findings import Finding
from conformance.results.findings.relations import (
    RelationOutputs,
    RelationShape,
    RelationValues,
    RelationVaries,
    RelationWrites,
)
from conformance.results.findings.stages import Raises

from .case import Case, Once, Renderer, custom_argument, guarded
from .inline import CHANNELS_LAST, LOADED

CALL = """\
def call(given, model=None):
    return [y.dequantize() for y in tensors((model or lowered)(*given))]
"""

HELD = """\
def held(relation, expected, got):
    if len(expected) != len(got) or not all(map(torch.equal, expected, got)):
        deviates("stable", f"{relation} changes the outputs")
"""

FIRST = "with fresh_memory_holds(0x55):\n    first = call(inputs())\n"


def filled(run: Run, model: str) -> str:
    """Lines that fill the parameters of a model."""
    lines = f"fill({model}, key, {run.recipe.weight_levels})\n"
    return lines + (f"with_unequal_channels({model})\n" if unequal_channels(run) else "")


def _built(run: Run, name: str, cls: str) -> str:
    """Lines that build a model in the mode in which it is prepared."""
    mode = "train" if run.flow == "qat" else "eval"
    return f"{name} = {cls}()\n{filled(run, name)}{name}.{mode}()\n"


def _observed(run: Run, name: str, model: str, calibration: str) -> str:
    """Lines that prepare and calibrate a model."""
    entry = "prepare_qat_fx" if run.flow == "qat" else "prepare_fx"
    freeze = ""
    if run.flow == "qat":
        freeze = f'for module in {name}.modules():\n    if hasattr(module, "freeze_bn_stats"):\n        '
        freeze += "module.freeze_bn_stats()\n"
    return (
        f"given = {calibration}\n{name} = {entry}({model}, mapping, given, "
        f"{custom_argument(run)}backend_config=backend_config)\n"
        f"{freeze}{name}(*given)\n{name}.eval()\n"
    )


def _in_parts(run: Run, relation: str) -> str:
    axis, bags = relations.batch(run)
    items = "len(inputs()[-1])" if bags else f"inputs()[0].shape[{axis}]"
    cuts = "[0, 1, 2, items - 1, items]" if relation == relations.ITEM_ALONE else "[0, round(0.4 * items), items]"
    return f"items = {items}\nagain = in_parts(call, inputs(), {axis}, {cuts}, {bags})\n"


def _channels(run: Run, relation: str) -> str:
    dimensions = relations.channels(run)
    shuffled = [
        f"shuffled({name}, {dimensions.operands[name]})" if name in dimensions.operands else name
        for name, _ in run.model.operands
    ]
    names = ", ".join(name for name, _ in run.model.operands)
    lines = f"def permuted({names}):\n    return ({', '.join(shuffled)},)\n\n\n"
    lines += _built(run, "other", "Model")
    lines += f"shuffle_channels(other, first[0].shape[{dimensions.output}], {dimensions.weight})\n"
    lines += _observed(run, "other", "other", "permuted(*inputs())")
    lines += "other = convert_fx(other, backend_config=backend_config)\n"
    return f"{lines}again = [unshuffled(y, {dimensions.output}) for y in call(permuted(*inputs()), other)]\n"


def _relu(run: Run, relation: str) -> str:
    assert run.variant is not None
    plain = without_relu(run.claim, run.variant)
    assert plain is not None
    lines = plain.source.replace("class Model(", "class Plain(") + "\n\n" + _built(run, "fused", "Model")
    lines += "plain = Plain()\nnames = plain.state_dict()\n"
    lines += "plain.load_state_dict(dict(zip(names, fused.state_dict().values(), strict=True)))\n"
    lines += f"plain.{'train' if run.flow == 'qat' else 'eval'}()\n"
    lines += _observed(run, "plain", "plain", "inputs()") + _observed(run, "fused", "fused", "inputs()")
    if run.recipe.kind == "static":
        lines += (
            "ends = [[n for n in m.graph.nodes if n.op == 'output'][0].all_input_nodes[0].target for m in (fused, plain)]\n"
            "fused.set_submodule(ends[0], plain.get_submodule(ends[1]))\n"
        )
    lines += "apart = convert_fx(plain, backend_config=backend_config)\n"
    lines += "clamped = [y.clamp_min(0.0) for y in call(inputs(), apart)]\n"
    return f"{lines}again = call(inputs(), convert_fx(fused, backend_config=backend_config))\n"


def _text(lines: str) -> Callable[[Run, str], str]:
    return lambda run, relation: lines.replace("{levels}", str(run.recipe.weight_levels))


def _call(run: Run, relation: str) -> str:
    return (
        f"{CHANNELS_LAST}for given in (inputs(), channels_last):\n"
        "    with Writes() as writes:\n        lowered(*given)\n"
        "    if writes.found or not all(map(torch.equal, given, inputs())):\n"
        '        deviates("stable", f"a call changes its inputs; {writes.found}")\n'
        "        break\n"
        "again = first\n"
    )


LINES: dict[str, Callable[[Run, str], str]] = {
    relations.SECOND_CALL: _text("with fresh_memory_holds(0xAA):\n    again = call(inputs())\n"),
    relations.ITEM_ALONE: _in_parts,
    relations.SPLIT_BATCH: _in_parts,
    relations.CHANNEL_ORDER: _channels,
    relations.CHANNELS_LAST: _text(f"{CHANNELS_LAST}again = call(channels_last)\n"),
    relations.RELU_APART: _relu,
    relations.INPUTS_KEPT: _call,
    relations.SECOND_THREAD: _text(
        "torch.set_num_threads(1)\nalone = call(inputs())\nagain = on_threads(2, call, inputs())\n"
    ),
    relations.STATE_DICT: _text(f"{LOADED}again = call(inputs(), other)\n"),
    relations.TORCH_LOAD: _text("loaded_state(lowered)\nagain = first\n"),
}
"""The lines that evaluate each relation; they bind its outputs to `again`."""

EXPECTED = {relations.RELU_APART: "clamped", relations.SECOND_THREAD: "alone"}
"""The name of the outputs that a relation compares with, if it is not `first`."""


def _first(case: Case) -> Iterator[str]:
    """The blocks that all relations of a script share."""
    yield Once(CALL)
    yield Once(HELD)
    yield Once(FIRST)


def _held(relation: str) -> str:
    return f'held("{relation}", {EXPECTED.get(relation, "first")}, again)\n'


def _broken(case: Case, finding: Any) -> Iterator[str]:
    yield from _first(case)
    yield LINES[finding.relation](case.run, finding.relation) + _held(finding.relation)


def _raised(case: Case, finding: Raises) -> Iterator[str]:
    yield from _first(case)
    relation = finding.stage
    lines = LINES[relation](case.run, relation)
    yield f"{guarded(finding.check, relation, lines)}else:\n    {_held(relation)}"


RENDERERS: dict[type[Finding], Renderer] = {
    RelationOutputs: _broken,
    RelationShape: _broken,
    RelationValues: _broken,
    RelationVaries: _broken,
    RelationWrites: _broken,
    Raises: _raised,
}
"""Renderers of findings of the profile `laws`; `Raises` is for a relation that raises."""
