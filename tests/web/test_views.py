"""What surrounds a conversation: hosts, files, changes, flows, the audit log, search."""

from pathlib import Path

import pytest
from tests.conformance.daemons import ManagedDaemon
from tests.flows import flowing
from tests.relay.stage import DaemonView, RelayNetwork
from tests.web.conftest import OpenWindow
from tests.web.house import ApiUser, make_repository
from tests.web.visiting import BrowserWindow, expect

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_a_real_host_is_seen_to_come_to_work_and_to_go(
    api_user: ApiUser, daemon: ManagedDaemon, relay_network: RelayNetwork, open_browser_window: OpenWindow
) -> None:
    relay_network.hub = DaemonView(daemon.home)
    host = await relay_network.start_host("box")
    await relay_network.wait_online(host.host_id)
    window = await (await open_browser_window(daemon)).log_in_as_owner("#/hosts")
    row = window.find_part("host-row", has_text=host.host_id)
    await expect(row).to_contain_text("online")
    await row.click()
    await expect(window.page.get_by_role("heading", name="box")).to_be_visible()
    await expect(window.page.get_by_text("System")).to_be_visible()

    run_id = await api_user.start_program("cat", host.workspace, host=host.host_id)
    await window.open_run(run_id)
    await window.type("typed from afar\r")
    await expect(window.terminal_text).to_contain_text("typed from afartyped from afar")

    host.kill()
    await window.navigate("#/hosts")
    await window.page.reload()
    await expect(row).to_contain_text("away")


async def test_files_of_a_workspace_are_browsed_read_and_searched(
    api_user: ApiUser, browser_window: BrowserWindow, workspace: Path
) -> None:
    (workspace / "src").mkdir()
    (workspace / "src" / "app.py").write_text("def main() -> None:\n    print('needle')\n")
    session_id = await api_user.start_agent(workspace)
    await browser_window.open_run(session_id, "files")
    files = browser_window.page.get_by_role("complementary", name="Files")
    await files.get_by_text("README.md").click()
    await expect(browser_window.find_part("file-content")).to_have_text("# A workspace\nwith two lines\n")

    await files.get_by_text("src", exact=True).click()
    await files.get_by_text("app.py").click()
    await expect(browser_window.find_part("file-content")).to_contain_text("print('needle')")
    await expect(browser_window.find_part("file-content").locator("span").first).to_be_attached()  # it is coloured

    await files.get_by_placeholder("Search in files").fill("needle")
    await files.get_by_placeholder("Search in files").press("Enter")
    await expect(files.get_by_text("src/app.py:2")).to_be_visible()


async def test_changes_are_shown_as_git_sees_them(api_user: ApiUser, browser_window: BrowserWindow, workspace: Path) -> None:
    await make_repository(workspace, branch="feature/signals")
    (workspace / "README.md").write_text("# A workspace\nwith two other lines\n")
    (workspace / "new.txt").write_text("brand new\n")
    session_id = await api_user.start_agent(workspace)
    await browser_window.open_run(session_id, "changes")

    await expect(browser_window.page.get_by_role("heading", name="feature/signals")).to_be_visible()
    diff = browser_window.page.get_by_role("group", name="Lines of README.md")
    await expect(diff).to_contain_text("with two lines")
    await expect(diff).to_contain_text("with two other lines")
    await browser_window.page.get_by_role("button", name="new.txt").click()
    await expect(browser_window.page.get_by_role("group", name="Lines of new.txt")).to_contain_text("brand new")


async def test_a_flow_is_drawn_and_its_steps_follow_what_happens(
    api_user: ApiUser, browser_window: BrowserWindow, workspace: Path
) -> None:
    flow = flowing.make_chain(
        flowing.make_shell_step("prepare", "echo ready"),
        flowing.make_node("decide", "approval", title="Publish it?", message="It cannot be taken back"),
        flowing.make_counting_step("publish"),
    )
    session_id = await flowing.start(api_user.push, workspace, flow)
    await browser_window.open_run(session_id)
    steps = browser_window.find_part("flow-node")
    await expect(steps).to_have_count(3)
    prepare, decide, publish = (browser_window.page.locator(f'[data-step="{name}"]') for name in ("prepare", "decide", "publish"))
    await expect(prepare).to_have_attribute("data-state", "succeeded")
    await expect(decide).to_have_attribute("data-state", "asks")
    await expect(publish).to_have_attribute("data-state", "waiting")

    await browser_window.find_part("decision").get_by_role("button", name="Approve").click()
    await expect(publish).to_have_attribute("data-state", "succeeded")
    await prepare.click()
    await expect(browser_window.find_part("flow-step")).to_contain_text("prepare")
    assert (workspace / "publish.txt").read_text() == "ran\n"


async def test_the_audit_log_says_who_decided_what(api_user: ApiUser, browser_window: BrowserWindow, workspace: Path) -> None:
    session_id, _ = await api_user.start_waiting_session(workspace, "run: echo audited", title="Seen in the audit log")
    await browser_window.open_run(session_id)
    await browser_window.find_part("decision").get_by_role("button", name="Approve").click()
    await api_user.wait_for_event(session_id, "run_complete")
    await browser_window.navigate("#/admin/audit")

    row = browser_window.page.get_by_role("row").filter(has_text="Seen in the audit log")
    await expect(row).to_contain_text("approved")
    await expect(row).to_contain_text("echo audited")


async def test_the_list_is_live_and_searchable(api_user: ApiUser, browser_window: BrowserWindow, workspace: Path) -> None:
    session_id = await api_user.start_agent(workspace, title="A needle among sessions")
    other = await api_user.start_agent(workspace, title="Hay")
    await expect(browser_window.find_row(session_id)).to_contain_text("A needle among sessions")
    await expect(browser_window.find_row(other)).to_be_visible()
    await browser_window.page.keyboard.press("/")
    await browser_window.page.keyboard.type("needle")
    await expect(browser_window.find_row(other)).to_have_count(0)
    await browser_window.page.keyboard.press("Enter")
    await expect(browser_window.find_part("session-title")).to_have_text("A needle among sessions")

    await api_user.rename(session_id, "Renamed from elsewhere")
    await browser_window.page.reload()
    await expect(browser_window.find_part("session-title")).to_have_text("Renamed from elsewhere")
