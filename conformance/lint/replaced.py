"""Entries of a list of which torch keeps the last one only, when it makes a BackendConfig of the list."""

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from torch.ao.quantization.backend_config import BackendConfig, BackendPatternConfig

from conformance.configs.names import entry_name
from conformance.errors import UsageError
from conformance.host.callables import object_of


def duplicates(path: str) -> list[str]:
    """The names of the entries that a list had several times from which the config that `module:attribute` names was made.

    An interpreter of its own makes the config again, in which lists that configs are made of are looked at. Raises UsageError
    if it cannot.
    """
    search = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    made = subprocess.run(
        [sys.executable, "-m", __name__, path], capture_output=True, text=True, check=False, env=search
    )
    if made.returncode:
        raise UsageError(f"lint {path!r}: cannot be made again: {made.stderr.strip().rpartition(chr(10))[2]}")
    return [*json.loads(made.stdout.splitlines()[-1])]


def main(path: str) -> None:
    """Print the names as JSON."""
    of_lists: list[tuple[BackendConfig, list[str]]] = []
    take: Callable[..., BackendConfig] = BackendConfig.set_backend_pattern_configs

    def taken(self: BackendConfig, configs: Sequence[BackendPatternConfig]) -> BackendConfig:
        counts = Counter(map(entry_name, configs))
        of_lists.append((self, [name for name, number in counts.items() if number > 1]))
        return take(self, configs)

    replaced: Any = BackendConfig
    replaced.set_backend_pattern_configs = taken
    value, _ = object_of("lint", path)
    print(json.dumps([name for config, names in of_lists if config is value for name in names]))


if __name__ == "__main__":
    main(sys.argv[1])
