"""Drawn cases of every family of operators on every engine: none deviates in a way that the ledger does not know."""

from typing import Any

import pytest

from conformance.engines.availability import probe
from conformance.fuzz.campaign import Trials, keep, reproduction
from conformance.fuzz.strategies import Family
from conformance.plugin import DRAWN


def test_drawn_cases(family: Family, selection: Any, request: pytest.FixtureRequest) -> None:
    """A search finds nothing new. What it finds is kept, and the first of it printed."""
    if reason := probe(family.engine):
        pytest.skip(f"engine {family.engine}: {reason}")
    option = request.config.getoption
    trials = Trials(family, [entry for entry in selection.entries if entry.applies(selection.host)])
    news = []
    for one in trials.all(option("search_minutes")):
        keep(option("found"), family.backend, one)
        news.append(one)
        if option("search_minutes") is None:
            break
    request.node.user_properties.append((DRAWN, [trials.tried, trials.beyond, len(news)]))
    if news:
        first = news[0]
        pytest.fail(
            f"{family.id}: {len(news)} new among {trials.tried} drawn cases, kept in {option('found')}. The first: "
            f"{first.row.id}: {first.detail}\n\n{reproduction(family.backend, first)}",
            pytrace=False,
        )
