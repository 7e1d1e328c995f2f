"""The blocks of a script that check a finding: those of `templates/findings.j2`, by the kind of the finding.

At least one block has to call `deviates(check, text)` under the condition that the finding states; `script.script` raises
NothingToCheck otherwise. The blocks run after those of `stages.blocks`, in the order of the row's findings.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Any, NoReturn

from jinja2 import Template

from conformance.cases.sources import without_relu
from conformance.checks.tolerances import tolerance
from conformance.engines.programs import calls_lines
from conformance.models.trace import CONVERSIONS, VIEWS
from conformance.properties.metamorphic import relations
from conformance.results.findings import KINDS, Finding
from conformance.results.findings.annotations import (
    INPUT,
    WEIGHT,
    AnnotatedBeside,
    AnnotatedOtherwise,
    NotAnnotated,
)
from conformance.results.findings.structure import (
    ActivationObserved,
    DynamicOutputObserved,
    FakeQuantizeDisabled,
    InnerObservers,
    NotObserved,
    ObservedDtype,
    ObserverNotDynamic,
    ObserverRange,
    QuantizesNothing,
    SharedObserver,
    UndeclaredDtype,
    WeightDtype,
)
from conformance.results.findings.values import CodesDiffer, ValuesDiffer
from conformance.templates import source_templates

from . import codes, stages
from .case import Case, NothingToCheck, guarded, has_state, violates
from .configs import frozen, pattern_source, prepare_call, qconfig_lines

INNER = "any(n is not result and observer(n) and n.args[0].op != 'placeholder' for n in nodes.values())"
PARTS = "[o for o in prepared.modules() if (getattr(o, 'quant_min', 0), getattr(o, 'quant_max', 0)) == ({}, {})]"
QUANTIZES = "any('quantize_per' in str(n.target) or n.target == 'to' for n in reference.graph.nodes)"
WEIGHT_DTYPE = "any(getattr(module, 'weight_dtype', None) == torch.{} for module in reference.modules())"
NODE_DTYPE = "any(node.name == '{}' and torch.{} in node.args for node in reference.graph.nodes)"


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


def _annotated(case: Case, finding: NotAnnotated | AnnotatedOtherwise | AnnotatedBeside) -> str:
    """Some operator has this annotation at the place of a finding."""
    got = "" if isinstance(finding, NotAnnotated) else finding.got
    if finding.place in (INPUT, WEIGHT):
        return f"any(one.inputs.get({finding.node!r}) == {got!r} for one in annotated)"
    return f"any(one.name == {finding.node!r} and one.output == {got!r} for one in annotated)"


Condition = Callable[[Case, Any], str]
CONDITIONS: dict[str, dict[type[Finding], Condition]] = {
    "observed_model": {
        NotObserved: _not_observed,
        ObservedDtype: _observed_dtype,
        ObserverNotDynamic: lambda case, finding: f"not all(o.is_dynamic for o in observers({finding.node!r}))",
        DynamicOutputObserved: lambda case, finding: "observer(result) is not None",
        SharedObserver: _shared,
        InnerObservers: lambda case, finding: INNER,
        ObserverRange: lambda case, finding: PARTS.format(finding.quant_min, finding.quant_max),
        FakeQuantizeDisabled: _disabled,
        ActivationObserved: lambda case, finding: f"observer(nodes[{finding.node!r}]).dtype == torch.{finding.dtype}",
    },
    "reference_model": {
        WeightDtype: lambda case, finding: WEIGHT_DTYPE.format(finding.got),
        UndeclaredDtype: lambda case, finding: NODE_DTYPE.format(finding.node, finding.dtype),
        QuantizesNothing: lambda case, finding: f"not {QUANTIZES}",
    },
    "annotated_model": dict.fromkeys((NotAnnotated, AnnotatedOtherwise, AnnotatedBeside), _annotated),
}
"""By the macro for a model: the expression that holds if the model is as a finding says."""


@cache
def _template() -> Template:
    jinja = source_templates(__package__)
    jinja.filters["repr"] = repr
    functions: tuple[Callable[..., Any], ...] = (
        *(codes.swept, codes.turn, frozen, guarded, has_state, pattern_source, prepare_call, qconfig_lines),
        *(stages.filled, stages.stage_block, tolerance, unknown, violates, without_relu, _exact_codes, _exact_values),
    )
    jinja.globals |= {function.__name__: function for function in functions}
    jinja.globals |= {"CONVERSIONS": CONVERSIONS, "VIEWS": VIEWS, "relations": relations, "stages": stages.CALLS}
    return jinja.get_template("findings.j2")


def unknown(repetition: str) -> NoReturn:
    """Raise NothingToCheck for a repetition or relation that the template does not know."""
    raise NothingToCheck(f"no script repeats an execution by {repetition!r}")


def _exact_codes(finding: CodesDiffer) -> Iterator[str]:
    """What exact arithmetic gives by index, as items of a dict."""
    yield from (f"{one.index}: {int(one.golden)}" for one in finding.elements)


def _exact_values(finding: ValuesDiffer) -> Iterator[str]:
    for one in finding.elements:
        yield f"{one.index}: " + (repr(one.golden) if math.isfinite(one.golden) else f'float("{one.golden}")')


def _text(case: Case, finding: Finding) -> str:
    """The blocks of a finding, separated by lines; empty if there are none."""
    module: Any = _template().make_module(
        {"case": case, "run": case.run, "finding": finding, "check": finding.check}
        | {"calls": calls_lines(case.run.engine), "operands": [name for name, _ in case.run.model.operands]}
    )
    for name, conditions in CONDITIONS.items():
        if (condition := conditions.get(type(finding))) is not None:
            return str(getattr(module, name)(condition(case, finding)))
    macro = getattr(module, finding.kind.replace("-", "_"), None)
    return "" if macro is None else str(macro())


def blocks(case: Case, finding: Finding) -> list[str]:
    """The blocks of a finding; none if no script checks it."""
    return [f"{block.strip(chr(10))}\n" for block in _text(case, finding).split("%%\n") if block.strip()]


def kinds() -> Iterable[str]:
    """The kinds of findings that have blocks."""
    conditional = {kind for conditions in CONDITIONS.values() for kind in conditions}
    names = vars(_template().make_module({"check": ""}))
    return (kind for kind, finding in KINDS.items() if finding in conditional or kind.replace("-", "_") in names)
