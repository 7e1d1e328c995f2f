"""Renderers of findings about observed models: whether the claim has an effect, and its observers and modules."""

from collections.abc import Callable, Iterator
from typing import Any

from torch.ao.quantization.utils import MatchAllNode

from conformance.configs.names import pattern_name
from conformance.engines.executorch.runtime import EXECUTORCH
from conformance.results.findings import Finding
from conformance.results.findings.structure import (
    ActivationObserved,
    DynamicOutputObserved,
    FakeQuantizeDisabled,
    InnerObservers,
    MissingModule,
    NoEffect,
    NotObserved,
    ObservedDtype,
    ObserverNotDynamic,
    ObserverRange,
    SharedObserver,
)

from .case import Case, Once, Renderer, condition_block

GRAPH = Once("print(prepared.graph)\nnodes = {node.name: node for node in prepared.graph.nodes}\n")
RESULT = Once("result = nodes['output'].all_input_nodes[0]\n")

INNER = "any(n is not result and observer(n) and n.args[0].op != 'placeholder' for n in nodes.values())"
PARTS = "[o for o in prepared.modules() if (getattr(o, 'quant_min', 0), getattr(o, 'quant_max', 0)) == ({}, {})]"


def pattern_source(pattern: Any) -> str:
    """A pattern as source text over the names that scripts import."""
    if isinstance(pattern, tuple):
        return f"({', '.join(map(pattern_source, pattern))})"
    if pattern is MatchAllNode:
        return "MatchAllNode"
    return repr(pattern) if isinstance(pattern, str) else pattern_name(pattern)


def _no_effect(case: Case, finding: NoEffect) -> Iterator[str]:
    entry = case.run.claim.entry
    attribute = "_pattern_complex_format" if entry.pattern is None else "pattern"
    pattern = pattern_source(getattr(entry, attribute))
    prepare = "prepare_qat_fx" if case.run.flow == "qat" else "prepare_fx"
    convert, converted = "convert_fx", "lowered"
    if case.run.engine == EXECUTORCH.name:
        convert, converted = "_convert_to_reference_decomposed_fx", "reference"
    yield (
        f"entries = [entry for entry in backend_config.configs if entry.{attribute} != {pattern}]\n"
        "assert len(entries) == len(backend_config.configs) - 1\n"
        "rest = BackendConfig().set_backend_pattern_configs(entries)\n"
        f"other = {prepare}(copy.deepcopy(model), mapping, calibration(), backend_config=rest)\n"
        "other(*calibration())\n"
        "other.eval()\n"
        f"if str(other) == str(prepared) and str({convert}(other, backend_config=rest)) == str({converted}):\n"
        f"    print({converted})\n"
        '    deviates("matched", "without its entry in the config, the observed and the lowered model are the same")\n'
    )


def _not_observed(case: Case, finding: NotObserved) -> str:
    return "observer(result) is None" if finding.node is None else f"None in (observers({finding.node!r}) or [None])"


def _observed_dtype(case: Case, finding: ObservedDtype) -> str:
    if finding.node is None:
        return f"observer(result).dtype != torch.{finding.expected}"
    return f"{{o.dtype for o in observers({finding.node!r})}} != {{torch.{finding.expected}}}"


def _shared(case: Case, finding: SharedObserver) -> str:
    inputs = ", ".join(repr(name) for name, spec in case.run.model.operands if spec.kind == "activation")
    return f"observer(result) {'in' if finding.shared else 'not in'} observers({inputs})"


def _disabled(case: Case, finding: FakeQuantizeDisabled) -> str:
    flag = "observer_enabled" if finding.observer_disabled else "fake_quant_enabled"
    return f"not prepared.get_submodule({finding.module!r}).{flag}"


def _missing_module(case: Case, finding: MissingModule) -> Iterator[str]:
    model = "reference" if finding.model == "reference" else "prepared"
    yield Once("print(reference)\n") if model == "reference" else GRAPH
    name = "__name__" if "." not in finding.module else "__module__ + '.' + type(module).__name__"
    condition = f"'{finding.module}' not in [type(module).{name} for module in {model}.modules()]"
    yield condition_block(finding.check, condition, finding.text)


CONDITIONS: dict[type[Finding], Callable[[Case, Any], str]] = {
    NotObserved: _not_observed,
    ObservedDtype: _observed_dtype,
    ObserverNotDynamic: lambda case, finding: f"not all(o.is_dynamic for o in observers({finding.node!r}))",
    DynamicOutputObserved: lambda case, finding: "observer(result) is not None",
    SharedObserver: _shared,
    InnerObservers: lambda case, finding: INNER,
    ObserverRange: lambda case, finding: PARTS.format(finding.quant_min, finding.quant_max),
    FakeQuantizeDisabled: _disabled,
    ActivationObserved: lambda case, finding: f"observer(nodes[{finding.node!r}]).dtype == torch.{finding.dtype}",
}
"""The expression that holds if the observed model is as a finding says."""


def _observed(case: Case, finding: Finding) -> Iterator[str]:
    condition = CONDITIONS[type(finding)](case, finding)
    yield GRAPH
    if "result" in condition:
        yield RESULT
    yield condition_block(finding.check, condition, finding.text)


RENDERERS: dict[type[Finding], Renderer] = {
    NoEffect: _no_effect,
    MissingModule: _missing_module,
    **dict.fromkeys(CONDITIONS, _observed),
}
"""Renderers of findings about observed models."""
