"""Source text of configs and QConfigs, and of the calls of FX that take them."""

from collections.abc import Mapping
from typing import Any

from torch.ao.quantization.backend_config import BackendPatternConfig, DTypeWithConstraints
from torch.ao.quantization.utils import MatchAllNode

from conformance.cases.constraints import of_side
from conformance.cases.operators.expressions import Call, expression
from conformance.cases.runs import Run
from conformance.cases.sources import untraced
from conformance.configs.names import pattern_name
from conformance.configs.registry import BACKENDS
from conformance.results.constraints import FIELDS


def pattern_source(pattern: Any) -> str:
    """A pattern as source text over the names that scripts import."""
    if isinstance(pattern, tuple):
        return f"({', '.join(map(pattern_source, pattern))})"
    if pattern is MatchAllNode:
        return "MatchAllNode"
    return repr(pattern) if isinstance(pattern, str) else pattern_name(pattern)


def observers_of(qconfig: str) -> Mapping[str, str]:
    """Source of the two observers of a QConfig by name; none of one of torch's own."""
    call = expression(qconfig)
    return call.keywords if isinstance(call, Call) and call.function == "QConfig" else {}


def qconfig_lines(qconfig: str) -> str:
    """Source of a QConfig; one with two observers has each of them on a line of its own."""
    lines = [f"    {name}={observer},\n" for name, observer in observers_of(qconfig).items()]
    return f"QConfig(\n{''.join(lines)})" if lines else qconfig


def backend_config_source(run: Run) -> str:
    """The lines that bind `backend_config`."""
    if run.backend.name in BACKENDS:
        return f"backend_config = get_{run.backend.name}_backend_config()\n"
    return f"{run.backend.source}\n"


def custom_source(run: Run) -> str:
    """The line that binds `untraced`, if modules of the pattern must not be traced through."""
    names = [name for name, _ in untraced(run.claim)]
    if not names:
        return ""
    return f"untraced = PrepareCustomConfig().set_non_traceable_module_classes([{', '.join(names)}])\n"


def custom_argument(run: Run) -> str:
    """The argument of `prepare_fx` about these modules, with a comma, if there are any."""
    return "prepare_custom_config=untraced, " if untraced(run.claim) else ""


def prepare_call(run: Run, model: str, data: str) -> str:
    """The call of FX that prepares a model, with the source of example inputs."""
    entry = "prepare_qat_fx" if run.flow == "qat" else "prepare_fx"
    return f"{entry}({model}, mapping, {data}, {custom_argument(run)}backend_config=backend_config)"


def frozen(run: Run, model: str) -> str:
    """The lines that freeze the statistics of norms, if a model is trained."""
    if run.flow != "qat":
        return ""
    return (
        f"for module in {model}.modules():\n"
        '    if hasattr(module, "freeze_bn_stats"):\n        module.freeze_bn_stats()\n'
    )


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
