"""What cannot be prepared, lowered or executed as a reference is left in float, so that the rest of a network can be
audited."""

import copy
import traceback
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from operator import getitem
from typing import Any

from torch import nn
from torch.ao.quantization import QConfigMapping
from torch.ao.quantization.backend_config import BackendConfig
from torch.fx import GraphModule, Node

from conformance.cases.claims import BackendClaims, nested
from conformance.configs.names import config_pattern, pattern_name
from conformance.errors import Failure
from conformance.models.correspondence import Matches
from conformance.results.audits import Form, Refusal

from .forms import allowing, form_of_module, form_of_node
from .options import call_kind, named, options_of

MOST_REFUSALS = 32
"""Kinds of layers that may be left out, one after another, before the conversion is given up."""


@dataclass(frozen=True)
class Culprit:
    """What an exception is about: the module at a path, or else a function, the name of a method, or a class of modules; and
    the node of the graph in which it was found, if it was."""

    path: str = ""
    operator: Any = None
    node: Node | None = None


MOST_NEAR = 12
"""Nodes around one that raises among which a module to leave out is looked for."""


class Refusals:
    """The layers and functions of a network that were left out, and the mapping and config that leave them out."""

    def __init__(self, model: nn.Module, mapping: QConfigMapping, claims: BackendClaims) -> None:
        self.model, self.mapping, self.claims, self.config = model, mapping, claims, claims.config
        self._asked = mapping
        self.refused: list[Refusal] = []
        self._paths: set[str] = set()
        self._kinds: list[Any] = []

    def leaves_out(self, error: Exception, stage: str, matches: Matches, prepared: GraphModule | None) -> bool:
        """Leave out what an exception of torch.ao is about, or if that was left out before, the modules around it. Returns
        False if it is unknown. `prepared` is the observed model, if there is one."""
        return self._leaves_out(_culprit(error, matches), error, stage, matches, prepared)

    def leaves_out_called(
        self, name: str, error: Exception, stage: str, matches: Matches, prepared: GraphModule
    ) -> bool:
        """Leave out what a node of the observed model calls, as if torch.ao had raised an exception about it."""
        node = next(node for node in prepared.graph.nodes if node.name == name)
        return self._leaves_out(_called(node, matches), error, stage, matches, prepared)

    def _leaves_out(
        self, culprit: Culprit | None, error: Exception, stage: str, matches: Matches, prepared: GraphModule | None
    ) -> bool:
        if len(self.refused) < MOST_REFUSALS and stage == "prepare" and self._leaves_unfused(stage, error, matches):
            return True
        if culprit is None or len(self.refused) >= MOST_REFUSALS:
            return False
        if culprit.path and culprit.path not in self._paths:
            alike = self._alike(culprit.path, matches)
            self._leave_in_float([path for one in alike for path in _fused_with(one, matches)])
            self.refused.append(self._of_module(culprit.path, stage, error, alike))
            return True
        if culprit.path and self._drops_fusion(culprit.path, matches):
            return True
        kind = type(self.model.get_submodule(culprit.path)) if culprit.path else culprit.operator
        if kind in self._kinds:
            if prepared is None:
                return False
            if culprit.node is not None:
                return self.leaves_out_near(culprit.node, stage, error, prepared, matches)
            return (node := _calling(kind, prepared)) is not None and self._leaves_out_beside(node, prepared)
        node = _own(culprit.node, matches) if culprit.node is not None else None
        self._leave_kind(kind, node, stage, error, matches, told=not culprit.path)
        if isinstance(kind, type):
            self.mapping = copy.deepcopy(self.mapping).set_object_type(kind, None)
        return True

    def _leave_kind(
        self, kind: Any, node: Node | None, stage: str, error: Exception, matches: Matches, *, told: bool = True
    ) -> None:
        """Take the entries of a class of modules, a function or a method out of the config, which is a refusal of its own if
        it is `told`."""
        self._kinds.append(kind)
        self.config = _without(self.config, kind)
        if told:
            modules = self.model.named_modules(remove_duplicate=False)
            layers = [path for path, module in modules if isinstance(kind, type) and type(module) is kind]
            layers += [named(one, "") for one in _traced(matches) if one.op != "call_module" and one.target == kind]
            called = form_of_node(node, self.model) if node is not None else None
            self.refused.append(self._refusal("", kind, stage, error, layers, called))

    def _drops_fusion(self, path: str, matches: Matches) -> bool:
        """Leave the pattern out as which a module is fused: fusion does not care that it has no qconfig. Returns False if the
        config has no such pattern."""
        modules = dict(self.model.named_modules(remove_duplicate=False))
        fused = {call_kind(node, modules) for node in _fusion(path, matches)}
        dropped = _without(self.config, *fused) if len(fused) > 1 else self.config
        found = len(dropped.configs) < len(self.config.configs)
        self.config = dropped
        return found

    def _leaves_unfused(self, stage: str, error: Exception, matches: Matches) -> bool:
        """Leave out the pattern as which a module is fused of which the network reads a parameter itself: fusing moves it."""
        read = (str(node.target).rpartition(".")[0] for node in _traced(matches) if node.op == "get_attr")
        owner = next((path for path in read if path not in self._paths and self._drops_fusion(path, matches)), None)
        if owner is not None:
            self._paths.add(owner)
            self.refused.append(self._of_module(owner, stage, error, [owner]))
        return owner is not None

    def leaves_out_near(
        self, node: Node, stage: str, error: Exception, prepared: GraphModule, matches: Matches
    ) -> bool:
        """Leave out the module around a node that raises when the observed model or the reference model is executed: the one
        that the node calls or belongs to, or else the nearest that gives it its input or uses its value. One that raises
        although it was left out is not fused any more. A function that belongs to no module is left out by itself."""
        called = str(node.target) if node.op == "call_module" else ""
        if called in self._paths and self._drops_fusion(called, matches):
            return True
        if len(self.refused) >= MOST_REFUSALS:
            return False
        if node.op == "get_attr" and self._leaves_unfused(stage, error, matches):
            return True
        own, path = _own(node, matches), self._near(node, prepared)
        # the element of a tuple is not at fault for the tuple
        left = own is None or own.op == "call_module" or own.target in (*self._kinds, getitem)
        if own is not None and not left and (path is None or not _scope(own, prepared)):
            self._leave_kind(own.target, own, stage, error, matches)
            return True
        if path is None:
            return False
        self._leave_in_float([path])
        self.refused.append(self._of_module(path, stage, error, [path]))
        return True

    def _leaves_out_beside(self, node: Node, prepared: GraphModule) -> bool:
        """Leave out the modules around one that raises although it was left out, until it is between values in float."""
        if (path := self._near(node, prepared)) is None:
            return False
        self._leave_in_float([path])
        return True

    def _near(self, node: Node, prepared: GraphModule) -> str | None:
        return next((path for path in _paths_near(node, prepared) if path not in self._paths), None)

    def _leave_in_float(self, paths: Iterable[str]) -> None:
        self.mapping = copy.deepcopy(self.mapping)
        for path in paths:
            self._paths.add(path)
            self.mapping.set_module_name(path, None)

    def _alike(self, path: str, matches: Matches) -> list[str]:
        """The modules of the class and with the options of one, the numbers of channels aside, that are fused as it is."""
        modules = dict(self.model.named_modules(remove_duplicate=False))

        def kind(path: str) -> Any:
            fused = {call_kind(node, modules) for node in _fusion(path, matches)}
            return type(modules[path]), options_of(modules[path], channels=False), fused

        return [other for other in modules if type(modules[other]) is type(modules[path]) and kind(other) == kind(path)]

    def _of_module(self, path: str, stage: str, error: Exception, layers: Iterable[str]) -> Refusal:
        module = self.model.get_submodule(path)
        return self._refusal(path, type(module), stage, error, layers, form_of_module(module))

    def _refusal(
        self, path: str, kind: Any, stage: str, error: Exception, layers: Iterable[str], called: Form | None
    ) -> Refusal:
        """The refusal of the module at a path, or else of a function, with the claims that the mapping asks for."""
        operator, failure = pattern_name(kind), Failure.of(error)
        by_kind = self._asked.object_type_qconfigs.get(kind, self._asked.global_qconfig)
        asked = self._asked.module_name_qconfigs.get(path, by_kind)
        claims = [claim for claim in self.claims.claims if claim.root == operator]
        claims.sort(key=lambda claim: claim.pattern != operator)
        ids = tuple(claim.id for claim in allowing(claims, asked))
        return Refusal(operator, stage, failure.exception, failure.message, tuple(layers), claims=ids, form=called)

    @property
    def all(self) -> tuple[Refusal, ...]:
        """What was refused, with the layers of one operator, stage and error together."""
        together: dict[tuple[str, str, str], Refusal] = {}
        for one in self.refused:
            key = one.operator, one.stage, one.error
            layers = (*together[key].layers, *one.layers) if key in together else one.layers
            together[key] = replace(one, layers=layers)
        return tuple(together.values())


def _traced(matches: Matches) -> list[Node]:
    """The nodes of the network as it was traced, none if that failed."""
    return [*matches.traced[-1].graph.nodes] if matches.traced else []


def _fusion(path: str, matches: Matches) -> list[Node]:
    """The nodes that are fused with those that call a module."""
    nodes = {node.name: node for node in _traced(matches)}
    called = [name for name, node in nodes.items() if node.op == "call_module" and node.target == path]
    return [nodes[other] for name in called for other in matches.members.get(name, ()) if other in nodes]


def _fused_with(path: str, matches: Matches) -> set[str]:
    """The paths of the modules that are fused with one, itself included."""
    return {path, *(str(node.target) for node in _fusion(path, matches) if node.op == "call_module")}


NODES = ("ref_node", "func_node", "bop_node", "node", "n", "root_node")
MODULES = ("ref_module", "float_module", "mod", "module")
"""Names that torch.ao's functions give to the node and the module that they are about."""


def _culprit(error: Exception, matches: Matches) -> Culprit | None:
    """What the innermost frames of torch.ao were about."""
    for frame, _ in reversed([*traceback.walk_tb(error.__traceback__)]):
        if not str(frame.f_globals.get("__name__")).startswith("torch.ao."):
            continue
        for name in (*NODES, *MODULES):
            value, culprit = frame.f_locals.get(name), None
            if name in NODES and isinstance(value, Node):
                culprit = _called(value, matches)
            elif name in MODULES and isinstance(value, nn.Module):
                culprit = _class(value)
            if culprit is not None:
                return culprit
    return None


def _calling(kind: Any, prepared: GraphModule) -> Node | None:
    """The first node that calls a module of a class, None if none does."""
    modules = dict(prepared.named_modules(remove_duplicate=False))
    called = (node for node in prepared.graph.nodes if node.op == "call_module")
    return next((node for node in called if type(modules[str(node.target)]) is kind), None)


def _own(value: Node, matches: Matches) -> Node | None:
    """The node of the traced network that a node of any form of it is about. Conversion inserts nodes around those of the
    traced network: of such a node, a user or an input is meant."""
    own = {node.name: node for node in _traced(matches)} or {value.name: value}
    near = (value, *value.users, *value.all_input_nodes)
    return next((own[one.name] for one in near if one.name in own and one.op.startswith("call_")), None)


def _called(value: Node, matches: Matches) -> Culprit | None:
    """What a node of any form of a network calls."""
    node = _own(value, matches)
    if node is None:
        return None
    if node.op == "call_module":
        return Culprit(path=str(node.target), node=value)
    return Culprit(operator=node.target, node=value)


def _class(module: nn.Module) -> Culprit | None:
    bases = [base for base in type(module).__mro__ if base.__module__.startswith("torch.nn.modules")]
    return Culprit(operator=bases[0]) if bases and bases[0] is not nn.Module else None


def _without(config: BackendConfig, *kinds: Any) -> BackendConfig:
    """A config without the entries whose pattern has certain operators."""
    kept = [entry for entry in config.configs if not {*kinds} <= {*_operators(nested(config_pattern(entry)))}]
    return BackendConfig(config.name).set_backend_pattern_configs(kept)


def _operators(pattern: Any) -> list[Any]:
    if not isinstance(pattern, tuple):
        return [pattern, *getattr(pattern, "__bases__", ())]
    return [one for part in pattern for one in _operators(part)]


def _scope(node: Node, prepared: GraphModule) -> str:
    """The path of the module whose forward calls a node, empty for the network's own."""
    path: str = prepared.meta["_observed_graph_module_attrs"].node_name_to_scope.get(node.name, ("", None))[0]
    return path


def _paths_near(node: Node, prepared: GraphModule) -> Iterator[str]:
    """The paths of modules that nodes of the float network around a node call or belong to, the nearest first."""
    observers = ("activation_post_process", "dequantize")
    own = {one.name for one in prepared.graph.nodes if one.op.startswith("call_")}
    near, seen = [node], set[Node]()
    while near:
        one = near.pop(0)
        if one in seen:
            continue
        seen.add(one)
        if one.name in own and not str(one.target).startswith(observers):
            path = str(one.target) if one.op == "call_module" else _scope(one, prepared)
            if path:
                yield path
        near += [*one.users, *one.all_input_nodes] if len(seen) < MOST_NEAR else []
