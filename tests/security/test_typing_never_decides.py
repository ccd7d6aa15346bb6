"""The terminal UI cannot be tricked into deciding: keys of a text decide nothing, wherever an approval appears."""

from pathlib import Path

import pytest
from tests.conformance.daemons import ManagedDaemon
from tests.conftest import StartDaemon
from tests.tui.seats import AppDriver, open_app
from tests.tui.test_approvals import WRITE, start_other_session

from switchtower.tui.screens.approvals import ApprovalScreen
from switchtower.tui.screens.dialogs import HelpScreen


@pytest.fixture
def dedicated_tui_daemon(dedicated_daemon: StartDaemon) -> ManagedDaemon:
    """What waits there was asked by this test."""
    return dedicated_daemon()


NEVER = 3_600.0
"""A quiet time that never ends by itself: the test arms the screen where a person would have waited."""
DELETE = "run: rm -rf build"


async def wait_until_armed(app_driver: AppDriver) -> ApprovalScreen:
    screen = await app_driver.wait_for_approval()
    assert isinstance(screen, ApprovalScreen)
    screen.arm()
    return screen


async def open_session_asks(app_driver: AppDriver, draft: str) -> None:
    """The open session needs an approval while the composer holds a draft."""
    await app_driver.write("say: hello")
    await app_driver.wait_until_idle()
    assert app_driver.app.session is not None
    app_driver.app.main.composer.set_text(draft)
    await app_driver.app.feed.send_message(app_driver.app.session.session_id, WRITE)
    await app_driver.wait_for_text("1 waiting")


async def test_typing_into_a_draft_decides_nothing_in_another_session(
    dedicated_tui_daemon: ManagedDaemon, workspace: Path
) -> None:
    """The reported accident: a pause while writing, an approval of another session, and the `a` of the next word."""
    async with open_app(dedicated_tui_daemon, workspace) as seat:
        await seat.press(*"Plea")
        client, _ = await start_other_session(seat, workspace, WRITE)
        await seat.wait_for_text("1 waiting")
        await seat.press(*"se add yes")
        assert seat.app.main.composer.text == "Please add yes"
        assert seat.app.screen is seat.app.main
        assert not (workspace / "notes.txt").exists()
        client.close()


async def test_a_draft_holds_back_the_approval_of_the_open_session(dedicated_tui_daemon: ManagedDaemon, workspace: Path) -> None:
    async with open_app(dedicated_tui_daemon, workspace) as seat:
        await open_session_asks(seat, "Please ")
        await seat.wait_for_text("needs approval: Ctrl-T")
        await seat.press(*"yes")
        assert seat.app.screen is seat.app.main
        assert seat.app.main.composer.text == "Please yes"
        assert not (workspace / "notes.txt").exists()
        seat.app.main.composer.set_text("")
        await seat.wait_for_approval()


async def test_an_approval_that_is_opened_over_a_draft_takes_the_draft_out_and_gives_it_back(
    dedicated_tui_daemon: ManagedDaemon, workspace: Path
) -> None:
    async with open_app(dedicated_tui_daemon, workspace) as seat:
        await open_session_asks(seat, "not yet")
        await seat.press("ctrl+t", "enter")
        await seat.wait_for_approval()
        assert seat.app.main.composer.text == ""
        await seat.press("escape")
        await seat.wait_until(lambda: seat.app.main.composer.text == "not yet")


async def test_nothing_is_asked_over_another_screen(dedicated_tui_daemon: ManagedDaemon, workspace: Path) -> None:
    async with open_app(dedicated_tui_daemon, workspace) as seat:
        await seat.write("say: hello")
        await seat.wait_until_idle()
        await seat.press("f1")
        assert seat.app.session is not None
        await seat.app.feed.send_message(seat.app.session.session_id, WRITE)
        await seat.wait_until(lambda: len(seat.app.inbox) == 1)
        assert isinstance(seat.app.screen, HelpScreen)
        await seat.press("escape")
        await seat.wait_for_approval()


async def test_a_key_that_decides_nothing_disarms_the_screen(dedicated_tui_daemon: ManagedDaemon, workspace: Path) -> None:
    async with open_app(dedicated_tui_daemon, workspace, quiet=NEVER) as seat:
        await seat.write(WRITE)
        screen = await wait_until_armed(seat)
        await seat.press("p", "y", "d", "ctrl+y")
        assert seat.app.screen is screen
        assert "keys are off" in seat.read_screen()
        assert not (workspace / "notes.txt").exists()


@pytest.mark.parametrize("word", ["yes", "no", "add", "don't"])
async def test_the_first_letter_of_a_word_decides_nothing(
    dedicated_tui_daemon: ManagedDaemon, workspace: Path, word: str
) -> None:
    async with open_app(dedicated_tui_daemon, workspace, quiet=NEVER) as seat:
        await seat.write(WRITE)
        screen = await wait_until_armed(seat)
        await seat.press(*word)
        assert seat.app.screen is screen
        assert screen.query_one("#approval-keys").display
        assert not screen.query_one("#approval-why").display
        assert not (workspace / "notes.txt").exists()


@pytest.mark.parametrize("second", ["a", "y", "enter", "space"])
async def test_always_needs_a_second_and_different_key(dedicated_tui_daemon: ManagedDaemon, workspace: Path, second: str) -> None:
    async with open_app(dedicated_tui_daemon, workspace) as seat:
        await seat.write(WRITE)
        screen = await seat.wait_for_approval()
        await seat.press("a", second)
        assert seat.app.screen is screen
        assert not (workspace / "notes.txt").exists()
        await seat.press("ctrl+y")
        await seat.wait_until((workspace / "notes.txt").exists)


async def test_a_destructive_approval_needs_a_second_and_different_key(
    dedicated_tui_daemon: ManagedDaemon, workspace: Path
) -> None:
    (workspace / "build").mkdir()
    async with open_app(dedicated_tui_daemon, workspace) as seat:
        await seat.write(DELETE)
        screen = await seat.wait_for_approval()
        await seat.press("y", "y", "enter")
        assert seat.app.screen is screen
        assert (workspace / "build").exists()
        await seat.press("escape")
        assert seat.app.screen is screen, "Esc goes back from the confirmation first"
        await seat.press("y", "ctrl+y")
        await seat.wait_until(lambda: not (workspace / "build").exists())


async def test_a_destructive_approval_needs_a_second_click_at_another_place(
    dedicated_tui_daemon: ManagedDaemon, workspace: Path
) -> None:
    (workspace / "build").mkdir()
    async with open_app(dedicated_tui_daemon, workspace) as seat:
        await seat.write(DELETE)
        screen = await seat.wait_for_approval()
        place = screen.query_one("#yes").region.offset
        await seat.pilot.click("#yes")
        await seat.pilot.click(offset=(place.x + 1, place.y))
        assert (workspace / "build").exists()
        assert seat.app.screen is screen
        await seat.pilot.click("#yes")
        await seat.pilot.click("#confirm")
        await seat.wait_until(lambda: not (workspace / "build").exists())


async def test_esc_twice_does_not_cancel_the_run(dedicated_tui_daemon: ManagedDaemon, workspace: Path) -> None:
    async with open_app(dedicated_tui_daemon, workspace) as seat:
        await seat.write(WRITE)
        await seat.wait_for_approval()
        await seat.press("escape", "escape")
        await seat.wait_for_notice("Esc again cancels the run")
        assert seat.app.session is not None
        assert seat.app.session.is_running
        assert len(seat.app.inbox) == 1
        await seat.press("escape")
        await seat.wait_for_transcript_text("cancelled")
