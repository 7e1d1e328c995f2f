"""Entries that match no run, except none, or say nothing that others do not say."""

import time

from ledger_entries import HOST, RUN, entry, row, where

from conformance.results.ledger import judge, useless


def test_nothing_is_said_of_conditions_on_backends_of_which_no_run_is_given() -> None:
    shared = entry(
        where(backend="fbgemm", pattern="nn.Linear"),
        where(backend="xnnpack", pattern="nn.Linear"),
        exclude=(where(backend="xnnpack", flow="qat"),),
    )
    assert useless([shared], [RUN], HOST, absent={"xnnpack"}) == {}
    assert useless([shared], [RUN], HOST, absent={"arminductor"}) == {
        "an-entry": 'matches no run: { backend = "xnnpack", pattern = "nn.Linear" }'
    }
    general = entry(where(), name="general", check=("numerics", "lowered"))
    assert useless([shared, general], [RUN], HOST, absent={"xnnpack"}) == {}
    assert "an-entry" in useless(
        [entry(where(backend="fbgemm", pattern="nn.Linear")), general], [RUN], HOST, absent={"xnnpack"}
    )


def test_an_entry_that_matches_no_run_is_useless() -> None:
    gone, there = entry(where(backend="fbgemm", pattern="nn.Lineer"), name="gone"), entry(name="there")
    assert useless([gone, there], iter([RUN]), HOST) == {
        "gone": 'matches no run: { backend = "fbgemm", pattern = "nn.Lineer" }'
    }


def test_each_condition_that_matches_no_run_is_named() -> None:
    several = entry(
        where(backend="fbgemm", pattern="nn.Lineer"),
        where(backend="fbgemm", pattern="nn.Linear"),
        where(variant="batch7"),
    )
    gone = '{ backend = "fbgemm", pattern = "nn.Lineer" }, { variant = "batch7" }'
    assert useless([several], [RUN], HOST) == {"an-entry": f"matches no run: {gone}"}


def test_each_alternative_that_matches_no_run_is_named() -> None:
    several = entry(where(pattern=("nn.Linear", "nn.Lineer"), engine="!npu"))
    gone = '{ engine = "npu", pattern = ["nn.Linear", "nn.Lineer"] }, { engine = "!npu", pattern = "nn.Lineer" }'
    assert useless([several], [RUN], HOST) == {"an-entry": f"matches no run: {gone}"}


def test_a_condition_may_match_a_run_to_which_drawn_ones_are_compared() -> None:
    nameable = RUN.replace("/default/", "/strided/")
    drawn = entry(
        where(backend="fbgemm", pattern="nn.Linear", variant="strided"), where(backend="fbgemm", pattern="nn.Lineer")
    )
    assert useless([drawn], [RUN], HOST, lambda: [nameable]) == {
        "an-entry": 'matches no run: { backend = "fbgemm", pattern = "nn.Lineer" }'
    }
    assert (
        useless(
            [entry(where(backend="fbgemm", pattern="nn.Linear", variant="strided"))], [RUN], HOST, lambda: [nameable]
        )
        == {}
    )


def test_nameable_runs_are_asked_for_only_if_a_condition_matches_no_other() -> None:
    def never() -> list[str]:
        raise AssertionError

    assert useless([entry()], [RUN], HOST, never) == {}


def test_each_exception_that_excepts_no_run_is_named() -> None:
    batch0 = RUN.replace("/default/", "/batch0/")
    idle = where(backend="fbgemm", pattern="nn.ReLU")  # matches a run, but none that the entry matches
    ids = [RUN, batch0, RUN.replace("nn.Linear", "nn.ReLU")]
    assert useless([entry(exclude=(where(variant="batch0"), idle))], ids, HOST) == {
        "an-entry": f"excepts no run: {idle}"
    }
    assert useless([entry(exclude=(where(variant="batch0"),))], ids, HOST) == {}


def test_an_entry_is_useless_if_another_lists_the_same_deviations() -> None:
    whole, part = entry(where(backend="fbgemm"), check=("numerics", "stable"), name="whole"), entry(name="part")
    assert useless([whole, part], [RUN], HOST) == {"part": "says nothing that whole does not say"}


def test_two_equal_entries_are_both_useless() -> None:
    equal = [entry(name="one"), entry(where(engine="x86"), name="two")]
    assert [*useless(equal, [RUN], HOST)] == ["one", "two"]
    assert useless([*equal, entry(where(backend="gone"), name="gone")], [RUN], HOST, asked={"two"}).keys() == {"two"}


def test_several_entries_together_can_make_one_useless() -> None:
    whole = entry(check=("numerics", "stable"), name="one")
    parts = [entry(name="two"), entry(check="stable", name="three")]
    assert useless([whole, *parts], [RUN], HOST)["one"] == "says nothing that two, three does not say"
    assert useless([whole, *parts], [RUN], HOST).keys() == {"one", "two", "three"}


def test_an_entry_with_a_run_or_a_check_of_its_own_is_not_useless() -> None:
    both = [entry(name="one"), entry(check="stable", name="two")]
    assert useless(both, [RUN], HOST) == {}
    relu = RUN.replace("nn.Linear", "nn.ReLU")
    entries = [
        entry(name="one"),
        entry(exclude=(where(pattern="nn.ReLU"),), name="two"),
        entry(where(backend="fbgemm"), name="three"),
    ]
    assert useless(entries, [RUN, relu], HOST).keys() == {"one", "two"}


def test_an_entry_for_fewer_hosts_makes_no_other_useless() -> None:
    here = entry(name="here", when={"arch": "x86_64"})
    assert useless([entry(name="everywhere"), here], [RUN], HOST) == {
        "here": "says nothing that everywhere does not say"
    }


def test_an_entry_for_other_hosts_need_not_match() -> None:
    assert useless([entry(where(backend="fbgemm", pattern="nn.Lineer"), when={"arch": "aarch64"})], [RUN], HOST) == {}


def test_a_whole_ledger_is_compared_with_all_runs_in_seconds() -> None:
    ids = [f"fbgemm/operator{n}/static-quint8/ptq/variant{m}/exact@x86" for n in range(150) for m in range(100)]
    entries = [
        entry(
            where(pattern=f"operator{n}", flow="ptq", variant="variant?"),
            where(backend="fbgemm", pattern=f"operator{n}", variant="variant1?"),
            name=f"entry{n}",
        )
        for n in range(100)
    ]
    start = time.process_time()
    assert useless(entries, ids, HOST) == {}
    assert time.process_time() - start < 2


def test_an_entry_whose_exceptions_cover_all_matches_is_useless() -> None:
    empty = entry(exclude=(where(flow="ptq"), where(flow="qat")))
    assert useless([empty], [RUN], HOST) == {
        "an-entry": 'matches no run: { backend = "fbgemm", pattern = "nn.Linear" }'
    }
    assert judge(row(), [empty], HOST).expected
