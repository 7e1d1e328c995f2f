"""The blocks of a script that shows how a law is broken, from what a row's detail says."""

from collections.abc import Callable, Iterator

from conformance.cases.runs import Run
from conformance.cases.sources import without_relu
from conformance.models.build import unequal_channels
from conformance.properties.metamorphic.relations import batch, channels
from conformance.results.findings import Finding

from .case import Renderer
from .inline import CHANNELS_LAST, LOADED

CALL = """\
def call(given, model=None):
    return [y.dequantize() for y in tensors((model or lowered)(*given))]
"""

HELD = """\
def held(law, expected, got):
    if not all(torch.equal(a, b) for a, b in zip(expected, got, strict=True)):
        deviates("stable", f"{law} changes the outputs")
"""


def filled(run: Run, model: str) -> str:
    """Lines that give a model its parameters."""
    lines = f"fill({model}, key, {run.recipe.weight_levels})\n"
    return lines + (f"with_unequal_channels({model})\n" if unequal_channels(run) else "")


def _built(run: Run, name: str, made: str) -> str:
    """Lines that make a model in the mode in which it is prepared."""
    mode = "train" if run.flow == "qat" else "eval"
    return f"{name} = {made}()\n{filled(run, name)}{name}.{mode}()\n"


def _observed(run: Run, name: str, model: str, calibration: str) -> str:
    """Lines that prepare and calibrate a model."""
    entry = "prepare_qat_fx" if run.flow == "qat" else "prepare_fx"
    freeze = ""
    if run.flow == "qat":
        freeze = f'for module in {name}.modules():\n    if hasattr(module, "freeze_bn_stats"):\n        '
        freeze += "module.freeze_bn_stats()\n"
    return (
        f"given = {calibration}\n{name} = {entry}({model}, mapping, given, backend_config=backend_config)\n"
        f"{freeze}{name}(*given)\n{name}.eval()\n"
    )


def _in_parts(run: Run, law: str) -> str:
    axis, bags = batch(run)
    items = "len(inputs()[-1])" if bags else f"inputs()[0].shape[{axis}]"
    cuts = "[0, 1, 2, items - 1, items]" if law == "an item alone" else "[0, round(0.4 * items), items]"
    return f"items = {items}\nagain = in_parts(call, inputs(), {axis}, {cuts}, {bags})\n"


def _channels(run: Run, law: str) -> str:
    where = channels(run)
    shuffled = [
        f"shuffled({name}, {where.operands[name]})" if name in where.operands else name
        for name, _ in run.model.operands
    ]
    names = ", ".join(name for name, _ in run.model.operands)
    lines = f"def permuted({names}):\n    return ({', '.join(shuffled)},)\n\n\n"
    lines += _built(run, "other", "Model")
    lines += f"shuffle_channels(other, first[0].shape[{where.output}], {where.weight})\n"
    lines += _observed(run, "other", "other", "permuted(*inputs())")
    lines += "other = convert_fx(other, backend_config=backend_config)\n"
    return f"{lines}again = [unshuffled(y, {where.output}) for y in call(permuted(*inputs()), other)]\n"


def _relu(run: Run, law: str) -> str:
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
    lines += "first = [y.clamp_min(0.0) for y in call(inputs(), apart)]\n"
    return f"{lines}again = call(inputs(), convert_fx(fused, backend_config=backend_config))\n"


def _text(lines: str) -> Callable[[Run, str], str]:
    return lambda run, law: lines.replace("{levels}", str(run.recipe.weight_levels))


def _call(run: Run, law: str) -> str:
    return (
        f"{CHANNELS_LAST}for given in (inputs(), channels_last):\n"
        "    with Writes() as writes:\n        lowered(*given)\n"
        "    if writes.found or not all(map(torch.equal, given, inputs())):\n"
        '        deviates("stable", f"a call changes its inputs; {writes.found}")\n'
        "        break\n"
        "again = first\n"
    )


AGAIN: dict[str, Callable[[Run, str], str]] = {
    "a second call": _text("with fresh_memory_holds(0xAA):\n    again = call(inputs())\n"),
    "an item alone": _in_parts,
    "a split batch": _in_parts,
    "another order of channels": _channels,
    "channels_last": _text(f"{CHANNELS_LAST}again = call(channels_last)\n"),
    "ReLU apart": _relu,
    "a call": _call,
    "a second thread": _text(
        "torch.set_num_threads(1)\nfirst = call(inputs())\nagain = on_threads(2, call, inputs())\n"
    ),
    "a loaded state_dict": _text(f"{LOADED}again = call(inputs(), other)\n"),
    "torch.jit": _text("again = call(inputs(), scripted(lowered))\n"),
}
"""The lines that try each law; they leave what comes in `again`, and what it has to be in `first`."""


def broken(text: str) -> list[str]:
    """Names of the laws that a detail says are broken, in order."""
    problems = text.split("; ")
    return [law for law in AGAIN if any(problem.startswith(f"{law} ") for problem in problems)]


def blocks(run: Run, text: str) -> Iterator[str]:
    """Yield a block for each law that the text of a check says is broken."""
    yield CALL
    yield HELD
    yield "with fresh_memory_holds(0x55):\n    first = call(inputs())\n"
    for law in broken(text):
        lines = AGAIN[law](run, law)
        check = f'held("{law}", first, again)\n'
        if f"{law} raises " in text:
            inner = "".join(f"    {line}\n" if line else "\n" for line in lines.splitlines())
            yield (
                f'try:\n{inner}except Exception as error:\n    deviates("stable", f"{law} raises {{error!r:.400}}")\n'
                f"else:\n    {check}"
            )
        else:
            yield lines + check


RENDERERS: dict[type[Finding], Renderer] = {}
