"""Verdicts of comparisons and their error rates, two builds in one file, formats, and files that cannot be compared."""

import dataclasses
import json
import random
from pathlib import Path
from typing import Any

import pytest
from timed import COUNTS, HEADER, network, passes, write

pytest.importorskip("scipy", reason="`tox -e bench` has it")

from conformance.bench.results import AIM, TimingsFile, read
from conformance.bench.timings import Builds, LayerTime, Timing
from conformance.errors import UsageError
from conformance.reports.regression import FORMATS, Changed, Regression, compare, counted, explaining

STEADY = [0.499, 0.5, 0.501, 0.5, 0.5]


@pytest.fixture
def file(tmp_path: Path) -> Any:
    def make(name: str, timings: list[Any], **header: Any) -> TimingsFile:
        return read(write(tmp_path / name, timings, header={**HEADER, **header}))

    return make


def written(form: str, regression: Regression) -> str:
    return "\n".join(FORMATS[form](regression))


def scaled(factor: float) -> list[float]:
    return [factor * ratio for ratio in STEADY]


def test_each_verdict_and_the_change_of_the_ratio(file: Any) -> None:
    old = [
        *passes("slow", STEADY),
        *passes("fast", STEADY),
        *passes("same", STEADY),
        *passes("noisy", [0.3, 0.6, 0.4, 0.7, 0.5]),
    ]
    new = [
        *passes("slow", scaled(1.1)),
        *passes("fast", scaled(0.8)),
        *passes("same", scaled(1.01)),
        *passes("noisy", [0.7, 0.4, 0.6, 0.3, 0.9]),
    ]
    regression = compare(file("old", old), file("new", new))
    cases = {case.case.split("/")[1]: case for case in regression.cases}
    assert {name: case.verdict for name, case in cases.items()} == {
        "slow": "slower",
        "fast": "faster",
        "same": "same",
        "noisy": "inconclusive",
    }
    assert cases["slow"].change == pytest.approx(0.1, abs=0.002)
    assert cases["slow"].low <= cases["slow"].change <= cases["slow"].high
    assert (cases["slow"].before, cases["slow"].after) == pytest.approx((0.5, 0.55), rel=0.01)
    assert cases["fast"].change == pytest.approx(-0.2, abs=0.002)
    assert regression.worse
    assert counted(regression) == {"slower": 1, "faster": 1, "inconclusive": 1, "same": 1}


def test_a_certain_change_within_the_margin_is_not_slower(file: Any) -> None:
    regression = compare(file("old", passes("one", STEADY)), file("new", passes("one", scaled(1 + AIM / 2))))
    assert [case.verdict for case in regression.cases] == ["same"]
    assert not regression.worse


def test_equal_cases_are_neither_slower_nor_faster(file: Any) -> None:
    chance = random.Random(7)

    def noisy(count: int) -> list[Any]:
        return [
            timing
            for n in range(count)
            for timing in passes(f"op{n}", [0.5 * 1.03 ** chance.gauss(0, 1) for _ in range(5)])
        ]

    verdicts = [counted(compare(file(f"old{n}", noisy(300)), file(f"new{n}", noisy(300)))) for n in range(3)]
    assert sum(counts["slower"] + counts["faster"] for counts in verdicts) == 0


def test_most_cases_slower_by_a_tenth_are_found_among_many(file: Any) -> None:
    chance = random.Random(11)

    def noisy(ratio: float) -> list[float]:
        return [ratio * 1.01 ** chance.gauss(0, 1) for _ in range(5)]

    names = [f"op{n}" for n in range(200)]
    slow = set(names[:20])
    old = [timing for name in names for timing in passes(name, noisy(0.5))]
    new = [timing for name in names for timing in passes(name, noisy(0.55 if name in slow else 0.5))]
    regression = compare(file("old", old), file("new", new))
    slower = {case.case.split("/")[1] for case in regression.cases if case.verdict == "slower"}
    assert len(slower & slow) >= 18
    assert not slower - slow


def test_two_builds_timed_in_turns_are_compared_with_each_other(file: Any) -> None:
    timings = [
        *(
            timing
            for number in range(5)
            for timing in passes("slow", [0.5 + number / 10], base=(0.5 + number / 10) / 1.1)
        ),
        *passes("same", [0.5, 0.7, 0.6, 0.9, 0.8], base=None),
    ]
    slow = [dataclasses.replace(timing, number=number) for number, timing in enumerate(timings[:5])]
    base = {"torch": "2.10.0", "python": "3.11.7"}
    regression = compare(file("one", slow, against=base))
    (case,) = regression.cases
    assert regression.paired
    assert (regression.before, regression.after) == ("torch 2.10.0", "torch 2.13.0")
    assert case.verdict == "slower"
    assert case.change == pytest.approx(0.1)


def slowed(timing: Timing, lowered: float, floating: float) -> Timing:
    """A pass whose lowered and float model take so many times as long."""
    models = zip((timing.new.quantized, timing.new.floating), (lowered, floating), strict=True)
    builds = Builds(
        *(tuple(tuple(factor * x for x in placed) for placed in placements) for placements, factor in models)
    )
    return dataclasses.replace(timing, new=builds)


def test_the_drift_of_the_machine_is_that_of_all_float_models_of_a_kind(file: Any) -> None:
    chance = random.Random(3)

    def night(machine: float, linear0: float) -> list[Timing]:
        """A night on a machine that takes `machine` times as long, whose float models vary a lot from process to process."""
        return [
            slowed(timing, machine * (linear0 if number == 0 else 1.0), machine * 1.05 ** chance.gauss(0, 1))
            for number in range(40)
            for timing in passes(f"linear{number}", STEADY)
        ]

    regression = compare(file("old", night(1.0, 1.0)), file("new", night(1.2, 1.1)))
    verdicts = {case.case.split("/")[1]: case.verdict for case in regression.cases}
    assert verdicts.pop("linear0") == "slower"
    assert {*verdicts.values()} == {"same"}


def test_few_float_models_of_a_kind_are_each_compared_with_their_own(file: Any) -> None:
    old, new = passes("one", STEADY), [slowed(timing, 1.2, 1.2) for timing in passes("one", STEADY)]
    assert [case.verdict for case in compare(file("old", old), file("new", new)).cases] == ["same"]


def test_changed_counts_are_reported_for_a_case_of_equal_latency(file: Any) -> None:
    counts = dataclasses.replace(COUNTS, quantize=2)
    regression = compare(file("old", passes("one", STEADY)), file("new", passes("one", STEADY, counts=counts)))
    assert regression.cases[0].counts == ("quantize: 1 → 2",)
    assert "quantize: 1 → 2" in written("text", regression)


def test_cases_that_came_or_went_are_named(file: Any) -> None:
    old = [*passes("both", STEADY), *passes("old", STEADY)]
    new = [*passes("both", STEADY), *passes("new", STEADY)]
    regression = compare(file("old", old), file("new", new))
    assert [case.split("/")[1] for case in (*regression.gone, *regression.came)] == ["old", "new"]


@pytest.mark.parametrize(
    ("field", "value"), [("cpu", "Another"), ("isa", "avx512_vnni"), ("cores", 64), ("arch", "aarch64")]
)
def test_files_of_different_machines_are_refused_unless_allowed(field: str, value: Any, file: Any) -> None:
    old, new = file("old", passes("one", STEADY)), file("new", passes("one", STEADY), **{field: value})
    with pytest.raises(UsageError, match=rf"{field} is .* in one and .*{value}.* in the other.*--other-machines"):
        compare(old, new)
    assert compare(old, new, other_machines=True).cases


def test_files_that_cannot_be_compared_are_errors(file: Any) -> None:
    single = file("one", passes("one", STEADY))
    with pytest.raises(UsageError, match=r"one: has one build: time it with --against, or name a second file"):
        compare(single)
    with pytest.raises(UsageError, match="no case was timed in both"):
        compare(single, file("two", passes("two", STEADY)))
    with pytest.raises(UsageError, match=r"2 passes: a comparison needs 3 at least \(--passes, --budget\)"):
        compare(single, file("few", passes("one", STEADY[:2])))


def test_a_case_with_too_few_passes_is_inconclusive_and_named(file: Any) -> None:
    old = file("old", [*passes("one", STEADY), *passes("two", STEADY)])
    regression = compare(old, file("new", [*passes("one", STEADY), *passes("two", STEADY[:2])]))
    assert [case.case.split("/")[1] for case in regression.cases] == ["one"]
    assert [case.split("/")[1] for case in regression.few] == ["two"]
    assert counted(regression) == {"slower": 0, "faster": 0, "inconclusive": 1, "same": 1}
    assert "few passes" in written("text", regression)
    assert "Too few passes: `fbgemm/two/" in written("markdown", regression)


def test_the_margin_is_the_aim_of_the_later_file(file: Any) -> None:
    old, new = file("old", passes("one", STEADY)), file("new", passes("one", scaled(1.05)), aim=0.1)
    assert [case.verdict for case in compare(old, new).cases] == ["same"]
    assert "changes of more than 10.0%" in written("text", compare(old, new))
    assert [case.verdict for case in compare(new, old).cases] == ["faster"]


def test_a_count_that_an_older_file_lacks_has_not_changed(file: Any) -> None:
    counts = dataclasses.replace(COUNTS, operations=None, traffic=None)
    regression = compare(file("old", passes("one", STEADY, counts=counts)), file("new", passes("one", STEADY)))
    assert regression.cases[0].counts == ()


def layers(conv: float, kernels: tuple[str, ...] = ("quantized.conv2d",)) -> tuple[LayerTime, ...]:
    return (
        LayerTime("layer1.conv1", "nn.Conv2d", kernels, conv, 3e-4),
        LayerTime("fc", "nn.Linear", ("quantized.linear",), 2e-4, 2e-4),
        LayerTime("quantize", "", ("quantize_per_tensor",), 1e-4, 0.0),
    )


def test_a_slower_network_names_the_layers_and_kernels_that_explain_it(file: Any) -> None:
    def passes_with(factor: float, *of: LayerTime) -> list[Any]:
        ratios = enumerate(scaled(factor))
        return [network(number, ratio=ratio, layers=() if number else of) for number, ratio in ratios]

    old = file("old", passes_with(1.0, *layers(1e-4)))
    regression = compare(old, file("new", passes_with(1.3, *layers(3e-4))))
    (case,) = regression.cases
    text = "layer1.conv1: +200 µs, 100% of the change (quantized.conv2d)"
    assert (case.verdict, case.layers) == ("slower", (text,))
    assert text in written("text", regression)
    assert f"`{text}`" in written("markdown", regression)
    assert compare(old, file("same", passes_with(1.0, *layers(3e-4)))).cases[0].layers == ()


def test_another_kernel_and_a_new_layer_are_named() -> None:
    old = {layer.name: layer for layer in layers(1e-4)}
    new = {layer.name: layer for layer in layers(2e-4, ("quantized.conv2d_dynamic",))}
    del old["quantize"]
    assert [*explaining(old, new)] == [
        "layer1.conv1: +100 µs, 50% of the change (quantized.conv2d → quantized.conv2d_dynamic)",
        "quantize: +100 µs, 50% of the change (none → quantize_per_tensor)",
    ]
    assert [*explaining({}, new)] == []


HOSTILE = "nn.Linear|<script>`\x1b[31m"


def test_formats_agree_and_hostile_names_are_inert(file: Any) -> None:
    old, new = (
        [timing for name in (HOSTILE, "nn.ReLU") for timing in passes(name, scaled(factor))] for factor in (1, 1.2)
    )
    regression = compare(file("old", old), file("new", new))
    assert [case.verdict for case in regression.cases] == ["slower", "slower"]
    text, markdown, values = (
        written("text", regression),
        written("markdown", regression),
        json.loads(written("json", regression)),
    )
    assert "2 slower, 0 faster" in text
    assert "**2** slower" in markdown
    assert values["verdicts"]["slower"] == 2
    assert [Changed(**{**case, "counts": (), "layers": ()}).verdict for case in values["cases"]] == ["slower", "slower"]
    assert "\x1b" not in text + markdown
    assert "<script>" not in markdown
