"""The table of profiles is consistent with the checks of the code."""

from conformance.properties.metamorphic import relations
from conformance.results.profiles import CHECKS, LAWS, PROFILES, profile_names


def test_the_checks_of_the_profile_laws_are_those_of_relations() -> None:
    assert LAWS.checks == relations.CHECKS


def test_checks_of_a_profile_are_in_order() -> None:
    for profile in PROFILES.values():
        assert [name for name in CHECKS if name in profile.checks] == [*profile.checks]


def test_every_profile_with_rows_is_a_case_a_property_or_of_networks() -> None:
    assert profile_names("case") == ("exact", "typical", "in_use", "initialized", "trained", "pairs", "contexts")
    assert profile_names("property") == ("constraints", "laws", "codes")
    assert profile_names("network") == ("network",)
    others = {*PROFILES} - {*profile_names("case"), *profile_names("property"), *profile_names("network")}
    assert others == {"generated", "bench"}


def test_only_cases_are_compared_with_goldens() -> None:
    for profile in PROFILES.values():
        assert (profile.golden == "none") == (profile.kind in ("property", "network"))
