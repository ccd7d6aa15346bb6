"""Programs in terminals, typed into from the page."""

import re
from pathlib import Path

import pytest
from tests.conformance.daemons import ManagedDaemon
from tests.web.conftest import OpenWindow
from tests.web.house import ApiUser
from tests.web.visiting import PHONE, BrowserWindow, expect

pytestmark = pytest.mark.asyncio(loop_scope="session")

_SIZE = re.compile(r"^\d+×\d+$")


async def test_what_is_typed_reaches_the_program_and_comes_back(
    api_user: ApiUser, browser_window: BrowserWindow, workspace: Path
) -> None:
    run_id = await api_user.start_program("cat", workspace)
    await browser_window.open_run(run_id)
    await browser_window.type("hello from the page\r")

    # Once by the terminal's echo, once by the program.
    await expect(browser_window.terminal_text).to_have_text(_wait_for_count(2, "hello from the page"))
    await browser_window.page.keyboard.press("Control+d")
    await expect(browser_window.page.get_by_text("The program has ended")).to_be_visible()


async def test_a_program_is_started_on_the_page_and_gets_the_windows_size(browser_window: BrowserWindow, workspace: Path) -> None:
    await browser_window.navigate("#/new")
    await browser_window.page.get_by_text("Program", exact=True).click()
    await browser_window.page.get_by_label("Workspace", exact=True).fill(str(workspace))
    await browser_window.page.get_by_label("Command", exact=True).fill("sh")
    await browser_window.find_part("start").click()
    await browser_window.find_part("terminal").click()
    size = browser_window.page.get_by_text(_SIZE).last
    await expect(size).to_be_visible()
    await expect(browser_window.find_button("Fit to this window")).to_have_count(0)
    columns, rows = (await size.inner_text()).split("×")
    await browser_window.type("stty size; pwd\r")

    await expect(browser_window.terminal_text).to_contain_text(f"{rows} {columns}")
    await expect(browser_window.terminal_text).to_contain_text(str(workspace))


async def test_who_comes_late_sees_the_screen_as_it_is(
    api_user: ApiUser, daemon: ManagedDaemon, browser_window: BrowserWindow, open_browser_window: OpenWindow, workspace: Path
) -> None:
    run_id = await api_user.start_program("sh -c 'printf \"\\033[31mred words\\033[0m\\n\"; exec cat'", workspace)
    await browser_window.open_run(run_id)
    await expect(browser_window.terminal_text).to_contain_text("red words")
    await browser_window.type("typed in one\r")
    await expect(browser_window.terminal_text).to_have_text(_wait_for_count(2, "typed in one"))

    other = await (await open_browser_window(daemon, dark=True)).log_in_as_owner()
    await other.open_run(run_id)
    await expect(other.terminal_text).to_contain_text("red words")
    await expect(other.terminal_text).to_have_text(_wait_for_count(2, "typed in one"))
    await browser_window.type("and seen in both\r")
    await expect(other.terminal_text).to_have_text(_wait_for_count(2, "and seen in both"))


async def test_a_phone_has_the_keys_that_its_keyboard_lacks(
    api_user: ApiUser, daemon: ManagedDaemon, open_browser_window: OpenWindow, workspace: Path
) -> None:
    run_id = await api_user.start_program("cat -v", workspace)
    window = await (await open_browser_window(daemon, size=PHONE)).log_in_as_owner()
    await window.open_run(run_id)
    keys = window.page.get_by_role("toolbar", name="Keys")
    await expect(keys).to_be_visible()
    await expect(window.page.get_by_text(_SIZE).last).to_be_visible()
    for name in ("Up", "y", "Enter"):
        await keys.get_by_role("button", name=name, exact=True).tap()
    await expect(window.terminal_text).to_contain_text("^[[Ay")
    assert await window.find_horizontal_overflow() == []
    await keys.get_by_role("button", name="Control C", exact=True).tap()
    await expect(window.page.get_by_text("The program has ended")).to_be_visible()


def _wait_for_count(count: int, text: str) -> "re.Pattern[str]":
    return re.compile(rf"^(?:(?!{text}).)*(?:{text}(?:(?!{text}).)*){{{count}}}$", re.DOTALL)
