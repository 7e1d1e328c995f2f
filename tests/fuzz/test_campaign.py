"""What drawn cases bring to light is shrunk, told once, and kept; what the ledger knows, or chance did, is no news."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.fx import GraphModule

from conformance.cases.claims import backend
from conformance.cases.operators import OPERATORS, Operand, Variant
from conformance.cases.runs import Run
from conformance.checks.judge import Judge
from conformance.engines.registry import engine
from conformance.fuzz import campaign
from conformance.fuzz.campaign import News, Trials, keep, reproduction
from conformance.fuzz.strategies import Drawn, Family, families, run_of
from conformance.models import build, fx
from conformance.results.ledger import Entry, load
from conformance.selection import Selection

if engine("fbgemm").unavailable():
    pytest.skip("fbgemm is not available here", allow_module_level=True)

LINEAR = next(one for one in families(backend("fbgemm"), ["fbgemm"]) if one.name == "linear")
ALONE = Family("linear", LINEAR.backend, (next(c for c in LINEAR.claims if c.pattern == "nn.Linear"),), "fbgemm")

LEDGER = [entry for entry in load() if entry.applies(Selection().host)]

Change = Callable[[Tensor, GraphModule], Tensor]


@pytest.fixture
def lying(monkeypatch: pytest.MonkeyPatch) -> Callable[[Change], None]:
    """Have lowered models change their output; children inherit it."""

    def lie(change: Change) -> None:
        honest = fx.lower

        def lower(*arguments: Any) -> GraphModule:
            graph = honest(*arguments)
            graph.register_forward_hook(lambda module, given, output: change(output, module))
            return graph

        monkeypatch.setattr(fx, "lower", lower)

    return lie


def one_step_up(output: Tensor, graph: GraphModule) -> Tensor:
    return output + 1.0 if graph.op.out_features > 16 else output  # type: ignore[union-attr, operator]


def known(check: str, match: str = "fbgemm/nn.Linear/*") -> Entry:
    return Entry("known", (match,), frozenset({check}), "why", "unreported", {}, "here")


def test_an_honest_engine_makes_no_news() -> None:
    attempts = Trials(ALONE, LEDGER)
    assert attempts.next(share=0.3) is None
    assert attempts.tried == 30


def test_a_kernel_that_is_wrong_for_many_features_is_found_and_shrunk(lying: Callable[[Change], None]) -> None:
    lying(one_step_up)
    news = Trials(ALONE, LEDGER).next()
    assert news is not None
    assert "numerics" in news.checks
    assert "gives float values" in news.detail
    assert "nn.Linear(1, 17" in news.drawn.variant.init
    assert news.drawn.variant.batch is None
    assert news.row.id == f"fbgemm/nn.Linear/static-quint8/ptq/{news.drawn.variant.name}/generated@fbgemm"


def test_what_the_ledger_knows_of_cases_like_it_is_no_news(lying: Callable[[Change], None]) -> None:
    lying(one_step_up)
    everything = [known(check) for check in ("numerics", "lowered", "stable")]
    assert Trials(ALONE, [*LEDGER, *everything]).next(share=0.5) is None
    elsewhere = [known(check, "fbgemm/nn.Conv2d/*") for check in ("numerics", "lowered", "stable")]
    assert Trials(ALONE, [*LEDGER, *elsewhere]).next(share=0.5) is not None


def dies_for_many_features(output: Tensor, graph: GraphModule) -> Tensor:
    if graph.op.out_features > 16:  # type: ignore[union-attr, operator]
        os.kill(os.getpid(), signal.SIGSEGV)
    return output


def test_a_case_that_kills_its_process_is_shrunk_too(lying: Callable[[Change], None]) -> None:
    lying(dies_for_many_features)
    news = Trials(ALONE, LEDGER).next(share=0.5)
    assert news is not None
    assert news.checks == {"crashes"}
    assert news.row.verdict == "crashes"
    assert "nn.Linear(1, 17" in news.drawn.variant.init


def test_what_does_not_happen_to_the_case_alone_is_no_news(lying: Callable[[Change], None]) -> None:
    """As when an earlier case has damaged the child's memory."""
    calls: list[int] = []

    def from_the_tenth_call_on(output: Tensor, graph: GraphModule) -> Tensor:
        calls.append(1)
        return output + 1.0 if len(calls) > 10 else output

    lying(from_the_tenth_call_on)
    assert Trials(ALONE, LEDGER).next(share=0.2) is None


def test_news_is_told_once(lying: Callable[[Change], None]) -> None:
    lying(one_step_up)
    attempts = Trials(ALONE, LEDGER)
    first, again = attempts.next(share=0.5), attempts.next(share=0.3)
    assert first is not None
    assert first.signature in attempts.seen
    assert again is None or again.signature != first.signature


def test_a_fault_of_the_suite_is_raised_with_the_case(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(campaign, "Judge", broken)
    with pytest.raises(RuntimeError, match=r"the suite itself fails on Drawn\(claim='fbgemm/nn.Linear/static-quint8'"):
        Trials(ALONE, LEDGER).next(share=0.1)


def spread_pooling() -> News:
    """From one element to two, which x86's, oneDNN's and QNNPACK's kernel all do wrong for more channels than one."""
    pooling = next(one for one in families(backend("fbgemm"), ["fbgemm"]) if one.name == "pooling")
    default = OPERATORS["nn.AdaptiveAvgPool2d"][0]
    variant = default.named("drawn0", init="nn.AdaptiveAvgPool2d(2)", operands={"x": Operand((1, 2, 1, 1))})
    drawn = Drawn("fbgemm/nn.AdaptiveAvgPool2d/static-quint8", "ptq", "fbgemm", variant, ("default",))
    attempts = Trials(pooling)
    assert "codes differ" in attempts.breaks(drawn)
    assert attempts.latest is not None
    return attempts.latest


def test_news_is_kept_as_a_script_that_shows_it_and_as_json(tmp_path: Path) -> None:
    news = spread_pooling()
    path, other = (keep(tmp_path / "found", LINEAR.backend, news) for _ in range(2))
    assert path != other
    assert path.read_text() == reproduction(LINEAR.backend, news)
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


def test_a_case_that_the_oracle_has_no_certain_answer_for_counts_as_beyond_it() -> None:
    recurrent = next(one for one in families(backend("fbgemm"), ["fbgemm"]) if one.name == "recurrent")
    variant = OPERATORS["nn.LSTM"][0].named("drawn0", data="both:3")  # saturates: the hidden state spans -1 to 1
    attempts = Trials(recurrent)
    drawn = Drawn("fbgemm/nn.LSTM/dynamic-quint8", "ptq", "fbgemm", variant, ("default",))
    attempts.breaks(drawn)
    assert (attempts.tried, attempts.beyond) == (1, 1)
    row, unusable = Judge().row(run_of(recurrent.backend, drawn))
    assert unusable.endswith("the oracle's answer is not certain")
    assert row.checks["numerics"] == "skip"


def test_what_is_wrong_in_another_memory_format_too_is_no_news_that_the_format_changes_it() -> None:
    pooling = next(one for one in families(backend("fbgemm"), ["fbgemm"]) if one.name == "pooling")
    default = OPERATORS["nn.AdaptiveAvgPool2d"][0]
    operand = Operand((1, 2, 1, 1), layout="strided")
    variant = default.named("drawn0", init="nn.AdaptiveAvgPool2d(2)", operands={"x": operand})
    drawn = Drawn("fbgemm/nn.AdaptiveAvgPool2d/static-quint8", "ptq", "fbgemm", variant, ("spread",))
    unlisted, listed = Trials(pooling), Trials(pooling, LEDGER)
    assert "channels_last changes" in unlisted.breaks(drawn)
    assert not listed.breaks(drawn)


def test_what_computes_something_else_has_ties_of_its_own() -> None:
    arithmetic = next(one for one in families(backend("qnnpack")) if one.name == "arithmetic")
    both = {name: Operand((2, 4, 7, 5)) for name in "xy"}
    variant = OPERATORS["torch.add"][0].named("drawn0", call="torch.add(x, y, alpha=2)", operands=both, data="below:-4")
    drawn = Drawn("qnnpack/torch.add/static-qint8", "ptq", "qnnpack", variant, ("alpha_2", "default"))
    unlisted, listed = Trials(arithmetic), Trials(arithmetic, LEDGER)
    assert "channels_last changes" in unlisted.breaks(drawn)
    assert not listed.breaks(drawn)


def test_what_is_not_observed_is_no_news_in_the_reference_model() -> None:
    linear = next(one for one in families(backend("fbgemm"), ["fbgemm"]) if one.name == "linear")
    keyword = next(one for one in OPERATORS["F.linear"] if one.name == "keyword")
    tiny = keyword.named("drawn0", data="tiny")  # finer than the least dynamic scale
    drawn = Drawn("fbgemm/F.linear/dynamic-quint8", "ptq", "fbgemm", tiny, ("keyword",))
    unlisted, listed = Trials(linear), Trials(linear, LEDGER)
    assert "observed: input x is not observed; reference:" in unlisted.breaks(drawn)
    assert not listed.breaks(drawn)


@pytest.mark.parametrize("layout", ["contiguous", "strided", "channels_last"])
def test_a_case_is_executed_in_the_layout_that_is_drawn(layout: str) -> None:
    claim = "fbgemm/nn.Conv2d/static-quint8"
    shape = (1, 4, 8, 7)
    variant = OPERATORS["nn.Conv2d"][0].named("drawn0", operands={"x": Operand(shape, layout=layout)})
    run = generated_run(claim, variant)
    (given,) = build.subject(run).fresh_inputs()
    plain = build.subject(generated_run(claim, variant.named("drawn0", operands={"x": Operand(shape)}))).inputs[0]
    assert torch.equal(given, plain)
    assert given.is_contiguous() is (layout == "contiguous")
    assert given.is_contiguous(memory_format=torch.channels_last) is (layout == "channels_last")


def generated_run(claim: str, variant: Variant) -> Run:
    return run_of(LINEAR.backend, Drawn(claim, "ptq", "fbgemm", variant, ()))
