"""A network annotated as its mapping and config say, and executed in float: its layers, with what is known of them before
any is lowered."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx import GraphModule, Node
from torch.utils._pytree import tree_map_only

from conformance.audit.features import broadcasts, features_of_arguments, features_of_call, folded, other_readers
from conformance.audit.forms import allowing
from conformance.audit.layers import METADATA, has_hooks, why_in_float
from conformance.audit.options import call_name, named
from conformance.audit.values import ListsAsLists, NodeRaises, memory, memory_format
from conformance.cases.claims import BackendClaims, Claim
from conformance.cases.recipes import dtype_name
from conformance.configs.names import config_pattern, pattern_name
from conformance.configs.spelling import spelled
from conformance.models.correspondence import Matches
from conformance.models.observers import is_observer
from conformance.models.trace import CONVERSIONS, VIEWS, Recorder
from conformance.results.audits import Arithmetic

from .grids import SHARES, Grids
from .kernels import CODED, OWN, UNASKED, UNCLAIMED, in_format, suggested


@dataclass(frozen=True)
class Annotated:
    """A layer: the name that audits have for it, its pattern and claim, how it would compute if nothing were wrong, why it
    stays in float, and its features. `node` is the name of its first node in the network as it was traced."""

    name: str
    pattern: str
    claim: Claim | None
    arithmetic: Arithmetic
    reason: str
    features: Mapping[str, str]
    node: str = ""


@dataclass
class _Begun:
    """A layer of which the first node is about to be executed: whether it takes and gives `coded` values if nothing is wrong,
    the values that it is `given` and their memory formats, and the reason why it stays in float if it does; whether its
    result `shares` the observer of its input, whether it is `unasked`, without a qconfig, and whether it is a `fused` one.
    While its nodes run, `kernels` are those in float so far; `raises` is set if one raises in its memory formats alone."""

    core: Node
    pattern: str
    claim: Claim | None
    coded: bool
    operator: str
    given: list[tuple[Node, Any]]
    formats: list[str]
    reason: str
    shares: bool
    unasked: bool
    fused: bool
    kernels: list[str] = field(default_factory=list)
    raises: bool = False


class Calibration(ListsAsLists):
    """Executes a prepared network in float, whose observers only widen the ranges of `grids`."""

    def __init__(self, prepared: GraphModule, grids: Grids) -> None:
        super().__init__(prepared, garbage_collect_values=True)
        self.grids = grids

    def run_node(self, n: Node) -> Any:
        if n not in self.grids.observers:
            return super().run_node(n)
        value = self.env[n.all_input_nodes[0]]
        if isinstance(value, Tensor) and value.is_floating_point():
            self.grids.calibrate(n, value)
        return value


class Annotation(ListsAsLists):
    """Executes a prepared network in float, with observers that keep what they take as it is, and describes its layers: with
    features that data decide if the inputs are `data`."""

    def __init__(self, prepared: GraphModule, matches: Matches, claims: BackendClaims, *, data: bool = True) -> None:
        super().__init__(prepared, garbage_collect_values=True)
        self.extra_traceback = False
        self.matches, self.data = matches, data
        self.modules_by_path: dict[str, nn.Module] = dict(prepared.named_modules(remove_duplicate=False))
        meta = prepared.meta["_observed_graph_module_attrs"]
        self.qconfigs, self.scopes = meta.node_name_to_qconfig, meta.node_name_to_scope
        by_pattern: dict[Any, list[Claim]] = {}
        for claim in claims.claims:
            by_pattern.setdefault(claim.pattern, []).append(claim)
        self.patterns = {
            key: (pattern_name(config_pattern(entry)), by_pattern.get(pattern_name(config_pattern(entry)), []))
            for key, entry in claims.config._pattern_complex_format_to_config.items()
        }
        self.calls = Counter(node.target for node in prepared.graph.nodes if node.op == "call_module")
        called = {
            node: self.modules_by_path[str(node.target)] for node in prepared.graph.nodes if node.op == "call_module"
        }
        self.observers: dict[Node, Any] = {node: module for node, module in called.items() if is_observer(module)}
        table = claims.config._pattern_complex_format_to_config
        self.nodes: list[Node] = [*prepared.graph.nodes]
        self.grids = Grids(self.observers, {name: table.get(key) for name, key in matches.observed.items()})
        self.members: dict[str, list[Node]] = {}  # of each match, in order, by the name of the last
        for node in self.nodes:
            if node.name in matches.last:
                self.members.setdefault(matches.last[node.name], []).append(node)
        self.described: list[tuple[Annotated, Node, Node]] = []
        self.coded, self.constant = set[Node](), set[Node]()  # the constants depend on parameters alone
        traced = [node for node in matches.traced[-1].graph.nodes if node.op == "call_module"]
        self.hooked = {node.name for node in traced if has_hooks(matches.traced[-1], node)}
        self.kept: dict[Node, str] = {}  # the operators of values that are codes which no quantize makes
        self.roots: dict[Node, Node] = {}  # of values in the memory of others, the first that was there
        self._in_float, self.named = set[Node](), set[Node]()
        self._begun: dict[str, _Begun] = {}

    def run_node(self, n: Node) -> Any:
        if n.op == "get_attr" or (n.all_input_nodes and self.constant.issuperset(n.all_input_nodes)):
            self.constant.add(n)
        if n in self.observers:
            return self._observed(n)
        if not n.op.startswith("call_"):
            return super().run_node(n)
        last = self.matches.last.get(n.name, n.name)
        if last not in self._begun:
            self._begun[last] = self._beginning(n, last)
        begun = self._begun[last]
        recorder = Recorder()
        try:
            with recorder:
                value = super().run_node(n)
        except Exception as error:
            if not begun.coded:
                raise NodeRaises(n, error) from error
            try:  # the float network's own memory formats
                args, kwargs = tree_map_only(Tensor, Tensor.contiguous, self.fetch_args_kwargs_from_env(n))
                with recorder:
                    value = getattr(self, n.op)(n.target, args, kwargs)
            except Exception:
                raise NodeRaises(n, error) from error
            begun.raises = True
        begun.kernels += (kernel.name for kernel in recorder.kernels)
        if last != n.name:
            return value
        layer = self._layer(self._begun.pop(last), n, value)
        self.described.append((layer, begun.core, n))
        if layer.arithmetic is Arithmetic.VIEW or "_add" in layer.features["kernels"]:
            *_, written = begun.core.all_input_nodes or [n]  # whose memory the result is in
            self.roots[n] = self._root(written)
        if begun.coded:
            self.kept[n] = begun.operator
            self.grids.keep(begun.core, n, keeps=self._keeps(begun, layer))
        return in_format(value, layer.features["kernels"], begun.given) if begun.coded else value

    def fetch_args_kwargs_from_env(self, n: Node) -> tuple[Any, dict[str, Any]]:
        args, kwargs = super().fetch_args_kwargs_from_env(n)
        if n in self._in_float:  # it takes what dequantize returns
            return tuple(map(suggested, args)), kwargs
        return args, kwargs

    def _observed(self, n: Node) -> Any:
        (source,) = n.all_input_nodes
        value = self.env[source]
        observer: Any = self.modules_by_path[str(n.target)]
        if not isinstance(value, Tensor) or not value.is_floating_point():
            try:
                return super().run_node(n)
            except Exception as error:
                raise NodeRaises(n, error) from error
        if getattr(observer, "dtype", None) in CODED and not getattr(observer, "is_dynamic", False):
            self.coded.add(n)
            if self.data:
                self.grids.see(n, source, value)
            if source.op == "placeholder" and source not in self.named:
                self.named.add(source)
                features = {"operator": "torch.quantize_per_tensor", "dtypes": dtype_name(value.dtype)}
                given = Annotated(
                    str(source.target), "torch.quantize_per_tensor", None, Arithmetic.CONVERSION, "", features
                )
                self.described.append((given, source, source))
            if source not in self.kept:  # quantized on its own
                return suggested(value)
        return value

    def _keeps(self, begun: "_Begun", layer: Annotated) -> bool:
        """Whether the result of a layer that computes with codes has the grid of its first operand."""
        return begun.shares and not layer.features["kernels"].startswith("quantized.")

    @cached_property
    def layers(self) -> list[Annotated]:
        """The layers, with the features that those behind them decide."""
        shared = self.grids.shared()
        found = []
        lost = {node for node in self.nodes for node in self._lost(node)}
        read = {str(core.target) for _, core, last in self.described if last in self.kept and core.op == "call_module"}
        in_integers = {core for _, core, last in self.described if last in self.kept}
        for layer, core, last in self.described:
            further: dict[str, str] = {}
            if core in in_integers and not other_readers(core, self.constant) <= in_integers:
                further["weight_read"] = "True"
            if last in lost:
                further["write_lost"] = "True"
            owners = {str(one.target).rpartition(".")[0] for one in core.all_input_nodes if one.op == "get_attr"}
            if core.target is getattr and not read.isdisjoint(owners):
                further["reads_lowered"] = "True"
            further |= {**dict(self.grids.features(core, last)), **dict(self.grids.sharing(shared, last))}
            found.append(replace(layer, features={**layer.features, **further}))
        return found

    def _lost(self, node: Node) -> list[Node]:
        """The operand that a node writes to, of which lowering gives it a copy although it is used again behind it."""
        module = self.modules_by_path.get(str(node.target)) if node.op == "call_module" else None
        name = str(getattr(node.target, "__name__", node.target))
        writes = getattr(module, "inplace", False) or (node.op == "call_method" and name.endswith("_"))
        writes = (
            writes
            or node.kwargs.get("inplace") is True
            or (node.op == "call_function" and name.startswith("i") and name[1:] in ("add", "mul", "sub", "truediv"))
        )
        given = [one for one in node.args[:1] if isinstance(one, Node) and one in self.observers]
        sources = [one.all_input_nodes[0] for one in given]
        return [one for one in sources if writes and self._used_behind(one, node)]

    def _used_behind(self, source: Node, node: Node) -> bool:
        """Whether a value is used behind a node that takes it."""
        users = {other for user in source.users for other in ([*user.users] if user in self.observers else [user])}
        return any(node < user for user in users)

    def _beginning(self, core: Node, last: str) -> "_Begun":
        """What is known of a layer before its first node is executed."""
        end = self.members.get(last, [core])[-1]
        key = self.matches.fused.get(core.name) or self.matches.observed.get(last)
        kind = call_name(core, self.modules_by_path)
        pattern, claims = self.patterns.get(key, (kind, [])) if key is not None else (kind, [])
        qconfig = self.qconfigs.get(core.name)
        claim = next(iter(allowing(claims, qconfig)), None)
        module = self.modules_by_path.get(str(core.target)) if core.op == "call_module" else None
        operator = pattern_name(type(module[0])) if isinstance(module, nn.Sequential) and len(module) else kind
        unasked = qconfig is None and operator in UNASKED
        promised = claim is not None or unasked or (not claims and operator in UNCLAIMED)
        takes = any(one in self.coded for one in core.all_input_nodes)
        coded = promised and takes and any(user in self.observers for user in end.users)
        if takes and not coded:
            self._in_float.add(core)
        given = [(one, self.env[one]) for one in core.all_input_nodes]
        formats = [
            memory_format(suggested(x) if core in self._in_float and one in self.coded else x) for one, x in given
        ]
        reason = why_in_float(kind, claims, claim, qconfig)
        shares = claim is not None and claim.entry.observation_type is SHARES
        return _Begun(
            core,
            pattern,
            claim,
            coded,
            operator,
            given,
            formats,
            reason,
            shares,
            unasked,
            isinstance(module, nn.Sequential),
        )

    def _layer(self, begun: "_Begun", last: Node, value: Any) -> Annotated:
        core, pattern = begun.core, begun.pattern
        features = self._features(core, begun.given, begun.formats)
        names = [
            k for k in dict.fromkeys(begun.kernels) if k not in METADATA and k not in CONVERSIONS and k not in VIEWS
        ]
        if begun.coded and begun.operator in OWN:
            behind = {spelled(one).computes for one in begun.claim.operators[1:]} if begun.claim else set[str]()
            names = [OWN[begun.operator] + "".join(f"_{one}" for one in ("add", "relu") if one in behind)]
        dtypes = [
            dtype_name(self.observers[one].dtype if one in self.coded and begun.coded else x.dtype)
            for one, x in begun.given
            if isinstance(x, Tensor)
        ]
        taken = [self.kept[one] for one, _ in begun.given if one in self.kept]
        if taken and not begun.coded and isinstance(value, Tensor):
            features["unasked_codes"] = " ".join(taken)
        if begun.raises:
            features["raises"] = "True"
        if begun.unasked and begun.coded:
            features["asked"] = "False"
        if not self.hooked.isdisjoint({core.name, *self.matches.members.get(core.name, ())}):
            features["hooks"] = "True"
        if begun.operator.startswith("nni.") or (core.name not in self.matches.fused and begun.fused):
            features["fused_elsewhere"] = "True"
        features |= features_of_arguments(core, self.modules_by_path)
        if computed := folded(core, self.modules_by_path, self.constant, self.observers):
            features["folded"] = computed
        taken_from = {one: memory(x) for one, x in begun.given}
        addresses = [own for one in core.args if isinstance(one, Node) and (own := taken_from.get(one)) is not None]
        features["aliased"] = str(len({*addresses}) < len(addresses))
        if isinstance(value, Tensor):
            coded = [x for one, x in begun.given if one in self.coded and isinstance(x, Tensor)]
            features["broadcast"] = str(any(broadcasts(x, value) for x in coded))
        features["reused"] = str(self._is_reused(core, last))
        features |= {
            "operator": begun.operator,
            "dtypes": " ".join(dtypes),
            "kernels": " ".join(names),
            "pattern": pattern,
        }
        arithmetic = Arithmetic.VIEW if not names else Arithmetic.INTEGER if begun.coded else Arithmetic.FLOAT
        reason = begun.reason if arithmetic is Arithmetic.FLOAT else ""
        return Annotated(self._name(core), pattern, begun.claim, arithmetic, reason, features, core.name)

    def _is_reused(self, core: Node, last: Node) -> bool:
        """Whether another operand of a layer than its first is used again behind the layer."""
        members = self.members.get(last.name, [core])
        operands = [one for node in members for one in node.all_input_nodes if one not in members]
        taken = [one for one in operands if one not in core.all_input_nodes[:1]] or core.all_input_nodes[1:]
        roots = {self._root(one) for one in taken}
        sharing = [one for one in (*self.roots, *roots) if self._root(one) in roots and one is not last]
        return any(self._used_behind(one, last) for one in sharing)

    def _root(self, node: Node) -> Node:
        source = node.all_input_nodes[0] if node in self.observers else node
        return self.roots.get(source, source)

    def _name(self, node: Node) -> str:
        if node.op == "call_module":
            return f"{node.target} ({node.name})" if self.calls[node.target] > 1 else str(node.target)
        return named(node, self.scopes.get(node.name, ("", None))[0])

    def _features(self, node: Node, given: list[Any], formats: list[str]) -> dict[str, str]:
        found = {**features_of_call(node, self.modules_by_path), "calls": str(self.calls.get(node.target, 1))}
        tensors = [x for _, x in given if isinstance(x, Tensor)]
        found |= {
            "inputs": " ".join("x".join(map(str, x.shape)) for x in tensors),
            "formats": " ".join(name for name in formats if name),
        }
        if tensors:
            nhwc = tensors[0].dim() == 4 and all(x.is_contiguous(memory_format=torch.channels_last) for x in tensors)
            found["nhwc"] = str(nhwc)
            found["rank"] = str(tensors[0].dim())
            found["elements"] = str(max(x[0, 0].numel() if x.dim() > 2 else 1 for x in tensors if x.numel()))
        return found
