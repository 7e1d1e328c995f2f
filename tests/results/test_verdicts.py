"""Verdicts: which one is worst, and in which order they are shown."""

import json
import pickle

import pytest

from conformance.results.verdicts import IN_ORDER, Verdict

CRASHES, UNDEFINED, DEVIATES, UNJUDGED, CONFORMS, UNAVAILABLE = Verdict


@pytest.mark.parametrize(
    ("verdicts", "worst"),
    [
        ([CONFORMS, CONFORMS], CONFORMS),
        ([CONFORMS, DEVIATES, CONFORMS], DEVIATES),
        ([DEVIATES, CRASHES, UNDEFINED, UNAVAILABLE], CRASHES),
        ([UNDEFINED, DEVIATES], UNDEFINED),
        ([UNAVAILABLE, CONFORMS], CONFORMS),
        ([CONFORMS, UNJUDGED], UNJUDGED),
        ([UNJUDGED, DEVIATES], DEVIATES),
        ([UNAVAILABLE], UNAVAILABLE),
    ],
)
def test_the_worst_verdict_counts_and_unavailable_only_alone(verdicts: list[Verdict], worst: Verdict) -> None:
    assert Verdict.worst(verdicts) is worst


def test_verdicts_are_shown_from_good_to_bad_with_what_may_hide_any_last() -> None:
    assert IN_ORDER == (CONFORMS, DEVIATES, UNDEFINED, CRASHES, UNJUDGED, UNAVAILABLE)


def test_a_verdict_is_a_text_with_attributes() -> None:
    names = ["crashes", "undefined", "deviates", "unjudged", "conforms", "unavailable"]
    assert [str(verdict) for verdict in Verdict] == names
    assert json.dumps(DEVIATES) == '"deviates"'
    assert pickle.loads(pickle.dumps(DEVIATES)) is DEVIATES
    assert [verdict for verdict in Verdict if verdict.fails] == [CRASHES, UNDEFINED, DEVIATES]
    assert [verdict for verdict in Verdict if not verdict.executed] == [UNJUDGED, UNAVAILABLE]
    assert [verdict for verdict in Verdict if verdict.judged] == [DEVIATES, CONFORMS]
    assert (Verdict.of({"numerics"}), Verdict.of(frozenset())) == (DEVIATES, CONFORMS)
