"""A real browser, Debian's Chromium, before the real page of the demo.

The fixtures live no longer than their module: while Playwright's synchronous API is in use, its
event loop runs in this thread, and nothing else can run one.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect, sync_playwright

from tests.browser.dagster_ui import HEIGHT, MILLISECONDS, WIDTH, Complaints, DagsterUI
from tests.browser.demo_site import DemoSite, demo_site

CHROMIUM = Path("/usr/bin/chromium")
SCREENSHOTS_VARIABLE = "SHARDLINE_SCREENSHOTS"
_FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(scope="module")
def browser_page() -> Iterator[Page]:
    """An empty page of a browser that knows nobody."""
    if not CHROMIUM.exists():
        pytest.skip(f"{CHROMIUM} is not there: apt-get install chromium")
    expect.set_options(timeout=MILLISECONDS)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=_FLAGS)
        context = browser.new_context(
            viewport={"width": WIDTH, "height": HEIGHT}, locale="en-US", reduced_motion="reduce"
        )
        context.set_default_timeout(MILLISECONDS)
        yield context.new_page()
        browser.close()


@pytest.fixture(scope="module")
def site(browser_page: Page, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DemoSite]:
    """The demo's page, started only where there is a browser for it."""
    del browser_page
    with demo_site(tmp_path_factory.mktemp("digits", numbered=False)) as started:
        yield started


@pytest.fixture(scope="module")
def complaints(browser_page: Page, site: DemoSite) -> Complaints:
    """All that the browser has to complain of."""
    made = Complaints(site.web.origin)
    made.listen(browser_page)
    return made


@pytest.fixture(scope="module")
def ui(browser_page: Page, site: DemoSite, complaints: Complaints) -> DagsterUI:
    """The browser before the page."""
    del complaints
    wanted = os.environ.get(SCREENSHOTS_VARIABLE)
    folder = Path(wanted) if wanted else None
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    return DagsterUI(browser_page, site.web.origin, folder)
