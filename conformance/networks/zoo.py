"""The corpus: every network by name."""

from conformance.suggestions import unknown

from . import classification
from .network import Network

NETWORKS: dict[str, Network] = {
    network.name: network
    for network in sorted(classification.networks(), key=lambda network: (network.task, network.name))
}
"""Networks by name, sorted by task and then by name."""


def network(name: str) -> Network:
    """Return a network by name. Raises UsageError for a name that no network has."""
    if name not in NETWORKS:
        raise unknown("network", name, NETWORKS)
    return NETWORKS[name]
