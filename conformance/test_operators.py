"""Drawn cases of every operator family on every engine: no deviation is new to the ledger."""

from typing import TYPE_CHECKING

import pytest

from conformance.engines.availability import probe
from conformance.models import apis
from conformance.plugin.running import TORCH_SECONDS
from conformance.plugin.searching import DRAWN, Searching
from conformance.selection import Selection

if TYPE_CHECKING:
    from conformance.cases.families import Family


def test_drawn_cases(family: "Family", selection: Selection, request: pytest.FixtureRequest) -> None:
    """A search finds no new deviation. It saves those that it finds, and the first one is printed with its script."""
    # loads hypothesis, which invocations without a search do not need
    from conformance.fuzz.campaign import Campaign, keep, reproduction

    if reason := probe(family.engine):
        pytest.skip(f"engine {family.engine}: {reason}")
    if reason := apis.of(family.backend).unavailable(family.backend):
        pytest.skip(reason)
    option = request.config.getoption
    draws = request.config.stash[Searching.KEY].draws(family)
    campaign = Campaign(family, [entry for entry in selection.entries if entry.applies(selection.host)], draws)
    deviations = []
    for deviation in campaign.all(option("search_minutes")):
        keep(option("found"), family.backend, deviation)
        deviations.append(deviation)
        if option("search_minutes") is None:
            break
    request.node.user_properties += [
        (DRAWN, [campaign.judged, campaign.uncertain, len(deviations)]),
        (TORCH_SECONDS, campaign.torch_seconds),
    ]
    if deviations:
        first = deviations[0]
        pytest.fail(
            f"{family.id}: {len(deviations)} new among {campaign.judged} drawn cases, kept in {option('found')}. The first: "
            f"{first.row.id}: {first.detail}\n\n{reproduction(family.backend, first)}",
            pytrace=False,
        )
