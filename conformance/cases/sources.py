"""Source text of a model from a claim and a variant, which is executed and printed in reproductions."""

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import islice
from typing import Any

import torch
from torch import nn
from torch.ao.nn.intrinsic.modules.fused import _FusedModule
from torch.ao.quantization.utils import MatchAllNode

from conformance.configs.names import NAMESPACES, operator_named, pattern_name
from conformance.configs.quantizer import Declaration
from conformance.configs.spelling import TRANSPOSED, is_batch_norm, spelled
from conformance.errors import UsageError

from .claims import Claim, operators_of
from .declarations import declared_variants, has_form_of, required
from .followers import FOLLOWERS, JOINS, OPTIONS, follower, modules_of, variants_of
from .operators import NORMED_RANKS, OPERATORS, RECORDS, Operand, Variant
from .operators.declared import DECLARED
from .operators.expressions import Call
from .operators.fused import WITHOUT_RELU, init_without_relu, plain_of, wrapped
from .operators.signatures import NAME, tried
from .operators.variant import Shape, Wildcard
from .recipes import QUANTIZED, dtype_config_name, observes_inputs


@dataclass(frozen=True)
class Model:
    """A model as source text: lines of `__init__`, lines of `forward`, the operands of `forward` in order, and the modules of
    third parties that it needs."""

    init: tuple[str, ...]
    forward: tuple[str, ...]
    operands: tuple[tuple[str, Operand], ...]
    imports: tuple[str, ...] = ()

    @property
    def source(self) -> str:
        imports = "".join(f"import {module}\n" for module in self.imports)
        init = "".join(f"        {line}\n" for line in self.init)
        forward = "".join(f"        {line}\n" for line in self.forward)
        names = ", ".join(name for name, _ in self.operands)
        return (
            f"{imports}class Model(nn.Module):\n"
            f"    def __init__(self):\n        super().__init__()\n{init}\n"
            f"    def forward(self, {names}):\n{forward}"
        )


def transposed(claim: Claim) -> bool:
    """Whether the root of a pattern is a transposed convolution, whose weights have output channels in dimension 1."""
    return spelled(plain_of(claim.root)).computes == TRANSPOSED


def is_qat_module(name: str) -> bool:
    return name.startswith(("nnqat.", "nniqat."))


def in_tables(claim: Claim) -> bool:
    """Whether the suite's own tables have all operators of a claim. Others have no contexts, no layers in use, and nothing
    else that depends on what an operator does."""
    root, *rest = claim.operators
    return root in OPERATORS and all(name in OPERATORS or name in FOLLOWERS or name in JOINS for name in rest)


def from_signature(claim: Claim) -> list[str]:
    """Names of the pattern's operators that are tried from their signatures."""
    known = {*OPERATORS, *DECLARED, *FOLLOWERS, *JOINS}
    return [name for name in claim.operators if name not in known]


def untraced(claim: Claim) -> list[tuple[str, type[nn.Module]]]:
    """The module classes of a pattern, with their names, that torch would trace through, so that the pattern never matched.

    A user of such a module tells `prepare_fx` that it is not traceable, with a `PrepareCustomConfig`.
    """
    named = dict.fromkeys(name for name in claim.operators if next(modules_of(name), ""))
    classes = [(name, operator_named(name)[0]) for name in named]
    return [
        (name, one)
        for name, one in classes
        if isinstance(one, type) and issubclass(one, nn.Module) and not _is_leaf(one)
    ]


def _is_leaf(module: type[nn.Module]) -> bool:
    """Whether torch's quantization traces a call of a module as one node."""
    if issubclass(module, _FusedModule):
        return True
    return module.__module__.startswith(("torch.nn", "torch.ao.nn")) and not issubclass(module, nn.Sequential)


def missing_operators(claim: Claim) -> list[str]:
    """Names of the pattern's operators that the tables lack, and whose signatures do not say how to call them."""
    root, *rest = claim.operators
    missing = [] if variants_of(root) else [root]
    return missing + [name for name in rest if name not in JOINS and follower(name) is None]


def not_covered(claim: Claim) -> str:
    """Why a claim is not run; empty if it is."""
    if claim.refused:
        return f"torch refuses the entry: {claim.refused}"
    for name in missing_operators(claim):
        return f"no operator {name!r} in the tables: {_untried(claim, name)}: declare it with --operators"
    return "" if _variants(claim) else f"no variant of {claim.root} has an output that the others take"


def _untried(claim: Claim, name: str) -> str:
    """Why an operator is not tried in a pattern."""
    if name != claim.root and variants_of(name):
        return f"{name} takes more operands than the result before it"
    return tried(name).reason


def flows(claim: Claim, config_entries: dict[Any, Any]) -> tuple[str, ...]:
    """`ptq`, and `qat` for an entry with a QAT module; a QAT module itself exists only in models prepared for training."""
    entry = claim.entry
    if claim.refused:
        return ("ptq",)
    if isinstance(entry, Declaration):  # observers of integers alone have fake-quantizes for training
        return ("ptq",) if claim.dtypes.weight_dtype == torch.float16 else entry.flows
    if is_qat_module(claim.root) or _is_trained(claim, config_entries):
        return ("qat",)
    fused = config_entries.get(entry.fused_module)
    trainable = entry.qat_module is not None or (fused is not None and fused.qat_module is not None)
    return ("ptq", "qat") if trainable else ("ptq",)


def _is_trained(claim: Claim, config_entries: dict[Any, Any]) -> bool:
    """Whether a claim is about a module of a third party that an entry of its config has for training."""
    ours = claim.root in OPERATORS or not isinstance(claim.tree, type)
    return not ours and any(entry.qat_module is claim.tree for entry in config_entries.values())


def variants(claim: Claim) -> list[Variant]:
    """All variants of a claim. Raises UsageError naming an operator that the tables lack."""
    if missing_operators(claim):
        raise UsageError(f"{claim.id}: {not_covered(claim)}")
    applicable = _variants(claim)
    if isinstance(claim.entry, Declaration):
        applicable = declared_variants(claim.entry, applicable, transposed=transposed(claim))
    if claim.dtypes.weight_dtype not in QUANTIZED:
        applicable = [variant for variant in applicable if not variant.per_channel]
    if not observes_inputs(claim.dtypes):
        applicable = [variant for variant in applicable if not variant.saturates and not variant.symmetric]
    return applicable


def large(claim: Claim) -> Variant:
    """The variant of a claim for the metamorphic relations: the enlarged default one, per channel if any variant is."""
    variant, *_ = continuing(claim, [wrapped(RECORDS[plain_of(claim.root)].enlarged(), claim.root)])
    return variant.named("large", per_channel=has_per_channel(claim))


def deployed(claim: Claim) -> Iterator[tuple[str, Variant]]:
    """Extents and variants of a claim for timing: layers of networks, per channel if any variant is."""
    root = claim.root
    per_channel = has_per_channel(claim)
    for extent, sized in RECORDS[plain_of(root)].timed():
        variant, *_ = continuing(claim, [wrapped(sized, root)])
        yield extent, variant.named(sized.name, per_channel=per_channel)


def swept(claim: Claim) -> Iterator[Variant]:
    """Variants of a statically quantized claim for sweeps over all codes; none for a claim whose operator has none, or whose
    inputs have no codes.

    Layers are per channel if any variant is, and those that are not part of a pattern or module also per tensor.
    """
    if not dtype_config_name(claim.dtypes).startswith("static") or claim.dtypes.input_dtype not in QUANTIZED:
        return
    root = claim.root
    layer = plain_of(root)
    record = RECORDS[layer]
    declared = claim.entry if isinstance(claim.entry, Declaration) else None
    behind, last = (False, False) if declared is None else (declared.behind, declared.channels_last)
    for sized in record.swept(images=behind, channels_last=last):
        variant, *_ = continuing(claim, [wrapped(sized, root)])
        if not has_form_of(claim.entry, variant):
            continue
        variant = required(claim.entry, variant)
        per_channel = record.weighted and has_per_channel(claim)
        if not per_channel or (root == layer and not isinstance(claim.tree, tuple)):
            yield variant
        if per_channel:
            yield variant.named(f"{variant.name}_per_channel", per_channel=True)


def has_per_channel(claim: Claim) -> bool:
    """Whether any variant of a claim quantizes weights per channel."""
    return any(variant.per_channel for variant in variants(claim))


@cache
def _variants(claim: Claim) -> list[Variant]:
    own = variants_of(claim.root)
    if not isinstance(claim.tree, tuple):
        return own
    continued = continuing(claim, [variant for variant in own if variant.core])
    if in_tables(claim):
        normed = claim.root == "nn.Linear" and "nn.BatchNorm1d" in claim.operators
        return [*continued, *(NORMED_RANKS if normed else ())]
    name = NAME if from_signature(claim) else ""
    accepted = (one.named(name or one.name) for one in continued if _executes(model_source(claim, one)))
    return [*islice(accepted, 1 if name else None)]


@cache
def _executes(model: Model) -> bool:
    """Whether the operators of a model take the results of those before them."""
    scope = dict(NAMESPACES)
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            exec(model.source, scope)
            scope["Model"]().eval()(*(torch.zeros(spec.shape) for _, spec in model.operands))
    except Exception:
        return False
    return True


def continuing(claim: Claim, core: list[Variant]) -> list[Variant]:
    """Variants of a pattern from variants of its root operator."""
    if _has_wildcard(claim.tree):
        core = [wild for v in core for wild in _wildcards(v, left=_wildcard_is_left(claim.tree))]
    if any(map(is_batch_norm, claim.operators)):
        core = [v for v in core if v.output]
    return core


def followed(claim: Claim) -> Iterator[Variant]:
    """The default variant of a longer pattern with each option of the operators that follow its root."""
    if isinstance(claim.tree, tuple):
        default = variants(claim)[0]
        for name in claim.operators[1:]:
            for label, argument in OPTIONS.get(name, {}).items():
                yield default.named(label, core=False, followers={name: argument})


def _has_wildcard(tree: Any) -> bool:
    return tree is MatchAllNode or (isinstance(tree, tuple) and any(_has_wildcard(part) for part in tree))


def _wildcard_is_left(tree: Any) -> bool:
    """Whether the wildcard is the first operand, as in `(torch.add, MatchAllNode, nn.Conv2d)`."""
    return isinstance(tree, tuple) and (tree[1] is MatchAllNode or _wildcard_is_left(tree[1]))


def _wildcards(variant: Variant, *, left: bool) -> Iterator[Variant]:
    """Variants for the operand that the wildcard matches.

    It is another input and, beside the default variant, the pattern's own input, another layer, a number, a smaller
    tensor, or an input that the model returns too. With the wildcard on the left, two layers are left out: they fit the
    pattern with the wildcard on the right too, and that one gets them.
    """
    second = {**variant.operands, "other": Operand(variant.output, exponent=1)}
    yield variant.named(variant.name, operands=second, wildcard=Wildcard("other"))
    if variant.name != "default":
        return
    yield from _residual(variant)
    if variant.init and not left:
        yield variant.named("two_layers", wildcard=Wildcard("self.other(x)", variant.init))
    yield variant.named("scalar", wildcard=Wildcard("0.5"))
    smaller = {**variant.operands, "other": Operand((1, variant.channels, 1, 1))}
    yield variant.named("broadcast", operands=smaller, wildcard=Wildcard("other"))
    yield variant.named("other_reused", operands=second, wildcard=Wildcard("other"), result="y, other")


def _residual(variant: Variant) -> Iterator[Variant]:
    """The operator with its own input as the other operand; a layer gets as many output as input channels.

    There is none for a functional whose parameters change the number of channels.
    """
    batch, channels, *_ = variant.operands["x"].shape
    if variant.channels == channels:
        yield variant.named("residual", wildcard=Wildcard("x"))
    elif variant.init:
        layer = variant.stated
        init = Call(layer.function, (channels, channels, *layer.positional[2:]), layer.keywords)
        output = (batch, channels, *variant.output[2:])
        yield variant.named("residual", init=init, output=output, wildcard=Wildcard("x"))


def model_source(claim: Claim, variant: Variant) -> Model:
    """Write the model of a claim and a variant."""
    return written(claim.tree, variant)


def written(whole: Any, variant: Variant) -> Model:
    """Write the model of a nested pattern and a variant."""
    init = [f"self.op = {variant.init}"] if variant.init else []
    if variant.prelude:
        init.insert(0, variant.prelude)
    init += _parameters(variant.parameters)
    forward = ["x = self.prelude(x)"] if variant.prelude else []
    if variant.wildcard and variant.wildcard.layer:
        init.append(f"self.other = {variant.wildcard.layer}")

    def write(tree: Any) -> str:
        """Add the lines that compute `tree` and return the expression of its result."""
        if tree is MatchAllNode:
            assert variant.wildcard is not None
            return variant.wildcard.expression
        if not isinstance(tree, tuple):
            forward.append(f"y = {variant.call}")
            return "y"
        name = pattern_name(tree[0])
        if name in JOINS:
            left, right = (write(part) for part in tree[1:])
            forward.append(f"y = {JOINS[name].format(left=left, right=right)}")
            return "y"
        inner = write(tree[1])
        after = follower(name)
        assert after is not None  # a claim with another operator is not covered
        if argument := variant.followers.get(name):
            after = after.with_argument(argument)
        bound = name.rpartition(".")[2].lower()
        if after.module:
            channels = variant.channels if "{channels}" in after.module else 0
            init.append(f"self.{bound} = {after.module.format(channels=channels)}")
        init.extend(_parameters({key.format(name=bound): shape for key, shape in after.parameters.items()}))
        forward.append(f"y = {after.call.format(name=bound, inner=inner)}")
        return "y"

    context = variant.context
    for neighbour in context.neighbours:
        init += [neighbour.layer] if neighbour.layer else []
    init += context.ties
    forward += (neighbour.line for neighbour in context.before)
    write(whole)
    for _ in range(1, context.applications):
        forward.append("z, x = y, w" if "w" in context.operands else "x = y")
        first = len(forward)
        write(whole)
        for name, source in context.others.items():
            init.append(f"self.second_{name} = {source}")
            forward[first:] = [line.replace(f"self.{name}(", f"self.second_{name}(") for line in forward[first:]]
    forward += (neighbour.line for neighbour in context.after)
    forward.append(f"return {variant.result}")
    imports = dict.fromkeys(module for name in operators_of(whole) for module in modules_of(name))
    return Model(tuple(dict.fromkeys(init)), tuple(forward), tuple(variant.operands.items()), tuple(imports))


def _parameters(shapes: Mapping[str, Shape]) -> list[str]:
    """The lines that make the parameters of functions."""
    return [f"self.{name} = nn.Parameter(torch.empty({shape}))" for name, shape in shapes.items()]


def without_relu(claim: Claim, variant: Variant) -> Model | None:
    """The model without the ReLU that its pattern or fused module ends in, or None if that does not end in a ReLU."""
    if isinstance(claim.tree, tuple):
        return written(claim.tree[1], variant) if pattern_name(claim.tree[0]).lower().endswith(".relu") else None
    operator = claim.root
    if operator not in WITHOUT_RELU:
        return None
    return written(claim.tree, variant.named(variant.name, init=init_without_relu(operator, variant.init)))


def target_source(claim: Claim) -> str:
    """Source of the object type that gets the claim's qconfig if the model contains other operators."""
    name = claim.root
    return repr(name.removeprefix("Tensor.")) if spelled(name).namespace == "Tensor" else name
