"""Layers of an audit through PT2E: each region with its claim, its arithmetic, its agreement with the reference, and its
features."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx import Node
from torch.nn import functional

from conformance.cases.claims import BackendClaims, Claim
from conformance.cases.operators import OPERATORS
from conformance.cases.operators.expressions import Call, Source
from conformance.cases.recipes import dtype_name
from conformance.checks.tolerances import TYPICAL_BAND
from conformance.configs.spelling import computation
from conformance.engines.protocol import Engine
from conformance.models.trace import CONVERSIONS, VIEWS, Kernel, qparams_of
from conformance.results.audits import FEW_CODES, Agreement, Arithmetic, Fault, Form, Layer, Refusal
from conformance.results.findings import Finding
from conformance.results.findings.layers import LayerDiffers, LayerKind, LayerRaises, LayerShape, PrepareDiffers
from conformance.results.findings.stages import Crashes

from .agreement import agreement, clipped, codes_used, decibels, qparams
from .exported import Exported, is_norm
from .forms import NAMES, PARAMETERS, SYMBOLS, form_of_module
from .layers import METADATA, as_good, band_of_bias
from .options import is_constant, options_of, text_of
from .origins import SAME_DB
from .pieces import Piece, Value
from .preparation import CALL

JOINS = frozenset(function.__name__ for function in SYMBOLS)
"""Names of operators that Python writes infix."""

NORM_EPS = 7
"""The place of eps among the arguments of aten::batch_norm."""
PORTABLE = "portable."
"""What the names of kernels begin with that ExecuTorch executes outside of delegates."""


def kernel_kind(kernel: Kernel) -> str:
    """The name of a kernel as the tables of conversions and views have it."""
    return kernel.name.removeprefix(PORTABLE).removesuffix("_copy")


class PieceLayers:
    """Describes the executed regions of a network. `claims` are those of the quantizer, if it is a registered one, and
    `in_float` says why `engine` computes all in float, if it does."""

    def __init__(self, exported: Exported, claims: BackendClaims | None, engine: Engine) -> None:
        self.exported, self.claims = exported, claims
        self.in_float: str = getattr(engine, "in_float", "")
        self.generates_code: bool = getattr(engine, "generates_code", False)
        self.names: dict[Node, str] = {}
        self.modules = dict(exported.network.model.named_modules(remove_duplicate=False))

    @cached_property
    def _claims(self) -> dict[str, list[Claim]]:
        """The claims by what their patterns compute, however that is called."""
        found: dict[str, list[Claim]] = {}
        for claim in self.claims.claims if self.claims else ():
            found.setdefault(_computed(claim.pattern), []).append(claim)
        return found

    def layer(self, piece: Piece) -> Layer:
        """The layer of an executed region."""
        pattern = self._pattern(piece)
        dynamic = not self.exported.regions.repeated.isdisjoint(piece.cut.own)
        claims = [one for one in self._claims.get(_computed(pattern), []) if bool(one.dtypes.is_dynamic) is dynamic]
        claim = next((one for one in claims if one.pattern == pattern), next(iter(claims), None))
        annotated = self.exported.is_annotated(piece.region)
        arithmetic = self._arithmetic(piece, annotated)
        name = self._name(piece.region.head)
        self.names.update(dict.fromkeys((*piece.region.nodes, *piece.cut.outputs), name))
        kernels = tuple(dict.fromkeys(kernel.name for kernel in piece.kernels if kernel.name not in METADATA))
        if arithmetic.computes:
            kernels = tuple(one for one in kernels if one not in CONVERSIONS) or kernels
        found = Layer(
            name, pattern, claim.id if claim and annotated else None, arithmetic,
            self._reason(piece, arithmetic, annotated), kernels,
            tuple(piece.values[0].value.shape) if piece.values else (),
            tuple(dict.fromkeys(self.names[one] for one in piece.cut.inputs if one in self.names)),
            weight=qparams(piece.weight), features=self._features(piece), **self._measured(piece),
        )  # fmt: skip
        return replace(found, form=self._form(piece)) if found.blamed or found.unkept else found

    def _name(self, node: Node) -> str:
        """The path of the module of torch that a node is in; of a function, that of the module that calls it, and the name of
        the node."""
        path, _ = _module(node)
        if self._torchs(node) is not None:
            return f"{path} ({node.name})" if self._calls[path] > 1 else path
        return f"{path}.{node.name}" if path else node.name

    @cached_property
    def _calls(self) -> Counter[str]:
        """How many regions begin in each module of torch."""
        heads = [region.head for region in self.exported.regions.all]
        return Counter(_module(head)[0] for head in heads if self._torchs(head) is not None)

    def _torchs(self, node: Node) -> nn.Module | None:
        """The module of torch whose operator a node is, None for a function."""
        path, kind = _module(node)
        module = self.modules.get(path)
        return module if f"nn.{kind.rpartition('.')[2]}" in OPERATORS and kind.startswith("torch.nn.") else None

    def _operator(self, node: Node) -> str:
        """The name of the operator of a node as users call it."""
        if (module := self._torchs(node)) is not None:
            return f"nn.{type(module).__name__}"
        name = _packet(node)
        if name in JOINS:
            return f"operator.{name}"
        for namespace, library in (("F", functional), ("torch", torch)):
            if hasattr(library, name):
                return f"{namespace}.{name}"
        return f"Tensor.{name}"

    def _pattern(self, piece: Piece) -> str:
        """The pattern of a region: its operators as a chain, or nested where one of them takes another operand."""
        nodes = piece.region.operators
        names = [self._operator(node) for node in nodes]
        norm = f"nn.BatchNorm{re.sub(r'[^123]', '', names[0])[-1:]}d" if self.exported.folded(piece.region) else ""
        if not any(_joins(node) for node in nodes[1:]):
            return "+".join([names[0], *([norm] if norm else []), *names[1:]])
        text = f"{norm}({names[0]})" if norm else names[0]
        for before, node, name in zip(nodes, nodes[1:], names[1:], strict=False):
            first = node.args[0] is before
            text = f"{name}({f'{text},*' if first else f'*,{text}'})" if _joins(node) else f"{name}({text})"
        return text

    def _arithmetic(self, piece: Piece, annotated: bool) -> Arithmetic:
        if piece.failed:
            return Arithmetic.INTEGER if annotated else Arithmetic.FLOAT
        kinds = {kernel: kernel_kind(kernel) for kernel in piece.kernels}
        computing = [kernel for kernel, kind in kinds.items() if kind not in CONVERSIONS | VIEWS | METADATA]
        if any(kernel.quantized for kernel in computing):
            return Arithmetic.INTEGER
        generated = self.generates_code and not all(map(_moves, piece.region.operators))
        return Arithmetic.FLOAT if computing or generated else Arithmetic.VIEW

    def _reason(self, piece: Piece, arithmetic: Arithmetic, annotated: bool) -> str:
        """Why a region computes in float."""
        if arithmetic is not Arithmetic.FLOAT:
            return ""
        if error := self._refused.get(piece.region.head.name):
            return f"left out because prepare raises {error}"
        if not annotated:
            return f"the quantizer does not annotate {self._operator(piece.region.operators[-1])}"
        if any(kernel.name.startswith(PORTABLE) for kernel in piece.kernels):
            return "annotated, and left outside of the delegate"
        return f"annotated, and {self.in_float or 'no kernel takes it in integers'}"

    @cached_property
    def _refused(self) -> dict[str, str]:
        """What preparing raises for operators that were left in float, by the names of their nodes."""
        return {name: one.error.text for one in self.exported.refused if not one.apart for name in one.names}

    @cached_property
    def refusals(self) -> tuple[Refusal, ...]:
        """What preparing raises for, by the operators as users call them."""
        found = []
        for one in self.exported.refused:
            by_operator: dict[str, dict[str, None]] = {}
            for name in one.names:
                node = self.exported.float_nodes[name]
                by_operator.setdefault(self._operator(node), {})[self._name(node)] = None
            instead = "each call taken for a module of its own" if one.apart else "left in float"
            error = one.error.exception, one.error.message
            found += [
                Refusal(kind, "prepare", *error, tuple(names), instead=instead) for kind, names in by_operator.items()
            ]
        return tuple(found)

    def _measured(self, piece: Piece) -> dict[str, Any]:
        """The fields of a layer that compare its values with the reference's."""
        findings: list[Finding] = []
        if piece.crash:
            findings.append(Crashes("crashes", piece.crash))
        if piece.error is not None:
            findings.append(LayerRaises("lowered", piece.stage, piece.error.exception, piece.error.message))
        if not piece.values:
            return {"faults": tuple(map(Fault, findings))}
        total, notes = Agreement(), list[str]()
        for one in piece.values:
            wrong, found = self._compared(piece, one)
            findings += [] if piece.failed else wrong
            total = _sum(total, found)
        first = piece.values[0]
        fields: dict[str, Any] = {
            "output": qparams(first.value),
            "reference": qparams(first.local),
            "agreement": total,
            "local_db": decibels(first.value, first.local),
            "cumulative_db": None if first.full is None else decibels(first.value, first.full),
            "float_db": None if first.truth is None else decibels(first.value, first.truth),
        }
        if first.value.is_quantized:
            used, codes = codes_used(first.value)
            fields |= {"clipped": clipped(first.position, first.value.dtype), "codes_used": used, "codes": codes}
            if used < FEW_CODES <= codes:
                notes.append(f"uses {used} of {codes} codes")
        beside = [kernel.name for kernel in piece.kernels if kernel.computes_in_float]
        if beside and any(kernel.quantized and kernel.name not in CONVERSIONS for kernel in piece.kernels):
            notes.append(f"computes in float, too: {', '.join(dict.fromkeys(beside))}")
        return {**fields, "faults": tuple(map(Fault, findings)), "notes": tuple(notes)}

    def _compared(self, piece: Piece, one: Value) -> tuple[list[Finding], Agreement]:
        """What is wrong with a value given the inputs of its region, and its agreement with the reference."""
        value, local = one.value, one.local
        wrong: list[Finding] = []
        if one.truth is not None and one.unfused is not None:
            db = decibels(one.unfused, one.truth)
            if db is not None and db < SAME_DB:
                wrong.append(PrepareDiffers("reference", db))
        if value.shape != local.shape:
            return [*wrong, LayerShape("numerics", tuple(value.shape), tuple(local.shape))], Agreement()
        if value.is_quantized != local.is_quantized:
            return [*wrong, LayerKind("numerics", value.is_quantized)], Agreement()
        found = agreement(value, local, one.position, self._band(piece, value))
        if found.wrong and not as_good(value, local, one.truth):
            wrong.append(LayerDiffers("numerics", found.wrong, found.total, found.steps_max))
        return wrong, found

    def _band(self, piece: Piece, value: Tensor) -> float:
        output = qparams(value)
        if output is None or piece.weight is None or piece.scale is None:
            return TYPICAL_BAND
        return band_of_bias(piece.scale, float(qparams_of(piece.weight)[0].max()), output.scale)

    def _features(self, piece: Piece) -> dict[str, str]:
        """What distinguishes a layer from others of its pattern."""
        node = piece.region.head
        found = {"operator": self._operator(node), "annotated": str(self.exported.is_annotated(piece.region))}
        module = self._torchs(node)
        if module is not None:
            found |= options_of(module)
        else:
            found |= {f"arg{number}": text_of(value) for number, value in enumerate(node.args) if is_constant(value)}
        if (float_node := self.exported.float_nodes.get(node.name)) is not None:
            own = [self._address(one) for one in float_node.all_input_nodes if one.op == "get_attr"]
            found |= {"shared": str(any(self._uses[address] > 1 for address in own))} if own else {}
        same = self.exported.equivalents.get(node.name)
        if same is not None and is_norm(same):
            found["norm_eps"] = text_of(same.args[NORM_EPS])
        tensors = [x for x in piece.inputs if isinstance(x, Tensor)]
        return found | {
            "inputs": " ".join("x".join(map(str, x.shape)) for x in tensors),
            "formats": " ".join(piece.formats),
            "dtypes": " ".join(dtype_name(x.dtype) for x in tensors),
        }

    def _address(self, attribute: Node) -> int:
        """The address of a parameter that a node of the float network reads."""
        address: int = attrgetter(str(attribute.target))(self.exported.in_float).data_ptr()
        return address

    @cached_property
    def _uses(self) -> Counter[int]:
        """How many operators of the float network take each parameter, by address."""
        attributes = [node for node in self.exported.float_nodes.values() if node.op == "get_attr"]
        return Counter(address for one in attributes for address in [self._address(one)] * len(one.users))

    def _form(self, piece: Piece) -> Form | None:
        """How the float network calls the operator that a region begins with."""
        node, operands = piece.region.head, self._operands(piece)
        if (module := self._torchs(node)) is not None:
            form = form_of_module(module)
            return None if form is None else replace(form, operands=operands)
        names: dict[Node, str] = {}
        parameters: dict[str, str] = {}

        def named(argument: Node) -> Source:
            if argument in self.exported.regions.constant and len(parameters) < len(PARAMETERS):
                name = PARAMETERS[len(parameters)]
                value = argument.meta.get("val")
                parameters[name] = text_of(value.shape) if isinstance(value, Tensor) else ""
                return Source(f"self.{name}")
            return Source(names.setdefault(argument, NAMES[min(len(names), len(NAMES) - 1)]))

        args: Sequence[Any] = torch.fx.node.map_arg(node.args, named)  # type: ignore[arg-type,assignment]
        operator = self._operator(node)
        sign = next((sign for f, sign in SYMBOLS.items() if operator == f"operator.{f.__name__}"), operator)
        return Form("", Call(sign, args), operands, tuple(parameters.items()))

    @staticmethod
    def _operands(piece: Piece) -> tuple[tuple[str, str], ...]:
        pairs = zip(piece.inputs, piece.formats, strict=True)
        return tuple((text_of(x.shape), layout) for x, layout in pairs if isinstance(x, Tensor))


def _sum(one: Agreement, other: Agreement) -> Agreement:
    return Agreement(
        one.total + other.total,
        one.tied + other.tied,
        one.stepped + other.stepped,
        one.off + other.off,
        max(one.steps_max, other.steps_max),
    )


def _module(node: Node) -> tuple[str, str]:
    """The path and the class of the innermost module that a node is in."""
    stack: Mapping[str, tuple[str, Any]] = node.meta.get("nn_module_stack") or {}
    path, kind = [("", ""), *stack.values()][-1]
    path = path.partition(CALL)[0]
    return path, kind if isinstance(kind, str) else f"{kind.__module__}.{kind.__name__}"


def _packet(node: Node) -> str:
    """The name of an operator of torch, without that of its library and overload."""
    target = node.target
    name = target.overloadpacket.__name__ if isinstance(target, torch._ops.OpOverload) else str(target)
    return name.removesuffix("_")


def _moves(node: Node) -> bool:
    """Whether an operator returns the values that it takes."""
    return f"aten.{_packet(node)}" in VIEWS or _packet(node) in ("dropout", "contiguous", "flatten", "reshape", "chunk")


def _joins(node: Node) -> bool:
    """Whether a node takes another operand of the network beside the result before it."""
    return _packet(node) in JOINS and sum(isinstance(one, Node) for one in node.args[:2]) > 1


def _computed(pattern: str) -> str:
    """What a pattern computes, however its operators are called."""
    return re.sub(r"[\w.]+", lambda name: computation(name[0]), pattern)
