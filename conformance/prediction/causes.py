"""What the ledger foretells of a layer by what is known of it before any kernel runs."""

from collections.abc import Mapping, Sequence
from operator import itemgetter

from conformance.results.audits import Arithmetic
from conformance.results.causes import LayerCause, fulfils
from conformance.results.known import Entry, Host
from conformance.results.predictions import Foretold
from conformance.results.severity import IN_ORDER, OF_CHECK, OF_KIND, Severity

OF_DATA = {
    "greatest_code": "a code of its input is {}",
    "greatest_scale_ratio": "the greatest scale of its inputs is {} times that of its output",
    "least_scale_ratio": "the least scale of its inputs is {} times that of its output",
    "scale": "the scale of its output is {}",
    "grid_ratio": "the range that it gets is {} times that of its values",
    "grid_clips": "values are beyond the range that it gets",
    "shared_range_ratio": "the widest value that shares its range is {} times as wide",
    "loses": "the range that it gets, of another value, costs it more than 3 dB",
    "almost_equal": "the values of a channel are far from zero and almost equal",
    "beyond_fixed_range": "a share {} of its values is beyond the fixed range",
}
"""The features that data decide, and what a condition on one says."""

OUTCOMES = frozenset({"finding", "stage", "arithmetic"})
"""What a cause states of the outcome, and not of the layer."""


class Causes:
    """The causes of a ledger that say something of layers on an engine of a host before any kernel runs."""

    def __init__(self, entries: Sequence[Entry], engine: str, host: Host) -> None:
        self.causes = [
            (entry, cause)
            for entry in entries
            if entry.applies(host)
            for cause in entry.predicts or entry.layers
            if engine in cause.engine
        ]

    def foretold(self, features: Mapping[str, str]) -> tuple[Foretold, ...]:
        """What a layer with these features will show, the worst first; of several places of a finding the one with the fewest
        conditions."""
        found: dict[str, Foretold] = {}
        for entry, cause in self.causes:
            conditions = None if "stage" in cause.features else _conditions(cause, features)
            if conditions is None or (entry.id in found and len(found[entry.id].conditions) <= len(conditions)):
                continue
            found[entry.id] = Foretold(entry.id, cause.check[0], severity_of(cause), conditions)
        return tuple(sorted(found.values(), key=lambda one: (bool(one.conditions), IN_ORDER.index(one.severity))))

    def arithmetic(self, features: Mapping[str, str]) -> Arithmetic | None:
        """How a layer with these features will compute that is promised in integers and will not."""
        for _, cause in self.causes:
            if (
                "lowered" in cause.check
                and not {"stage", "finding"} & {*cause.features}
                and _conditions(cause, features) == ()
            ):
                return Arithmetic(*cause.features.get("arithmetic", (Arithmetic.NAME_ONLY,)))
        return None

    def refusing(self, features: Mapping[str, str]) -> tuple[str, str] | None:
        """The finding by which a layer with these features is refused, and the stage that raises; of several the one that
        says most of it."""
        found = (
            (len(cause.features), (entry.id, cause.features["stage"][0]))
            for entry, cause in self.causes
            if "stage" in cause.features and _conditions(cause, features) == ()
        )
        return max(found, key=itemgetter(0), default=(0, None))[1]


def _conditions(cause: LayerCause, features: Mapping[str, str]) -> tuple[str, ...] | None:
    """What data have to be like for a layer with these features to show a finding; None if it does not show it."""
    conditions = []
    for name, allowed in cause.features.items():
        if name in features:
            if not any(fulfils(features[name], one) for one in allowed):
                return None
        elif name in OF_DATA:
            conditions.append(OF_DATA[name].format(" or ".join(allowed)))
        elif name not in OUTCOMES or not cause.foretells:
            return None
    return tuple(conditions)


def severity_of(cause: LayerCause) -> Severity:
    """How bad what a cause foretells is: by the finding that it states, or by the check."""
    kinds = cause.features.get("finding", ())
    stated = next((OF_KIND[kind] for kind in kinds if kind in OF_KIND), None)
    if stated is None and "stage" in cause.features:
        return Severity.REFUSES
    return stated or OF_CHECK[cause.check[0]][0]
