"""Audited networks as markdown: what each engine loses, causes of blame, and operators that no claim covers."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from conformance.configs.engines import ENGINE_TABLE
from conformance.markdown import code, escaped, table
from conformance.results.audits import Arithmetic, Audit, Layer

from . import documents
from .audit_words import decibels, percent, ratio

INFORMATIVE_DB = 20.0
"""The least SQNR in dB of a reference beside which that of an engine tells something. Below, as in most networks with random
weights, rounding alone makes what the engine adds invisible."""
NEW = "new"
"""What stands for a cause that the ledger does not have."""


def _is_informative(audit: Audit) -> bool:
    return audit.reference_db is not None and audit.reference_db >= INFORMATIVE_DB


def document(audits: Sequence[Audit], reasons: Mapping[str, str]) -> list[str]:
    """The lines of the tables. `reasons` are those of the ledger's entries, by id."""
    engines = list(dict.fromkeys(audit.engine for audit in audits))
    return documents.lines(
        "networks.md",
        arithmetic=_arithmetic(audits, engines),
        networks=_networks(audits, engines),
        beside=_beside(audits, engines),
        causes=_causes(audits, reasons),
        uncovered=_uncovered(audits),
    )


HEAD = (
    "engine",
    "networks",
    "layers that compute",
    "in integers",
    "in name only",
    "in float",
    "blamed",
    "new",
    "of networks with 20 dB",
    "loses > 3 dB",
    "usable",
)


def _arithmetic(audits: Sequence[Audit], engines: Sequence[str]) -> Iterator[str]:
    rows = []
    for engine in engines:
        own = [audit for audit in audits if audit.engine == engine]
        layers = [layer for audit in own for layer in audit.computing]
        counts = Counter(layer.arithmetic for layer in layers)
        kinds = (Arithmetic.INTEGER, Arithmetic.NAME_ONLY, Arithmetic.FLOAT)
        shares = (percent(counts[kind] / (len(layers) or 1)) for kind in kinds)
        blamed, new = (sum(len(getattr(audit, name)) for audit in own) for name in ("blamed", "new"))
        informative = [audit for audit in own if _is_informative(audit)]
        loses, usable = sum(audit.loses for audit in informative), sum(audit.usable for audit in informative)
        rows.append(
            [engine, len(own), f"{len(layers):,}", *shares, f"{blamed:,}", new, len(informative), loses, usable]
        )
    return table(HEAD, rows, range(1, len(HEAD)))


def _networks(audits: Sequence[Audit], engines: Sequence[str]) -> Iterator[str]:
    networks: dict[str, dict[str, Audit]] = defaultdict(dict)
    for audit in audits:
        networks[audit.network][audit.engine] = audit
    rows = []
    for name, by_engine in sorted(networks.items()):
        layers = max(len(audit.computing) for audit in by_engine.values())
        rows.append([escaped(name), layers, *(_cell(by_engine.get(engine)) for engine in engines)])
    return table(("network", "layers", *engines), rows, (1,))


def _beside(audits: Sequence[Audit], engines: Sequence[str]) -> list[str]:
    """FX beside PT2E, for engines of both: the SQNR of the output against float, the share of layers in integers, and the
    time of a pass and the size beside the float model's."""
    if len({ENGINE_TABLE[engine].native for engine in engines if engine in ENGINE_TABLE}) < 2:
        return []
    found = {(audit.network, audit.engine): audit for audit in audits}
    names = sorted({audit.network for audit in audits})
    rows = [[escaped(name), *(_outcome(found.get((name, engine))) for engine in engines)] for name in names]
    return [*table(("network", *engines), rows)]


def _outcome(audit: Audit | None) -> str:
    if audit is None:
        return "–"
    if audit.failure:
        return f"fails in {audit.stage}{_named([audit.cause])}"
    quality = f"{decibels(audit.engine_db)}, " if _is_informative(audit) else ""
    return (
        f"{quality}{percent(audit.integer_share)} in integers; "
        f"{ratio(audit.time_ratio)} of the time, {ratio(audit.size_ratio)} of the size"
    )


def _cell(audit: Audit | None) -> str:
    if audit is None:
        return "–"
    parts = []
    if audit.engine_db is not None and audit.reference_db is not None and _is_informative(audit):
        figures = f"{audit.engine_db:.1f} of {audit.reference_db:.1f}"
        parts.append(f"**{figures}**" if audit.loses else figures)
    if audit.failure:
        parts.append(f"fails: {escaped(audit.failure[:100])}{_named([audit.cause])}")
    if audit.blamed:
        worst = audit.blamed[0]
        parts.append(f"{len(audit.blamed)}: {code(worst.name)}{_named(fault.cause for fault in worst.faults)}")
    parts += [f"{escaped(one.operator)} refused{_named([one.cause])}" for one in audit.refusals]
    parts += [f"{escaped(one.name)} differs" for one in audit.unstable]
    return "; ".join(parts) or "nothing to blame"


def _named(causes: Iterable[str | None]) -> str:
    return f" ({', '.join(dict.fromkeys(cause or NEW for cause in causes))})"


def _causes(audits: Iterable[Audit], reasons: Mapping[str, str]) -> Iterator[str]:
    found: dict[str, list[tuple[Audit, int]]] = defaultdict(list)
    for audit in audits:
        counts = Counter(fault.cause or NEW for layer in audit.blamed for fault in layer.faults)
        counts.update(one.cause or NEW for one in audit.refusals)
        for cause, count in counts.items():
            found[cause].append((audit, count))
    rows = []
    for cause, of in sorted(found.items(), key=lambda item: -len({audit.network for audit, _ in item[1]})):
        engines = ", ".join(sorted({audit.engine for audit, _ in of}))
        networks = len({audit.network for audit, _ in of})
        rows.append([cause, engines, networks, sum(count for _, count in of), escaped(reasons.get(cause, ""))])
    return table(("cause", "engines", "networks", "layers", "what the engine does"), rows, (2, 3))


def _uncovered(audits: Iterable[Audit]) -> Iterator[str]:
    """Operators of real networks that no claim covers, and why covered ones stay in float."""
    reasons: dict[tuple[str, str], list[tuple[Audit, Layer]]] = defaultdict(list)
    for audit in audits:
        for layer in audit.computing:
            if layer.arithmetic is Arithmetic.FLOAT and layer.reason:
                reasons[layer.features.get("operator", layer.pattern), layer.reason].append((audit, layer))
    rows = []
    order = sorted(reasons.items(), key=lambda item: (-len({audit.network for audit, _ in item[1]}), item[0]))
    for (operator, why), of in order:
        engines = Counter(audit.engine for audit, _ in of)
        networks = len({audit.network for audit, _ in of})
        named, most = ", ".join(sorted(engines)), max(engines.values())
        rows.append([code(operator), escaped(why[:120]), named, networks, most])
    return table(("operator", "why", "engines", "networks", "layers of one engine"), rows, (3, 4))
