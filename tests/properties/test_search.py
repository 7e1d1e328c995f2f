"""A search finds a counterexample and shrinks it, the same one every time."""

from hypothesis import assume, settings
from hypothesis import strategies as st

from conformance.properties.search import search


def test_the_smallest_example_is_returned() -> None:
    assert search(st.integers(), lambda x: f"{x} is large" if x > 1000 else "") == 1001


def test_a_property_that_holds_has_no_counterexample() -> None:
    assert search(st.integers(0, 9), lambda x: "") is None


def test_as_many_examples_are_tried_as_the_profile_says_times_the_share() -> None:
    for share, count in ((1.0, 40), (0.25, 10)):
        tried: list[float] = []
        search(st.floats(), lambda x, tried=tried: tried.append(x) or "", share)  # type: ignore[func-returns-value, misc]
        assert len(tried) == count


def test_the_bounded_profile_draws_the_same_every_time_and_the_deep_one_does_not() -> None:
    def drawn() -> list[int]:
        tried: list[int] = []
        search(st.integers(), lambda x: tried.append(x))  # type: ignore[func-returns-value]
        return tried

    assert drawn() == drawn()
    settings.load_profile("nightly")
    try:
        assert settings().max_examples > 1000
        assert not settings().derandomize
    finally:
        settings.load_profile("bounded")


def test_a_search_that_is_ended_returns_the_smallest_example_so_far() -> None:
    tried: list[int] = []

    def large(x: int) -> bool:
        tried.append(x)
        return x > 1000

    counterexample = search(st.integers(0, 10**6), large, ended=lambda: max(tried, default=0) > 1000)
    assert counterexample == tried[-1], "without shrinking"
    tried.clear()
    assert search(st.integers(0, 9), large, ended=lambda: len(tried) == 5) is None
    assert len(tried) == 5


def test_hypothesis_does_not_format_the_strategy() -> None:
    class Long:
        def __repr__(self) -> str:
            raise AssertionError("hypothesis writes it down")

    @st.composite
    def odd(draw: st.DrawFn, strategy: Long) -> int:
        drawn = draw(st.integers())
        assume(drawn % 2)
        return drawn

    assert search(odd(Long()), lambda x: "") is None


def test_the_exception_of_a_property_is_not_swallowed() -> None:
    def broken(x: int) -> str:
        raise ZeroDivisionError(x)

    try:
        search(st.integers(), broken)
    except ZeroDivisionError:
        return
    raise AssertionError("the error of the property is lost")
