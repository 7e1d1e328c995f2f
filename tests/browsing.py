"""A browser for the tests of pages.

Chromium, or Chrome, is the system's own (`apt-get install chromium`). Without playwright these tests are skipped, for
`tox -e page` has it; without a browser they fail.
"""

import shutil
from collections.abc import Iterator
from typing import Any

import pytest

playwright = pytest.importorskip("playwright.sync_api")
axe = pytest.importorskip("axe_playwright_python.sync_playwright")
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
FLAGS = ["--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
WIDTHS = {"wide": 1400, "phone": 390, "at 200% zoom": 640}


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    assert CHROMIUM, "there is no Chromium: apt-get install chromium"
    with playwright.sync_playwright() as started:
        launched = started.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield launched
        launched.close()


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    """A page that must neither say anything on the console nor ask for anything that is not on disk."""
    context = browser.new_context(viewport={"width": 1400, "height": 900})
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    made, said = context.new_page(), []
    made.on("console", lambda message: said.append(message.text))
    made.on("pageerror", lambda error: said.append(str(error)))
    made.on(
        "request", lambda request: said.append(request.url) if not request.url.startswith(("file:", "data:")) else 0
    )
    yield made
    context.close()
    assert said == []


def serious(page: Any) -> list[tuple[str, str]]:
    """What axe finds that keeps people out, with where."""
    found = axe.Axe().run(page).response["violations"]
    return [(one["id"], one["nodes"][0]["html"][:200]) for one in found if one["impact"] in ("serious", "critical")]


def opened(page: Any, address: str, part: str = "") -> Any:
    page.goto("about:blank")
    page.goto(address + part)
    page.wait_for_selector("html[data-rendered]")
    return page
