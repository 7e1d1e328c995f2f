"""Search for a counterexample with hypothesis, and shrink it."""

from collections.abc import Callable
from typing import TypeVar

import numpy.random  # noqa: F401  (hypothesis imports it at the first example, in every child that does not have it)
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.strategies import DrawFn, SearchStrategy, composite

T = TypeVar("T")

settings.register_profile(
    "bounded",
    derandomize=True,
    database=None,
    deadline=None,
    max_examples=40,
    report_multiple_bugs=False,
    phases=(Phase.generate, Phase.target, Phase.shrink),
    suppress_health_check=list(HealthCheck),
)
settings.register_profile("nightly", settings.get_profile("bounded"), derandomize=False, max_examples=2000)
settings.load_profile("bounded")

SEED = int(
    "64ee678df18fb6ff112c7cbc539bd96d9f39ae71e1149ba947befd1fb6ff8ad9307031cdf5d46f231f562f011e2417a1",
    16,
)
"""Seed of the bounded profile. Hypothesis would derive it from the source text of the property, so that rewording that text
would change which counterexamples are found."""


class _Violated(Exception):
    pass


class _Ended(BaseException):
    """Not an Exception, which hypothesis would take for a violation, and shrink."""


def search(
    strategy: SearchStrategy[T],
    violated: Callable[[T], object],
    share: float = 1.0,
    ended: Callable[[], bool] = lambda: False,
) -> T | None:
    """Return the smallest example for which `violated` returns a violation (any true value), or None without one.

    The number of examples tried is that of the hypothesis profile times `share`. Before each of them `ended` may end the
    search, which then returns the smallest example so far.
    """
    counterexamples: list[T] = []

    @composite
    def drawn(draw: DrawFn) -> T:
        """Hides the strategy's repr, which may be long: hypothesis formats the strategies given at every example."""
        return draw(strategy)

    @settings(max_examples=max(1, round(settings().max_examples * share)))
    @given(drawn())
    def holds(example: T) -> None:
        if ended():
            raise _Ended
        if violated(example):
            counterexamples.append(example)
            raise _Violated

    try:
        (seed(SEED)(holds) if settings().derandomize else holds)()
    except (_Violated, _Ended):
        return counterexamples[-1] if counterexamples else None
    return None
