"""A browser for the tests of pages.

The browser is the system's Chromium or Chrome (`apt-get install chromium`). Without playwright, which `tox -e page` installs,
these tests are skipped; without a browser they fail.
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
    """A page that must not write to the console, raise an error, or request anything but files and data URLs."""
    context = browser.new_context(viewport={"width": 1400, "height": 900})
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    tab, messages = context.new_page(), []
    tab.on("console", lambda message: messages.append(message.text))
    tab.on("pageerror", lambda error: messages.append(str(error)))
    tab.on(
        "request", lambda request: messages.append(request.url) if not request.url.startswith(("file:", "data:")) else 0
    )
    yield tab
    context.close()
    assert messages == []


def serious(page: Any) -> list[tuple[str, str]]:
    """The serious and critical violations that axe finds: their ids, each with the HTML of its first node."""
    violations = axe.Axe().run(page).response["violations"]
    return [
        (violation["id"], violation["nodes"][0]["html"][:200])
        for violation in violations
        if violation["impact"] in ("serious", "critical")
    ]


def opened(page: Any, address: str, part: str = "") -> Any:
    """The page after it has loaded an address, with its fragment `part`, and rendered."""
    page.goto("about:blank")
    page.goto(address + part)
    page.wait_for_selector("html[data-rendered]")
    return page
