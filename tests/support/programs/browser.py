"""Debian's Chromium, driven by Playwright; one context for each test."""

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Page,
    ViewportSize,
    async_playwright,
    expect,
)

from dev.cluster import LocalClusterError, Progress
from dev.cluster.requirements import install_packages
from tests.support.programs.dashboard import Dashboard

__all__ = [
    "SIZE",
    "Visitor",
    "chromium",
    "launched",
    "overflow",
    "violations",
    "visiting",
    "visitor",
]

PROGRAM = "/usr/bin/chromium"
SIZE = ViewportSize(width=1200, height=900)
AXE = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]}
LEAST_RULES = 15
"""Rules that apply to every page, at least."""

# What a page shows in the end is awaited; five seconds, the usual, are a matter of the machine.
expect.set_options(timeout=30_000)


@dataclass
class Visitor:
    """Somebody with a real browser, and what its console has said."""

    dashboard: Dashboard
    """The dashboard."""
    context: BrowserContext
    """The context: cookies and settings of its own."""
    page: Page
    """Its first page."""
    may_be_cut_off: bool = False
    """Whether the test stops the facade, so that requests may fail."""
    complaints: list[str] = field(default_factory=list)
    """Errors and violations of the page's policy."""

    async def sign_in(self, user: str) -> None:
        """Sign in by a link."""
        await self.open(self.dashboard.link(user))
        await self.page.get_by_role("button", name="Sign in").click()
        await self.page.wait_for_url(lambda address: "/session/once/" not in address)

    async def open(self, path: str) -> None:
        """Open a page of the dashboard."""
        await self.page.goto(self.dashboard.address + path)

    def note(self, message: ConsoleMessage) -> None:
        """Note what the console says, but not that a page has the status of an error."""
        expected = message.text.startswith("Failed to load resource: the server responded")
        cut_off = self.may_be_cut_off and "net::ERR_" in message.text
        if message.type in {"error", "warning"} and not (expected or cut_off):
            self.complaints.append(message.text)


@contextlib.asynccontextmanager
async def launched() -> AsyncIterator[Browser]:
    """Run a browser; no test waits for another one's."""
    async with async_playwright() as player:
        # Tests run as root, where Chromium's own sandbox does not start.
        browser = await player.chromium.launch(executable_path=PROGRAM, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            await browser.close()


@pytest.fixture(scope="session")
def chromium() -> None:
    """Have Chromium; where it is missing and cannot be installed, skip and say so."""
    try:
        install_packages(["browser"], Progress())
    except LocalClusterError as error:
        pytest.skip(str(error))


@contextlib.asynccontextmanager
async def visiting(dashboard: Dashboard, *, axe: bool) -> AsyncIterator[Visitor]:
    """Provide a visitor who is not signed in; an error in the console fails the test.

    Parameters
    ----------
    axe
        Whether axe is to run: it does so by evaluating its text, which the page's own policy would
        refuse, so that the browser then ignores that.
    """
    async with launched() as browser:
        context = await browser.new_context(viewport=SIZE, bypass_csp=axe)
        page = await context.new_page()
        found = Visitor(dashboard, context, page)
        page.on("console", found.note)
        yield found
        assert not found.complaints


@pytest.fixture
async def visitor(chromium: None, dashboard: Dashboard) -> AsyncIterator[Visitor]:
    """Provide a visitor who is not signed in; an error in the console fails the test."""
    async with visiting(dashboard, axe=True) as found:
        yield found


async def violations(visitor: Visitor) -> list[str]:
    """Return what axe finds on the present page."""
    found = await Axe().run(visitor.page, options=AXE)
    passed = len(found.response["passes"])
    assert passed >= LEAST_RULES, f"axe applied only {passed} rules to {visitor.page.url}"
    return [
        f"{each['id']}: {[node['html'] for node in each['nodes']]}"
        for each in found.response["violations"]
    ]


async def overflow(visitor: Visitor) -> int:
    """Return how many pixels the page is too wide."""
    found = await visitor.page.evaluate(
        "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"
    )
    return int(found)
