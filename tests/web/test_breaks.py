"""Lines that break and daemons that die: the page says so, comes back by itself, and has everything once."""

import asyncio
import signal
from pathlib import Path

import pytest
from tests.conformance.daemons import Daemon
from tests.conftest import StartDaemon
from tests.relay.stage import Place, Stage
from tests.web.conftest import OpenWindow
from tests.web.house import House
from tests.web.visiting import Window, expect

pytestmark = pytest.mark.asyncio(loop_scope="session")

MANY = 3_000


async def test_after_a_kill_the_page_catches_up_without_a_reload_and_has_every_word_once(
    page_folder: Path, own_daemon: StartDaemon, open_window: OpenWindow, workspace: Path
) -> None:
    daemon = own_daemon(web_dir=page_folder, demo_delay_ms=5)
    daemon.settings["http"] = daemon.http.removeprefix("http://")  # the same port in its next life
    async with House(daemon) as house:
        session_id = await house.agent(workspace)
        window = await (await open_window(daemon)).come_in()
        await window.go_to(session_id)
        await _mark(window)
        await window.say(f"count {MANY}")
        await window.said("20 21 22")
    await asyncio.to_thread(daemon.stop, signal.SIGKILL)
    await expect(window.part("offline")).to_be_visible()
    seen_before = await _words(window)

    await asyncio.to_thread(daemon.start)
    await _hurry(window)
    await expect(window.part("offline")).to_have_count(0)
    await window.say("say: back again")
    await window.said("back again")

    assert await _is_marked(window), "the page was not loaded anew"
    counted = await _words(window)
    assert counted == [str(number) for number in range(1, len(counted) + 1)]
    assert counted[: len(seen_before)] == seen_before, "nothing that was seen is unsaid"
    assert counted == _journalled(daemon, session_id)
    await expect(window.part("user-message")).to_have_text([f"count {MANY}", "say: back again"])


async def test_a_cut_line_says_so_and_what_came_meanwhile_is_there_once(
    page_folder: Path, start_daemon: StartDaemon, stage: Stage, open_window: OpenWindow, workspace: Path
) -> None:
    daemon = start_daemon(web_dir=page_folder, demo_delay_ms=15)
    stage.hub = Place(daemon.home)
    wire = await stage.wire()
    async with House(daemon) as house:
        session_id = await house.agent(workspace)
        window = await (await open_window(daemon, url=wire.url)).come_in()
        await window.go_to(session_id)
        await _mark(window)
        await window.say("count 200")
        await window.said("5 6 7")
        wire.refusing = True
        wire.cut()
        await house.told(session_id, "run_complete")
        await expect(window.part("offline")).to_contain_text("Not connected")

        wire.refusing = False
        await _hurry(window)
        await expect(window.part("offline")).to_have_count(0)
        await expect(window.part("assistant-message")).to_have_text(" ".join(str(number) for number in range(1, 201)))
        await expect(window.part("send")).to_be_attached()
        assert await _is_marked(window)


async def test_a_page_opened_while_the_daemon_is_away_goes_on_when_it_is_there(
    page_folder: Path, own_daemon: StartDaemon, open_window: OpenWindow
) -> None:
    daemon = own_daemon(web_dir=page_folder)
    daemon.settings["http"] = daemon.http.removeprefix("http://")
    window = await (await open_window(daemon)).come_in()
    await window.page.evaluate("() => navigator.serviceWorker.ready.then(() => true)")
    await asyncio.to_thread(daemon.stop)
    await window.page.reload()
    await expect(window.page.get_by_role("alert")).to_contain_text("The daemon does not answer")

    await asyncio.to_thread(daemon.start)
    await expect(window.page.get_by_role("navigation", name="Main")).to_be_visible()


async def _hurry(window: Window) -> None:
    """What a browser says when its network is there again. The page would come back without, only later."""
    await window.page.evaluate("() => window.dispatchEvent(new Event('online'))")


async def _mark(window: Window) -> None:
    await window.page.evaluate("() => { window.__stayed = true }")


async def _is_marked(window: Window) -> bool:
    return bool(await window.page.evaluate("() => window.__stayed === true"))


async def _words(window: Window) -> list[str]:
    return (await window.part("assistant-message").first.inner_text()).split()


def _journalled(daemon: Daemon, session_id: str) -> list[str]:
    """What the journal has of the first answer."""
    from switchtower.core import codec, events

    told = [codec.decode(entry.kind, entry.data) for entry in Place(daemon.home).entries(session_id)]
    said = "".join(event.text for event in told if isinstance(event, events.TextDelta))
    return said.removesuffix("back again").split()
