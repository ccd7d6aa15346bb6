"""A person at a real browser. Whatever a window is used for, it is watched: a script that fails, a policy that is broken, a
dialog that pops up or a request to elsewhere fails the test that opened it."""

import contextlib
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import pytest

api = pytest.importorskip("playwright.async_api", reason="Playwright is not installed")

from playwright.async_api import Browser, BrowserContext, ConsoleMessage, Locator, Page, Request, WebSocket, expect  # noqa: E402

TIMEOUT = 60.0
DESKTOP = (1440, 900)
PHONE = (390, 844)

POLICY = {
    *("default-src 'self'", "script-src 'self'", "style-src 'self'", "img-src 'self' data:", "connect-src 'self'"),
    *("font-src 'self'", "frame-ancestors 'none'", "base-uri 'none'", "object-src 'none'", "form-action 'self'"),
}

_TELL_VIOLATIONS = """
document.addEventListener("securitypolicyviolation", (event) =>
  window.__tellViolation(`${event.effectiveDirective} ${event.blockedURI} ${event.sourceFile}:${event.lineNumber}`));
"""
# Code, tables and terminals may scroll sideways in boxes of their own; nothing that fills the screen may.
_SIDEWAYS = """() => [document.documentElement, ...document.querySelectorAll("body *")].filter((element) =>
  element.scrollWidth > element.clientWidth + 1 && element.clientHeight > innerHeight / 2 && !element.closest(".xterm") &&
  (element === document.documentElement || ["auto", "scroll"].includes(getComputedStyle(element).overflowX)),
).map((element) => `${element.tagName} ${element.className} ${element.scrollWidth} > ${element.clientWidth}`)"""

expect.set_options(timeout=TIMEOUT * 1_000)


class BrowserWindow:
    """One page in a browser profile of its own."""

    def __init__(self, context: BrowserContext, page: Page, url: str, token: str) -> None:
        self.context = context
        self.page = page
        self.url = url
        self._token = token
        self.problems: list[str] = []
        """What no window may ever show."""

    @classmethod
    async def open(
        cls, browser: Browser, url: str, token: str, *, size: tuple[int, int] = DESKTOP, dark: bool = False, **options: Any
    ) -> "BrowserWindow":
        """Somebody at the door, who has not come in yet."""
        is_phone = size[0] < 760
        context = await browser.new_context(
            base_url=url,
            viewport={"width": size[0], "height": size[1]},
            color_scheme="dark" if dark else "light",
            is_mobile=is_phone,
            has_touch=is_phone,
            locale="en-GB",
            timezone_id="UTC",
            reduced_motion="reduce",
            **options,
        )
        context.set_default_timeout(TIMEOUT * 1_000)
        page = await context.new_page()
        window = cls(context, page, url, token)
        await window._watch()
        return window

    async def _watch(self) -> None:
        await self.context.expose_function("__tellViolation", lambda told: self.problems.append(f"policy: {told}"))
        await self.context.add_init_script(_TELL_VIOLATIONS)
        self.page.on("console", self._on_console_message)
        self.page.on("pageerror", lambda error: self.problems.append(f"script: {error}"))
        self.page.on("request", self._on_request)
        self.page.on("websocket", self._on_websocket)

    def _on_console_message(self, message: ConsoleMessage) -> None:
        if "Content Security Policy" in message.text or message.text.startswith("Refused to"):
            self.problems.append(f"console: {message.text}")

    def _on_request(self, request: Request) -> None:
        address = urlsplit(request.url)
        if address.scheme not in ("data", "blob") and address.netloc != urlsplit(self.url).netloc:
            self.problems.append(f"request: {request.url[:200]}")

    def _on_websocket(self, socket: WebSocket) -> None:
        if urlsplit(socket.url).netloc != urlsplit(self.url).netloc:
            self.problems.append(f"socket: {socket.url[:200]}")

    def forbid_dialogs(self) -> None:
        """The page itself asks for a title by one; nowhere else is one wanted."""

        async def popped_up(dialog: Any) -> None:
            self.problems.append(f"dialog: {dialog.message}")
            await dialog.dismiss()

        self.page.on("dialog", popped_up)

    async def close(self) -> None:
        """Fails with all that was wrong since it was opened."""
        with contextlib.suppress(api.Error):  # of a page that is gone there is nothing to ask
            if (ran := await self.page.evaluate("() => window.__xss ?? null")) is not None:
                self.problems.append(f"ran: {ran}")
        await self.context.close()
        assert self.problems == []

    # Where somebody goes

    async def open_page(self, path: str = "/") -> None:
        """The page as the daemon gives it, with the policy that it always has."""
        answer = await self.page.goto(path)
        assert answer is not None
        said = {part.strip() for part in answer.headers["content-security-policy"].split(";")}
        assert said == POLICY

    async def log_in_as_owner(self, place: str = "#/") -> "BrowserWindow":
        """As the owner."""
        await self.open_page(f"/?token={self._token}")
        await expect(self.page.get_by_role("navigation", name="Main")).to_be_attached()
        await self.navigate(place)
        return self

    async def navigate(self, place: str) -> None:
        await self.page.evaluate("place => { location.hash = place }", place)

    async def open_run(self, run_id: str, view: str = "") -> None:
        await self.navigate(f"#/s/{quote(run_id, safe='')}{view and '/' + view}")

    # What is in sight

    def find_part(self, name: str, **having: Any) -> Locator:
        """By the name that the page gives a part for who tests it."""
        found = self.page.get_by_test_id(name)
        return found.filter(**having) if having else found

    def find_button(self, name: str) -> Locator:
        return self.page.get_by_role("button", name=name, exact=True)

    def find_row(self, run_id: str) -> Locator:
        return self.page.locator(f'[data-testid="session-row"][data-run="{run_id}"]')

    @property
    def terminal_text(self) -> Locator:
        return self.find_part("terminal").locator(".xterm-rows")

    async def type(self, text: str) -> None:
        """Into the terminal, once it is there to hear it."""
        await self.find_part("terminal").click()
        await expect(self.page.get_by_text("Connecting …")).to_have_count(0)
        await self.page.keyboard.type(text)

    async def wait_for_text(self, text: str) -> None:
        await expect(self.find_part("assistant-message", has_text=text).first).to_be_visible()

    async def send_text(self, text: str) -> None:
        await self.find_part("composer").fill(text)
        await self.find_part("send").click()

    async def find_horizontal_overflow(self) -> list[str]:
        """What does, of all that fills most of the window."""
        found: list[str] = await self.page.evaluate(_SIDEWAYS)
        return found

    async def draw(self, file: Path) -> None:
        await self.page.evaluate("() => document.fonts.ready")
        await self.page.screenshot(path=file, animations="disabled", caret="hide")
