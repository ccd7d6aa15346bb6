"""Long sessions, lost daemons, small screens."""

import signal
from pathlib import Path

import pytest
from tests.conformance.daemons import ManagedDaemon
from tests.conftest import StartDaemon
from tests.tui.seats import open_app

from switchtower.client import discovery
from switchtower.client.client import DaemonClient
from switchtower.protocols.push import messages
from switchtower.tui import event_reader


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
async def test_a_restarted_daemon_loses_neither_the_place_nor_a_word(
    dedicated_daemon: StartDaemon, workspace: Path, how: signal.Signals
) -> None:
    daemon = dedicated_daemon()
    async with open_app(daemon, workspace) as seat:
        await seat.write("say: before")
        await seat.wait_for_transcript_text("✓ done")
        session_id = seat.app.session.session_id if seat.app.session else ""
        daemon.stop(how)
        await seat.wait_for_text("daemon away")
        assert "before" in seat.read_transcript()
        daemon.start()
        await seat.wait_for_text("● connected")
        await seat.write("say: after")
        await seat.wait_until(lambda: seat.read_transcript().count("✓ done") == 2)
        assert seat.app.session is not None
        assert seat.app.session.session_id == session_id
        shown = seat.read_transcript()
        assert shown.count("▌ say: before") == shown.count("▌ say: after") == 1
        assert shown.index("before") < shown.index("after")


async def test_a_daemon_killed_in_the_middle_is_told_and_gone_on_with(dedicated_daemon: StartDaemon, workspace: Path) -> None:
    daemon = dedicated_daemon(demo_delay_ms=20)
    async with open_app(daemon, workspace) as seat:
        await seat.write("count 1000")
        await seat.wait_for_transcript_text("1 2 3")
        daemon.stop(signal.SIGKILL)
        daemon.start()
        await seat.wait_for_transcript_text("send a message to go on where it stopped")
        assert seat.app.session is not None
        assert not seat.app.session.is_running
        assert seat.read_transcript().count("1 2 3") == 1


async def test_a_long_session_opens_at_its_end_and_is_read_back_page_by_page(push_daemon: ManagedDaemon, workspace: Path) -> None:
    upto = 3 * event_reader.PAGE_SIZE
    async with open_app(push_daemon, workspace) as seat:
        client = await DaemonClient.connect(seat.app.settings, start=False)
        request = messages.StartSession("interactive", "demo", messages.Repo(str(workspace), "", ""), "local")
        session_id = (await client.start_session(request)).sessionId
        session = client.subscribe(session_id)
        await client.send_message(session_id, f"count {upto}")
        async for event in session.stream_events():
            if event.type == "run_complete":
                break
        client.close()

        await seat.app.opener.open_session(session_id)
        await seat.wait_for_transcript_text("✓ done")
        assert seat.app.session is not None
        transcript = seat.app.session.transcript
        assert transcript.first_seq > 2 * event_reader.PAGE_SIZE
        assert "▌ count" not in seat.read_transcript()
        while transcript.first_seq > 1:
            first = transcript.first_seq
            seat.app.main.transcript.action_oldest()
            await seat.wait_until(lambda first=first: transcript.first_seq < first)
        words = seat.read_transcript().split()
        numbers = [word for word in words if word.isdigit()]
        counted = [str(number) for number in range(1, upto + 1)]
        start = numbers.index("1", numbers.index(str(upto)))
        assert numbers[start : start + upto] == counted
        assert f"▌ count {upto}" in seat.read_transcript()


async def test_somebody_who_reads_back_is_not_pulled_to_the_end(slow_daemon: ManagedDaemon, workspace: Path) -> None:
    async with open_app(slow_daemon, workspace, size=(80, 24)) as seat:
        await seat.write("\n".join(f"say: line {number}" for number in range(60)) + "\ncount 500")
        view = seat.app.main.transcript
        await seat.wait_until(lambda: view.max_scroll_y > 20)
        await seat.press("pageup")
        await seat.wait_until(lambda: not view.is_at_end)
        place, height = view.scroll_offset.y, view.virtual_size.height
        await seat.wait_until(lambda: view.virtual_size.height > height)
        assert view.scroll_offset.y == place
        await seat.wait_for_text("more below")
        await seat.press("ctrl+end")
        await seat.wait_until(lambda: view.is_at_end)
        await seat.press("escape")
        await seat.wait_for_transcript_text("◌ cancelled")


async def test_a_small_screen_gives_the_room_to_the_conversation(push_daemon: ManagedDaemon, workspace: Path) -> None:
    async with open_app(push_daemon, workspace, size=(80, 24)) as seat:
        assert seat.app.main.is_list_visible
        await seat.write("say: hello")
        await seat.wait_for_transcript_text("✓ done")
        assert not seat.app.main.is_list_visible
        assert seat.app.main.transcript.size.width > 70
        await seat.press("ctrl+b")
        assert seat.app.main.is_list_visible
        await seat.press("escape")
        assert not seat.app.main.is_list_visible
        await seat.pilot.resize_terminal(200, 60)
        await seat.wait_until(lambda: seat.app.main.size.width == 200)
        seat.app.main.show_list(True)
        assert "hello" in seat.read_transcript()


async def test_a_tiny_screen_breaks_nothing(push_daemon: ManagedDaemon, workspace: Path) -> None:
    async with open_app(push_daemon, workspace, size=(12, 6)) as seat:
        await seat.write("say: hello")
        await seat.wait_until_idle()
        await seat.press("f1", "escape", "ctrl+b", "escape", "ctrl+t", "escape")
        await seat.pilot.resize_terminal(3, 2)
        await seat.pilot.resize_terminal(80, 24)
        await seat.wait_for_transcript_text("hello")


async def test_what_is_chosen_is_seen_without_colour(
    push_daemon: ManagedDaemon, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    async with open_app(push_daemon, workspace) as seat:
        await seat.write("/policy")
        await seat.wait_for_text("What may happen unasked?")
        styles = [segment.style for row in seat.app.screen._compositor.render_strips() for segment in row if segment.style]
        assert not [style for style in styles if not (style.color is None or style.color.is_default)]
        assert any(style.reverse for style in styles)


async def test_text_is_selected_with_the_mouse_and_copied(push_daemon: ManagedDaemon, workspace: Path) -> None:
    async with open_app(push_daemon, workspace) as seat:
        await seat.write("say: pick me")
        await seat.wait_for_transcript_text("✓ done")
        view = seat.app.main.transcript
        row = next(at for at, line in enumerate(seat.read_transcript().split("\n")) if line.startswith("pick me"))
        await seat.pilot.mouse_down(view, offset=(1, row))
        await seat.pilot.hover(view, offset=(8, row))
        await seat.pilot.mouse_up(view, offset=(8, row))
        await seat.press("ctrl+c")
        assert seat.app.clipboard == "pick me"


async def test_a_daemon_of_another_version_is_shown_as_a_notice(push_daemon: ManagedDaemon, workspace: Path) -> None:
    async with open_app(push_daemon, workspace) as seat:
        await seat.wait_for_text("● connected")
        discovery.compare_version("0.0.1-of-a-test")
        await seat.wait_for_notice("the daemon has version 0.0.1-of-a-test")
        await seat.wait_for_notice("`tower restart`")
