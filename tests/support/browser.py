"""Debian's Chromium by Playwright, looking at a view."""

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from axe_playwright_python.base import AXE_FILE_PATH
from playwright.async_api import Browser, BrowserContext, Page, async_playwright

from support.missing import skip_or_fail
from support.view import Served

PHONE, DESK = {"width": 420, "height": 900}, {"width": 1280, "height": 900}
PATIENCE_MS = 30_000
"""How long a page may take on a slow machine."""


@asynccontextmanager
async def chromium() -> AsyncIterator[Browser]:
    """The browser."""
    path = shutil.which("chromium")
    if path is None:
        skip_or_fail("there is no Chromium: install Debian's package chromium")
    async with async_playwright() as playwright:
        # It is root's own process, and shows pages of this machine.
        browser = await playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            await browser.close()


class Looker:
    """One browser page, which notes everything that the browser complains about."""

    def __init__(self, page: Page, view: Served) -> None:
        self.page = page
        self.view = view
        self.complaints: list[str] = []
        page.on("console", lambda message: self._note(message.type, message.text))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("dialog", lambda dialog: self.complaints.append(dialog.message))
        page.set_default_timeout(PATIENCE_MS)

    def _note(self, type: str, text: str) -> None:
        if type in ("error", "warning"):
            self.complaints.append(text)

    async def go(self, path: str = "/") -> int:
        """The status of a page, opened as by a link that was kept."""
        answer = await self.page.goto(self.view.site + path)
        assert answer is not None
        return answer.status

    async def text(self) -> str:
        """What the page says."""
        return await self.page.inner_text("body")

    async def expect(self, text: str) -> None:
        """Wait for a text."""
        await self.page.get_by_text(text).first.wait_for(state="visible")

    async def width_past_screen(self) -> int:
        """How many pixels the page is wider than the screen."""
        return await self.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")

    async def findings(self) -> list[str]:
        """What axe finds, by rule, with the first element."""
        await self.page.evaluate(AXE_FILE_PATH.read_text(encoding="utf-8"))
        found = await self.page.evaluate("axe.run().then(results => results.violations)")
        return [
            f"{rule['id']}: {rule['nodes'][0]['html'][:200]} {rule['nodes'][0].get('failureSummary', '')}"
            for rule in found
        ]


@asynccontextmanager
async def looking(
    browser: Browser, view: Served, *, size: dict[str, int] = DESK, theme: str = "light"
) -> AsyncIterator[Looker]:
    """A browser of its own that has opened the address."""
    context: BrowserContext = await browser.new_context(viewport=size, color_scheme=theme)  # type: ignore[arg-type]
    try:
        looker = Looker(await context.new_page(), view)
        await looker.page.goto(view.address)
        yield looker
    finally:
        await context.close()
