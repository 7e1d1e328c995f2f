"""What the text and the page of an audit both say: figures in words, remarkable properties of layers, groups of layers."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import prod

from conformance.configs.engines import ENGINE_TABLE
from conformance.results.audits import (
    CLIPPED,
    FEW_CODES,
    LEAST_DB,
    LOST_DB,
    Agreement,
    Arithmetic,
    Audit,
    Layer,
    Reduction,
)

from .documents import count

Facts = list[tuple[str, str]]
"""Terms, each with its description."""


def decibels(value: float | None, than: str = "") -> str:
    """An SQNR, and what it is measured against."""
    if value is None:
        return f"equal to {than}" if than else "equal"
    if value <= LEAST_DB:
        return f"nothing left of {than}" if than else "nothing left"
    return f"{value:.1f} dB against {than}" if than else f"{value:.1f} dB"


def percent(share: float, decimals: int = 2) -> str:
    """A share with at most two digits before or behind the point. Neither 0% nor 100% is rounded."""
    least = 10.0 ** -(decimals + 2)
    if 0 < share < least:
        return f"<.{round(100 * least * 10**decimals):0{decimals}}%"
    if 0.995 <= share < 1:
        return ">99%"
    shown = 0 if share in (0, 1) or share >= 0.0995 else 1 if share >= 0.00995 else 2
    return f"{100 * share:.{min(shown, decimals)}f}%"


def some_percent(share: float, decimals: int = 2) -> str:
    """A share in a table, in which what is zero is empty."""
    return percent(share, decimals) if share else ""


def operator(pattern: str) -> str:
    """A pattern without the modules that its names are in, such as `Conv2d+BN+ReLU`."""
    names = (name.rpartition(".")[2] or name for name in pattern.split("+"))
    return "+".join("BN" if name.startswith("BatchNorm") else name for name in names)


def kernel(name: str) -> str:
    """The name of a kernel without the namespaces that nearly all kernels are in."""
    return name.removeprefix("quantized.").removeprefix("aten.")


def usability(audit: Audit) -> str:
    """What becomes of a network, measured against float: which operator or layer stops it, or which one destroys it."""
    measured = decibels(audit.engine_db, "float")
    if audit.failure:
        reason = audit.failure.splitlines()[0]
        return reason if audit.layers else f"{audit.state}: {reason}"
    rest = f"the rest {'is' if audit.engine_db is None else 'has'} {measured}"
    if audit.refusals:
        first = audit.refusals[0]
        return f"{audit.state} as it is: {first.operator} raises in {first.stage}; {rest}"
    if layer := audit.broken:
        return f"{audit.state}: in {layer.name}, {layer.faults[0].text.splitlines()[0]}; {rest}"
    if audit.usable:
        return f"{audit.state}: {measured}"
    if not audit.repeats:
        return f"{audit.state}: {measured} in one run and other values in the next"
    said = f"{audit.state}: {measured}, under {audit.floor_db:g}"
    if (number := audit.worst_output) is not None:
        alone = decibels(audit.outputs_db[number - 1], "float")
        said = f"{audit.state}: {alone} in output {number} of {len(audit.outputs_db)}, under {audit.floor_db:g}"
    if (layer := audit.destroyer) is None:
        return said
    clips = f" and clips {percent(layer.clipped)} of its values" if layer.clipped >= CLIPPED else ""
    return f"{said}; {layer.name} leaves {decibels(layer.float_db)}{clips}"


def headline(audit: Audit) -> str:
    """Whether the network is usable, then what is to blame, in one sentence."""
    return "; ".join(filter(None, (usability(audit), blame(audit))))


def blame(audit: Audit) -> str:
    """What is to blame."""
    parts = []
    if audit.blamed:
        new = f"{len(audit.new)} new" if audit.new else "all known"
        parts.append(f"{count(len(audit.blamed), 'layer')} to blame ({new})")
    if audit.refusals:
        parts.append(f"{count(len(audit.refusals), 'operator')} refused")
    if audit.unstable:
        parts.append(f"{len(audit.unstable)} of {len(audit.stability)} repetitions differ")
    if parts or audit.failure:
        return ", ".join(parts)
    if not audit.referenced:
        return "no layer was compared"
    return f"nothing to blame{'' if audit.usable else _left(audit)}"


def _left(audit: Audit) -> str:
    """What leaves a network unusable although nothing is to blame, as the end of a sentence."""
    if audit.worst_output is not None:
        return ""
    worst = max(audit.layers, key=lambda layer: layer.clipped, default=None)
    clips = worst is not None and worst.clipped >= CLIPPED
    most = f", {worst.name} clips {percent(worst.clipped)} of its values" if worst is not None and clips else ""
    return f": the reference has {decibels(audit.reference_db, 'float')}{most}"


def promising(audit: Audit) -> str:
    """What promises layers in integers: the config of an engine of torch, or the quantizer of another one."""
    spec = ENGINE_TABLE.get(audit.engine)
    return f"{'config' if spec is None or spec.native else 'quantizer'} {audit.backend}"


def facts(audit: Audit) -> Facts:
    """The figures of the whole network."""
    return [
        *_outputs(audit),
        ("layers that compute", arithmetic(audit)),
        *([("delegates", str(audit.delegates))] if audit.delegates is not None else []),
        ("conversions", conversions(audit)),
        ("time", times(audit)),
        ("beside float", beside_float(audit)),
        ("repetitions", repetitions(audit)),
    ]


def _outputs(audit: Audit) -> Iterator[tuple[str, str]]:
    """What quantization itself loses, which the reference shows, and what the engine loses beyond that."""
    if audit.failure and audit.engine_db is audit.reference_db is audit.agreement_db is None:
        return
    if not audit.referenced:
        yield "output", decibels(audit.engine_db, "float")
        return
    yield "reference's output", decibels(audit.reference_db, "float")
    yield "engine's output", "; ".join([
        decibels(audit.engine_db, "float") + lost(audit), decibels(audit.agreement_db, "the reference"),
    ])  # fmt: skip


def lost(audit: Audit) -> str:
    """What the engine loses beyond quantization itself, as the end of a sentence."""
    if audit.lost_db is None:
        return ""
    if audit.lost_db <= -0.05:
        return f": {-audit.lost_db:.1f} dB closer than the reference"
    limit = f", over the limit of {LOST_DB:g} dB" if audit.loses else ""
    if audit.lost_db > LOST_DB and not audit.loses and audit.tied_db is not None:
        limit = f", no more than other roundings of ties do, with which the reference has {audit.tied_db:.1f} dB"
    return f": the engine loses {f'another {audit.lost_db:.1f} dB' if audit.lost_db >= 0.05 else 'nothing'}{limit}"


def arithmetic(audit: Audit) -> str:
    """How the layers that compute do so."""
    total = len(audit.computing)
    if not total:
        return "none"
    words = {Arithmetic.INTEGER: "in integers", Arithmetic.NAME_ONLY: "in name only", Arithmetic.FLOAT: "in float"}
    counts = {kind: sum(layer.arithmetic is kind for layer in audit.computing) for kind in words}
    shares = (f"{counts[kind]} {word} ({percent(counts[kind] / total)})" for kind, word in words.items())
    return f"{total}: {', '.join(shares)}"


def conversions(audit: Audit) -> str:
    """How many layers quantize or dequantize."""
    layers = [layer for layer in audit.layers if layer.arithmetic is Arithmetic.CONVERSION]
    return f"{count(len(layers), 'layer')} to quantize or dequantize" if layers else "none"


def times(audit: Audit) -> str:
    """The shares of the network's time by arithmetic."""
    shares = {kind: sum(layer.latency for layer in audit.layers if layer.arithmetic is kind) for kind in Arithmetic}
    return ", ".join(f"{percent(share)} {kind}" for kind, share in shares.items() if share) or "not measured"


def beside_float(audit: Audit) -> str:
    """The time of a pass and the size of the weights, beside the float model's."""
    figures = [
        f"{ratio(value)} of its {what}"
        for value, what in ((audit.time_ratio, "time in eager mode"), (audit.size_ratio, "size"))
        if value is not None
    ]
    return ", ".join(figures) or "not measured"


def ratio(value: float | None) -> str:
    """A ratio in a table, with two digits behind the point."""
    return "–" if value is None else f"{value:.2f}"


def repetitions(audit: Audit) -> str:
    """The outcomes of the repetitions; what they are is said of those that do not pass."""
    if not audit.stability:
        return "none"
    passed = sum(check.outcome == "pass" for check in audit.stability)
    others = (
        f"{check.name} {'DIFFERS' if check.outcome == 'fail' else 'skipped'}{f' ({check.text})' if check.text else ''}"
        for check in sorted(audit.stability, key=lambda check: check.outcome)
        if check.outcome != "pass"
    )
    return "; ".join([f"{passed} of {len(audit.stability)} agree", *others])


def elements(agreement: Agreement) -> str:
    """How many elements differ, and by how much."""
    if not agreement.total:
        return "none"
    texts = [f"none of {agreement.total:,} wrong"]
    if agreement.wrong:
        steps = f" by up to {count(agreement.steps_max, 'step')}" if agreement.steps_max else ""
        texts = [
            f"{agreement.wrong:,} of {agreement.total:,} wrong{steps} ({percent(agreement.wrong / agreement.total)})"
        ]
    if agreement.tied:
        texts.append(f"{agreement.tied:,} one code off at a tie ({percent(agreement.tied / agreement.total)})")
    return ", ".join(texts)


def compared(layer: Layer) -> Facts:
    """The figures of a layer that is compared with its reference."""
    if layer.agreement is None:
        return []
    own, local = decibels(layer.float_db, "float"), decibels(layer.local_db, "the reference")
    figures = f"{own} and {local} given the same inputs, {decibels(layer.cumulative_db)} so far"
    return [("elements", elements(layer.agreement)), ("SQNR", figures)]


def cells(layer: Layer, decimals: int = 2) -> list[str]:
    """The same figures for a table: the shares of tied and of wrong elements, and the local and cumulative SQNR."""
    agreement = layer.agreement
    if agreement is None or not agreement.total:
        return ["–"] * 4
    shares = (some_percent(part / agreement.total, decimals) for part in (agreement.tied, agreement.wrong))
    return [*shares, *(f"{db:.1f}" if db is not None else "=" for db in (layer.float_db, layer.cumulative_db))]


def qparams(layer: Layer) -> str:
    """The qparams of the output, with those of the reference if they differ."""
    if layer.output is None and layer.reference is None:
        return "float"
    output, reference = (of.text if of else "float" for of in (layer.output, layer.reference))
    return f"{output}, reference {reference}" if layer.reference and layer.reference != layer.output else output


def flags(layer: Layer) -> list[str]:
    """What stands out of a layer besides its faults: other qparams, few codes, clipped elements, notes."""
    texts = []
    if layer.reference and layer.output != layer.reference:
        texts.append(f"output {qparams(layer)}")
    if 0 < layer.codes_used < min(FEW_CODES, layer.codes) and prod(layer.shape) >= FEW_CODES:
        texts.append(f"uses {layer.codes_used} of {layer.codes} codes")
    if layer.clipped >= CLIPPED:
        texts.append(f"{percent(layer.clipped)} of the elements clipped")
    return [*dict.fromkeys([*texts, *layer.notes])]


@dataclass(frozen=True)
class Group:
    """Layers of one operator that compute in float, or in integers in name only, for the same reason. `number` is that of the
    reason, from 1."""

    number: int
    operator: str
    arithmetic: Arithmetic
    reason: str
    layers: tuple[Layer, ...]

    @property
    def known(self) -> str:
        """The entries of the ledger that list what keeps the layers in float."""
        return ", ".join(dict.fromkeys(layer.cause for layer in self.layers if layer.cause))


def in_float(audit: Audit) -> list[Group]:
    """The groups of layers that compute in float, also in name only, by reason in order of the network."""
    members: dict[tuple[str, str, Arithmetic], list[Layer]] = {}
    numbers: dict[str, int] = {}
    for layer in audit.computing:
        if layer.arithmetic is not Arithmetic.INTEGER:
            numbers.setdefault(layer.reason, len(numbers) + 1)
            members.setdefault((layer.reason, layer.pattern, layer.arithmetic), []).append(layer)
    groups = (
        Group(numbers[reason], pattern, kind, reason, tuple(layers))
        for (reason, pattern, kind), layers in members.items()
    )
    return sorted(groups, key=lambda group: (group.number, -len(group.layers)))


def is_row(layer: Layer) -> bool:
    """Whether a layer has a row of its own: it computes, or there is something to say of it."""
    return layer.arithmetic.computes or layer.blamed or bool(flags(layer))


def in_rows(layers: Iterable[Layer]) -> Iterator[tuple[Layer, ...]]:
    """Yield each layer that has a row of its own, and consecutive others as one group."""
    for own, group in groupby(layers, is_row):
        if own:
            yield from ((layer,) for layer in group)
        else:
            yield tuple(group)


def reductions_of(audit: Audit, layer: str) -> Sequence[Reduction]:
    return [reduction for reduction in audit.reductions if reduction.layer == layer]


def others(audit: Audit) -> list[str]:
    """The layers with reductions that are not blamed."""
    blamed = {layer.name for layer in audit.blamed}
    return [*dict.fromkeys(reduction.layer for reduction in audit.reductions if reduction.layer not in blamed)]


def company(reduction: Reduction) -> str:
    """What a reduction takes to show what the layer is blamed for."""
    if reduction.company:
        return f"takes {', '.join(reduction.company)} beside it"
    return "shows alone" if reduction.script else "not reduced"
