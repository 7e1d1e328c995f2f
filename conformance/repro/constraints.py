"""The blocks of a script that shows how a constraint is not kept, from the counterexample that a row's detail tells."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from torch.ao.quantization.backend_config import BackendPatternConfig, DTypeWithConstraints

from conformance.cases.constraints import of_side
from conformance.cases.runs import Run
from conformance.cases.sources import is_qat_module, root_of
from conformance.configs.names import pattern_name
from conformance.results.constraints import FIELDS
from conformance.results.findings import Finding

from .case import Renderer


@dataclass(frozen=True)
class Told:
    """A counterexample: what the detail says of it, and its QConfig."""

    said: str
    qconfig: str


def told(text: str) -> Iterator[Told]:
    """The counterexamples in what a check says, which stand apart by ` | `."""
    for part in text.split(" | "):
        said, _, rest = part.partition(": QConfig(")
        yield Told(said, "QConfig(" + rest.partition("; then ")[0])


def split(qconfig: str) -> str:
    """A QConfig with each of its two observers on a line of its own."""
    activation, weight = qconfig.removeprefix("QConfig(activation=").removesuffix(")").split(", weight=")
    return f"QConfig(\n    activation={activation},\n    weight={weight},\n)"


def _prepared(run: Run, one: Told, filled: str, weights: str) -> str:
    """The lines up to the prepared model; what prepare warns of is in `caught`."""
    lines = f"qconfig = {split(one.qconfig)}\nmapping = {run.recipe.mapping}\nmodel = Model()\n{filled}"
    lines += f"rewrite(model, {weights!r})\n" if weights else ""
    lines += "model.train()\n" if run.flow == "qat" else "model.eval()\n"
    entry = "prepare_qat_fx" if run.flow == "qat" else "prepare_fx"
    return (
        f"{lines}with warnings.catch_warnings(record=True) as caught:\n"
        '    warnings.simplefilter("always")\n'
        f"    prepared = {entry}(model, mapping, inputs(), backend_config=backend_config)\n"
    )


GATES = (
    (r".* it is used", "used"),
    (r".* it is ignored without a warning", "not used and not warned"),
    (r"satisfies every constraint and is ignored", "not used"),
    (r"satisfies every constraint and is used, with a warning", "used and warned"),
    (r"it is ignored, and its weight is fake-quantized", "swapped and not used"),
)
"""What is said of prepare and the expression that holds if it is so."""


def _gate(run: Run, one: Told) -> str:
    assert run.variant is not None
    nodes = "prepared.graph.nodes"
    if run.variant.prelude:
        nodes = 'next(node for node in prepared.graph.nodes if node.op == "output").all_input_nodes'
    condition = next(holds for expression, holds in GATES if re.match(expression, one.said))
    lines = f"used = any(observes(prepared, node) for node in {nodes})\n"
    lines += 'warned = any("ignoring" in str(one.message) and "QConfig" in str(one.message) for one in caught)\n'
    if "swapped" in condition and not is_qat_module(root_of(run.claim.tree)):
        lines += 'swapped = any(hasattr(module, "weight_fake_quant") for module in prepared.modules())\n'
    return f'{lines}print(prepared.graph)\nif {condition}:\n    deviates("observed", {one.said!r})\n'


def _converted(run: Run, one: Told) -> str:
    """Lines that make `constrained`: the quantized tensors of the converted model, by what the detail calls them."""
    data = match[1] if (match := re.search(r" when (.*?) is observed", one.said)) else ""
    after = match[1] if (match := re.search(r" when training then makes (.*?) of it", one.said)) else ""
    if data:
        lines = f"data = {data}\nshow(prepared, data)\n"
    else:
        lines = "data = torch.tensor([-1.0, 1.0])\n"
        if run.flow == "qat":
            lines += "for module in prepared.modules():\n"
            lines += '    if hasattr(module, "freeze_bn_stats"):\n        module.freeze_bn_stats()\n'
        lines += "prepared(*inputs())\n"
    lines += f"rewrite(prepared, {after!r})\n" if after else ""
    lines += "prepared.eval()\n"
    lines += "reference = convert_to_reference_fx(copy.deepcopy(prepared), backend_config=backend_config)\n"
    lines += 'constrained = {"input": [], "output": [], "weight": []}\n'
    lines += "for side, _, tensor in quantized_by(reference, 2 * data):\n    constrained[side].append(tensor)\n"
    if one.said.startswith("packed weight"):
        lines += "lowered = convert_fx(prepared, backend_config=backend_config)\n"
        lines += 'constrained["packed weight"] = [*unpacked(lowered)]\n'
    return lines + "print(reference)\n"


def _dtype_source(constraints: DTypeWithConstraints) -> str:
    fields = {field: getattr(constraints, field) for field in FIELDS}
    given = "".join(f", {field}={value!r}" for field, value in fields.items() if value is not None)
    return f"DTypeWithConstraints({constraints.dtype}{given})" if given else str(constraints.dtype)


def config_source(entry: BackendPatternConfig) -> str:
    """A config with one entry as source text; empty for an entry that takes more than one operator."""
    if entry.pattern is None or isinstance(entry.pattern, tuple) or entry.fuser_method is not None:
        return ""
    lines = [f"BackendPatternConfig({pattern_name(entry.pattern)})", f".set_observation_type({entry.observation_type})"]
    for dtypes in entry.dtype_configs:
        sides = ", ".join(_dtype_source(of_side(dtypes, side)) for side in ("input", "output", "weight"))
        lines.append(f".add_dtype_config(DTypeConfig({sides}, {dtypes.bias_dtype}, {dtypes.is_dynamic}))")
    for setter in ("root_module", "qat_module", "reference_quantized_module"):
        if module := getattr(entry, setter):
            name = f"nnqr.{module.__name__}" if setter.startswith("reference") else pattern_name(module)
            lines.append(f".set_{setter}({name})")
    if entry._input_type_to_index:
        lines.append(f"._set_input_type_to_index({entry._input_type_to_index})")
    chain = "".join(f"    {line}\n" for line in lines)
    return f"entry = (\n{chain})\nbackend_config = BackendConfig().set_backend_pattern_config(entry)\n"


def blocks(run: Run, found: Mapping[str, str], inputs: str, filled: str) -> Iterator[str]:
    """The blocks for what was found at prepare, and those that end in `constrained` for what was found after it.

    `inputs` is the source of the inputs' expression, `filled` the line that fills the model's parameters, if it has any.
    """
    yield f"def inputs():\n    return {inputs}\n"
    for one in told(found["observed"]) if "observed" in found else ():
        yield _prepared(run, one, filled, "")
        yield _gate(run, one)
    for one in told(found["constraints"]) if "constraints" in found else ():
        weights = match[1] if (match := re.search(r" when (.*?) is the weight", one.said)) else ""
        yield _prepared(run, one, filled, weights)
        yield _converted(run, one)


RENDERERS: dict[type[Finding], Renderer] = {}
