"""Lines that break and daemons that die: the page says so, comes back by itself, and has everything once."""

import asyncio
import signal
from pathlib import Path

import pytest
from tests.conformance.daemons import ManagedDaemon
from tests.conftest import StartDaemon
from tests.relay.stage import DaemonView, RelayNetwork
from tests.web.conftest import OpenWindow
from tests.web.house import ApiUser
from tests.web.visiting import BrowserWindow, expect

pytestmark = pytest.mark.asyncio(loop_scope="session")

MANY = 3_000


async def test_after_a_kill_the_page_catches_up_without_a_reload_and_has_every_word_once(
    page_folder: Path, dedicated_daemon: StartDaemon, open_browser_window: OpenWindow, workspace: Path
) -> None:
    daemon = dedicated_daemon(web_dir=page_folder, demo_delay_ms=5)
    daemon.settings["http"] = daemon.http.removeprefix("http://")  # the same port in its next life
    async with ApiUser(daemon) as house:
        session_id = await house.start_agent(workspace)
        window = await (await open_browser_window(daemon)).log_in_as_owner()
        await window.open_run(session_id)
        await _mark(window)
        await window.send_text(f"count {MANY}")
        await window.wait_for_text("20 21 22")
    await asyncio.to_thread(daemon.stop, signal.SIGKILL)
    await expect(window.find_part("offline")).to_be_visible()
    seen_before = await _read_words(window)

    await asyncio.to_thread(daemon.start)
    await _trigger_online(window)
    await expect(window.find_part("offline")).to_have_count(0)
    await window.send_text("say: back again")
    await window.wait_for_text("back again")

    assert await _is_marked(window), "the page was not loaded anew"
    counted = await _read_words(window)
    assert counted == [str(number) for number in range(1, len(counted) + 1)]
    assert counted[: len(seen_before)] == seen_before, "nothing that was seen is unsaid"
    assert counted == _read_journal(daemon, session_id)
    await expect(window.find_part("user-message")).to_have_text([f"count {MANY}", "say: back again"])


async def test_a_cut_line_says_so_and_what_came_meanwhile_is_there_once(
    page_folder: Path, start_daemon: StartDaemon, relay_network: RelayNetwork, open_browser_window: OpenWindow, workspace: Path
) -> None:
    daemon = start_daemon(web_dir=page_folder, demo_delay_ms=15)
    relay_network.hub = DaemonView(daemon.home)
    wire = await relay_network.open_proxy()
    async with ApiUser(daemon) as house:
        session_id = await house.start_agent(workspace)
        window = await (await open_browser_window(daemon, url=wire.url)).log_in_as_owner()
        await window.open_run(session_id)
        await _mark(window)
        await window.send_text("count 200")
        await window.wait_for_text("5 6 7")
        wire.refusing = True
        wire.cut()
        await house.wait_for_event(session_id, "run_complete")
        await expect(window.find_part("offline")).to_contain_text("Not connected")

        wire.refusing = False
        await _trigger_online(window)
        await expect(window.find_part("offline")).to_have_count(0)
        await expect(window.find_part("assistant-message")).to_have_text(" ".join(str(number) for number in range(1, 201)))
        await expect(window.find_part("send")).to_be_attached()
        assert await _is_marked(window)


async def test_a_page_opened_while_the_daemon_is_away_goes_on_when_it_is_there(
    page_folder: Path, dedicated_daemon: StartDaemon, open_browser_window: OpenWindow
) -> None:
    daemon = dedicated_daemon(web_dir=page_folder)
    daemon.settings["http"] = daemon.http.removeprefix("http://")
    window = await (await open_browser_window(daemon)).log_in_as_owner()
    await window.page.evaluate("() => navigator.serviceWorker.ready.then(() => true)")
    await asyncio.to_thread(daemon.stop)
    await window.page.reload()
    await expect(window.page.get_by_role("alert")).to_contain_text("The daemon does not answer")

    await asyncio.to_thread(daemon.start)
    await expect(window.page.get_by_role("navigation", name="Main")).to_be_visible()


async def _trigger_online(window: BrowserWindow) -> None:
    """What a browser says when its network is there again. The page would come back without, only later."""
    await window.page.evaluate("() => window.dispatchEvent(new Event('online'))")


async def _mark(window: BrowserWindow) -> None:
    await window.page.evaluate("() => { window.__stayed = true }")


async def _is_marked(window: BrowserWindow) -> bool:
    return bool(await window.page.evaluate("() => window.__stayed === true"))


async def _read_words(window: BrowserWindow) -> list[str]:
    return (await window.find_part("assistant-message").first.inner_text()).split()


def _read_journal(daemon: ManagedDaemon, session_id: str) -> list[str]:
    """What the journal has of the first answer."""
    from switchtower.core import codec, events

    told = [codec.decode(entry.kind, entry.data) for entry in DaemonView(daemon.home).list_entries(session_id)]
    said = "".join(event.text for event in told if isinstance(event, events.TextDelta))
    return said.removesuffix("back again").split()
