"""Programs in terminals, typed into from the page."""

import re
from pathlib import Path

import pytest
from tests.conformance.daemons import Daemon
from tests.web.conftest import OpenWindow
from tests.web.house import House
from tests.web.visiting import PHONE, Window, expect

pytestmark = pytest.mark.asyncio(loop_scope="session")

_SIZE = re.compile(r"^\d+×\d+$")


async def test_what_is_typed_reaches_the_program_and_comes_back(house: House, window: Window, workspace: Path) -> None:
    run_id = await house.program("cat", workspace)
    await window.go_to(run_id)
    await window.type("hello from the page\r")

    # Once by the terminal's echo, once by the program.
    await expect(window.terminal_text).to_have_text(_times(2, "hello from the page"))
    await window.page.keyboard.press("Control+d")
    await expect(window.page.get_by_text("The program has ended")).to_be_visible()


async def test_a_program_is_started_on_the_page_and_gets_the_windows_size(window: Window, workspace: Path) -> None:
    await window.go("#/new")
    await window.page.get_by_text("Program", exact=True).click()
    await window.page.get_by_label("Workspace", exact=True).fill(str(workspace))
    await window.page.get_by_label("Command", exact=True).fill("sh")
    await window.part("start").click()
    await window.part("terminal").click()
    size = window.page.get_by_text(_SIZE).last
    await expect(size).to_be_visible()
    await expect(window.button("Fit to this window")).to_have_count(0)
    columns, rows = (await size.inner_text()).split("×")
    await window.type("stty size; pwd\r")

    await expect(window.terminal_text).to_contain_text(f"{rows} {columns}")
    await expect(window.terminal_text).to_contain_text(str(workspace))


async def test_who_comes_late_sees_the_screen_as_it_is(
    house: House, daemon: Daemon, window: Window, open_window: OpenWindow, workspace: Path
) -> None:
    run_id = await house.program("sh -c 'printf \"\\033[31mred words\\033[0m\\n\"; exec cat'", workspace)
    await window.go_to(run_id)
    await expect(window.terminal_text).to_contain_text("red words")
    await window.type("typed in one\r")
    await expect(window.terminal_text).to_have_text(_times(2, "typed in one"))

    other = await (await open_window(daemon, dark=True)).come_in()
    await other.go_to(run_id)
    await expect(other.terminal_text).to_contain_text("red words")
    await expect(other.terminal_text).to_have_text(_times(2, "typed in one"))
    await window.type("and seen in both\r")
    await expect(other.terminal_text).to_have_text(_times(2, "and seen in both"))


async def test_a_phone_has_the_keys_that_its_keyboard_lacks(
    house: House, daemon: Daemon, open_window: OpenWindow, workspace: Path
) -> None:
    run_id = await house.program("cat -v", workspace)
    window = await (await open_window(daemon, size=PHONE)).come_in()
    await window.go_to(run_id)
    keys = window.page.get_by_role("toolbar", name="Keys")
    await expect(keys).to_be_visible()
    await expect(window.page.get_by_text(_SIZE).last).to_be_visible()
    for name in ("Up", "y", "Enter"):
        await keys.get_by_role("button", name=name, exact=True).tap()
    await expect(window.terminal_text).to_contain_text("^[[Ay")
    assert await window.scrolls_sideways() == []
    await keys.get_by_role("button", name="Control C", exact=True).tap()
    await expect(window.page.get_by_text("The program has ended")).to_be_visible()


def _times(count: int, text: str) -> "re.Pattern[str]":
    return re.compile(rf"^(?:(?!{text}).)*(?:{text}(?:(?!{text}).)*){{{count}}}$", re.DOTALL)
