"""Layers of an audit: each executed node with its claim, its arithmetic, its agreement with the reference, and its
features."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx import Node

from conformance.cases.claims import Claim
from conformance.checks.tolerances import TYPICAL_BAND
from conformance.configs.names import config_pattern, pattern_name
from conformance.models.trace import CONVERSIONS, VIEWS, qparams_of
from conformance.results.audits import FEW_CODES, Arithmetic, Fault, Form, Layer
from conformance.results.findings import Finding
from conformance.results.findings.layers import (
    LayerDiffers,
    LayerKind,
    LayerRaises,
    LayerShape,
    OperandOverwritten,
    PrepareDiffers,
    ReferenceDiffers,
    WriteLost,
)
from conformance.results.findings.stages import Crashes
from conformance.results.findings.structure import QuantizedUnasked

from .agreement import agreement, as_tensor, clipped, codes_used, decibels, qparams
from .conversion import Converted
from .execution import Step
from .features import features
from .forms import allowing, form_of_layer
from .grids import Grids, coarser
from .options import call_name, named
from .origins import SAME_DB, Origin, converts

AS_GOOD_DB = 0.5
"""By how much less SQNR against float a value in float has that is as good as the reference's."""

METADATA = frozenset({"aten.size", "aten.sym_size", "aten.stride", "aten.is_same_size", "aten.item", "aten.empty"})


class Layers:
    """Describes the executed nodes of a converted network. `nested` are conversions inside of a node's kernels, `latency` is
    its share of the time, by the name of the node."""

    def __init__(
        self,
        converted: Converted,
        steps: Sequence[Step],
        nested: Mapping[str, tuple[str, ...]] = {},
        latency: Mapping[str, float] = {},
    ) -> None:
        self.converted, self.nested, self.latency = converted, nested, latency
        writers = {step.in_float for step in steps if step.overwritten}
        writes = converted.in_float.writes.items()
        self.lost = {operand: writer for writer, written in writes if writer not in writers for operand in written}
        in_float = {step.node: step.in_float for step in steps}
        written = {operand for _, operands in writes for operand in operands}
        self.written = {node for node, own in in_float.items() if own in written}
        self.lowered_modules = dict(converted.lowered.named_modules(remove_duplicate=False))
        meta = converted.prepared.meta["_observed_graph_module_attrs"]
        self.qconfigs, self.scopes = meta.node_name_to_qconfig, meta.node_name_to_scope
        self.patterns = converted.config._pattern_complex_format_to_config
        self.grids = Grids(converted, self.patterns)
        self.calls = Counter(node.target for node in converted.prepared.graph.nodes if node.op == "call_module")
        self.names: dict[Node, str] = {}
        self.moved = set[Node]()  # whose values are on other grids than the reference's
        called = [node for node in converted.traced.graph.nodes if node.op == "call_module"]
        self.hooked = {node.name for node in called if has_hooks(converted.traced, node)}

    @cached_property
    def claims(self) -> dict[int, list[Claim]]:
        """The claims of each entry of the config."""
        by_pattern: dict[Any, list[Claim]] = {}
        for claim in self.converted.claims.claims:
            by_pattern.setdefault(claim.pattern, []).append(claim)
        return {id(entry): by_pattern.get(_entry_name(entry), []) for entry in self.patterns.values()}

    def layer(self, step: Step) -> Layer:
        """The layer of an executed node."""
        body = self._own(step)
        core = body[0] if body else step.node
        name = self.name(step.node, core, body)
        pattern, claims, qconfig = self._match(core, body)
        claim = next(iter(allowing(claims, qconfig)), None)
        arithmetic = self._arithmetic(step)
        shape = tuple(step.value.shape) if isinstance(step.value, Tensor) else ()
        kernels = tuple(dict.fromkeys(k.name for k in step.kernels if k.name not in METADATA))
        if arithmetic.computes:
            kernels = tuple(k for k in kernels if k not in CONVERSIONS) or kernels
        weight = self._packed(step.node)
        measured = self._measured(step, weight)
        if arithmetic in (Arithmetic.INTEGER, Arithmetic.NAME_ONLY) and not step.replaced and self._is_unasked(core):
            measured["faults"] += (Fault(QuantizedUnasked("asked", kernels)),)
        if measured["output"] and measured["reference"] and measured["output"] != measured["reference"]:
            self.moved.add(step.node)
        reason = self._reason(step, core, arithmetic, claims, claim, qconfig)
        found = Layer(
            name, pattern, claim.id if claim else None, arithmetic, reason, kernels, shape,
            tuple(self.names[node] for node in step.node.all_input_nodes if node in self.names),
            weight=qparams(weight), latency=self.latency.get(step.node.name, 0.0),
            features=self._features(step, core), **measured,
        )  # fmt: skip
        return replace(found, form=self._form(step, core)) if found.blamed or found.unkept else found

    def name(self, node: Node, core: Node, body: list[Node]) -> str:
        """A module's path, or for a function the path of the module that calls it and the node's name."""
        own = core if body else node
        if own.op == "call_module":
            name = str(own.target)
            if self.calls[own.target] > 1:
                name = f"{name} ({own.name})"
        else:
            name = named(own, self.scopes.get(own.name, ("", None))[0])
        self.names[node] = name
        return name

    def _own(self, step: Step) -> list[Node]:
        """The reference nodes of a layer that are the float model's own: those that depend on its input, not those that
        compute a weight, and for a node that was not lowered, itself."""
        same = self.converted.equivalents.get(step.node)
        if same is not None and same in step.body and self._computes(same) and same.target == step.node.target:
            return [same]
        constant = _constant(step)
        return [node for node in step.body if self._computes(node) and node not in constant]

    def _computes(self, node: Node) -> bool:
        """Whether a reference node is one of the float model's own, neither a conversion nor a constant."""
        return (
            node.op not in ("placeholder", "get_attr", "output")
            and not converts(node)
            and node.name in self.converted.nodes
        )

    def _match(self, core: Node, body: list[Node]) -> tuple[str, list[Claim], Any]:
        """The pattern that a layer was matched as, the claims of the entry that has it, and its qconfig."""
        matches = self.converted.matches
        qconfig = self.qconfigs.get(core.name)
        key = matches.fused.get(core.name)
        if key is None:
            key = next((matches.observed[node.name] for node in reversed(body) if node.name in matches.observed), None)
        entry = self.patterns.get(key) if key is not None else None
        if entry is not None:
            return _entry_name(entry), self.claims[id(entry)], qconfig
        nodes = [self.converted.nodes.get(node.name) for node in body]
        named = [call_name(node, self.converted.modules) for node in nodes if node is not None]
        return "+".join(named) or call_name(core, self.lowered_modules), [], qconfig

    def _is_unasked(self, core: Node) -> bool:
        """Whether the mapping leaves a layer in float, and not the suite because it was refused."""
        kind = call_name(self.converted.nodes.get(core.name, core), self.converted.modules)
        refused = any(refusal.operator in kind for refusal in self.converted.refusals)
        return not refused and self.qconfigs.get(core.name, True) is None

    def _arithmetic(self, step: Step) -> Arithmetic:
        kernels = [kernel for kernel in step.kernels if kernel.name not in METADATA]
        computing = [kernel for kernel in kernels if kernel.name not in CONVERSIONS and kernel.name not in VIEWS]
        if step.replaced:
            return Arithmetic.INTEGER if qparams(step.value) else Arithmetic.FLOAT
        if any(kernel.quantized for kernel in computing):
            return Arithmetic.NAME_ONLY if self._dequantizes(step) else Arithmetic.INTEGER
        if computing:
            return Arithmetic.FLOAT
        converts = any(kernel.name in CONVERSIONS for kernel in kernels)
        return Arithmetic.CONVERSION if converts else Arithmetic.VIEW

    def _dequantizes(self, step: Step) -> list[str]:
        """The conversions to float that a node's kernels make inside of themselves."""
        return [inside for inside in self.nested.get(step.node.name, ()) if inside.endswith("aten.dequantize")]

    def _reason(
        self, step: Step, core: Node, arithmetic: Arithmetic, claims: list[Claim], claim: Claim | None, qconfig: Any
    ) -> str:
        """Why a layer computes in float."""
        if arithmetic is Arithmetic.NAME_ONLY:
            return "the kernel dequantizes: " + ", ".join(sorted({*self._dequantizes(step)}))
        if arithmetic is not Arithmetic.FLOAT:
            return ""
        kind = call_name(self.converted.nodes.get(core.name, core), self.converted.modules)
        if refusal := next((one for one in self.converted.refusals if one.operator in kind), None):
            return f"left out because {refusal.stage} raises {refusal.error}"
        return why_in_float(kind, claims, claim, qconfig)

    def _measured(self, step: Step, weight: Tensor | None) -> dict[str, Any]:
        """The fields of a layer that compare its output with the reference's."""
        value, full = step.value, as_tensor(step.full)
        findings, fields = self._compared(step, weight)
        fields |= {"output": qparams(value), "reference": qparams(step.local)}
        notes = []
        if isinstance(full, Tensor):
            fields["cumulative_db"] = decibels(as_tensor(value), full)
        if isinstance(value, Tensor) and value.is_quantized and value.dtype in _CODED:
            used, codes = codes_used(value)
            fields |= {"clipped": clipped(step.position, value.dtype), "codes_used": used, "codes": codes}
            if used < FEW_CODES <= codes:
                notes.append(f"uses {used} of {codes} codes")
        left = [left_db for _, left_db in step.overwritten if left_db is not None]
        for node, left_db in step.overwritten:
            if node not in self.written:
                findings.append(OperandOverwritten("stable", self.names.get(node, node.name), left_db))
        if step.in_float is not None and (writer := self.lost.pop(step.in_float, None)) is not None:
            findings.append(WriteLost("reference", writer.name))
        faults = tuple(map(Fault, findings))
        return {**fields, "overwrites_db": min(left, default=None), "faults": faults, "notes": tuple(notes)}

    def _compared(self, step: Step, weight: Tensor | None) -> tuple[list[Finding], dict[str, Any]]:
        """What is wrong with the value of a node given its inputs, and how far it agrees with float and reference."""
        value, local, origin = as_tensor(step.value), as_tensor(step.local), step.origin
        if step.crash:
            return [Crashes("crashes", step.crash)], {}
        if step.error is not None:
            return [LayerRaises("lowered", "execute", step.error.exception, step.error.message)], {}
        if not isinstance(value, Tensor) or not isinstance(local, Tensor):
            return [], {}
        if value.shape != local.shape:
            return [LayerShape("numerics", tuple(value.shape), tuple(local.shape))], {}
        if value.is_quantized != local.is_quantized:
            return [LayerKind("numerics", value.is_quantized)], {}
        band = _band(step, weight)
        found = agreement(value, local, step.position, band)
        wrong: list[Finding] = []
        if origin is not None and origin.prepare_db is not None:
            wrong.append(PrepareDiffers("reference", origin.prepare_db))
        elif origin is not None and origin.reference_db is not None:
            wrong.append(ReferenceDiffers("reference", origin.reference_db))
        fields: dict[str, Any] = {"agreement": found, "local_db": decibels(value, local)}
        if (
            found.wrong
            and not as_good(value, local, origin.truth if origin else None)
            and not _right(value, origin, band)
        ):
            wrong.append(LayerDiffers("numerics", found.wrong, found.total, found.steps_max))
        if origin is not None:
            fields["float_db"] = decibels(value, origin.truth)
            wrong += self.grids.costs(step, origin.truth)
            if not self._keeps_a_moved_grid(step):
                wrong += coarser(value, local, origin.truth)
        return wrong, fields

    def _keeps_a_moved_grid(self, step: Step) -> bool:
        """Whether a layer keeps the grid of its operand, which the layer before it has put on another one."""
        operands = [(node, x) for node, x in zip(step.node.all_input_nodes, step.inputs, strict=False) if qparams(x)]
        return len(operands) == 1 and operands[0][0] in self.moved and qparams(operands[0][1]) == qparams(step.value)

    def _packed(self, node: Node) -> Tensor | None:
        """The quantized weight of a lowered module, if it has one that can be unpacked."""
        module = self.lowered_modules.get(str(node.target)) if node.op == "call_module" else None
        try:
            weight = module.weight() if module is not None and callable(getattr(module, "weight", None)) else None  # type: ignore[operator]
        except Exception:  # some engines cannot unpack some weights
            return None
        return weight if isinstance(weight, Tensor) and weight.is_quantized else None

    def _form(self, step: Step, core: Node) -> Form | None:
        """How the float network calls the operator of a layer."""
        traced = self.converted.traced
        node = next((one for one in traced.graph.nodes if one.name == core.name), None)
        return None if node is None else form_of_layer(step.inputs, step.formats, node, traced)

    def _features(self, step: Step, core: Node) -> dict[str, str]:
        node = self.converted.nodes.get(core.name, core)
        modules = self.converted.modules if core.name in self.converted.nodes else self.lowered_modules
        constant = _constant(step)
        folded = [one for one in step.body if one in constant and one is not core and self._computes(one)]
        members = self.converted.matches.members
        fused = {name for one in step.body for name in (one.name, *members.get(one.name, ()))}
        return {
            "calls": str(self.calls.get(node.target, 1)),
            "body": self._called(self._own(step)),
            **({"folded": self._called(folded)} if folded else {}),
            **({} if self.hooked.isdisjoint(fused) else {"hooks": "True"}),
            **features(step, node, modules, self.lowered_modules),
        }

    def _called(self, nodes: Sequence[Node]) -> str:
        """The names of what nodes of the reference model call in the prepared network."""
        return " ".join(call_name(self.converted.nodes[node.name], self.converted.modules) for node in nodes)


NOT_LOWERED = "observed as promised, but no lowering pattern matches it"


def why_in_float(kind: str, claims: Sequence[Claim], claim: Claim | None, qconfig: Any) -> str:
    """Why an operator computes in float of which nothing was refused: `claim` is that of its claims which the qconfig asks
    for."""
    if not claims:
        return f"no claim covers {kind}"
    if qconfig is None:
        return "the mapping has no qconfig for it"
    return "no dtype config of its claims allows the mapping's qconfig" if claim is None else NOT_LOWERED


def _band(step: Step, weight: Tensor | None) -> float:
    """The distance from a tie at which either code is right: the general one, or what a bias that is rounded to the
    accumulator's grid of s_x s_w amounts to."""
    output = qparams(step.value)
    source = next((found for x in step.inputs if (found := qparams(x))), None)
    if output is None or weight is None or source is None:
        return TYPICAL_BAND
    return band_of_bias(source.scale, float(qparams_of(weight)[0].max()), output.scale)


def band_of_bias(source: float, weight: float, output: float) -> float:
    """The distance from a tie at which either code is right, in steps, where a bias is rounded to the accumulator's grid: for
    the scales of the input, the greatest of the weight, and that of the output."""
    return max(TYPICAL_BAND, 0.5 * source * weight / output + TYPICAL_BAND / 4)


def as_good(value: Tensor, local: Tensor, truth: Tensor | None) -> bool:
    """Whether a value in float is the reference's but for roundings of either, or as near to the float network's as that:
    what is quantized on the way, such as the state of a recurrent layer, need not be the same."""
    if value.is_quantized:
        return False
    local_db = decibels(value, local)
    if local_db is None or local_db > SAME_DB:
        return True
    own, other = (None, None) if truth is None else (decibels(value, truth), decibels(local, truth))
    return own is not None and other is not None and own > other - AS_GOOD_DB


def _right(value: Tensor, origin: Origin | None, band: float) -> bool:
    """Whether a value is what the float operators with the declared weights give, although the reference model's is not."""
    if origin is None or origin.holds:
        return False
    declared, grid = origin.declared, qparams(value)
    if declared is None or declared.shape != value.shape:
        return False
    if grid is None:
        return not agreement(value, declared, None, band).wrong
    position = declared.double() / grid.scale + grid.zero_point
    expected = torch.quantize_per_tensor(declared, grid.scale, int(grid.zero_point), value.dtype)
    return not agreement(value, expected, position, band).wrong


def has_hooks(model: nn.Module, node: Node) -> bool:
    """Whether the module that a node calls has forward hooks."""
    module = model.get_submodule(str(node.target))
    return bool(module._forward_hooks or module._forward_pre_hooks)


_CODED = (torch.quint8, torch.qint8, torch.quint4x2)


def _constant(step: Step) -> set[Node]:
    """The reference nodes of a layer that depend on parameters alone: lowering has folded them into its weight."""
    found = set[Node]()
    for node in step.body:
        if node.op == "get_attr" or (node.all_input_nodes and found.issuperset(node.all_input_nodes)):
            found.add(node)
    return found


def _entry_name(entry: Any) -> str:
    return pattern_name(config_pattern(entry))
