"""What cannot be prepared, lowered or executed as a reference is left in float, so that the rest of a network can be
audited."""

import copy
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any

from torch import nn
from torch.ao.quantization import QConfigMapping
from torch.ao.quantization.backend_config import BackendConfig
from torch.fx import GraphModule, Node

from conformance.cases.claims import nested
from conformance.configs.names import config_pattern, pattern_name
from conformance.errors import Failure
from conformance.models.correspondence import Matches
from conformance.results.audits import Form, Refusal

from .forms import form_of_module, form_of_node
from .options import options_of

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

    def __init__(self, model: nn.Module, mapping: QConfigMapping, config: BackendConfig) -> None:
        self.model, self.mapping, self.config = model, mapping, config
        self.refused: list[Refusal] = []
        self._paths: set[str] = set()
        self._kinds: list[Any] = []

    def leaves_out(self, error: Exception, stage: str, matches: Matches, prepared: GraphModule | None) -> bool:
        """Leave out what an exception of torch.ao is about, or if that was left out before, the modules around it. Returns
        False if it is unknown. `prepared` is the observed model, if there is one."""
        culprit = _culprit(error, matches)
        if culprit is None or len(self.refused) >= MOST_REFUSALS:
            return False
        if culprit.path and culprit.path not in self._paths:
            alike = self._alike(culprit.path)
            self._leave_in_float([path for one in alike for path in _fused_with(one, matches)])
            self.refused.append(_of_module(self.model.get_submodule(culprit.path), stage, error, alike))
            return True
        kind = type(self.model.get_submodule(culprit.path)) if culprit.path else culprit.operator
        if kind in self._kinds:
            known = prepared is not None and culprit.node is not None
            return known and self.leaves_out_near(culprit.node, stage, error, prepared)  # type: ignore[arg-type]
        self._kinds.append(kind)
        self.config = _without(self.config, kind)
        if isinstance(kind, type):
            self.mapping = copy.deepcopy(self.mapping).set_object_type(kind, None)
        if not culprit.path:
            modules = self.model.named_modules(remove_duplicate=False)
            layers = [path for path, module in modules if isinstance(kind, type) and type(module) is kind]
            node = _own(culprit.node, matches) if culprit.node is not None else None
            called = form_of_node(node, self.model) if node is not None else None
            self.refused.append(_refusal(pattern_name(kind), stage, error, layers, called))
        return True

    def leaves_out_near(self, node: Node, stage: str, error: Exception, prepared: GraphModule) -> bool:
        """Leave out the module around a node that raises when the observed model or the reference model is executed: the one
        that the node calls or belongs to, or else the nearest that gives it its input or uses its value."""
        path = next((path for path in _paths_near(node, prepared) if path not in self._paths), None)
        if path is None or len(self.refused) >= MOST_REFUSALS:
            return False
        self._leave_in_float([path])
        self.refused.append(_of_module(self.model.get_submodule(path), stage, error, [path]))
        return True

    def _leave_in_float(self, paths: Iterable[str]) -> None:
        self.mapping = copy.deepcopy(self.mapping)
        for path in paths:
            self._paths.add(path)
            self.mapping.set_module_name(path, None)

    def _alike(self, path: str) -> list[str]:
        """The modules of the class and with the options of one, the numbers of channels aside."""
        module = self.model.get_submodule(path)
        options = options_of(module, channels=False)
        return [
            other
            for other, one in self.model.named_modules(remove_duplicate=False)
            if type(one) is type(module) and options_of(one, channels=False) == options
        ]

    @property
    def all(self) -> tuple[Refusal, ...]:
        """What was refused, with the layers of one operator, stage and error together."""
        together: dict[tuple[str, str, str], Refusal] = {}
        for one in self.refused:
            key = one.operator, one.stage, one.error
            layers = (*together[key].layers, *one.layers) if key in together else one.layers
            together[key] = replace(one, layers=layers)
        return tuple(together.values())


def _refusal(
    operator: str, stage: str, error: Exception, layers: Iterable[str] = (), called: Form | None = None
) -> Refusal:
    failure = Failure.of(error)
    return Refusal(operator, stage, failure.exception, failure.message, tuple(layers), form=called)


def _of_module(module: nn.Module, stage: str, error: Exception, layers: Iterable[str]) -> Refusal:
    return _refusal(pattern_name(type(module)), stage, error, layers, form_of_module(module))


def _fused_with(path: str, matches: Matches) -> set[str]:
    """The paths of the modules that are fused with one, itself included."""
    nodes = {node.name: node for node in matches.traced[-1].graph.nodes} if matches.traced else {}
    found = {path}
    for name, node in nodes.items():
        if node.op == "call_module" and node.target == path:
            members = [nodes[other] for other in matches.members.get(name, ()) if other in nodes]
            found |= {str(other.target) for other in members if other.op == "call_module"}
    return found


def _culprit(error: Exception, matches: Matches) -> Culprit | None:
    """What the innermost frames of torch.ao were about."""
    for frame in reversed([*_frames(error.__traceback__)]):
        if not str(frame.f_globals.get("__name__")).startswith("torch.ao."):
            continue
        found: list[Node | nn.Module] = [*_nodes(frame.f_locals), *_modules(frame.f_locals)]
        for value in found:
            culprit = _called(value, matches) if isinstance(value, Node) else _class(value)
            if culprit is not None:
                return culprit
    return None


def _own(value: Node, matches: Matches) -> Node | None:
    """The node of the traced network that a node of any form of it is about. Conversion inserts nodes around those of the
    traced network: of such a node, a user or an input is meant."""
    own = {node.name: node for node in matches.traced[-1].graph.nodes} if matches.traced else {value.name: value}
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


def _frames(trace: TracebackType | None) -> Iterator[Any]:
    while trace is not None:
        yield trace.tb_frame
        trace = trace.tb_next


def _nodes(names: dict[str, Any]) -> list[Node]:
    first = ("ref_node", "func_node", "bop_node", "node", "n", "root_node")
    return [names[name] for name in first if isinstance(names.get(name), Node)]


def _modules(names: dict[str, Any]) -> list[nn.Module]:
    first = ("ref_module", "float_module", "mod", "module")
    return [names[name] for name in first if isinstance(names.get(name), nn.Module)]


def _without(config: BackendConfig, kind: Any) -> BackendConfig:
    """A config without the entries whose pattern has an operator."""
    kept = [entry for entry in config.configs if kind not in _operators(nested(config_pattern(entry)))]
    return BackendConfig(config.name).set_backend_pattern_configs(kept)


def _operators(pattern: Any) -> list[Any]:
    if not isinstance(pattern, tuple):
        return [pattern, *getattr(pattern, "__bases__", ())]
    return [one for part in pattern for one in _operators(part)]


def _paths_near(node: Node, prepared: GraphModule) -> Iterator[str]:
    """The paths of modules that nodes of the float network around a node call or belong to, the nearest first."""
    observers = ("activation_post_process", "dequantize")
    own = {one.name for one in prepared.graph.nodes if one.op.startswith("call_")}
    scopes = prepared.meta["_observed_graph_module_attrs"].node_name_to_scope
    near, seen = [node], set[Node]()
    while near:
        one = near.pop(0)
        if one in seen:
            continue
        seen.add(one)
        if one.name in own and not str(one.target).startswith(observers):
            path = str(one.target) if one.op == "call_module" else scopes.get(one.name, ("", None))[0]
            if path:
                yield path
        near += [*one.users, *one.all_input_nodes] if len(seen) < MOST_NEAR else []
