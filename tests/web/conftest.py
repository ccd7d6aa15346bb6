"""Daemons that serve the page as its sources are now, and browsers that look at it. Where something for that is missing, the
tests say so and are skipped.

All tests here share their worker's browser, so they share an event loop too.
"""

import os
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio
from tests.conformance.daemons import ManagedDaemon
from tests.conftest import StartDaemon
from tests.relay.stage import DaemonView, RelayNetwork
from tests.relay.stage import unique_name as unique_name
from tests.web import building
from tests.web.house import ApiUser

if TYPE_CHECKING:
    from playwright.async_api import Browser
    from tests.web.visiting import BrowserWindow

OpenWindow = Callable[..., Awaitable["BrowserWindow"]]
Picture = Callable[["BrowserWindow", str], Awaitable[None]]

PICTURES = Path(__file__).parents[2] / "docs" / "images"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
LARGEST_PICTURE = 150_000


def _find_browser() -> str | None:
    return next((found for name in BROWSERS if (found := shutil.which(name))), None)


def _explain_missing_browser() -> str | None:
    return "there is no Chromium" if _find_browser() is None else None


@pytest.fixture(scope="session")
def page_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if reason := building.find_missing_tool() or _explain_missing_browser():
        pytest.skip(reason)
    own = tmp_path_factory.getbasetemp()
    return building.build_page(own.parent if "PYTEST_XDIST_WORKER" in os.environ else own)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator["Browser"]:
    api = pytest.importorskip("playwright.async_api", reason="Playwright is not installed")
    if reason := _explain_missing_browser():
        pytest.skip(reason)
    async with api.async_playwright() as playwright:
        launched = await playwright.chromium.launch(executable_path=_find_browser(), args=["--no-sandbox"])
        yield launched
        await launched.close()


@pytest.fixture
def daemon(page_folder: Path, start_daemon: StartDaemon) -> ManagedDaemon:
    """One that other tests use too: what is asked of it goes by sessions of one's own."""
    return start_daemon(web_dir=page_folder, host_id="host_here", host_name="here", new_hosts="trust")


@pytest_asyncio.fixture(loop_scope="session")
async def api_user(daemon: ManagedDaemon) -> AsyncIterator[ApiUser]:
    async with ApiUser(daemon) as made:
        yield made


@pytest_asyncio.fixture(loop_scope="session")
async def make_api_user() -> AsyncIterator[Callable[[ManagedDaemon], Awaitable[ApiUser]]]:
    """Someone who works on a daemon that the test has started itself."""
    async with AsyncExitStack() as stack:

        async def enter(daemon: ManagedDaemon) -> ApiUser:
            return await stack.enter_async_context(ApiUser(daemon))

        yield enter


@pytest_asyncio.fixture(loop_scope="session")
async def open_browser_window(browser: "Browser") -> AsyncIterator[OpenWindow]:
    """`open_window(daemon)`: a browser at its door. When the test ends, all that was wrong in it comes to light."""
    from tests.web.visiting import BrowserWindow

    async with AsyncExitStack() as stack:

        async def open_one(at: ManagedDaemon | DaemonView, *, url: str | None = None, **options: Any) -> BrowserWindow:
            address = url or (at.http if isinstance(at, ManagedDaemon) else at.url)
            window = await BrowserWindow.open(browser, address, at.token, **options)
            stack.push_async_callback(window.close)
            return window

        yield open_one


@pytest_asyncio.fixture(loop_scope="session")
async def browser_window(open_browser_window: OpenWindow, daemon: ManagedDaemon) -> "BrowserWindow":
    """The owner's, on the list of sessions."""
    return await (await open_browser_window(daemon)).log_in_as_owner()


@pytest_asyncio.fixture(loop_scope="session")
async def relay_network() -> AsyncIterator[RelayNetwork]:
    made = RelayNetwork()
    try:
        yield made
    finally:
        await made.close()


@pytest.fixture
def save_picture() -> Picture:
    """`picture(window, "page-inbox")` draws it for the documentation, when `DRAW=1` wants that."""

    async def draw(window: "BrowserWindow", name: str) -> None:
        if os.environ.get("DRAW") != "1":
            return
        PICTURES.mkdir(exist_ok=True)
        file = PICTURES / f"{name}.png"
        await window.draw(file)
        assert file.stat().st_size < LARGEST_PICTURE, "a picture for the documentation stays small"

    return draw
