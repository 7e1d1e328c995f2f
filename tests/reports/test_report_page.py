"""The report in a browser, opened from disk: filters, runs, copying, no requests to other hosts, and accessibility."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from browsing import WIDTHS, opened, serious
from invocation import HOSTILE, LEDGER, details_of, offsets, row, write, wrong

from conformance.reports.html import PAGES
from conformance.reports.html import write as write_report
from conformance.reports.load import Report
from conformance.results.findings import detail_of
from conformance.results.findings.values import OutputShape
from conformance.results.in_use import SHRUNK, read

pytest_plugins = ["browsing"]
MANY = 50_000

LINEAR = row("nn.Linear", fails=["numerics"], known="linear-is-off")
LINEAR_X86 = row(
    "nn.Linear", engine="x86", variant="option", form="an option", fails=["numerics"], known="linear-is-off"
)


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The address of a report of two environments, with a constraint, a crash, and hostile texts."""
    folder = tmp_path_factory.mktemp("report")
    (folder / "known.toml").write_text(LEDGER)
    name = HOSTILE.replace("/", "╱")
    hostile = row(name, variant=name, fails=["numerics"], message=HOSTILE, kernels=(HOSTILE,))
    constraint = row(
        "F.linear",
        variant="weight.quant_min_lower_bound",
        profile="constraints",
        checks={"observed": "pass", "constraints": "fail"},
        verdict="deviates",
        findings=(wrong("constraints"),),
        detail=detail_of([wrong("constraints")]),
    )
    rows = [row("nn.ReLU"), LINEAR, row("nn.GRU", verdict="crashes"), hostile, constraint]
    details = [details_of(LINEAR, offsets(0, 4, -2, 1)), details_of(hostile, offsets(1), text=HOSTILE)]
    x86 = write(folder / "one.jsonl", rows, details=details)
    arm = write(folder / "other.jsonl", [row("nn.ReLU", fails=["stable"]), row("nn.ELU")], {"arch": "aarch64"})
    return write_report(Report([x86, arm], [folder]), folder / "out").as_uri()


def cells(page: Any) -> list[str]:
    return [text.strip() for text in page.locator("#map button.cell").all_inner_texts()]


def test_the_first_screen_counts_claims(page: Any, report: str) -> None:
    opened(page, report)
    cards = page.locator(".card").all_inner_texts()
    assert len(cards) == 2
    assert ["claims work in default use" in card for card in cards] == [True, True]
    assert "1 of 5 claims work in default use, 1 in every form." in cards[1]


def test_the_first_screen_has_what_matters_first(page: Any, report: str) -> None:
    opened(page, report)
    new = page.locator("#causes li").all_inner_texts()
    assert new[0].startswith("crashes or corrupts memory: fbgemm/nn.GRU/static-quint8")
    assert len(new) == page.locator("#causes a").count() == 4
    assert page.locator(".lead a[href^=findings]").inner_text() == "Linear is off"
    worst = page.locator(".worst:not(#causes) li").first.inner_text()
    assert worst.startswith("Linear is off")
    assert "refuses (execute)" in worst
    page.locator(".worst:not(#causes) a").first.click()
    assert page.url.endswith("findings.html#linear-is-off")


def test_findings_are_filtered_and_the_address_remembers(page: Any, report: str) -> None:
    page.goto(report.replace("index.html", "findings.html"))
    assert page.inner_text("#matching") == "1 of 1 findings"
    page.select_option("[name=severity]", "wrong")
    assert page.inner_text("#matching") == "0 of 1 findings"
    assert not page.is_visible("#linear-is-off")
    assert "severity=wrong" in page.url
    page.reload()
    assert page.inner_text("#matching") == "0 of 1 findings"
    page.click("button[type=reset]")
    page.wait_for_function("document.getElementById('matching').textContent === '1 of 1 findings'")
    page.fill("[name=q]", "kernel is off")
    assert page.is_visible("#linear-is-off")


def test_the_support_table_is_filtered_by_operator_family_and_status(page: Any, report: str) -> None:
    page.goto(report.replace("index.html", "support.html"))
    total = page.locator(".support tbody tr:not([data-heading])").count()
    page.fill("[name=q]", "nn.Linear")
    assert page.inner_text("#matching") == f"1 of {total} claims"
    assert page.locator("details.group[open] > summary:visible h2").all_inner_texts() == ["Linear 2"]
    assert page.locator(".support .level a").first.get_attribute("href") == "findings.html#linear-is-off"
    page.fill("[name=q]", "")
    page.select_option("[name=statuses]", "crashes")
    assert "nn.GRU" in page.locator(".support tbody tr:visible").all_inner_texts()[0]


@pytest.fixture(scope="module")
def used(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The address of a report whose finding shows in a layer of resnet50 on fbgemm, and not on x86."""
    folder = tmp_path_factory.mktemp("used")
    (folder / "known.toml").write_text(LEDGER.replace('engine = "fbgemm", ', ""))
    layer = next(
        one for one in read(SHRUNK) if one.pattern == "nn.Linear" and one.variant and "resnet50" in one.networks
    )
    in_use = row("nn.Linear", variant=layer.variant, profile="in_use", fails=["numerics"], known="linear-is-off")
    rows = [
        row("nn.Linear"),
        in_use,
        row("nn.Linear", variant=layer.variant, profile="in_use", engine="x86"),
        LINEAR_X86,
    ]
    return write_report(Report([write(folder / "rows.jsonl", rows)], [folder]), folder / "out").as_uri()


def test_the_first_screen_has_shares_of_layers(page: Any, used: str) -> None:
    opened(page, used)
    share = page.locator("#use ~ .shares li").first
    assert "right in integers" in share.inner_text()
    assert share.locator(".bar rect").count() > 1
    page.fill("[list=known-networks]", "ResNet-50")  # found as people write it, and before networks that contain it
    page.click("form[action] button")
    assert page.inner_text("#matching").endswith(" of 140 networks")
    assert 1 < page.locator("tbody tr:visible").count() < 10
    assert page.locator("tbody tr:visible th").first.inner_text() == "resnet50"
    refused = page.locator("tbody tr:visible", has=page.get_by_role("rowheader", name="resnet50", exact=True))
    refused = refused.locator("a.fate-refused")
    assert refused.count() == 1
    refused.click()
    assert page.locator("article.finding:not(.news):visible").count() == 1
    assert "networks=resnet50" in page.url
    assert "engines=fbgemm" in page.url


def test_only_what_a_finding_explains_is_a_link(page: Any, used: str) -> None:
    page.goto(used.replace("index.html", "networks.html"))
    cells = page.locator("tbody .cell")
    assert cells.count() > page.locator("tbody a.cell").count() > 0
    assert page.locator("tbody a:is(.fate-right, .fate-unclaimed, .fate-untried)").count() == 0


def test_findings_are_those_of_a_network_on_an_engine(page: Any, used: str) -> None:
    page.goto(used.replace("index.html", "findings.html"))
    page.select_option("[name=networks]", "resnet50")
    assert page.inner_text("#matching") == "1 of 1 findings"
    page.select_option("[name=engines]", "x86")  # shows the finding, but not in this network
    assert (
        page.inner_text("#matching")
        == "0 of 1 findings: none is known to show in layers of resnet50 on x86, each run alone"
    )
    page.select_option("[name=engines]", "fbgemm")
    assert page.inner_text("#matching") == "1 of 1 findings"
    page.select_option("[name=networks]", "edsr")
    assert page.inner_text("#matching").startswith("0 of 1 findings: none")
    assert page.locator("[data-unfiltered]:visible").count() == 0


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"layers": [{"faults": [{"cause": "linear-is-off"}]}]}', "1 of 1 findings"),
        ('{"layers": [{"foretold": [{"cause": "another"}]}]}', "0 of 1 findings"),
        ("[1, 2", "network.json is no JSON of an audit or a prediction"),
        ('{"rows": []}', "network.json is no JSON of an audit or a prediction (no layers)"),
    ],
)
def test_findings_are_those_of_the_json_of_an_audit(page: Any, used: str, text: str, expected: str) -> None:
    page.goto(used.replace("index.html", "findings.html"))
    file = {"name": "network.json", "mimeType": "application/json", "buffer": text.encode()}
    page.set_input_files("[name=file]", file)
    page.locator("#matching", has_text=expected).wait_for()
    page.click("button[type=reset]")
    page.locator("#matching", has_text="1 of 1 findings").wait_for()


def test_a_link_to_a_finding_unfolds_it(page: Any, used: str) -> None:
    page.goto(used.replace("index.html", "findings.html#linear-is-off"))
    assert page.is_visible("#linear-is-off .terms")


def test_pages_are_folded_on_a_phone(page: Any, used: str) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    for name in ("index", "findings", "networks", "support"):
        page.goto(used.replace("index.html", f"{name}.html"))
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        assert page.evaluate("document.documentElement.scrollHeight") <= 12 * 844
    page.fill("[name=q]", "nn.Linear")
    for cell in page.locator("td:visible").all():  # beside one another, engines would be off the screen
        assert 0 <= cell.bounding_box()["x"] <= 390 - cell.bounding_box()["width"]
    assert page.locator("td:visible").count() > 1


@pytest.mark.parametrize(
    ("choose", "kept"),
    [
        (lambda page: page.fill("[name=q]", "gru"), ["‼ 1/1 new"]),
        (lambda page: page.fill("[name=q]", "LINEAR-is"), ["✗ 1/1"]),
        (lambda page: page.select_option("[name=family]", label="recurrent"), ["‼ 1/1 new"]),
        (lambda page: page.select_option("[name=check]", "stable"), ["✗ 1/1 new"]),
        (lambda page: page.select_option("[name=verdict]", "conforms"), ["✓ 1", "✓ 1"]),
        (lambda page: page.check("[name=differences]"), ["✗ 1/1 new", "✓ 1"]),
        (lambda page: page.fill("[name=q]", "nothing like it"), []),
    ],
)
def test_filters_narrow_the_map(choose: Any, kept: list[str], page: Any, report: str) -> None:
    opened(page, report)
    before = page.get_attribute("html", "data-rendered")
    choose(page)
    page.wait_for_function("before => document.documentElement.dataset.rendered !== before", arg=before)
    assert sorted(cells(page)) == sorted(kept)
    if not kept:
        assert "nothing matches" in page.inner_text("#matching")


def test_a_run_opens_by_keyboard_and_shows_its_diagnostics(page: Any, report: str) -> None:
    opened(page, report, "#q=linear-is-off")
    page.locator("#map button.cell").focus()
    page.keyboard.press("Enter")
    page.wait_for_selector("#run-body h3")
    text = page.inner_text("#run-body")
    for sentence in (
        "Linear is off",
        "pytorch/pytorch#1",
        "✗ numerics: fail",
        "3 of 8 elements are off, by -2 to 4",
        "quantized.relu",
    ):
        assert sentence in text
    page.wait_for_selector("#run-body canvas")
    assert page.locator("#run-body canvas").count() == 2
    page.locator("summary", has_text="lowered model").click()
    assert "return x" in page.inner_text("#run-body")
    page.keyboard.press("Escape")
    assert page.evaluate("document.activeElement.matches('button.cell')")


def test_a_reproduction_is_copied(page: Any, report: str) -> None:
    opened(page, report, f"#run={LINEAR.id}")
    page.locator("button.copy").first.click()
    page.wait_for_selector("text=Copied.")
    assert page.evaluate("navigator.clipboard.readText()") == "print('DEVIATES')\n"


def test_arrows_move_between_cells(page: Any, report: str) -> None:
    opened(page, report, "#differences=1")
    focused = "document.activeElement.innerText"
    page.locator("#map button.cell").first.focus()
    before = page.evaluate(focused)
    page.keyboard.press("ArrowRight")
    assert {before, page.evaluate(focused)} == {"✓ 1", "✗ 1/1 new"}
    page.keyboard.press("ArrowLeft")
    assert page.evaluate(focused) == before


def test_hostile_texts_are_shown_and_inert(page: Any, report: str) -> None:
    opened(page, report, "#q=example.invalid")
    page.locator("#map button.cell").click()
    page.wait_for_selector("#run-body h3")
    assert "<img src=x" in page.inner_text("#run-body")
    assert page.locator("#run-body img").count() == 0
    assert "owned" not in page.title()


def test_every_page_opens_from_disk(page: Any, report: str) -> None:
    for name in PAGES:
        page.goto(report.replace("index.html", f"{name}.html"))
        assert page.locator("h1").count() == 1
        assert "owned" not in page.title()


def test_the_claims_that_pt2e_loses_are_filtered(page: Any, report: str) -> None:
    page.goto(report.replace("index.html", "migration.html"))
    shown = "tbody tr[data-family]:not([data-heading]):visible"
    every = page.locator(shown).count()
    page.select_option("[name=outcomes]", "refuses")
    lost = page.locator(shown).all_inner_texts()
    assert 0 < len(lost) < every
    assert all("lost: refuses" in text for text in lost)
    heads = [" ".join(text.split()) for text in page.locator("table.support thead th").all_inner_texts()]
    assert heads[1:] == ["fbgemm on fbgemm", "fbgemm on x86"], "the backend of the report's rows"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_axe_finds_nothing_serious(width: str, scheme: str, browser: Any, report: str) -> None:
    context = browser.new_context(viewport={"width": WIDTHS[width], "height": 800}, color_scheme=scheme)
    page = context.new_page()
    for name in (*PAGES, "run"):
        page.goto("about:blank")
        page.goto(report + f"#run={LINEAR.id}" if name == "run" else report.replace("index.html", f"{name}.html"))
        if name == "run":
            page.wait_for_selector("#run-body canvas")
        assert serious(page) == [], name
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), f"{name} scrolls sideways"
    context.close()


def test_many_rows_stay_responsive(page: Any, tmp_path: Path) -> None:
    patterns = [f"nn.Thing{number}" for number in range(250)]
    environments = [{"isa": f"avx{number}"} for number in range(5)]
    each = MANY // len(patterns) // len(environments)
    paths = []
    for number, header in enumerate(environments):
        rows = [
            row(pattern, variant=f"variant{index}", fails=["numerics"] if (index + number) % 4 == 0 else ())
            for pattern in patterns
            for index in range(each)
        ]
        paths.append(write(tmp_path / f"{number}.jsonl", rows, header))
    loaded = Report(paths, [tmp_path])
    assert len(loaded.results) == MANY
    opened(page, write_report(loaded, tmp_path / "out").as_uri())
    paint = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
    took = page.evaluate(
        """async () => {
            const field = document.querySelector("[name=q]"), times = [];
            for (const text of ["warm up", "thing1", "thing12 variant3", "numerics", "", "variant7"]) {
                const before = document.documentElement.dataset.rendered, start = performance.now();
                field.value = text;
                field.dispatchEvent(new Event("input", { bubbles: true }));
                while (document.documentElement.dataset.rendered === before) await new Promise(requestAnimationFrame);
                await new Promise((shown) => requestAnimationFrame(() => setTimeout(shown)));
                times.push(performance.now() - start);
            }
            return times;
        }"""
    )
    took = took[1:]  # the first one warms up
    print(f"first paint {paint:.0f} ms, filters {[round(milliseconds) for milliseconds in took]} ms")
    assert paint < 2000
    assert sorted(took)[len(took) // 2] < 200


def test_a_plot_of_many_errors_says_how_many_it_has(page: Any, tmp_path: Path) -> None:
    unlisted = replace(LINEAR, known=None)
    path = write(
        tmp_path / "rows.jsonl", [unlisted], details=[details_of(unlisted, offsets(3, 2, differing=2000, total=4000))]
    )
    opened(page, write_report(Report([path], [tmp_path]), tmp_path / "out").as_uri(), f"#run={unlisted.id}")
    page.wait_for_selector("#run-body figure")
    assert "The plot has the 2 that are off furthest; the histogram has all." in page.inner_text("#run-body figcaption")


def test_a_histogram_of_errors_fits_a_phone_and_its_bars_have_their_lengths(page: Any, tmp_path: Path) -> None:
    """Bins end where the errors do."""
    (tmp_path / "known.toml").write_text(LEDGER)
    shape = OutputShape("numerics", 0, (1,), (2,))
    told = {"findings": (shape,), "detail": f"numerics: {shape.text}", "known": "linear-is-off", "steps_max": 60}
    wrong = row("nn.Linear", fails=["numerics"], **told)
    errors = offsets(*[1] * 30, *range(2, 61))
    path = write(tmp_path / "rows.jsonl", [wrong], details=[details_of(wrong, errors)])
    made = write_report(Report([path], [tmp_path]), tmp_path / "out").as_uri()
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(made.replace("index.html", "findings.html#linear-is-off"))
    labels = page.locator(".bars tbody th").all_inner_texts()
    assert (labels[0][:2], labels[-1][-3:]) == ("+1", "+60")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    widths = page.eval_on_selector_all(".bars .length", "bars => bars.map(bar => bar.getBoundingClientRect().width)")
    assert max(widths) > 2 * min(widths) > 0
