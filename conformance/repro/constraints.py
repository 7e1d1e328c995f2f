"""Renderers of findings about constraints: the QConfig of the counterexample, prepare, and the converted model."""

from collections.abc import Iterator

from torch.ao.quantization.backend_config import BackendPatternConfig, DTypeWithConstraints

from conformance.cases.constraints import of_side
from conformance.cases.runs import Run
from conformance.configs.names import pattern_name
from conformance.results.constraints import FIELDS
from conformance.results.findings import Finding
from conformance.results.findings.constraints import (
    ConversionViolates,
    ConvertedViolation,
    IgnoredQConfigTrainsWeight,
    SatisfyingQConfigIgnored,
    SatisfyingQConfigWarned,
    ViolatingQConfigIgnored,
    ViolatingQConfigUsed,
)

from .case import Case, Renderer, condition_block, custom_argument, has_state, violates

PrepareFinding = (
    ViolatingQConfigUsed
    | ViolatingQConfigIgnored
    | SatisfyingQConfigIgnored
    | SatisfyingQConfigWarned
    | IgnoredQConfigTrainsWeight
)

PREPARE_CONDITIONS: dict[type[Finding], str] = {
    ViolatingQConfigUsed: "used",
    ViolatingQConfigIgnored: "not used and not warned",
    SatisfyingQConfigIgnored: "not used",
    SatisfyingQConfigWarned: "used and warned",
    IgnoredQConfigTrainsWeight: "swapped and not used",
}
"""The expression that holds if prepare deviates as a finding states."""


def _qconfig_lines(qconfig: str) -> str:
    """A QConfig with each of its two observers on a line of its own."""
    activation, weight = qconfig.removeprefix("QConfig(activation=").removesuffix(")").split(", weight=")
    return f"QConfig(\n    activation={activation},\n    weight={weight},\n)"


def _prepare_lines(run: Run, qconfig: str, weights: str = "") -> str:
    """The lines up to the prepared model, which bind the warnings of prepare to `caught`."""
    filled = f"fill(model, key, {run.recipe.weight_levels})\n" if has_state(run) else ""
    lines = f"qconfig = {_qconfig_lines(qconfig)}\nmapping = {run.recipe.mapping}\nmodel = Model()\n{filled}"
    lines += f"rewrite(model, {weights!r})\n" if weights not in ("", "w") else ""
    lines += "model.train()\n" if run.flow == "qat" else "model.eval()\n"
    entry = "prepare_qat_fx" if run.flow == "qat" else "prepare_fx"
    return (
        f"{lines}with warnings.catch_warnings(record=True) as caught:\n"
        '    warnings.simplefilter("always")\n'
        f"    prepared = {entry}(model, mapping, inputs(), {custom_argument(run)}backend_config=backend_config)\n"
    )


def _prepare_finding(case: Case, finding: PrepareFinding) -> Iterator[str]:
    """Prepare with the QConfig; what the QConfig causes in the converted model is not checked."""
    run = case.run
    assert run.variant is not None
    yield _prepare_lines(run, finding.qconfig)
    nodes = "prepared.graph.nodes"
    if run.variant.prelude:
        nodes = 'next(node for node in prepared.graph.nodes if node.op == "output").all_input_nodes'
    lines = f"used = any(observes(prepared, node) for node in {nodes})\n"
    lines += 'warned = any("ignoring" in str(one.message) and "QConfig" in str(one.message) for one in caught)\n'
    if isinstance(finding, IgnoredQConfigTrainsWeight):
        lines += 'swapped = any(hasattr(module, "weight_fake_quant") for module in prepared.modules())\n'
    condition = PREPARE_CONDITIONS[type(finding)]
    yield f"{lines}print(prepared.graph)\n{condition_block(finding.check, condition, finding.text)}"


def _converted_lines(run: Run, violation: ConvertedViolation) -> str:
    """The lines that bind `constrained`: the quantized tensors of the converted model, by the name of their side."""
    if violation.data:
        lines = f"data = {violation.data}\nshow(prepared, data)\n"
    else:
        lines = "data = torch.tensor([-1.0, 1.0])\n"
        if run.flow == "qat":
            lines += "for module in prepared.modules():\n"
            lines += '    if hasattr(module, "freeze_bn_stats"):\n        module.freeze_bn_stats()\n'
        lines += "prepared(*inputs())\n"
    lines += f"rewrite(prepared, {violation.trained!r})\n" if violation.trained else ""
    lines += "prepared.eval()\n"
    lines += "reference = convert_to_reference_fx(copy.deepcopy(prepared), backend_config=backend_config)\n"
    lines += 'constrained = {"input": [], "output": [], "weight": []}\n'
    lines += "for side, tensor in quantized_by(reference, 2 * data):\n    constrained[side].append(tensor)\n"
    if violation.tensor == "packed weight":
        lines += "lowered = convert_fx(prepared, backend_config=backend_config)\n"
        lines += 'constrained["packed weight"] = [*unpacked(lowered)]\n'
    return lines + "print(reference)\n"


def _conversion_finding(case: Case, finding: ConversionViolates) -> Iterator[str]:
    violation = finding.violation
    yield _prepare_lines(case.run, finding.qconfig, violation.weights)
    yield _converted_lines(case.run, violation)
    condition = violates(violation.violation.field, violation.violation.bound, violation.tensor)
    yield condition_block(finding.check, condition, violation.text)


def _dtype_source(constraints: DTypeWithConstraints) -> str:
    fields = {field: getattr(constraints, field) for field in FIELDS}
    arguments = "".join(f", {field}={value!r}" for field, value in fields.items() if value is not None)
    return f"DTypeWithConstraints({constraints.dtype}{arguments})" if arguments else str(constraints.dtype)


def config_source(entry: BackendPatternConfig) -> str:
    """The source text of a config with one entry; empty for an entry whose pattern has several operators."""
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


RENDERERS: dict[type[Finding], Renderer] = {
    **dict.fromkeys(PREPARE_CONDITIONS, _prepare_finding),
    ConversionViolates: _conversion_finding,
}
"""Renderers of findings of the profile `constraints`."""
