"""A campaign shrinks, keeps, and reports once each deviation that the ledger does not list and that recurs."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis.strategies import SearchStrategy
from torch import Tensor
from torch.fx import GraphModule

from conformance.cases.claims import backend
from conformance.cases.families import Family, families
from conformance.cases.operators import OPERATORS, Operand, Variant
from conformance.cases.runs import Run
from conformance.checks.judge import Judge
from conformance.engines.registry import engine
from conformance.fuzz import campaign, strategies
from conformance.fuzz.campaign import Campaign, Deviation, Draws, keep, reproduction
from conformance.fuzz.samples import Sample, run_of
from conformance.models import build, fx
from conformance.properties.search import search
from conformance.results.known import Entry, KnownFinding
from conformance.results.ledger_file import load
from conformance.results.where import Where
from conformance.selection import Selection
from conformance.shortcuts import without

if engine("fbgemm").unavailable():
    pytest.skip("fbgemm is not available here", allow_module_level=True)

LINEAR = next(family for family in families(backend("fbgemm"), ["fbgemm"]) if family.name == "linear")
ALONE = Family("linear", LINEAR.backend, (next(c for c in LINEAR.claims if c.pattern == "nn.Linear"),), "fbgemm")

LEDGER = [entry for entry in load() if entry.applies(Selection().host)]

Change = Callable[[Tensor, GraphModule], Tensor]


@pytest.fixture
def lying(monkeypatch: pytest.MonkeyPatch) -> Callable[[Change], None]:
    """Change the output of lowered models; child processes inherit the change."""

    def lie(change: Change) -> None:
        honest = fx.lower

        def lower(*arguments: Any) -> GraphModule:
            graph = honest(*arguments)
            graph.register_forward_hook(lambda module, inputs, output: change(output, module))
            return graph

        monkeypatch.setattr(fx, "lower", lower)

    return lie


def one_step_up(output: Tensor, graph: GraphModule) -> Tensor:
    return output + 1.0 if graph.op.out_features > 16 else output  # type: ignore[union-attr, operator]


def known(check: str, pattern: str = "nn.Linear") -> Entry:
    where = Where.of({"backend": "fbgemm", "pattern": pattern})
    return Entry(KnownFinding("known", "It is off", "why", "unreported"), (where,), frozenset({check}), "here")


def test_an_honest_engine_has_no_deviation() -> None:
    searches = Campaign(ALONE, LEDGER)
    assert searches.next(share=0.3) is None
    assert searches.judged == 12
    assert searches.torch_seconds > 0


def test_a_kernel_that_is_wrong_for_many_features_is_found_and_shrunk(lying: Callable[[Change], None]) -> None:
    lying(one_step_up)
    deviation = Campaign(ALONE, LEDGER).next()
    assert deviation is not None
    assert "numerics" in deviation.checks
    assert "gives float values" in deviation.detail
    assert "nn.Linear(1, 17" in deviation.sample.variant.init
    assert deviation.sample.variant.batch is None
    assert deviation.row.id == f"fbgemm/nn.Linear/static-quint8/ptq/{deviation.sample.variant.name}/generated@fbgemm"


def test_a_deviation_that_the_ledger_lists_for_similar_cases_is_not_reported(lying: Callable[[Change], None]) -> None:
    lying(one_step_up)
    everything = [known(check) for check in ("numerics", "lowered", "stable")]
    assert Campaign(ALONE, [*LEDGER, *everything]).next(share=0.3) is None
    elsewhere = [known(check, "nn.Conv2d") for check in ("numerics", "lowered", "stable")]
    assert Campaign(ALONE, [*LEDGER, *elsewhere]).next(share=1.5) is not None


def dies_for_many_features(output: Tensor, graph: GraphModule) -> Tensor:
    if graph.op.out_features > 16:  # type: ignore[union-attr, operator]
        os.kill(os.getpid(), signal.SIGSEGV)
    return output


def test_a_sample_that_kills_its_process_is_shrunk_too(lying: Callable[[Change], None]) -> None:
    lying(dies_for_many_features)
    deviation = Campaign(ALONE, LEDGER).next(share=0.5)
    assert deviation is not None
    assert deviation.checks == {"crashes"}
    assert deviation.row.verdict == "crashes"
    assert "nn.Linear(1, 17" in deviation.sample.variant.init


def test_a_deviation_that_does_not_recur_alone_is_not_reported(lying: Callable[[Change], None]) -> None:
    """As when an earlier case has damaged the child's memory."""
    calls: list[int] = []

    def from_the_tenth_call_on(output: Tensor, graph: GraphModule) -> Tensor:
        calls.append(1)
        return output + 1.0 if len(calls) > 10 else output

    lying(from_the_tenth_call_on)
    assert Campaign(ALONE, LEDGER).next(share=0.2) is None


def test_a_deviation_is_reported_once(lying: Callable[[Change], None]) -> None:
    lying(one_step_up)
    searches = Campaign(ALONE, LEDGER)
    first, again = searches.next(share=0.5), searches.next(share=0.3)
    assert first is not None
    assert first.signature in searches.reported
    assert again is None or again.signature != first.signature


@pytest.fixture
def judged_by_the_second(monkeypatch: pytest.MonkeyPatch) -> Campaign:
    """A campaign on a clock that advances by a second with each sample."""
    searches = Campaign(ALONE, LEDGER)
    monkeypatch.setattr(campaign, "time", SimpleNamespace(monotonic=lambda: float(searches.judged)))
    return searches


def test_a_search_ends_with_its_minutes(judged_by_the_second: Campaign) -> None:
    assert [*judged_by_the_second.all(minutes=0.2)] == []
    assert judged_by_the_second.judged == 13, "the first one after twelve seconds"


def test_shrinking_takes_at_most_a_tenth_of_the_time(
    lying: Callable[[Change], None], judged_by_the_second: Campaign
) -> None:
    lying(lambda output, graph: output + 1.0)  # type: ignore[operator]
    assert judged_by_the_second.next(seconds=30.0) is not None
    assert judged_by_the_second.judged <= 5, "every sample deviates, and shrinking has three seconds"


def test_an_exception_of_the_suite_is_raised_with_the_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(campaign, "Judge", broken)
    with pytest.raises(RuntimeError, match=r"the suite itself fails on Sample\(claim='fbgemm/nn.Linear/static-quint8'"):
        Campaign(ALONE, LEDGER).next(share=0.1)


def spread_pooling() -> Deviation:
    """Adaptive pooling from one element to two, which every engine computes wrongly for several channels."""
    pooling = next(family for family in families(backend("fbgemm"), ["fbgemm"]) if family.name == "pooling")
    default = OPERATORS["nn.AdaptiveAvgPool2d"][0]
    variant = default.named("drawn0", init="nn.AdaptiveAvgPool2d(2)", operands={"x": Operand((1, 2, 1, 1))})
    sample = Sample("fbgemm/nn.AdaptiveAvgPool2d/static-quint8", "ptq", "fbgemm", variant)
    searches = Campaign(pooling)
    assert "codes differ" in searches.judge(sample)
    assert searches.latest is not None
    return searches.latest


def test_a_deviation_is_kept_as_a_script_that_shows_it_and_as_json(tmp_path: Path) -> None:
    deviation = spread_pooling()
    path, second_path = (keep(tmp_path / "found", LINEAR.backend, deviation) for _ in range(2))
    assert path != second_path
    assert path.read_text() == reproduction(LINEAR.backend, deviation)
    document = json.loads(path.with_suffix(".json").read_text())
    assert document["checks"] == ["numerics"]
    assert document["row"]["pattern"] == "nn.AdaptiveAvgPool2d"
    assert document["drawn"]["variant"]["init"] == "nn.AdaptiveAvgPool2d(2)"
    assert not [*path.parent.glob("*.partial")]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", path], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert "DEVIATES numerics" in done.stdout
    assert done.returncode == 1


def test_a_sample_without_a_certain_answer_of_the_oracle_counts_as_uncertain() -> None:
    recurrent = next(family for family in families(backend("fbgemm"), ["fbgemm"]) if family.name == "recurrent")
    variant = OPERATORS["nn.LSTM"][0].named("drawn0", data="both:3")  # saturates: the hidden state spans -1 to 1
    searches = Campaign(recurrent)
    sample = Sample("fbgemm/nn.LSTM/dynamic-quint8", "ptq", "fbgemm", variant)
    searches.judge(sample)
    assert (searches.judged, searches.uncertain) == (1, 1)
    row, unusable = Judge().row(run_of(recurrent.backend, sample))
    assert unusable.endswith("the oracle's answer is not certain")
    assert row.checks["numerics"] == "skip"


def test_a_kernel_listed_as_wrong_in_one_memory_format_may_differ_in_another() -> None:
    pooling = next(family for family in families(backend("fbgemm"), ["fbgemm"]) if family.name == "pooling")
    default = OPERATORS["nn.AdaptiveAvgPool2d"][0]
    operand = Operand((1, 2, 1, 1), layout="strided")
    variant = default.named("drawn0", init="nn.AdaptiveAvgPool2d(2)", operands={"x": operand})
    sample = Sample("fbgemm/nn.AdaptiveAvgPool2d/static-quint8", "ptq", "fbgemm", variant)
    unlisted, listed = Campaign(pooling), Campaign(pooling, LEDGER)
    assert "channels_last changes" in unlisted.judge(sample)
    assert not listed.judge(sample)


def test_a_kernel_listed_as_wrong_may_have_other_ties_in_another_memory_format() -> None:
    arithmetic = next(family for family in families(backend("qnnpack")) if family.name == "arithmetic")
    both = {name: Operand((2, 4, 7, 5)) for name in "xy"}
    variant = OPERATORS["torch.add"][0].named("drawn0", call="torch.add(x, y, alpha=2)", operands=both, data="below:-4")
    sample = Sample("qnnpack/torch.add/static-qint8", "ptq", "qnnpack", variant)
    unlisted, listed = Campaign(arithmetic), Campaign(arithmetic, LEDGER)
    assert "channels_last changes" in unlisted.judge(sample)
    assert not listed.judge(sample)


def test_an_input_listed_as_not_observed_is_not_quantized_in_the_reference_model() -> None:
    linear = next(family for family in families(backend("fbgemm"), ["fbgemm"]) if family.name == "linear")
    keyword = next(variant for variant in OPERATORS["F.linear"] if variant.name == "keyword")
    tiny = keyword.named("drawn0", data="tiny")  # finer than the least dynamic scale
    sample = Sample("fbgemm/F.linear/dynamic-quint8", "ptq", "fbgemm", tiny)
    unlisted, listed = Campaign(linear), Campaign(linear, LEDGER)
    assert "observed: input x is not observed; reference:" in unlisted.judge(sample)
    assert not listed.judge(sample)


@pytest.mark.parametrize("layout", ["contiguous", "strided", "channels_last"])
def test_a_sample_is_executed_in_its_memory_format(layout: str) -> None:
    claim = "fbgemm/nn.Conv2d/static-quint8"
    shape = (1, 4, 8, 7)
    variant = OPERATORS["nn.Conv2d"][0].named("drawn0", operands={"x": Operand(shape, layout=layout)})
    run = generated_run(claim, variant)
    (executed,) = build.subject(run).fresh_inputs()
    plain = build.subject(generated_run(claim, variant.named("drawn0", operands={"x": Operand(shape)}))).inputs[0]
    assert torch.equal(executed, plain)
    assert executed.is_contiguous() is (layout == "contiguous")
    assert executed.is_contiguous(memory_format=torch.channels_last) is (layout == "channels_last")


def generated_run(claim: str, variant: Variant) -> Run:
    return run_of(LINEAR.backend, Sample(claim, "ptq", "fbgemm", variant))


def test_samples_are_drawn_once_and_judged_on_all_engines(monkeypatch: pytest.MonkeyPatch) -> None:
    both = [family for family in families(backend("fbgemm")) if family.name == "fixed qparams"]
    assert {family.engine for family in both} == {"fbgemm", "x86"}
    drawn: list[Family] = []
    honest = strategies.samples

    def counted(family: Family) -> SearchStrategy[Sample]:
        drawn.append(family)
        return honest(family)

    monkeypatch.setattr(campaign, "samples", counted)
    draws = Draws(both, 0.1)
    for family in both:
        searched: list[Sample] = []
        search(honest(family), searched.append, 0.1)
        assert [sample for sample, _ in draws.outcomes[family.engine]] == searched
        quick, thorough = Campaign(family, LEDGER, draws), Campaign(family, LEDGER)
        assert quick.next(0.1) is None
        assert thorough.next(0.1) is None
        assert (quick.judged, quick.uncertain) == (thorough.judged, thorough.uncertain)
    assert len(drawn) == 1 + len(both), "once for both engines, and once for each thorough search"


def test_a_deviation_among_the_samples_is_searched_for(lying: Callable[[Change], None]) -> None:
    lying(lambda output, graph: output + 1.0)  # type: ignore[operator]
    searches = Campaign(ALONE, LEDGER, Draws([ALONE], 0.1))
    assert searches.next(0.1) is not None
    with without("draws"):
        assert Campaign(ALONE, LEDGER, Draws([ALONE], 0.1)).next(0.1) is not None
