"""Verdicts hold their error rate although passes are added until a case is settled: simulations of the stopping rule."""

import math
from collections.abc import Sequence

import numpy as np
import pytest

pytest.importorskip("scipy", reason="`tox -e bench` has it")

from conformance.bench.verdicts import FEWEST, LOOKS, RATE, Judged, Observed, drift, judge, needed, precise

MARGIN = 0.03
SHORT = LOOKS[:5]


def drawn(chance: np.random.Generator, mean: float, deviation: float, count: int) -> list[float]:
    return [float(value) for value in chance.normal(mean, deviation, count)]


def settled(means: Sequence[float], deviations: Sequence[float], seed: int) -> list[Judged]:
    """Simulate the passes over two builds, as the schedule adds them: the logarithms of ratios of each case are normally
    distributed, and a case gets further passes while it is inconclusive at a look."""
    chance = np.random.default_rng(seed)
    values: list[list[float]] = [[] for _ in means]
    waiting = [*range(len(means))]
    for look in SHORT:
        for number in waiting:
            values[number] += drawn(chance, means[number], deviations[number], look - len(values[number]))
        verdicts = judge([Observed(case) for case in values], SHORT, MARGIN)
        waiting = [number for number, judged in enumerate(verdicts) if judged.verdict == "inconclusive"]
    return verdicts


def test_few_verdicts_on_unchanged_cases_are_wrong_at_the_very_bound() -> None:
    """Changes of exactly the margin are the hardest to tell: neither slower nor the same is right more often than stated."""
    bound = math.log1p(MARGIN)
    repetitions, wrong = 60, 0
    for seed in range(repetitions):
        spread = np.random.default_rng(1000 + seed).lognormal(math.log(0.015), 0.6, 50)
        deviations = [float(value) for value in spread]
        wrong += any(judged.verdict in ("slower", "faster") for judged in settled([bound] * 50, deviations, seed))
    assert wrong <= repetitions * RATE + 3 * math.sqrt(repetitions * RATE)


def test_the_false_discovery_rate_holds_beside_real_changes() -> None:
    false = found = 0
    for seed in range(20):
        means = [math.log(1.06)] * 20 + [math.log1p(MARGIN)] * 40
        for number, judged in enumerate(settled(means, [0.015] * 60, seed)):
            reported = judged.verdict == "slower"
            found += reported
            false += reported and number >= 20
    assert found > 0.8 * 20 * 20
    assert false <= RATE * found


def test_unchanged_cases_are_found_the_same_and_slower_ones_slower() -> None:
    verdicts = settled([0.0] * 30 + [math.log(1.1)] * 10 + [math.log(0.9)] * 10, [0.012] * 50, 3)
    assert [judged.verdict for judged in verdicts] == ["same"] * 30 + ["slower"] * 10 + ["faster"] * 10
    assert verdicts[30].low < math.expm1(math.log(1.1)) < verdicts[30].high


def test_intervals_cover_the_change_whenever_the_passes_ended() -> None:
    means = [math.log1p(MARGIN)] * 200
    verdicts = settled(means, [0.02] * 200, 9)
    assert sum(judged.low <= MARGIN <= judged.high for judged in verdicts) >= 190


def test_looks_are_counted_and_passes_after_a_settled_look_do_not_unsettle_it() -> None:
    steady = [0.0, 0.001, -0.001]
    once, often = (judge([Observed(steady)], looks, MARGIN)[0] for looks in ((3,), (3, *LOOKS)))
    assert once.verdict == "same"
    assert often.high - often.low > once.high - once.low, "the interval of one of many looks is wider"
    (after,) = judge([Observed([*steady, 0.2, -0.2])], (3, 5), MARGIN)
    assert after.verdict == "same"


def test_two_nights_are_compared_by_their_means() -> None:
    old = [0.0, 0.002, -0.002, 0.001, -0.001]
    cases = [Observed([x + shift for x in old], old) for shift in (0.0, 0.1, -0.1)]
    assert [judged.verdict for judged in judge(cases, LOOKS, MARGIN)] == ["same", "slower", "faster"]
    (noisy,) = judge([Observed([0.3, -0.3, 0.1], [0.0, 0.2, -0.2])], LOOKS, MARGIN)
    assert noisy.verdict == "inconclusive"


def test_the_drift_of_the_machine_and_its_error_are_taken_into_account() -> None:
    old = [0.0, 0.002, -0.002, 0.001, -0.001]
    drifted = Observed([x + 0.1 for x in old], old, 0.1)
    uncertain = Observed([x + 0.1 for x in old], old, 0.1, 0.05)
    assert [judge([case], LOOKS, MARGIN)[0].verdict for case in (drifted, uncertain)] == ["same", "inconclusive"]
    assert drift([0.1, 0.1, 0.1, 5.0])[0] == pytest.approx(0.1)
    assert drift([0.0, 0.2] * 8)[1] == pytest.approx(math.sqrt(math.pi / 2) * 0.1 * math.sqrt(16 / 15) / 4)


def test_passes_without_any_spread_say_nothing() -> None:
    assert judge([Observed([0.5] * FEWEST)], LOOKS, MARGIN)[0].verdict == "inconclusive"
    assert judge([], LOOKS, MARGIN) == []


def test_more_spread_needs_more_passes_and_so_does_a_change_near_the_bound() -> None:
    values = [0.0, 0.01, -0.01, 0.005, -0.005]
    assert needed([2 * x for x in values], MARGIN, paired=True) == pytest.approx(
        4 * needed(values, MARGIN, paired=True)
    )
    assert needed([x + 0.02 for x in values], MARGIN, paired=True) > needed(values, MARGIN, paired=True)
    assert needed([x + 0.02 for x in values], MARGIN, paired=False) == pytest.approx(
        needed(values, MARGIN, paired=False)
    )
    assert precise([x / 10 for x in values], MARGIN)
    assert not precise([10 * x for x in values], MARGIN)


def test_as_many_passes_as_are_precise_find_two_nights_the_same() -> None:
    chance = np.random.default_rng(4)
    same = inconclusive = 0
    for _ in range(200):
        nights = []
        for _ in range(2):
            values: list[float] = []
            for look in LOOKS:
                values += drawn(chance, 0, 0.015, look - len(values))
                if precise(values, MARGIN):
                    break
            nights.append(values)
        (judged,) = judge([Observed(nights[0], nights[1])], LOOKS, MARGIN)
        same += judged.verdict == "same"
        inconclusive += judged.verdict == "inconclusive"
    assert (same + inconclusive, same >= 160) == (200, True)
