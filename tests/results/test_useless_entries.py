"""Entries that match no run, except none, or say nothing that others do not say."""

import time

from ledger_entries import HOST, RUN, entry, row

from conformance.results.ledger import judge, useless


def test_nothing_is_said_of_globs_about_backends_of_which_no_run_is_given() -> None:
    shared = entry("fbgemm/nn.Linear/*", "xnnpack/nn.Linear/*", exclude=("xnnpack/*/qat/*",))
    assert useless([shared], [RUN], HOST, absent={"xnnpack"}) == {}
    assert useless([shared], [RUN], HOST, absent={"arminductor"}) == {"an-entry": "matches no run: xnnpack/nn.Linear/*"}
    general = entry("*", name="general", check=("numerics", "lowered"))
    assert useless([shared, general], [RUN], HOST, absent={"xnnpack"}) == {}
    assert "an-entry" in useless([entry("fbgemm/nn.Linear/*"), general], [RUN], HOST, absent={"xnnpack"})


def test_an_entry_that_matches_no_run_is_useless() -> None:
    gone, there = entry("fbgemm/nn.Lineer/*", name="gone"), entry(name="there")
    assert useless([gone, there], iter([RUN]), HOST) == {"gone": "matches no run: fbgemm/nn.Lineer/*"}


def test_each_glob_that_matches_no_run_is_named() -> None:
    several = entry("fbgemm/nn.Lineer/*", "fbgemm/nn.Linear/*", "*/batch7/*")
    assert useless([several], [RUN], HOST) == {"an-entry": "matches no run: fbgemm/nn.Lineer/*, */batch7/*"}


def test_a_glob_may_match_a_run_to_which_drawn_ones_are_compared() -> None:
    nameable = RUN.replace("/default/", "/strided/")
    drawn = entry("fbgemm/nn.Linear/*/strided/*", "fbgemm/nn.Lineer/*")
    assert useless([drawn], [RUN], HOST, lambda: [nameable]) == {"an-entry": "matches no run: fbgemm/nn.Lineer/*"}
    assert useless([entry("fbgemm/nn.Linear/*/strided/*")], [RUN], HOST, lambda: [nameable]) == {}


def test_nameable_runs_are_asked_for_only_if_a_glob_matches_no_other() -> None:
    def never() -> list[str]:
        raise AssertionError

    assert useless([entry()], [RUN], HOST, never) == {}


def test_each_exception_that_excepts_no_run_is_named() -> None:
    batch0 = RUN.replace("/default/", "/batch0/")
    idle = "fbgemm/nn.ReLU/*"  # matches a run, but none that the entry matches
    ids = [RUN, batch0, RUN.replace("nn.Linear", "nn.ReLU")]
    assert useless([entry(exclude=("*/batch0/*", idle))], ids, HOST) == {"an-entry": f"excepts no run: {idle}"}
    assert useless([entry(exclude=("*/batch0/*",))], ids, HOST) == {}


def test_an_entry_is_useless_if_another_lists_the_same_deviations() -> None:
    whole, part = entry("fbgemm/*", check=("numerics", "stable"), name="whole"), entry(name="part")
    assert useless([whole, part], [RUN], HOST) == {"part": "says nothing that whole does not say"}


def test_two_equal_entries_are_both_useless() -> None:
    equal = [entry(name="one"), entry("*@x86", name="two")]
    assert [*useless(equal, [RUN], HOST)] == ["one", "two"]
    assert useless([*equal, entry("gone/*", name="gone")], [RUN], HOST, asked={"two"}).keys() == {"two"}


def test_several_entries_together_can_make_one_useless() -> None:
    whole = entry(check=("numerics", "stable"), name="one")
    parts = [entry(name="two"), entry(check="stable", name="three")]
    assert useless([whole, *parts], [RUN], HOST)["one"] == "says nothing that two, three does not say"
    assert useless([whole, *parts], [RUN], HOST).keys() == {"one", "two", "three"}


def test_an_entry_with_a_run_or_a_check_of_its_own_is_not_useless() -> None:
    both = [entry(name="one"), entry(check="stable", name="two")]
    assert useless(both, [RUN], HOST) == {}
    relu = RUN.replace("nn.Linear", "nn.ReLU")
    entries = [entry(name="one"), entry(exclude=(relu,), name="two"), entry("fbgemm/*", name="three")]
    assert useless(entries, [RUN, relu], HOST).keys() == {"one", "two"}


def test_an_entry_for_fewer_hosts_makes_no_other_useless() -> None:
    here = entry(name="here", when={"arch": "x86_64"})
    assert useless([entry(name="everywhere"), here], [RUN], HOST) == {
        "here": "says nothing that everywhere does not say"
    }


def test_an_entry_for_other_hosts_need_not_match() -> None:
    assert useless([entry("fbgemm/nn.Lineer/*", when={"arch": "aarch64"})], [RUN], HOST) == {}


def test_a_whole_ledger_is_compared_with_all_runs_in_seconds() -> None:
    ids = [f"fbgemm/operator{n}/static-quint8/ptq/variant{m}/exact@x86" for n in range(150) for m in range(100)]
    entries = [
        entry(f"*/operator{n}/*/ptq/variant?/exact@*", f"fbgemm/operator{n}/*/variant1?/*", name=f"entry{n}")
        for n in range(100)
    ]
    start = time.process_time()
    assert useless(entries, ids, HOST) == {}
    assert time.process_time() - start < 2


def test_an_entry_whose_exceptions_cover_all_matches_is_useless() -> None:
    empty = entry(exclude=("*/ptq/*", "*/qat/*"))
    assert useless([empty], [RUN], HOST) == {"an-entry": "matches no run: fbgemm/nn.Linear/*"}
    assert judge(row(), [empty], HOST).expected
