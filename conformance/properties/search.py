"""Search for a counterexample with hypothesis, and shrink it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.strategies import DrawFn, SearchStrategy, composite

T = TypeVar("T")

settings.register_profile(
    "bounded",
    derandomize=True,
    database=None,
    deadline=None,
    max_examples=100,
    report_multiple_bugs=False,
    phases=(Phase.generate, Phase.target, Phase.shrink),
    suppress_health_check=list(HealthCheck),
)
settings.register_profile("nightly", settings.get_profile("bounded"), derandomize=False, max_examples=2000)
settings.load_profile("bounded")


@dataclass(frozen=True)
class Found(Generic[T]):
    """The smallest example found that breaks a property, and what the property says of it."""

    example: T
    detail: str


class _Broken(Exception):
    pass


def search(strategy: SearchStrategy[T], breaks: Callable[[T], str], share: float = 1.0) -> Found[T] | None:
    """Return the smallest example for which `breaks` says something, or None if none of those tried does.

    As many are tried as the hypothesis profile says, times `share`.
    """
    found: list[Found[T]] = []

    @composite
    def drawn(draw: DrawFn) -> T:
        """Has a short text, whatever the strategy's: hypothesis writes down what it is given, at every example."""
        return draw(strategy)

    @settings(max_examples=max(1, round(settings().max_examples * share)))
    @given(drawn())
    def holds(example: T) -> None:
        detail = breaks(example)
        if detail:
            found.append(Found(example, detail))
            raise _Broken

    try:
        holds()
    except _Broken:
        return found[-1]
    return None
