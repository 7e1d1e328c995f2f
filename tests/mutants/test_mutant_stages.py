"""A stage with a few runs: wide faults are caught, what no call meets is not, and observed mutants change nothing."""

from collections.abc import Callable, Iterable
from dataclasses import replace

import pytest
import torch

from conformance.cases.claims import backend
from conformance.cases.runs import describe
from conformance.checks.judge import Judge
from conformance.checks.likeness import Likeness
from conformance.errors import UsageError
from conformance.execution import batch
from conformance.fuzz.samples import Sample
from conformance.results.known import Entry, KnownFinding
from conformance.results.rows import Row
from conformance.results.verdicts import Verdict
from conformance.results.where import Where
from conformance.selection import Selection

from .drawing import Population
from .injection import INJECTION, Sightings, injecting, observing
from .mutant import Condition, Effect, Mutant, Region
from .parallel import results_of
from .population import calls_of, drawn_samples, searched_samples
from .preparing import Engine, effective, first_effective
from .records import Result
from .stages import Stage, Unnoticed
from .witnesses import Witness, drawn, ordinary, row_of

pytestmark = pytest.mark.xdist_group("mutant stages")  # one worker: its fixture takes seconds

EVERYWHERE, MORE = Region("everywhere"), Effect("one step more")
GLOBS = (
    "fbgemm/nn.Linear/static-quint8/ptq/default/exact@fbgemm",
    "fbgemm/nn.Linear/static-quint8/ptq/large/laws@fbgemm",
    "fbgemm/nn.ReLU/static-quint8/ptq/default/exact@fbgemm",
)


def mutant(number: int, *conditions: Condition, region: Region = EVERYWHERE, effect: Effect = MORE) -> Mutant:
    return Mutant("fbgemm", "fbgemm", number, "quantized.linear", conditions, region, effect)


WIDE = mutant(0)
UNMET = mutant(1, Condition("X size(0)", ">=", 10_000))
LARGE = mutant(2, Condition("X size(1)", ">=", 64), Condition("X rank", "==", 2))
NEVER_BOTH = mutant(3, Condition("X elements", ">=", 10_000), Condition("X elements", "<=", 1000))
NO_REGION = mutant(4, region=Region("index", 1, 10_000))
UNCALLED = replace(mutant(5), kernel="quantized.linear_tanh")
SECOND = mutant(6, Condition("call", "==", 2))
CRASHING = mutant(7, effect=Effect("no such effect"))


@pytest.fixture(scope="module")
def selection() -> Selection:
    batch.warm_up()
    return Selection(backends=["fbgemm"], globs=GLOBS)


def stage_of(witnesses: list[Witness], selection: Selection) -> Stage:
    return Stage("ordinary run", witnesses, selection, lambda text: None)


@pytest.fixture(scope="module")
def results(selection: Selection) -> dict[str, Result]:
    stage = stage_of(ordinary(selection), selection)
    mutants = [WIDE, UNMET, LARGE, NEVER_BOTH, NO_REGION, UNCALLED, SECOND]
    stage.observe(mutants)
    return stage.hunt(mutants)


def test_a_wide_mutant_is_caught(results: dict[str, Result]) -> None:
    result = results[WIDE.id]
    assert result.caught_by == GLOBS[0]
    assert "numerics" in result.alarms
    assert (result.met, result.changed, result.judged) == (2, 2, 1)


def test_a_mutant_of_the_second_call_is_caught(results: dict[str, Result]) -> None:
    assert "stable" in results[SECOND.id].alarms


@pytest.mark.parametrize(
    ("survivor", "cause", "reason"),
    [
        (UNMET, "no call has such a size", "no call where X size(0) is at least 10000"),
        (NEVER_BOTH, "no call has both conditions", "no call has both conditions"),
        (NO_REGION, "no call that has the conditions has the region, or the effect changes nothing there", ""),
        (UNCALLED, "the kernel is not called", ""),
        (LARGE, "met in relations only, which compare the kernel with itself", ""),
    ],
)
def test_a_survivor_has_a_reason(survivor: Mutant, cause: str, reason: str, results: dict[str, Result]) -> None:
    result = results[survivor.id]
    assert not result.caught
    assert result.cause == cause
    assert result.reason == (reason or cause)
    assert result.lacking == (("X size(0)",) if survivor is UNMET else ())


def rows(witnesses: list[Witness], selection: Selection, handler: Callable[[], object]) -> list[dict[str, object]]:
    def work(witness: Witness) -> dict[str, object]:
        return {**row_of(Judge(selection.store), witness.run, handler()).to_json(), "seconds": 0}  # type: ignore[arg-type]

    return results_of(work, witnesses, "judging")


def test_observed_mutants_change_nothing(selection: Selection) -> None:
    witnesses = ordinary(selection)
    effects = ("one step more", "zero", "the bias is dropped", "the input's zero point is one off")
    mutants = [mutant(number, effect=Effect(kind)) for number, kind in enumerate(effects)]
    in_place = [replace(mutant(9), kernel=kernel) for kernel in ("aten.relu", "aten.relu_")]
    seen: Sightings = {}
    plain = rows(witnesses, selection, lambda: None)
    assert rows(witnesses, selection, lambda: observing([*mutants, *in_place], seen)) == plain
    assert rows(witnesses, selection, lambda: injecting(mutants[0])) != plain


def test_a_conversion_is_wrong_in_the_reference_model_too(selection: Selection) -> None:
    (run,) = (witness for witness in ordinary(selection) if witness.id == GLOBS[2])
    conversion = replace(mutant(0), kernel="aten.dequantize.self")
    (row,) = rows([run], selection, lambda: injecting(conversion))
    assert row["checks"]["numerics"] == "pass"  # type: ignore[index]  # codes are compared
    assert row["checks"]["reference"] == "fail"  # type: ignore[index]


def test_other_kernels_are_as_they_are_outside_of_the_engine() -> None:
    def work(kernel: str) -> list[tuple[int, ...]]:
        x = torch._make_per_tensor_quantized_tensor(torch.tensor([7], dtype=torch.uint8), 1.0, 0)
        call = torch.relu if kernel == "aten.relu" else torch.dequantize
        with INJECTION.handling(injecting(replace(mutant(0), kernel=kernel))):
            within = call(x)
            outside = INJECTION.not_of_the_engine(call)(x)
        return [tuple(int(value) for value in result.tolist()) for result in map(plain, (within, outside))]

    def plain(x: torch.Tensor) -> torch.Tensor:
        return x.int_repr() if x.is_quantized else x

    assert results_of(work, ["aten.relu", "aten.dequantize.self"], "calls") == [[(8,), (7,)], [(8,), (8,)]]


def test_the_kernels_of_this_process_are_not_overridden() -> None:
    assert not INJECTION.installed


@pytest.mark.parametrize(
    ("run_id", "outcome", "drawn_one", "expected"),
    [
        (GLOBS[0], "pass", False, Unnoticed.EXCUSED),
        (GLOBS[0], "fail", False, Unnoticed.LISTED),
        (GLOBS[0], "fail", True, Unnoticed.SIMILAR),
        (GLOBS[0], "skip", False, Unnoticed.UNCOMPARED),
        (GLOBS[1], "pass", False, Unnoticed.RELATIONS),
    ],
)
def test_why_a_subject_does_not_notice(
    run_id: str, outcome: str, drawn_one: bool, expected: Unnoticed, selection: Selection
) -> None:
    witness = next(one for one in ordinary(selection) if one.id == run_id)
    assert witness.run.variant is not None
    sample = Sample(witness.run.claim.id, "ptq", "fbgemm", witness.run.variant) if drawn_one else None
    verdict = Verdict.of(outcome == "fail")
    row = Row(**describe(witness.run), verdict=verdict, checks={"numerics": outcome})
    assert Unnoticed.of(replace(witness, sample=sample), row) is expected


def test_a_mutant_whose_process_dies_is_caught(selection: Selection, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = stage_of(ordinary(selection), selection)
    stage.observe([WIDE])

    def dies(judging: Iterable[Mutant]) -> list[Result]:
        import os

        os.abort()

    monkeypatch.setattr(stage, "_judge_all", dies)
    assert stage.hunt([WIDE])[WIDE.id].alarms == ("crashes",)


def test_without_a_mutant_every_run_agrees_with_the_ledger(selection: Selection) -> None:
    entry = Entry(KnownFinding("listed", "", "", ""), (Where(()),), frozenset({"numerics"}), "")
    witnesses = [replace(witness, likeness=Likeness([entry])) for witness in ordinary(selection)]
    with pytest.raises(UsageError, match=r"2 witnesses contradict the ledger without a mutant, the first: .*numerics"):
        stage_of(witnesses, selection).observe([WIDE])


def linear_samples(count: int) -> list[Sample]:
    claims = backend("fbgemm")
    (family,) = (one for one in Selection(backends=["fbgemm"]).families if one.id == "fbgemm/linear@fbgemm")
    assert claims.name == "fbgemm"
    return drawn_samples(family, count, "test")


def test_samples_are_a_function_of_the_key() -> None:
    assert linear_samples(5) == linear_samples(5)


def test_drawn_samples_catch_a_wide_mutant() -> None:
    batch.warm_up()
    selection = Selection(backends=["fbgemm"])
    families = [family for family in selection.families if family.id == "fbgemm/linear@fbgemm"]
    witnesses = drawn(families, {family.id: searched_samples(family)[:12] for family in families}, selection)
    stage = stage_of(witnesses, selection)
    stage.observe([WIDE], judged=False)
    (result,) = stage.hunt([WIDE]).values()
    assert result.caught_by.startswith("drawn fbgemm/")


def test_a_candidate_that_changes_nothing_is_discarded() -> None:
    batch.warm_up()
    runs = [witness.run for witness in ordinary(Selection(backends=["fbgemm"], globs=GLOBS[:1]))]
    population = Population(results_of(calls_of, runs, "calls"))
    assert effective([(WIDE, 0), (UNMET, 0), (NO_REGION, 0)], population, runs) == {WIDE.id}


def test_mutants_are_the_first_candidates_that_change_a_result() -> None:
    batch.warm_up()
    runs = [witness.run for witness in ordinary(Selection(backends=["fbgemm"], globs=GLOBS))]
    population = Population(results_of(calls_of, runs, "calls"))
    engine = Engine("fbgemm", "fbgemm")
    found, tried = first_effective(population, runs, engine, 1, 4)
    assert [one.number for one in found] == sorted(one.number for one in found)
    assert first_effective(population, runs, engine, 1, 2)[0] == found[:2]
    assert tried >= 4
