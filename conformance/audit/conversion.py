"""A network prepared, calibrated and lowered for an engine. What cannot be prepared or lowered is left in float and
recorded."""

import copy
import inspect
import linecache
import traceback
from dataclasses import dataclass
from functools import cached_property
from itertools import zip_longest
from typing import Any

import torch
from torch import nn
from torch.ao.quantization import QConfigMapping
from torch.ao.quantization.backend_config import BackendConfig
from torch.ao.quantization.fx.custom_config import PrepareCustomConfig
from torch.fx import GraphModule, Node
from torch.fx.proxy import TraceError

from conformance.cases.claims import BackendClaims
from conformance.errors import brief
from conformance.models import fx
from conformance.models.correspondence import Matches
from conformance.results.audits import Refusal

from .agreement import compared, decibels
from .isolated import Stage
from .network import Network, copied, tensors_of
from .refusals import Refusals
from .values import NodeRaises, Recorded

COPIED = "torch copies a network before it quantizes it: leave out the attributes that cannot be copied"
LEAVE_IN_FLOAT = (
    "keep the operator out of what FX sees: a module around it, given to set_non_traceable_module_classes of a "
    "PrepareCustomConfig (--custom-config)"
)


@dataclass(frozen=True)
class Converted:
    """A network in each of its forms.

    `equivalents` has for each node of the lowered graph the node of the reference graph that has the same value.
    `reference_values` and `expected` are the values and the output of the reference model for the held-out batch. `config` is
    the backend's without the operators that were refused, `mapping` leaves modules in float that were.
    """

    network: Network
    claims: BackendClaims
    config: BackendConfig
    mapping: QConfigMapping
    prepared: GraphModule
    matches: Matches
    reference: GraphModule
    lowered: GraphModule
    equivalents: dict[Node, Node]
    reference_values: dict[Node, Any]
    expected: Any
    refusals: tuple[Refusal, ...]

    @property
    def traced(self) -> GraphModule:
        """The float network as it was traced."""
        return self.matches.traced[-1]

    @cached_property
    def nodes(self) -> dict[str, Node]:
        """The nodes of the prepared network by name."""
        return {node.name: node for node in self.prepared.graph.nodes}

    @cached_property
    def modules(self) -> dict[str, nn.Module]:
        """The modules of the prepared network by path."""
        return dict(self.prepared.named_modules(remove_duplicate=False))

    @cached_property
    def float_nodes(self) -> dict[str, Node]:
        """The nodes of the float network by the names of those of the prepared one: of a fusion the last, whose value the
        node that is left has."""
        members = self.matches.members
        return {name: node for node in self.traced.graph.nodes for name in members.get(node.name, (node.name,))}

    @cached_property
    def in_float(self) -> Recorded:
        """The float network's own execution on the held-out batch, by the nodes of the network as it was traced."""
        recorder = Recorded(self.traced)
        with torch.no_grad():
            recorder.run(*copied(self.network.held_out))
        return recorder


class Unconvertible(Exception):
    """The network cannot be traced or converted. `stage` raised `error`; `advice` says what can be done."""

    def __init__(self, stage: str, error: str, advice: str) -> None:
        super().__init__(f"{stage} raises {error}")
        self.stage, self.error, self.advice = stage, error, advice


def convert(
    network: Network,
    claims: BackendClaims,
    mapping: QConfigMapping,
    stage: Stage,
    custom: PrepareCustomConfig | None = None,
) -> Converted:
    """Prepare, calibrate and lower a network for the selected engine, and run its reference model.

    What raises in preparation, lowering or the reference model is left in float, until the rest can be lowered. Raises
    Unconvertible if that is of no use, or if the network cannot be traced.
    """
    refusals = Refusals(network.model, mapping, claims)
    while True:
        matches, at = Matches(), "prepare"
        prepared: GraphModule | None = None
        try:
            stage(at)
            prepared = fx.prepare_network(
                network.model, refusals.mapping, network.held_out, refusals.config, matches, custom
            )
            _compare_traced(matches.traced[-1], network)
            stage(at := "calibrate")
            _calibrate(prepared, network)
            stage(at := "convert")
            reference, lowered, same = fx.lower_network(prepared, refusals.config)
            stage(at := "run the reference")
            recorded = Recorded(reference)
            with torch.no_grad():
                expected = recorded.run(*copied(network.held_out))
        except Unconvertible:
            raise
        except NodeRaises as error:
            assert prepared is not None
            if (name := _number(error.node, prepared, network)) is not None:
                raise Unconvertible(at, brief(error.error), KEEP_NUMBER.format(name)) from error
            node = _misshapen(recorded, network, matches) if at == "run the reference" else None
            if not refusals.leaves_out_near(node or error.node, at, error.error, prepared, matches):
                raise Unconvertible(at, brief(error.error), LEAVE_IN_FLOAT) from error
        except Exception as error:
            if not matches.traced or not refusals.leaves_out(error, at, matches, prepared):
                raise unconvertible(error, at, network.model) from error
        else:
            return Converted(
                network, claims, refusals.config, refusals.mapping, prepared, matches, reference, lowered, same,
                recorded.values, expected, refusals.all,
            )  # fmt: skip


def _misshapen(recorded: Recorded, network: Network, matches: Matches) -> Node | None:
    """The first node whose value has another shape in the reference model than in the float network."""
    own = Recorded(matches.traced[-1])
    with torch.no_grad():
        own.run(*copied(network.held_out))
    shapes = {node.name: _shapes(value) for node, value in own.values.items()}
    found = recorded.values.items()
    return next((node for node, value in found if shapes.get(node.name, _shapes(value)) != _shapes(value)), None)


def _shapes(value: Any) -> list[torch.Size]:
    return [x.shape for x in tensors_of(value)]


KEEP_NUMBER = "prepare_fx observes the argument {0!r} as a tensor, which it is not: make it an attribute of the module"


def _number(node: Node, prepared: GraphModule, network: Network) -> str | None:
    """The argument without a tensor that a node observes, None if it observes none."""
    arguments = [one for one in prepared.graph.nodes if one.op == "placeholder"]
    given = zip_longest(arguments, network.held_out)
    observed = [argument for argument, value in given if argument in node.all_input_nodes and not tensors_of(value)]
    return str(observed[0].target) if observed else None


COMPARE_TRACED = (
    "FX has lost an operator, or taken one branch for all inputs: compare torch.fx.symbolic_trace(model) with the model"
)

LEAST_TRACED_DB = 60.0
"""SQNR of a traced network's output beside that of the network itself, below which tracing has lost something."""


GIVE_ARGUMENT = "give {0!r} in --inputs, or audit a module that calls the network without it"
LEAVE_ARGUMENT = "audit a module that calls the network without it"


def _without_argument(traced: GraphModule, network: Network) -> str:
    """What to do about an argument that is None, which FX has traced as a tensor; empty if there is none."""
    arguments = [node for node in traced.graph.nodes if node.op == "placeholder"]
    pairs = zip_longest(arguments, network.held_out)
    none = [node for node, value in pairs if node is not None and value is None]
    missing = [node for node in none if node in arguments[: len(network.held_out)] or node.args == (None,)]
    if not missing:
        return ""
    name = str(missing[0].target)
    kinds = inspect.signature(network.model.forward).parameters
    by_position = name in kinds and kinds[name].kind is not inspect.Parameter.KEYWORD_ONLY
    way = GIVE_ARGUMENT if by_position else LEAVE_ARGUMENT
    return f"FX traces every argument as a tensor, and takes the branch where {name!r} is not None: {way.format(name)}"


def _compare_traced(traced: GraphModule, network: Network) -> None:
    """Raise Unconvertible if the traced network computes something else, because FX has lost an operator or frozen a
    branch; and if it needs an argument that the network does not."""
    with torch.no_grad():
        own = compared(tensors_of(network.model(*copied(network.held_out))))
        try:
            other = compared(tensors_of(traced(*copied(network.held_out))))
        except Exception as error:
            advice = _without_argument(traced, network)
            if not advice:
                raise
            raise Unconvertible("tracing", brief(error), advice) from error
    pairs = zip(own, other, strict=False)
    agreed = [x.shape == y.shape and ((db := decibels(y, x)) is None or db > LEAST_TRACED_DB) for x, y in pairs]
    if len(own) != len(other) or not all(agreed):
        raise Unconvertible("tracing", "no error, but the traced network computes something else", COMPARE_TRACED)


def _calibrate(prepared: GraphModule, network: Network) -> None:
    """Run the calibration batches through the observers. Raises NodeRaises for the node that raises."""
    with torch.no_grad():
        try:
            for batch in network.calibration:
                prepared(*copied(batch))
        except Exception:
            Recorded(prepared).run(*copied(batch))  # the same, node by node
            raise


def unconvertible(error: Exception, stage: str, model: nn.Module) -> Unconvertible:
    if any(frame.f_globals.get("__name__") == "copy" for frame, _ in traceback.walk_tb(error.__traceback__)):
        return Unconvertible(stage, brief(error), COPIED)
    where = line_of(error) if stage == "prepare" else ""
    text = brief(error) + (f" at {where}" if where else "")
    if not (where and isinstance(error, TraceError | TypeError | RuntimeError | KeyError | AttributeError)):
        return Unconvertible(stage, text, LEAVE_IN_FLOAT)
    advice = (
        "FX traces no control flow that depends on values or shapes of tensors: rewrite this line, mark the function "
        "that has it with torch.fx.wrap, or audit a part of the network"
    )
    parts = traceable_parts(model)
    return Unconvertible(stage, text, f"{advice}; these parts can be traced: {', '.join(parts)}" if parts else advice)


def line_of(error: Exception) -> str:
    """The innermost line outside of torch that an exception passed through, with its source."""
    for frame, line in reversed([*traceback.walk_tb(error.__traceback__)]):
        name, file = str(frame.f_globals.get("__name__")), frame.f_code.co_filename
        if not name.startswith(("torch.", "conformance.", "typing_extensions")) and name != "torch":
            return f"{file}:{line}: {linecache.getline(file, line).strip()}"
    return ""


def traceable_parts(model: nn.Module, most: int = 4) -> list[str]:
    """Paths of the greatest submodules that FX can trace, the ones with most parameters first."""
    found: list[tuple[int, str]] = []
    seen = {model}

    def visit(module: nn.Module, path: str) -> None:
        for name, child in module.named_children():
            inside = f"{path}.{name}" if path else name
            size = sum(parameter.numel() for parameter in child.parameters())
            if not size or not [*child.children()] or child in seen:
                continue
            seen.add(child)
            try:
                torch.fx.symbolic_trace(copy.copy(child))
            except Exception:
                visit(child, inside)
            else:
                found.append((size, inside))

    visit(model, "")
    return [path for _, path in sorted(found, reverse=True)[:most]]
