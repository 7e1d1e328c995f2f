"""The page of audits in a browser, opened from disk: what is to blame, charts with texts, no requests, and accessibility."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from audited import HOSTILE, KNOWN, UPSTREAM, audit, clean, failed, hostile
from browsing import WIDTHS, opened, serious

from conformance.errors import UsageError
from conformance.reports.audit_html import chart, render, write
from conformance.results.audits import Audit

pytest_plugins = ["browsing"]


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The address of a page with faults, without, of a network that cannot be traced, and with hostile texts."""
    known, upstream = {**KNOWN, HOSTILE: HOSTILE}, {**UPSTREAM, HOSTILE: HOSTILE}
    path = tmp_path_factory.mktemp("audit") / "folder" / "audit.html"
    few = replace(clean(), layers=clean().layers[:9])
    return write([audit(), few, failed(), hostile()], path, known, upstream).as_uri()


def test_every_engine_has_a_card(page: Any, report: str) -> None:
    opened(page, report)
    cards = page.locator(".card").all_inner_texts()
    assert len(cards) == 4
    for sentence in ("7 layers to blame (2 new)", "75%", "the engine loses another 8.5 dB"):
        assert sentence in cards[0]
    assert "✓ usable: 31.2 dB against float; nothing to blame" in cards[1]
    assert "✗ cannot be converted: torch.fx cannot trace it" in cards[2]


def test_blamed_layers_are_explained_and_link_to_their_rows(page: Any, report: str) -> None:
    opened(page, report)
    blamed = page.locator("section").first.locator("ol.blame > li")
    assert blamed.locator("h4 a").all_inner_texts() == [layer.name for layer in audit().blamed]
    crash = blamed.nth([layer.name for layer in audit().blamed].index("features.13.block.3.0"))
    assert "new crashes: signal 11" in crash.inner_text()
    assert "known stable" in crash.inner_text()
    assert "which saturates" in crash.inner_text()
    assert crash.locator("a[href='https://github.com/pytorch/pytorch/issues/103646']").count() == 1
    crash.locator("h4 a").click()
    assert page.locator("tr:target").locator(".name").inner_text() == "features.13.block.3.0"
    assert "✗ new" in page.locator("tr:target th").inner_text(), "not by color only"


def test_a_reproduction_and_the_details_of_a_layer_open(page: Any, report: str) -> None:
    opened(page, report)
    script = page.locator("ol.blame summary").first
    assert not page.locator("ol.blame pre").first.is_visible()
    script.click()
    assert "print('DEVIATES'" in page.locator("ol.blame pre").first.inner_text()
    row = page.locator("tr", has=page.locator("code.name", has_text="features.7.block.0.0")).first
    assert "uses 11 of 256 codes" in row.inner_text()
    row.locator("summary").click()
    for sentence in ("quantized.conv2d_relu", "qint8 0.00231/0 ×64", "channels_last", "reference quint8 0.05/3"):
        assert sentence in row.inner_text()


def test_the_chart_has_a_text_and_a_point_for_each_layer_compared(page: Any, report: str) -> None:
    opened(page, report)
    drawn = page.locator("svg.chart").first
    compared = [layer for layer in audit().layers if layer.agreement]
    assert drawn.locator("circle, path").count() == len(compared)
    assert drawn.locator("path").count() == sum(layer.blamed for layer in compared)
    assert (
        "local SQNR is lowest, 8.6 dB, in layer 49, features.9.block.0.0" in drawn.locator("title").first.text_content()
    )


def test_the_head_of_the_table_stays_visible(page: Any, report: str) -> None:
    opened(page, report)
    page.set_viewport_size({"width": 1000, "height": 900})
    table = page.locator(".tall").first
    table.evaluate("table => { table.scrollTop = 2000; }")
    distance = "table => table.querySelector('thead th').getBoundingClientRect().y - table.getBoundingClientRect().y"
    assert 0 <= table.evaluate(distance) < 3
    assert table.evaluate("table => table.scrollTop") == 2000
    assert table.evaluate("table => table.scrollWidth <= table.clientWidth"), (
        "at 1000 pixels it needs no scrolling sideways"
    )


def test_a_network_that_cannot_be_traced_is_explained(page: Any, report: str) -> None:
    opened(page, report)
    section = page.locator("section").nth(2).inner_text()
    assert 'File "/home/me/models.py", line 31, in forward' in section
    assert "Move the branch out of forward" in section


def test_hostile_texts_are_shown_and_inert(page: Any, report: str) -> None:
    opened(page, report)
    assert page.locator("script").count() == 0
    assert "</script><script>document" in page.locator("section").nth(3).inner_text()
    text = render([hostile()], {HOSTILE: HOSTILE}, {HOSTILE: HOSTILE})
    assert "<script" not in text
    assert "\x1b" not in text
    assert "\u202e" not in text


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_axe_finds_nothing_serious(width: str, scheme: str, browser: Any, tmp_path: Path) -> None:
    few = replace(audit(), layers=audit().layers[:32])  # with all of them axe takes a quarter of a minute
    report = write([few, replace(clean(), layers=()), failed(), hostile()], tmp_path / "audit.html", KNOWN).as_uri()
    context = browser.new_context(viewport={"width": WIDTHS[width], "height": 800}, color_scheme=scheme)
    page = opened(context.new_page(), report)
    page.evaluate("document.querySelectorAll('details').forEach((details) => { details.open = true; })")
    assert serious(page) == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "it scrolls sideways"
    context.close()


def test_the_file_loads_nothing() -> None:
    text = render([audit()], KNOWN, UPSTREAM)
    assert "default-src 'none'" in text
    assert not re.search(r"\b(?:src=|url\(|@import|<link(?! rel=\"icon\" href=\"data:,\"))", text)


def test_links_are_to_parts_of_the_page_or_to_issues() -> None:
    text = render([audit(), clean()], KNOWN, UPSTREAM)
    ids = re.findall(r'\bid="([^"]+)"', text)
    assert len(ids) == len(set(ids))
    links = set(re.findall(r'href="([^"]+)"', text)) - {"data:,"}
    assert {link for link in links if not link.startswith("#")} == {"https://github.com/pytorch/pytorch/issues/103646"}
    assert {link[1:] for link in links if link.startswith("#")} <= set(ids)


def test_layers_that_are_equal_are_above_the_scale() -> None:
    drawn = chart(audit())
    assert drawn
    places = {layer.float_db: drawn.y(layer.float_db) for _, layer in drawn.compared}
    assert min(y for _, y in drawn.lines) == places[None]
    assert [decibel for decibel, y in places.items() if y == drawn.lines[-1][1]] == [None]


def test_audits_without_comparisons_have_no_chart() -> None:
    assert chart(failed()) is None
    equal = [replace(layer, float_db=None, cumulative_db=None) for layer in clean().layers]
    drawn = chart(replace(clean(), layers=tuple(equal)))
    assert drawn
    assert drawn.summary == "local SQNR of every layer equal; cumulative SQNR of every layer equal"
    assert "The lowered network has no layers." in render([Audit("m:f", "x86", "fbgemm")])


def test_a_page_is_replaced_whole_and_a_bad_place_is_named(tmp_path: Path) -> None:
    path = write([clean()], tmp_path / "audit.html")
    write([audit()], path)
    assert [file.name for file in tmp_path.iterdir()] == ["audit.html"]
    assert "to blame" in path.read_text(encoding="utf-8")
    with pytest.raises(UsageError, match=r"-o .*: name a file that can be written"):
        write([clean()], path / "inside.html")
    with pytest.raises(UsageError, match=r"-o .*: name a file that can be written"):
        write([clean()], tmp_path)
