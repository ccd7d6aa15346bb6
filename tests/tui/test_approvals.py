"""Approvals: the open session shows exactly what will run, the others wait in the inbox, and no key decides by accident."""

from pathlib import Path

from tests.conformance.daemons import ManagedDaemon
from tests.conftest import StartDaemon
from tests.tui import people, told
from tests.tui.seats import AppDriver, open_app
from textual.app import App

from switchtower.client.client import DaemonClient
from switchtower.protocols.push import messages
from switchtower.tui.screens.approvals import ApprovalScreen, InboxScreen
from switchtower.tui.screens.dialogs import DialogScreen

# In what is added, the file's own end is told too.
WRITE = "write notes.txt: hello"


async def start_other_session(app_driver: AppDriver, workspace: Path, text: str) -> tuple[DaemonClient, str]:
    """Somebody else starts a session on the same daemon."""
    client = await DaemonClient.connect(app_driver.app.settings, start=False)
    request = messages.StartSession("interactive", "demo", messages.Repo(str(workspace), "", ""), "local")
    session_id = (await client.start_session(request)).sessionId
    await client.send_message(session_id, text)
    return client, session_id


async def test_yes_lets_exactly_what_was_shown_happen(push_daemon: ManagedDaemon, workspace: Path) -> None:
    async with open_app(push_daemon, workspace) as seat:
        await seat.write(WRITE)
        await seat.wait_for_approval()
        assert "+hello" in seat.read_screen()
        assert "notes.txt" in seat.read_screen()
        assert "left" in seat.read_screen()
        assert not (workspace / "notes.txt").exists()
        await seat.press("y")
        await seat.wait_for_transcript_text("approved by cli")
        await seat.wait_until_idle()
        assert (workspace / "notes.txt").read_text() == "hello"


async def test_no_tells_the_reason_and_the_run_goes_on(push_daemon: ManagedDaemon, workspace: Path) -> None:
    async with open_app(push_daemon, workspace) as seat:
        await seat.write(WRITE)
        await seat.wait_for_approval()
        await seat.press("n", *"use a.txt", "enter")
        await seat.wait_for_transcript_text("✓ done")
        assert "denied: use a.txt" in seat.read_transcript()
        assert not (workspace / "notes.txt").exists()


async def test_deny_stops_the_run(push_daemon: ManagedDaemon, workspace: Path) -> None:
    async with open_app(push_daemon, workspace) as seat:
        await seat.write(WRITE)
        await seat.wait_for_approval()
        await seat.press("d")
        await seat.wait_for_transcript_text("✗ denied")


async def test_always_shows_its_rule_and_asks_no_second_time(push_daemon: ManagedDaemon, workspace: Path) -> None:
    async with open_app(push_daemon, workspace) as seat:
        await seat.write(WRITE)
        await seat.wait_for_approval()
        assert "always for this session: allow write_file notes.txt" in seat.read_screen()
        await seat.press("a")
        assert not (workspace / "notes.txt").exists()
        await seat.press("ctrl+y")
        await seat.wait_for_transcript_text("✓ done")
        await seat.write("write notes.txt: again")
        await seat.wait_until(lambda: (workspace / "notes.txt").read_text() == "again")
        assert seat.app.screen is seat.app.main


async def test_later_leaves_it_in_the_inbox(push_daemon: ManagedDaemon, workspace: Path) -> None:
    async with open_app(push_daemon, workspace) as seat:
        await seat.write(WRITE)
        await seat.wait_for_approval()
        await seat.press("escape")
        assert seat.app.screen is seat.app.main
        await seat.wait_for_text("1 waiting")
        await seat.press("ctrl+t")
        assert isinstance(seat.app.screen, InboxScreen)
        await seat.press("enter")
        await seat.wait_for_approval()
        await seat.press("y")
        await seat.wait_for_transcript_text("✓ done")


async def test_an_approval_of_another_session_raises_the_badge_and_the_inbox_only(
    dedicated_daemon: StartDaemon, workspace: Path
) -> None:
    async with open_app(dedicated_daemon(), workspace) as seat:
        client, _ = await start_other_session(seat, workspace, WRITE)
        await seat.wait_for_text("1 waiting")
        assert seat.app.screen is seat.app.main
        await seat.press("ctrl+t")
        assert isinstance(seat.app.screen, InboxScreen)
        await seat.press("enter")
        screen = await seat.wait_for_approval()
        assert screen.pending.session_name == WRITE
        await seat.press("y")
        await seat.wait_until((workspace / "notes.txt").exists)
        client.close()


async def test_what_another_client_decides_is_not_asked_any_more(push_daemon: ManagedDaemon, workspace: Path) -> None:
    async with open_app(push_daemon, workspace) as seat:
        await seat.write(WRITE)
        pending = (await seat.wait_for_approval()).pending
        client = await DaemonClient.connect(seat.app.settings, start=False)
        await client.decide_approval(pending.session_id, pending.run_id, pending.id, "deny")
        await seat.wait_until(lambda: seat.app.screen is seat.app.main)
        assert not seat.app.inbox.pending
        client.close()


async def test_keys_that_were_meant_for_something_else_do_not_decide(push_daemon: ManagedDaemon, workspace: Path) -> None:
    async with open_app(push_daemon, workspace, quiet=3_600) as seat:
        await seat.write(WRITE)
        await seat.wait_for_approval()
        await seat.press(*"yes and always deny", "escape")
        assert seat.app.screen.id == "approval-screen"
        assert not (workspace / "notes.txt").exists()
        # A click is no accident.
        await seat.pilot.click("#stop")
        await seat.wait_for_transcript_text("✗ denied")


async def test_a_question_that_expires_goes_away_and_says_so(start_daemon: StartDaemon, workspace: Path) -> None:
    async with open_app(start_daemon(approval_timeout=1.0), workspace) as seat:
        await seat.write(WRITE)
        await seat.wait_for_transcript_text("nobody decided in time")
        await seat.wait_until(lambda: seat.app.screen is seat.app.main)
        assert not seat.app.inbox.pending


async def test_the_agent_asks_and_is_answered(push_daemon: ManagedDaemon, workspace: Path) -> None:
    async with open_app(push_daemon, workspace) as seat:
        await seat.write("ask: which fruit? | apple | pear")
        await seat.wait_until(lambda: isinstance(seat.app.screen, DialogScreen))
        assert "which fruit?" in seat.read_screen()
        await seat.press("down", "enter")
        await seat.wait_for_transcript_text("✓ done")
        assert "pear" in seat.read_transcript()


async def test_what_can_only_be_denied_is_not_approved_by_any_key() -> None:
    kind, payload = told.make_approval(command="ls", cannot_approve="the command is cut off")
    pending = people.make_inbox_item(told.make_event(1, kind, {**payload, "options": ["deny"]}))
    screen = ApprovalScreen(pending, now_ms=lambda: told.T0, quiet=0)

    class Host(App[None]):
        CSS = "$muted: grey;"

        def on_mount(self) -> None:
            self.push_screen(screen)

    async with Host().run_test() as pilot:
        await pilot.pause()
        assert not screen.query("#yes")
        assert not screen.query("#always")
        await pilot.press("y", "a", "ctrl+y")
        assert pilot.app.screen is screen
