"""The ids of all runs of a backend as text, in whose diff a review sees which come and go."""

from collections.abc import Iterator

from .claims import BackendClaims
from .runs import runs


def lines(backend: BackendClaims) -> Iterator[str]:
    """Yield a line for each claim, flow, profile and group of engines: `fbgemm/nn.ELU/static-quint8/ptq exact@fbgemm,x86:`
    and the names of the variants. A run's id is made of the first part, one of these names, the profile and an engine."""
    engines: dict[tuple[str, str, str], list[str]] = {}
    for run in runs(backend):
        case, _, engine = run.id.rpartition("@")
        start, variant, profile = case.rsplit("/", 2)
        engines.setdefault((start, profile, variant), []).append(engine)
    variants: dict[str, list[str]] = {}
    for (start, profile, variant), on in engines.items():
        variants.setdefault(f"{start} {profile}@{','.join(on)}", []).append(variant)
    for head, names in variants.items():
        yield f"{head}: {' '.join(names)}"
