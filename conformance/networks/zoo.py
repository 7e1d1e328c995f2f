"""The corpus: every network by name."""

from collections.abc import Iterable

from conformance.suggestions import unknown

from . import classification, dense, sequences, volumes
from .network import Network

_TABLES = (classification, dense, sequences, volumes)


def sorted_by_task(networks: Iterable[Network]) -> dict[str, Network]:
    """Return networks by name, sorted by task and then by name. Raises ValueError for two of one name."""
    by_name: dict[str, Network] = {}
    for row in sorted(networks, key=lambda row: (row.task, row.name)):
        if row.name in by_name:
            raise ValueError(f"two networks are named {row.name}")
        by_name[row.name] = row
    return by_name


NETWORKS: dict[str, Network] = sorted_by_task(row for table in _TABLES for row in table.networks())
"""Networks by name, sorted by task and then by name."""


def network(name: str) -> Network:
    """Return a network by name. Raises UsageError for a name that no network has."""
    if name not in NETWORKS:
        raise unknown("network", name, NETWORKS)
    return NETWORKS[name]
