"""Rules about the modules of an entry: roots, fused, QAT and reference modules, and fusers."""

import inspect
from collections.abc import Iterator
from typing import Any

from torch import nn
from torch.ao.nn.intrinsic.modules.fused import _FusedModule
from torch.ao.quantization.fx import _lower_to_native_backend as native
from torch.ao.quantization.utils import MatchAllNode

from conformance.cases.claims import operators_of
from conformance.cases.followers import FOLLOWERS, follower
from conformance.cases.operators import OPERATORS
from conformance.configs.names import pattern_name
from conformance.models import build

from .declared import Declared, DeclaredEntry, is_module_class
from .dtypes import quantized
from .rules import error, warning

FIELDS = ("root_module", "qat_module", "reference_quantized_module", "fused_module")
INDEXED = ("input", "weight", "bias")
"""Kinds of arguments of a function."""
LOWERED = {
    *native.STATIC_LOWER_MODULE_MAP,
    *native.STATIC_LOWER_FUSED_MODULE_MAP,
    *native.STATIC_LOWER_FUSED_MODULE_TWO_INPUTS_MAP,
    *native.DYNAMIC_LOWER_MODULE_MAP,
    *native.DYNAMIC_LOWER_FUSED_MODULE_MAP,
    *native.WEIGHT_ONLY_LOWER_MODULE_MAP,
    *native.SPECIAL_PATTERN_LOWER_MODULE_MAP,
}
"""Classes that torch lowers to kernels of its native engines."""


def weighted(one: DeclaredEntry) -> bool:
    """Whether an entry declares a quantized weight."""
    return any(quantized(dtypes.weight_dtype) for dtypes in one.dtype_configs)


@error("module-class", "BackendPatternConfig(nn.Linear).set_root_module(nn.Linear(2, 2))")
def _class(one: DeclaredEntry, declared: Declared) -> Iterator[str]:
    """Root, QAT, reference and fused modules are classes of modules."""
    for field in FIELDS:
        value = getattr(one.entry, field)
        if value is not None and not is_module_class(value):
            yield f"its {field} is {value!r:.60}"


@error("root-not-in-pattern", "BackendPatternConfig((nn.Conv2d, nn.ReLU)).set_root_module(nn.Linear)")
def _root(one: DeclaredEntry, declared: Declared) -> Iterator[str]:
    """The root module is the operator of the pattern that has the weights."""
    root = one.entry.root_module
    if is_module_class(root) and isinstance(one.pattern, tuple) and root not in one.operators:
        yield f"its root module is {pattern_name(root)}"


@error("reference-without-root", "BackendPatternConfig(nn.Linear).set_reference_quantized_module(nnqr.Linear)")
def _without_root(one: DeclaredEntry, declared: Declared) -> Iterator[str]:
    """torch looks up reference modules by root module; without one a reference module has no effect."""
    if one.entry.reference_quantized_module is not None and one.entry.root_module is None:
        yield "it has a reference module and no root module"


@error("reference-missing", "BackendPatternConfig(nn.Linear).set_root_module(nn.Linear).set_dtype_configs([weighted])")
def _reference(one: DeclaredEntry, declared: Declared) -> Iterator[str]:
    """A module's weights are quantized by its reference module. Without one for the root module they stay in float, or the
    conversion raises an AssertionError."""
    root = one.entry.root_module
    if weighted(one) and is_module_class(root) and root not in declared.references:
        yield f"no entry has a reference module for {pattern_name(root)}"


@error("root-missing", "BackendPatternConfig(nn.Linear).set_dtype_configs([weighted])")
def _root_missing(one: DeclaredEntry, declared: Declared) -> Iterator[str]:
    """torch looks up the reference module, which quantizes the weights, by root module."""
    module = one.module
    # of a fused or QAT module torch looks up the module that it was made of
    if (
        module is None
        or one.entry.root_module is not None
        or issubclass(module, _FusedModule)
        or hasattr(module, "to_float")
    ):
        return
    if weighted(one) and module not in declared.references:
        yield "it has a weight dtype and no root module"


@error("reference-from-float", "set_reference_quantized_module(nn.Linear)")
def _reference_from_float(one: DeclaredEntry, declared: Declared) -> Iterator[str]:
    """torch makes reference modules by their class method from_float."""
    value = one.entry.reference_quantized_module
    if is_module_class(value) and not callable(getattr(value, "from_float", None)):
        yield f"{pattern_name(value)} has no from_float"


@error("qat-from-float", "set_qat_module(nn.Linear)")
def _qat_from_float(one: DeclaredEntry, declared: Declared) -> Iterator[str]:
    """torch makes QAT modules by their class method from_float."""
    value = one.entry.qat_module
    if is_module_class(value) and not callable(getattr(value, "from_float", None)):
        yield f"{pattern_name(value)} has no from_float"


@error("qat-of-other-module", "BackendPatternConfig(nn.Linear).set_qat_module(nnqat.Conv2d)")
def _qat_source(one: DeclaredEntry, declared: Declared) -> Iterator[str]:
    """torch's QAT modules are made from one class only, their _FLOAT_MODULE; from_float refuses others."""
    source = getattr(one.entry.qat_module, "_FLOAT_MODULE", None)
    if is_module_class(source) and one.module is not None and source is not one.module:
        yield f"{pattern_name(one.entry.qat_module)} is made from {pattern_name(source)}"


@error(
    "qat-module-unmatched",
    "BackendPatternConfig(nn.Linear).set_qat_module(nnqat.Linear) without BackendPatternConfig(nnqat.Linear)",
)
def _qat_unmatched(one: DeclaredEntry, declared: Declared) -> Iterator[str]:
    """The QAT module replaces the pattern before operators are matched. Without an entry for it, it is not observed."""
    value = one.entry.qat_module
    if is_module_class(value) and value not in declared.patterns:
        yield f"no entry has the pattern {pattern_name(value)}"


@error("fused-module-unmatched", "set_fused_module(nni.ConvReLU2d) without BackendPatternConfig(nni.ConvReLU2d)")
def _fused_unmatched(one: DeclaredEntry, declared: Declared) -> Iterator[str]:
    """The fused module replaces the pattern before operators are matched. Without an entry for it, it is not observed."""
    value = one.entry.fused_module
    if is_module_class(value) and one.entry.fuser_method is not None and value not in declared.patterns:
        yield f"no entry has the pattern {pattern_name(value)}"


@error("fused-without-fuser", "BackendPatternConfig((nn.Conv2d, nn.ReLU)).set_fused_module(nni.ConvReLU2d)")
def _without_fuser(one: DeclaredEntry, declared: Declared) -> Iterator[str]:
    """torch fuses by the fuser method; a fused module alone has no effect."""
    if one.entry.fused_module is not None and one.entry.fuser_method is None:
        yield "it has a fused module and no fuser"


@error(
    "fuser-signature",
    "BackendPatternConfig((nn.Conv2d, nn.ReLU)).set_fuser_method(lambda conv, relu: nni.ConvReLU2d(conv, relu))",
)
def _signature(one: DeclaredEntry, declared: Declared) -> Iterator[str]:
    """torch calls a fuser with is_qat and the modules of the pattern, nested as the pattern was written."""
    fuser = one.entry.fuser_method
    if fuser is None:
        return
    if not callable(fuser):
        yield f"its fuser is {fuser!r:.60}"
        return
    if not isinstance(one.pattern, tuple):
        yield "it has a fuser and a single operator"
        return
    try:
        inspect.signature(fuser).bind(False, *one.pattern)
    except TypeError:
        yield f"its fuser does not take is_qat and {len(one.pattern)} modules"
    except ValueError:  # a builtin without a signature
        return


@error("fuser-raises", "set_fuser_method(raising)")
def _raises(one: DeclaredEntry, declared: Declared) -> Iterator[str]:
    """A fuser has to fuse modules as they are after construction, in eval mode and for QAT."""
    for _, outcome in fused(one):
        if isinstance(outcome, Exception):
            yield f"its fuser raises {type(outcome).__name__}: {outcome}"
            return


@error("fuser-result", "BackendPatternConfig((nn.Conv2d, nn.ReLU)).set_fuser_method(lambda is_qat, conv, relu: relu)")
def _result(one: DeclaredEntry, declared: Declared) -> Iterator[str]:
    """What a fuser returns replaces the pattern. In eval mode it is the fused module, or the root module with what follows
    folded into it; for QAT it is the fused module."""
    for is_qat, outcome in fused(one):
        if isinstance(outcome, Exception):
            continue
        flow = "for QAT" if is_qat else "in eval mode"
        if not isinstance(outcome, nn.Module):
            yield f"its fuser returns {outcome!r:.60} {flow}"
        elif type(outcome) not in declared.patterns:
            yield f"its fuser returns a {pattern_name(type(outcome))} {flow}, which no entry has as its pattern"
        elif is_qat and one.entry.fused_module is not None and type(outcome) is not one.entry.fused_module:
            yield f"its fuser returns a {pattern_name(type(outcome))} {flow}, and its fused module is another class"


def fused(one: DeclaredEntry) -> Iterator[tuple[bool, Any]]:
    """What the fuser of an entry returns or raises in eval mode and for QAT.

    Nothing for operators whose modules are not known, and for a fuser that cannot be called with them.
    """
    fuser = one.entry.fuser_method
    if not callable(fuser) or not isinstance(one.pattern, tuple) or one.nested is None:
        return
    for is_qat in (False, True):
        try:
            modules = [_instances(part, _channels(one.nested), training=is_qat) for part in one.pattern]
            inspect.signature(fuser).bind(is_qat, *modules)
        except (LookupError, TypeError, ValueError):
            return
        try:
            yield is_qat, fuser(is_qat, *modules)
        except Exception as raised:  # whatever a fuser raises is the finding
            yield is_qat, raised


def _channels(nested: Any) -> int:
    """The channels of the output of a pattern's root operator. Raises LookupError for an operator without a model."""
    return OPERATORS[next(operators_of(nested))][0].channels


def _instances(pattern: Any, channels: int, *, training: bool) -> Any:
    """The modules of a pattern, as the suite's models have them, in the structure of the pattern.

    Functions and wildcards stay what they are, but for ReLU: torch calls fusers so. Raises LookupError for a module that the
    suite's models do not have.
    """
    if isinstance(pattern, tuple):
        return tuple(_instances(part, channels, training=training) for part in pattern)
    name = "" if pattern is MatchAllNode else pattern_name(pattern)
    if not isinstance(pattern, type):
        return nn.ReLU().train(training) if name in ("F.relu", "torch.relu") else pattern
    known = follower(name) if name in FOLLOWERS or name in OPERATORS else None
    source = OPERATORS[name][0].init if known is None else known.module.format(channels=channels)
    module: nn.Module = eval(source, build.names())
    return module.train(training)


@error("argument-index", 'BackendPatternConfig(F.linear)._set_input_type_to_index({"weight": 0})')
def _index(one: DeclaredEntry, declared: Declared) -> Iterator[str]:
    """The index of an argument of a function says which one is the weight or the bias."""
    indices = one.entry._input_type_to_index
    for kind in indices:
        if kind not in INDEXED:
            yield f"it has an index of {kind!r}, which is none of {', '.join(INDEXED)}"
    function = one.operators[0] if one.operators else None
    if function is None or isinstance(function, (str, type)) or not callable(function):
        return
    try:
        parameters = [*inspect.signature(function).parameters]
    except (TypeError, ValueError):
        return
    for kind in ("weight", "bias"):
        if kind in parameters and kind in indices and parameters.index(kind) != indices[kind]:
            yield f"the index of the {kind} is {indices[kind]}, and that of the parameter {parameters.index(kind)}"
    if "weight" in parameters and weighted(one) and "weight" not in indices:
        yield "it has a weight dtype and no index of the weight"


@warning(
    "no-lowering",
    "BackendPatternConfig(nn.Bilinear).set_root_module(nn.Bilinear).set_reference_quantized_module(MyReference)",
)
def _lowering(one: DeclaredEntry, declared: Declared) -> Iterator[str]:
    """torch's native engines execute only classes that it lowers; others stay dequantize, float operator, quantize. For an
    engine with a lowering of its own this is no mistake."""
    reference = one.entry.reference_quantized_module
    if is_module_class(reference) and reference not in LOWERED:
        yield f"torch has no lowering of {pattern_name(reference)}"
