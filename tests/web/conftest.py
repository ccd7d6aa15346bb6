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
from tests.conformance.daemons import Daemon
from tests.conftest import StartDaemon
from tests.relay.stage import Place, Stage
from tests.relay.stage import unique as unique
from tests.web import building
from tests.web.house import House

if TYPE_CHECKING:
    from playwright.async_api import Browser
    from tests.web.visiting import Window

OpenWindow = Callable[..., Awaitable["Window"]]
Picture = Callable[["Window", str], Awaitable[None]]

PICTURES = Path(__file__).parents[2] / "docs" / "images"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
LARGEST_PICTURE = 150_000


def _program() -> str | None:
    return next((found for name in BROWSERS if (found := shutil.which(name))), None)


def _no_browser() -> str | None:
    return "there is no Chromium" if _program() is None else None


@pytest.fixture(scope="session")
def page_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if reason := building.missing() or _no_browser():
        pytest.skip(reason)
    own = tmp_path_factory.getbasetemp()
    return building.built(own.parent if "PYTEST_XDIST_WORKER" in os.environ else own)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator["Browser"]:
    api = pytest.importorskip("playwright.async_api", reason="Playwright is not installed")
    if reason := _no_browser():
        pytest.skip(reason)
    async with api.async_playwright() as playwright:
        launched = await playwright.chromium.launch(executable_path=_program(), args=["--no-sandbox"])
        yield launched
        await launched.close()


@pytest.fixture
def daemon(page_folder: Path, start_daemon: StartDaemon) -> Daemon:
    """One that other tests use too: what is asked of it goes by sessions of one's own."""
    return start_daemon(web_dir=page_folder, host_id="host_here", host_name="here", new_hosts="trust")


@pytest_asyncio.fixture(loop_scope="session")
async def house(daemon: Daemon) -> AsyncIterator[House]:
    async with House(daemon) as made:
        yield made


@pytest_asyncio.fixture(loop_scope="session")
async def enter_house() -> AsyncIterator[Callable[[Daemon], Awaitable[House]]]:
    """Someone who works on a daemon that the test has started itself."""
    async with AsyncExitStack() as stack:

        async def enter(daemon: Daemon) -> House:
            return await stack.enter_async_context(House(daemon))

        yield enter


@pytest_asyncio.fixture(loop_scope="session")
async def open_window(browser: "Browser") -> AsyncIterator[OpenWindow]:
    """`open_window(daemon)`: a browser at its door. When the test ends, all that was wrong in it comes to light."""
    from tests.web.visiting import Window

    async with AsyncExitStack() as stack:

        async def open_one(at: Daemon | Place, *, url: str | None = None, **options: Any) -> Window:
            address = url or (at.http if isinstance(at, Daemon) else at.url)
            window = await Window.open(browser, address, at.token, **options)
            stack.push_async_callback(window.close)
            return window

        yield open_one


@pytest_asyncio.fixture(loop_scope="session")
async def window(open_window: OpenWindow, daemon: Daemon) -> "Window":
    """The owner's, on the list of sessions."""
    return await (await open_window(daemon)).come_in()


@pytest_asyncio.fixture(loop_scope="session")
async def stage() -> AsyncIterator[Stage]:
    made = Stage()
    try:
        yield made
    finally:
        await made.close()


@pytest.fixture
def picture() -> Picture:
    """`picture(window, "page-inbox")` draws it for the documentation, when `DRAW=1` wants that."""

    async def draw(window: "Window", name: str) -> None:
        if os.environ.get("DRAW") != "1":
            return
        PICTURES.mkdir(exist_ok=True)
        file = PICTURES / f"{name}.png"
        await window.draw(file)
        assert file.stat().st_size < LARGEST_PICTURE, "a picture for the documentation stays small"

    return draw
