"""The latency page in a browser, opened from disk: its charts have texts, and it is accessible."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from timed import COUNTS, HEADER, network, passes, timing, write

pytest.importorskip("otava", reason="`tox -e page` has it")

from browsing import WIDTHS, opened, serious

from conformance.bench.results import read
from conformance.bench.timings import LayerTime, Machine, Memory, NotTimed, Repeat
from conformance.errors import UsageError
from conformance.reports.history import change_points, load, store
from conformance.reports.latency_html import write as write_page
from conformance.reports.regression import compare

pytest_plugins = ["browsing"]
HOSTILE = "</script><img src=x onerror=document.title='owned'>\x1b[31m"
STEADY = [0.499, 0.5, 0.501, 0.5, 0.5]


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The address of a page with changes, a history that has a change point, and hostile texts."""
    folder = tmp_path_factory.mktemp("latency")
    for number in range(30):
        ratios = [(0.6 if number > 19 else 0.5) * (1 + 0.002 * ((number * 7 + n) % 5)) for n in range(5)]
        header = {**HEADER, "git": f"{number:012x}"}
        path = write(
            folder / f"{number}.jsonl",
            passes("nn.Linear", ratios),
            header=header,
            finished=f"2026-01-{1 + number:02}T02:30:00+00:00",
        )
        store(read(path), folder / "history")
    counts = dataclasses.replace(COUNTS, kernels=(HOSTILE,))
    hostile = HOSTILE.replace("/", "╱")
    old = [*passes("nn.Linear", STEADY), *passes("nn.ReLU", STEADY), *passes(hostile, STEADY)]
    new = [
        *passes("nn.Linear", [1.2 * ratio for ratio in STEADY]),
        *passes("nn.ReLU", STEADY),
        *passes(hostile, STEADY, counts=counts),
    ]
    not_timed = [
        NotTimed("fbgemm/nn.GRU/dynamic-quint8/ptq/speech_10/bench@x86", "1", "small", f"does not conform: {HOSTILE}")
    ]
    before = read(write(folder / "before.jsonl", old))
    after = read(write(folder / "after.jsonl", new, not_timed))
    series = load(folder / "history")
    points = [point for case in series for point in change_points(case)]
    return write_page([after], folder / "out", compare(before, after), series, points).as_uri()


def test_changes_and_cases_without_timings_are_shown(page: Any, report: str) -> None:
    opened(page, report)
    text = page.inner_text("main")
    for sentence in (
        "1 slower",
        "3 cases, 1 of them slower or faster.",
        "+20.0%",
        "30 nights, 1 changes that last: 2026-01-21 02:30.",
    ):
        assert sentence in text
    page.locator("#not-timed + details summary").click()
    assert "does not conform" in page.inner_text("main")
    assert page.locator("canvas").count() == 2


def test_the_chart_describes_the_case_under_the_pointer(page: Any, report: str) -> None:
    opened(page, report)
    page.locator("#changes-plot .u-over").hover(position={"x": 3, "y": 100})
    page.wait_for_function("document.querySelector('#changes-plot p').textContent.includes('nn.Linear')")
    assert "slower" in page.inner_text("#changes-plot p")


def test_hostile_texts_are_shown_and_inert(page: Any, report: str) -> None:
    opened(page, report)
    assert page.locator("main img").count() == 0
    assert "owned" not in page.title()
    page.locator("summary", has_text="Every case").click()
    assert "<img src=x" in page.inner_text("main")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_axe_finds_nothing_serious(width: str, scheme: str, browser: Any, report: str) -> None:
    context = browser.new_context(viewport={"width": WIDTHS[width], "height": 800}, color_scheme=scheme)
    page = opened(context.new_page(), report)
    for summary in page.locator("summary").all():
        summary.click()
    assert serious(page) == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "it scrolls sideways"
    context.close()


def test_a_page_without_history_or_comparison_opens(page: Any, tmp_path: Path) -> None:
    file = read(write(tmp_path / "one.jsonl", passes("nn.Linear", STEADY)))
    opened(page, write_page([file], tmp_path / "out").as_uri())
    assert "2.00×" in page.inner_text("main")
    assert "Everything was timed." in page.inner_text("main")


def with_networks(folder: Path) -> str:
    """The address of a page with a network, the limits of the machine and its noise."""
    layers = (LayerTime("layer1.0.conv1", "nn.Conv2d", ("quantized.conv2d",), 3e-4, 1e-4),)
    timed = [network(0, memory=Memory(20 << 20, 60 << 20, 11 << 20, 44 << 20), layers=layers), network(1)]
    repeats = [
        Repeat(timing().id, "1", number, opened, repetition, 0.01 * number + 0.001 * repetition, 1e-6)
        for number in range(2)
        for opened in range(2)
        for repetition in range(2)
    ]
    machine = Machine("1", 9e9, 36e9, {"1000000": 1e10})
    file = read(write(folder / "one.jsonl", [*passes("nn.Linear", STEADY), *timed], [*repeats, machine]))
    return write_page([file], folder / "out").as_uri()


def test_networks_limits_and_noise_are_shown(page: Any, tmp_path: Path) -> None:
    opened(page, with_networks(tmp_path))
    text = page.inner_text("main")
    for phrase in (
        "50% of the limit",
        "20.0, 60.0 MiB",
        "Noise of the machine",
        "slower than in float: layer1.0.conv1",
    ):
        assert phrase in text
    page.locator("summary", has_text="resnet18").click()
    assert "layer1.0.conv1" in page.inner_text("main")


def test_axe_finds_nothing_serious_about_networks(browser: Any, tmp_path: Path) -> None:
    page = opened(browser.new_page(), with_networks(tmp_path))
    page.locator("summary", has_text="resnet18").click()
    assert serious(page) == []


def test_a_folder_with_other_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "theirs").write_text("")
    with pytest.raises(UsageError, match="not empty, and no report"):
        write_page([], tmp_path)
