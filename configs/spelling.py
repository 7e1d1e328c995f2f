"""The names of operators: what one computes, on how many dimensions, how it is called, and which one a pattern is about."""

import re
from dataclasses import dataclass
from functools import cache

TRANSPOSED, LINEAR = "convtranspose", "linear"
BATCH_NORM, INSTANCE_NORM = "batchnorm", "instancenorm"
EMBEDDINGS = frozenset({"embedding", "embeddingbag"})


@dataclass(frozen=True)
class Spelling:
    """An operator's name in its parts.

    `namespace` says how it is called, as in `nn.Conv2d` and `F.conv2d`. `computes` is what it computes however it is called,
    without capitals and underscores: `conv`, `adaptiveavgpool`, `relu` of `Tensor.relu_`. `rank` is the number of spatial
    dimensions in its name, if there is one.
    """

    namespace: str
    computes: str
    rank: int | None


@cache
def spelled(operator: str) -> Spelling:
    """The parts of an operator's name."""
    computes, rank = re.fullmatch(r"(.*?)(?:([123])d)?", computation(operator)).groups()  # type: ignore[union-attr]
    return Spelling(operator.partition(".")[0], computes, int(rank) if rank else None)


def computation(operator: str) -> str:
    """What an operator computes with the rank, however it is called: `conv2d` of `nn.Conv2d` and `F.conv2d`."""
    return operator.rpartition(".")[2].replace("_", "").lower()


def is_batch_norm(operator: str) -> bool:
    """Whether an operator is a batch norm, of any rank."""
    return spelled(operator).computes == BATCH_NORM


def root_named(pattern: str) -> str:
    """The root operator of a pattern, by its name: the first of a chain, and the innermost of what is nested."""
    names = re.findall(r"[\w.]+", pattern)
    return (names[-1] if "(" in pattern else names[0]) if names else pattern
