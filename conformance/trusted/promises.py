"""What can be trusted of a config on an engine: the claims that hold in default use, and rules for layers that are wrong in
other forms."""

import fnmatch
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import torch

from conformance.audit.auditing import NATIVE_ENGINES
from conformance.audit.options import OPTIONS
from conformance.cases.claims import BackendClaims, Claim
from conformance.configs.spelling import spelled
from conformance.prediction.causes import Causes, severity_of
from conformance.prediction.grids import SHARES
from conformance.prediction.kernels import UNASKED
from conformance.results.causes import LayerCause
from conformance.results.known import Entry, Host
from conformance.results.rows import Row
from conformance.results.severity import Severity
from conformance.results.status import Status, Support, is_default_use, statuses

AVOIDED = frozenset([Severity.CRASHES, Severity.WRONG, Severity.UNSTABLE, Severity.REFUSES, Severity.REFERENCE])
"""The severities of findings that rules are made of; what is in float honestly needs none."""

TOLD = frozenset(
    [
        *OPTIONS,
        *("operator", "calls", "equal_channels", "greatest_slope", "keywords", "arguments", "weight_dtype", "folded"),
        *(
            "unasked_codes",
            "fixed_range",
            "shares_range",
            "reads_lowered",
            "weight_read",
            "takes_booleans",
            "gives_tuple",
        ),
    ]
)
"""The features of a layer that its traced network tells."""

ARGUMENT = re.compile(r"arg\d+")

ASSUMED = frozenset(
    [
        *(
            "arithmetic",
            "finding",
            "stage",
            "kernels",
            "dtypes",
            "formats",
            "nhwc",
            "elements",
            "raises",
            "almost_equal",
        ),
        *("greatest_code", "grid", "grid_ratio", "grid_clips", "loses", "shared_range_ratio", "beyond_fixed_range"),
    ]
)
"""Features that are assumed: a layer is taken to be as wrong as data and memory formats can make it."""

CODES = torch.quint8
"""The dtype of activations with torch's default mappings."""

OF_CODES = ("quint8", "quint8 quint8")
"""What features say of the operands of layers with them."""

OF_FLOAT_NETWORKS = frozenset(["nn", "F", "torch", "operator", "Tensor"])
"""Namespaces of the operators that a float network calls."""

ANY = ("quantized.*",)
"""Kernels of every layer in integers."""

LOWERED_ANYWAY = "quantized-without-qconfig"
"""The finding by which operators are lowered that no entry of the config covers."""


@dataclass(frozen=True)
class LeftOut:
    """A claim that is left out, by its status in default use, and the finding that its rows or the ledger name."""

    claim: Claim
    finding: str
    status: Status


@dataclass(frozen=True)
class TrustedRule:
    """A finding, conditions on the features of layers that show it, and the names of the remedies that avoid it."""

    finding: str
    conditions: Mapping[str, tuple[str, ...]]
    remedies: tuple[str, ...]


@dataclass(frozen=True)
class Trusted:
    """What can be trusted of a config on an engine, and by finding the features that would be needed to avoid it, of which a
    traced network tells nothing."""

    engine: str
    claims: BackendClaims
    host: Host
    left_out: tuple[LeftOut, ...]
    rules: tuple[TrustedRule, ...] = ()
    remaining: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @cached_property
    def kept(self) -> tuple[Claim, ...]:
        left = {one.claim for one in self.left_out}
        return tuple(claim for claim in self.claims.claims if claim not in left)

    @property
    def promised(self) -> tuple[str, ...]:
        """The operators that the kept claims begin with, of those that torch's default mappings ask for."""
        return tuple(sorted({claim.operators[0] for claim in self.kept if _is_asked(claim)}))

    @property
    def fixed(self) -> tuple[str, ...]:
        """Those of them whose results have a fixed range."""
        return tuple(sorted({claim.operators[0] for claim in self.kept if _is_fixed(claim)}))

    @property
    def sharing(self) -> tuple[str, ...]:
        """Those of them whose results share the observer of their operand."""
        return tuple(sorted({claim.operators[0] for claim in self.kept if claim.entry.observation_type is SHARES}))


def trusted(rows: Sequence[Row], claims: BackendClaims, engine: str, entries: Sequence[Entry], host: Host) -> Trusted:
    """What rows of an engine prove of a config on their host, and what the ledger says of it there."""
    found = statuses(row for row in rows if is_default_use(row))
    left = []
    for claim in claims.claims:
        status = found.get(claim.id)
        if status is None or not status.works:
            default = status.default if status else None
            known = (default.row.known if default else None) or ""
            left.append(LeftOut(claim, known, status.status if status else Support.UNAVAILABLE))
    left += _without_modules(claims.claims, left)
    made = Trusted(engine, claims, host, tuple(left))
    rules = _Rules(Causes(entries, engine, host), made, rows)
    final = replace(made, left_out=(*left, *rules.left_out))
    if engine not in NATIVE_ENGINES:
        return final  # what it lowers is not of torch's lowering, of which rules are
    remedies = {entry.id: entry.finding.remedies for entry in entries}
    named = {finding for finding, _ in rules.conditions}
    remaining = {finding: features for finding, features in rules.remaining.items() if finding not in named}
    return replace(final, rules=tuple(rules.named(remedies, final)), remaining=remaining)


def _without_modules(claims: Sequence[Claim], left: Sequence[LeftOut]) -> list[LeftOut]:
    """The claims of modules for training whose entries are left out that tell torch when to put them in place."""
    gone = {one.claim.entry.qat_module: one for one in left if one.claim.entry.qat_module}
    already = {one.claim for one in left}
    kept = {claim.entry.qat_module for claim in claims if claim not in already}
    return [
        LeftOut(claim, gone[claim.entry.pattern].finding, gone[claim.entry.pattern].status)
        for claim in claims
        if claim.entry.pattern in gone and claim.entry.pattern not in kept and claim not in already
    ]


class _Rules:
    """The rules that causes of a ledger give for the layers of a config, the claims that they concern as a whole, and what
    remains."""

    def __init__(self, causes: Causes, made: Trusted, rows: Iterable[Row]) -> None:
        self.kept, self.operators = made.kept, {*made.promised, *UNASKED}
        self.kernels = {row.claim: row.kernels for row in rows if is_default_use(row) and row.engine == made.engine}
        self.left_out: list[LeftOut] = []
        self.remaining: dict[str, tuple[str, ...]] = {}
        self.conditions: list[tuple[str, dict[str, tuple[str, ...]]]] = []
        for entry, cause in causes.causes:
            if severity_of(cause) in AVOIDED:
                self._add(entry, cause)

    def named(self, remedies: Mapping[str, Sequence[str]], final: Trusted) -> Iterator[TrustedRule]:
        """Yield the rules with their remedies, those first that keep a layer in integers. The last leaves in float what the
        config does not have: lowering replaces most of that nevertheless, between quantized values."""
        for finding, conditions in sorted(self.conditions, key=lambda one: not remedies[one[0]]):
            yield TrustedRule(finding, conditions, (*remedies[finding], "float"))
        left = {
            one.claim.operators[0] for one in final.left_out if one.status is not Severity.IDLE and _is_lone(one.claim)
        }
        if anyway := tuple(sorted((UNASKED | left) - {*final.promised})):
            yield TrustedRule(LOWERED_ANYWAY, {"operator": anyway}, ("float",))

    def _add(self, entry: Entry, cause: LayerCause) -> None:
        features = dict(cause.features)
        if not any(_matches(codes, features.get("dtypes", ("*",))) for codes in OF_CODES) or "asked" in features:
            return  # of other mappings
        if "pattern" in features:
            named = [claim for claim in self.kept if _matches(claim.pattern, features["pattern"])]
            self._leave_out(entry, cause, named)
            return
        if features.get("kernels", ANY) != ANY and "operator" not in features:
            claims = [claim for claim in self.kept if self._has_kernel(claim, features["kernels"])]
            features["operator"] = tuple(sorted({claim.operators[0] for claim in claims if _is_lone(claim)}))
            if not features["operator"]:
                self._leave_out(entry, cause, claims)
                return
        operators = features.get("operator", ("*",))
        if not any(_matches(operator, operators) for operator in self.operators):
            return
        told = {name: of for name, of in features.items() if name in TOLD or ARGUMENT.fullmatch(name)}
        other = tuple(name for name in features if name not in told and name not in ASSUMED)
        if other or not told or ("grid" in features and "calls" not in features):
            self.remaining.setdefault(entry.id, other or tuple(features))
        elif (entry.id, told) not in self.conditions:
            self.conditions.append((entry.id, told))

    def _has_kernel(self, claim: Claim, globs: Sequence[str]) -> bool:
        return any(_matches(kernel, globs) for kernel in self.kernels.get(claim.id, ()))

    def _leave_out(self, entry: Entry, cause: LayerCause, claims: Iterable[Claim]) -> None:
        already = {one.claim for one in self.left_out}
        self.left_out += [LeftOut(claim, entry.id, severity_of(cause)) for claim in claims if claim not in already]


def _is_asked(claim: Claim) -> bool:
    """Whether torch's default mappings ask for a claim: with codes, or with a weight alone that is quantized."""
    return claim.dtypes.input_dtype is CODES or (
        claim.dtypes.input_dtype is torch.float and not claim.dtypes.is_dynamic
    )


def _is_lone(claim: Claim) -> bool:
    """Whether the pattern of a claim is one operator that a float network calls."""
    return len(claim.operators) == 1 and spelled(claim.operators[0]).namespace in OF_FLOAT_NETWORKS


def _matches(text: str, globs: Iterable[str]) -> bool:
    return any(fnmatch.fnmatchcase(text, glob) for glob in globs)


def _is_fixed(claim: Claim) -> bool:
    constraints = claim.dtypes.output_dtype_with_constraints
    return constraints.scale_exact_match is not None
